//! Neighbour collectives of grids and graphs, by hand. Ranks are threads.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use polyrank::distributed::compute_dims;
use polyrank::{Error, ProcessGroup, Result, Tensor, Topology};
use polyrank_tests::ranks;

/// What a rank gives in a direction.
fn block(rank: u32, direction: usize, elements: usize) -> Vec<i32> {
    (0..elements).map(|index| (rank * 100 + direction as u32 * 10) as i32 + index as i32).collect()
}

/// Exchanges in all directions, and checks every block.
fn exchange(grid: &Topology, rank: u32, elements: usize) {
    let (sources, untouched) = (grid.sources(), vec![-7; elements]);
    let directions = 0..sources.len();
    let given: Vec<_> = directions.clone().map(|it| block(rank, it, elements)).collect();
    let came = |direction: usize| match sources[direction] {
        Some(source) => block(source, direction ^ 1, elements),
        None => untouched.clone(),
    };
    let expected: Vec<_> = directions.map(came).collect();
    let mut outputs = vec![untouched.clone(); sources.len()];
    grid.neighbor_alltoall(&mut outputs, &given).unwrap();
    assert_eq!(outputs, expected, "{grid:?}");
    let mut flat = vec![-7; sources.len() * elements];
    grid.neighbor_alltoall_single(&mut flat, &given.concat()).unwrap();
    assert_eq!(flat, expected.concat());
    let work = grid.neighbor_alltoall_async(vec![untouched.clone(); sources.len()], given).unwrap();
    let back = work.into_result().unwrap().into_iter().map(Tensor::into_vec::<i32>);
    assert_eq!(back.collect::<Result<Vec<_>, _>>().unwrap(), expected);

    let gathered = sources.iter().map(|source| match source {
        Some(source) => block(*source, 0, elements),
        None => untouched.clone(),
    });
    let gathered: Vec<_> = gathered.collect();
    let mut outputs = vec![untouched.clone(); sources.len()];
    grid.neighbor_allgather(&mut outputs, &block(rank, 0, elements)).unwrap();
    assert_eq!(outputs, gathered, "{grid:?}");
    let mut flat = vec![-7; sources.len() * elements];
    grid.neighbor_allgather_single(&mut flat, &block(rank, 0, elements)).unwrap();
    assert_eq!(flat, gathered.concat());
}

#[test]
fn neighbours_in_a_grid() {
    for size in [1, 2, 3, 5, 6] {
        ranks(size, |group| {
            let dims = compute_dims(size, &[0, 0]).unwrap();
            for periods in [&[][..], &[true, true], &[false, true]] {
                let grid = group.create_cart(&dims, periods).unwrap();
                assert_eq!(grid.dims().unwrap(), dims);
                assert_eq!(grid.periods().unwrap().len(), 2);
                assert_eq!(grid.sources(), grid.destinations());
                let own = grid.coordinates(group.rank()).unwrap();
                let own: Vec<i32> = own.into_iter().map(|index| index as i32).collect();
                assert_eq!(grid.rank_at(&own), Ok(group.rank()));
                let (before, after) = grid.shift(1, 1).unwrap();
                assert_eq!([before, after], grid.sources()[2..]);
                for elements in [0, 1, 7, 1001] {
                    exchange(&grid, group.rank(), elements);
                }
            }
        });
    }
}

#[test]
fn edges_of_a_graph_may_stand_twice_and_differ_in_size() {
    for size in [1, 2, 3, 5] {
        ranks(size, |group| {
            let rank = group.rank();
            let (before, after) = ((rank + size - 1) % size, (rank + 1) % size);
            let graph = group.create_dist_graph_adjacent(&[before; 2], &[after; 2]).unwrap();
            assert_eq!((graph.dims(), graph.periods()), (None, None));
            let of = |rank: u32| [vec![rank; rank as usize], vec![rank + 50; 3]];
            let mut outputs = [vec![0; before as usize], vec![0; 3]];
            graph.neighbor_alltoall(&mut outputs, &of(rank)).unwrap();
            assert_eq!(outputs, of(before));
            let mut outputs = [vec![0f32; before as usize], vec![0.; before as usize]];
            graph.neighbor_allgather(&mut outputs, &vec![1f32; rank as usize]).unwrap();
            assert_eq!(outputs.concat(), vec![1.; 2 * before as usize]);
        });
    }
}

#[test]
fn a_rank_without_neighbours_takes_part() {
    ranks(3, |group| {
        let (sources, destinations) = match group.rank() {
            0 => (&[][..], &[2][..]),
            1 => (&[][..], &[][..]),
            _ => (&[0][..], &[][..]),
        };
        let graph = group.create_dist_graph_adjacent(sources, destinations).unwrap();
        let given = vec![vec![1.5f64, 2.5]; destinations.len()];
        let mut outputs = vec![vec![0f64; 2]; sources.len()];
        graph.neighbor_alltoall(&mut outputs, &given).unwrap();
        assert_eq!(outputs, vec![vec![1.5, 2.5]; sources.len()]);
    });
}

