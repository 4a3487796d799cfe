//! Meshes in Rust, with ranks on threads, and meshes of ranks of several languages. Expected values
//! come from arithmetic, and from torch's documents.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::task::Poll;
use std::thread;

use polyrank::device_mesh::{
    DimensionBackend, MeshDim, MeshOptions, current_device_mesh, extend_device_mesh,
    init_device_mesh, with_device_mesh, with_device_mesh_async,
};
use polyrank::store::{HashStore, Store};
use polyrank::{DeviceMesh, Error, GroupOptions, ProcessGroup};
use polyrank_tests::LIMIT;
use polyrank_tests::languages::{Language, MESHES, every_rank_says};

use Language::{Browser, Node, Python, Rust};

/// Runs `rank_main` on `size` ranks, each a thread with a group of all of them.
fn ranks<R: Send>(size: u32, rank_main: impl Fn(&ProcessGroup) -> R + Sync) -> Vec<R> {
    let (store, rank_main) = (Arc::new(HashStore::new()), &rank_main);
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let store: Arc<dyn Store> = store.clone();
                scope.spawn(move || {
                    let options = GroupOptions::default().timeout(LIMIT);
                    let group = ProcessGroup::new(store, rank, size, "world", options).unwrap();
                    let result = rank_main(&group);
                    let _ = group.shutdown();
                    result
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn of(group: &ProcessGroup, names: &[&str]) -> MeshOptions {
    let options = MeshOptions::default().group(group.clone());
    if names.is_empty() { options } else { options.names(names.iter().copied()) }
}

/// Whether the groups of a mesh have the lines of an array of these ranks, and reduce so.
fn check(mesh: &DeviceMesh, rank: u32, shape: &[u32], ranks: &[u32]) {
    assert_eq!((mesh.shape(), mesh.ranks(), mesh.ndim()), (shape, ranks, shape.len()));
    assert_eq!(mesh.size(()).unwrap(), ranks.len() as u32);
    assert_eq!(mesh.rank().unwrap(), rank);
    let Some(place) = ranks.iter().position(|&other| other == rank) else {
        assert_eq!(mesh.coordinate(), None);
        let error = mesh.group(0).unwrap_err();
        assert!(matches!(error, Error::InvalidGroup { .. }), "{error:?}");
        assert!(error.to_string().contains(&format!("rank {rank} is not in the mesh")), "{error}");
        return;
    };
    let mut coordinate = Vec::new();
    for (dim, &length) in shape.iter().enumerate() {
        let step: usize = shape[dim + 1..].iter().product::<u32>() as usize;
        let index = place / step % length as usize;
        let line: Vec<u32> =
            (0..length as usize).map(|at| ranks[place + at * step - index * step]).collect();
        let group = mesh.group(dim as i32).unwrap();
        assert_eq!(group.ranks(), line);
        assert_eq!(mesh.local_rank(dim as i32 - shape.len() as i32).unwrap(), index as u32);
        assert_eq!(mesh.size(dim as i32).unwrap(), length);
        let mut total = [rank + 1];
        group.allreduce(&mut total, ()).unwrap();
        assert_eq!(total[0], line.iter().map(|rank| rank + 1).sum::<u32>());
        coordinate.push(index as u32);
    }
    assert_eq!(mesh.coordinate(), Some(&coordinate[..]));
}

fn up_to(count: u32) -> Vec<u32> {
    (0..count).collect()
}

#[test]
fn meshes_of_a_shape() {
    let shapes: [(u32, &[&[u32]]); 6] = [
        (1, &[&[1], &[1, 1, 1]]),
        (2, &[&[2], &[2, 1], &[1, 2]]),
        (3, &[&[3], &[1, 3, 1]]),
        (4, &[&[4], &[2, 2], &[3]]),
        (5, &[&[5], &[2, 2], &[1, 1, 5]]),
        (8, &[&[2, 4], &[4, 2], &[2, 2, 2], &[1, 7]]),
    ];
    for (size, shapes) in shapes {
        ranks(size, |group| {
            for &shape in shapes {
                let mesh = init_device_mesh("cpu", shape, of(group, &[])).unwrap();
                check(&mesh, group.rank(), shape, &up_to(shape.iter().product()));
            }
        });
    }
}

#[test]
fn meshes_of_any_ranks() {
    for size in [3, 4, 5, 8] {
        ranks(size, |group| {
            // Without rank 0, and with the last ranks first.
            let some: Vec<u32> = (1..size).rev().collect();
            for shape in [vec![size - 1], vec![1, size - 1], vec![size - 1, 1]] {
                let mesh = DeviceMesh::new("cpu", &shape, &some, of(group, &[])).unwrap();
                check(&mesh, group.rank(), &shape, &some);
            }
        });
    }
}

#[test]
fn parts_and_flattened_dimensions_are_those_that_torch_documents() {
    ranks(8, |group| {
        let rank = group.rank();
        let mesh = init_device_mesh("cpu", &[2, 2, 2], of(group, &["dp", "pp", "cp"])).unwrap();
        let part = mesh.slice(["dp", "cp"]).unwrap();
        let expected = if [0, 1, 4, 5].contains(&rank) { [0, 1, 4, 5] } else { [2, 3, 6, 7] };
        check(&part, rank, &[2, 2], &expected);
        assert_eq!(part.names().unwrap(), ["dp", "cp"]);
        assert_eq!((part.root(), part.slice(["cp"]).unwrap().root()), (mesh.clone(), mesh.clone()));
        let flat = part.flatten(None).unwrap();
        check(&flat, rank, &[4], &expected);
        assert_eq!(mesh.slice(["dp_cp"]).unwrap(), flat);
        let place = expected.iter().position(|&it| it == rank).unwrap() as u32;
        for whole in [&mesh, &part, &flat, &mesh.slice(["pp"]).unwrap()] {
            let group = whole.group("dp_cp").unwrap();
            assert_eq!(group.group_name(), flat.group(()).unwrap().group_name());
            assert_eq!(whole.local_rank("dp_cp").unwrap(), place);
            assert_eq!(whole.size("dp_cp").unwrap(), 4);
        }
        for names in [&["cp", "dp"][..], &["dp", "dp"], &[], &["dp_cp", "dp"], &["ep"]] {
            let error = mesh.slice(names).unwrap_err();
            assert!(matches!(error, Error::MeshDimension { .. }), "{names:?}: {error:?}");
        }
    });
}

#[test]
fn a_mesh_that_differs_between_ranks_is_an_error_on_all() {
    for size in [2, 3, 5] {
        let last = size - 1;
        let errors = ranks(size, |group| {
            let is_last = group.rank() == last;
            let shape: &[u32] = if is_last { &[size, 1] } else { &[1, size] };
            let of_shape = init_device_mesh("cpu", shape, of(group, &[])).unwrap_err();
            let device = if is_last { "cuda" } else { "cpu" };
            let of_device = init_device_mesh(device, &[size], of(group, &[])).unwrap_err();
            let mut given = up_to(size);
            given[last as usize] = if is_last { 99 } else { last };
            let refused = DeviceMesh::new("cpu", &[size], &given, of(group, &[])).unwrap_err();
            let names = of(group, &[if is_last { "b" } else { "a" }]);
            let of_names = init_device_mesh("cpu", &[size], names).unwrap_err();
            // Nothing is broken.
            check(
                &init_device_mesh("cpu", &[size], of(group, &[])).unwrap(),
                group.rank(),
                &[size],
                &up_to(size),
            );
            [of_shape, of_device, refused, of_names].map(|error| error.to_string())
        });
        let row = up_to(size);
        let column: Vec<[u32; 1]> = row.iter().map(|&rank| [rank]).collect();
        for texts in errors {
            for (text, parts) in texts.iter().zip([
                [
                    format!("'cpu', [{row:?}]"),
                    format!("rank {last} gave DeviceMesh('cpu', {column:?}"),
                ],
                ["gave DeviceMesh('cpu'".into(), format!("rank {last} gave DeviceMesh('cuda'")],
                [
                    format!("'cpu', {row:?}"),
                    format!("rank {last} gave what it refused (rank 99 is"),
                ],
                [
                    "['a']".into(),
                    format!("rank {last} gave DeviceMesh('cpu', {row:?}, mesh_dim_names=['b'"),
                ],
            ]) {
                for part in parts {
                    assert!(text.contains(&part), "{part} is missing: {text}");
                }
            }
        }
    }
}

#[test]
fn long_meshes_are_told_where_they_differ() {
    let size = 3;
    let errors = ranks(size, |group| {
        let names: Vec<String> = (0..200).map(|at| format!("dimension {at}")).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        if group.rank() == 1 {
            names[150] = "another one";
        }
        let made = init_device_mesh("cpu", &[1; 200], of(group, &names));
        made.unwrap_err().to_string()
    });
    for text in errors {
        assert!(text.contains("'another one'") && text.contains("'dimension 150'"), "{text}");
        assert!(text.len() < 600, "{text}");
    }
}

#[test]
fn backends_and_dimensions_of_groups_that_exist() {
    ranks(4, |group| {
        let gloo = vec![(MeshDim::from("dp"), DimensionBackend::default().backend("gloo"))];
        let options = of(group, &["dp", "tp"]).backend_override(gloo);
        let mesh = init_device_mesh("cpu", &[2, 2], options).unwrap();
        assert_eq!(mesh.group("dp").unwrap().backend_name(), "gloo");
        assert_eq!(mesh.group("tp").unwrap().backend_name(), "tcp");
        let groups = mesh.groups().unwrap();
        let names = || MeshOptions::default().names(["dp", "tp"]);
        let again = DeviceMesh::from_groups(groups, "cpu", &[2, 2], &up_to(4), names()).unwrap();
        check(&again, group.rank(), &[2, 2], &up_to(4));
        assert_eq!(again, mesh);
        let wrong = DeviceMesh::from_groups(groups, "cpu", &[4, 1], &up_to(4), names());
        let text = wrong.unwrap_err().to_string();
        assert!(text.contains("cannot be that of dimension 0"), "{text}");
        // A group of whatever size counts as one rank.
        let wider = extend_device_mesh(&mesh, group, "replica", -1).unwrap();
        assert_eq!(wider.shape(), [2, 2, 1]);
        assert_eq!(wider.names().unwrap(), ["dp", "tp", "replica"]);
        assert_eq!(wider.group("replica").unwrap().size(), 4);
        assert_eq!(wider.local_rank("replica").unwrap(), 0);
    });
}

#[test]
fn the_current_mesh_follows_tasks() {
    let layout = |rank| {
        let options = MeshOptions::default().layout_only(true);
        DeviceMesh::new("cpu", &[1], &[rank], options).unwrap()
    };
    let (first, second) = (layout(0), layout(1));
    assert!(current_device_mesh().is_err());
    let task = |mesh: DeviceMesh| async move {
        for _ in 0..3 {
            assert_eq!(current_device_mesh().unwrap(), mesh);
            yield_once().await;
        }
    };
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    let mut tasks = [&first, &second].map(|mesh| {
        let mesh = mesh.clone();
        Box::pin(async move { with_device_mesh_async(&mesh.clone(), task(mesh)).await })
    });
    // Turn by turn, each on another thread.
    for turn in 0..4 {
        for task in &mut tasks {
            let polled = thread::scope(|scope| {
                let poll = || {
                    let waker = std::task::Waker::noop();
                    task.as_mut().poll(&mut std::task::Context::from_waker(waker))
                };
                scope.spawn(poll).join().unwrap()
            });
            assert_eq!(polled.is_ready(), turn == 3);
        }
    }
    with_device_mesh(&first, || {
        assert_eq!(current_device_mesh().unwrap(), first);
        with_device_mesh(&second, || assert_eq!(current_device_mesh().unwrap(), second));
        assert_eq!(current_device_mesh().unwrap(), first);
    });
    let mut alone = Box::pin(async { current_device_mesh().is_err() });
    assert_eq!(alone.as_mut().poll(&mut context), Poll::Ready(true));
}

/// Is not ready when it is polled for the first time.
fn yield_once() -> impl Future<Output = ()> {
    let mut was_polled = false;
    std::future::poll_fn(move |_| {
        let ready = std::mem::replace(&mut was_polled, true);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
}

/// Runs the programs of one job of these ranks.
fn run(parts: &[(Language, u32)]) {
    every_rank_says(MESHES, parts, |_, _| "meshes passed".to_owned());
}

#[test]
fn one_rank_of_each_language_in_one_mesh() {
    run(&[(Python, 1), (Node, 1), (Rust, 1)]);
    run(&[(Rust, 2), (Node, 1), (Python, 1)]);
}

#[test]
fn each_language_alone() {
    for language in [Rust, Python, Node] {
        run(&[(language, 1)]);
        run(&[(language, 2)]);
    }
}

#[test]
fn browsers_are_in_meshes_with_others() {
    run(&[(Node, 1), (Browser, 2), (Python, 1)]);
}