#[test]
fn ranks_that_disagree_learn_who_does() {
    ranks(2, |group| {
        let destinations = if group.rank() == 0 { &[1][..] } else { &[] };
        let error = group.create_dist_graph_adjacent(&[], destinations).unwrap_err();
        let Error::TopologyMismatch { rank, ours, other_rank, theirs } = error else {
            panic!("{error}");
        };
        assert_eq!((rank, ours.as_str()), (0, "1 edge to rank 1"));
        assert_eq!((other_rank, theirs.as_str()), (1, "0 edges from rank 0"));
        let error = group.create_cart(&[2], &[group.rank() == 0]).unwrap_err();
        assert!(matches!(error, Error::TopologyMismatch { rank: 0, other_rank: 1, .. }), "{error}");
        let grid = group.create_cart(&[2, 1], &[]).unwrap();
        let error = grid.neighbor_alltoall(&mut vec![vec![0]; 2], &vec![vec![0]; 4]).unwrap_err();
        assert!(error.to_string().contains("expected 4 output tensors"), "{error}");
    });
}

/// The mismatch that each rank learns of, by this call or the next.
fn mismatches(
    size: u32,
    call: impl Fn(&ProcessGroup) -> Result<()> + Sync,
) -> Vec<(String, [String; 2])> {
    ranks(size, |group| {
        let error = call(&group).and_then(|()| group.barrier(())).unwrap_err();
        let Error::CollectiveMismatch { rank, ours, other_rank, theirs, collective, .. } = error
        else {
            panic!("{error}");
        };
        // In the order of the ranks.
        (collective, if rank < other_rank { [ours, theirs] } else { [theirs, ours] })
    })
}

/// Rank 0 gives to rank 1, and the others have no neighbours.
fn one_edge(group: &ProcessGroup) -> Topology {
    let (sources, destinations): (&[u32], &[u32]) = match group.rank() {
        0 => (&[], &[1]),
        1 => (&[0], &[]),
        _ => (&[], &[]),
    };
    group.create_dist_graph_adjacent(sources, destinations).unwrap()
}

#[test]
fn types_are_compared_where_a_rank_has_no_neighbours() {
    for size in [2, 3, 5] {
        for count in [1, 3, 100_000] {
            let found = mismatches(size, |group| {
                let (graph, nothing) = (one_edge(group), Vec::<Vec<f32>>::new());
                match group.rank() {
                    0 => graph.neighbor_alltoall(&mut nothing.clone(), &vec![vec![1f32; count]]),
                    1 => graph.neighbor_alltoall(&mut vec![vec![0i32; count]], &nothing),
                    _ => graph.neighbor_alltoall(&mut nothing.clone(), &nothing),
                }
            });
            for (collective, [first, second]) in found {
                assert_eq!(collective, "neighbor_alltoall");
                assert!(first.contains("neighbor_alltoall of f32 on the graph"), "{first}");
                assert!(second.contains("neighbor_alltoall of i32 on the graph"), "{second}");
            }
        }
    }
}

#[test]
fn topologies_are_compared() {
    let found = mismatches(2, |group| {
        let rank = group.rank();
        let grid = group.create_cart(&[2], &[true]).unwrap();
        let graph = group.create_dist_graph_adjacent(&[1 - rank; 2], &[1 - rank; 2]).unwrap();
        let called = if rank == 0 { &grid } else { &graph };
        called.neighbor_alltoall(&mut [[0f32], [0.]].map(Vec::from), &[vec![1f32], vec![2.]])
    });
    for (_, [first, second]) in found {
        assert!(first.contains("on the grid that operation 2 made"), "{first}");
        assert!(second.contains("on the graph that operation 4 made"), "{second}");
    }
    // Two grids that are alike are two all the same; an exchange of each is none of both.
    let found = mismatches(3, |group| {
        let grids = [0; 2].map(|_| group.create_cart(&[3], &[true]).unwrap());
        let (mut outputs, inputs) = ([0f64; 2], [1f64, 2.]);
        grids.iter().for_each(|it| it.neighbor_alltoall_single(&mut outputs, &inputs).unwrap());
        grids[usize::from(group.rank() == 1)].neighbor_alltoall_single(&mut outputs, &inputs)
    });
    for (collective, sides) in found {
        assert_eq!(collective, "neighbor_alltoall_single");
        let mut made = sides.map(|side| side.split_once(" that ").unwrap().1.to_owned());
        made.sort();
        assert!(made[0].starts_with("operation 2 made"), "{made:?}");
        assert!(made[1].starts_with("operation 4 made"), "{made:?}");
    }
}

#[test]
fn methods_are_compared_and_forms_are_not() {
    let both = |group: &ProcessGroup| (group.rank(), group.create_cart(&[2], &[true]).unwrap());
    let found = mismatches(2, |group| {
        let (rank, ring) = both(group);
        let mut outputs = [[0f32], [0.]].map(Vec::from);
        match rank {
            0 => ring.neighbor_allgather(&mut outputs, &[1f32]),
            _ => ring.neighbor_alltoall(&mut outputs, &[vec![1f32], vec![2.]]),
        }
    });
    for (_, [first, second]) in found {
        assert!(first.starts_with("neighbor_allgather of f32"), "{first}");
        assert!(second.starts_with("neighbor_alltoall of f32"), "{second}");
    }
    let found = mismatches(2, |group| match both(group) {
        (0, ring) => ring.neighbor_alltoall_single(&mut [0f32; 2], &[1f32; 2]),
        _ => group.alltoall(&mut [[0f32], [0.]].map(Vec::from), &[vec![1f32], vec![2.]], ()),
    });
    for (_, [first, second]) in found {
        assert!(first.starts_with("neighbor_alltoall_single of f32 on"), "{first}");
        assert!(second.starts_with("alltoall of f32"), "{second}");
    }
    let found = mismatches(2, |group| match group.rank() {
        0 => group.ppermute(&mut [0f32], &[1f32], &[(0, 1), (1, 0)]),
        _ => group.alltoall(&mut [vec![0f32], vec![]], &[vec![1f32], vec![]], ()),
    });
    for (_, [first, second]) in found {
        assert!(first.starts_with("ppermute of f32"), "{first}");
        assert!(second.starts_with("alltoall of f32"), "{second}");
    }
    ranks(2, |group| {
        let (rank, ring) = both(&group);
        let given = [rank as i32, 10 * rank as i32];
        let mut got = [-1; 2];
        match rank {
            0 => ring.neighbor_alltoall_single(&mut got, &given).unwrap(),
            _ => {
                let mut outputs = [[-1], [-1]].map(Vec::from);
                ring.neighbor_alltoall(&mut outputs, &given.map(|it| vec![it])).unwrap();
                got = [outputs[0][0], outputs[1][0]];
            }
        }
        let other = 1 - rank as i32;
        assert_eq!(got, [10 * other, other]);
    });
}

#[test]
fn hooks_and_errors_have_the_name_of_the_method() {
    let names = |group: &ProcessGroup, call: &dyn Fn()| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (pre, completion) = (seen.clone(), seen.clone());
        let note = move |name: &str| pre.lock().unwrap().push(name.to_owned());
        let before = move |it: &polyrank::PreHookArgs<'_>| {
            note(it.name);
            Ok(())
        };
        group.register_pre_hook(1, before).unwrap();
        let note = move |name: &str| completion.lock().unwrap().push(name.to_owned());
        group.register_completion_hook(1, move |it| note(it.name)).unwrap();
        call();
        // The end is told on the thread that notices it, which need not be this one.
        while seen.lock().unwrap().len() < 2 {
            std::thread::yield_now();
        }
        group.unregister_pre_hook(1);
        group.unregister_completion_hook(1);
        std::mem::take(&mut *seen.lock().unwrap())
    };
    ranks(2, |group| {
        let ring = group.create_cart(&[2], &[true]).unwrap();
        let (two, one) = ([1f32, 2.], [1f32]);
        let gather = || ring.neighbor_allgather_single(&mut [0f32; 2], &one).unwrap();
        assert_eq!(names(&group, &gather), ["NEIGHBOR_ALLGATHER_SINGLE"; 2]);
        let exchange = || ring.neighbor_alltoall_single(&mut [0f32; 2], &two).unwrap();
        assert_eq!(names(&group, &exchange), ["NEIGHBOR_ALLTOALL_SINGLE"; 2]);
        let permute = || group.ppermute(&mut [0f32], &one, &[(0, 1)]).unwrap();
        assert_eq!(names(&group, &permute), ["PPERMUTE"; 2]);
        group.register_pre_hook(2, polyrank::nan_check()).unwrap();
        let error = ring.neighbor_alltoall_single(&mut [0f32; 2], &[f32::NAN; 2]).unwrap_err();
        assert!(error.to_string().contains("NEIGHBOR_ALLTOALL_SINGLE of rank"), "{error}");
    });
    let has_ended = Barrier::new(2);
    ranks(2, |group| {
        let ring = group.create_cart(&[2], &[true]).unwrap();
        let ring = ring.with_timeout(Duration::from_millis(200));
        if group.rank() == 1 {
            // It comes when rank 0 has waited in vain.
            has_ended.wait();
            let error = ring.neighbor_alltoall_single(&mut [0f32; 2], &[1f32; 2]).unwrap_err();
            let name = error.collective().unwrap_or_default();
            assert!(name.starts_with("neighbor_all") && name.ends_with("_single"), "{error}");
            return;
        }
        let error = ring.neighbor_allgather_single(&mut [0f32; 2], &[1f32]).unwrap_err();
        assert!(matches!(error, Error::CollectiveTimeout { .. }), "{error}");
        assert_eq!(error.collective(), Some("neighbor_allgather_single"));
        has_ended.wait();
    });
}
