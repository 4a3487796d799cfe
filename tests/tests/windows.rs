//! Puts, gets and signals, with real processes of several languages: every element type, both ways
//! to the memory. Expected values come from arithmetic.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::{DType, ProcessGroup, Region, Tensor, Window};
use polyrank_tests::languages::{Language, WINDOWS, every_rank_says};
use polyrank_tests::processes::{all_went_well, processes, with_variable};
use polyrank_tests::windows::MAPPED_ELEMENTS;

/// Numbers of ranks.
const WORLDS: [u32; 5] = [1, 2, 3, 5, 8];

/// Elements of a registered tensor: of memory that no other process can map, and of more.
const ELEMENTS: [usize; 2] = [67, MAPPED_ELEMENTS];

/// Elements of an access: none, one, an odd number, more than one segment.
const PARTS: [usize; 4] = [0, 1, 5, 33_001];

/// How ranks reach one another.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// As they do by themselves: memory of polyrank is mapped.
    Usual,
    /// By frames over TCP.
    Tcp,
    /// By frames over shared memory.
    Slots,
}

impl Way {
    const ALL: [Way; 3] = [Way::Usual, Way::Tcp, Way::Slots];

    fn with<R>(self, run: impl FnOnce() -> R) -> R {
        match self {
            Way::Usual => run(),
            Way::Tcp => with_variable("POLYRANK_TRANSPORT", "tcp", run),
            Way::Slots => with_variable("POLYRANK_COPY", "slots", run),
        }
    }

    /// What a rank says of another one's memory.
    fn attribute(self, elements: usize, dtype: DType) -> &'static str {
        let is_mapped = matches!(self, Way::Usual) && elements * dtype.size_bytes() >= 32 << 10;
        if is_mapped { "UNIFIED" } else { "SEPARATE" }
    }
}

/// Which way the ranks of this process were told to go.
fn own_way() -> Way {
    match (std::env::var("POLYRANK_TRANSPORT"), std::env::var("POLYRANK_COPY")) {
        (Ok(tcp), _) if tcp == "tcp" => Way::Tcp,
        (_, Ok(slots)) if slots == "slots" => Way::Slots,
        _ => Way::Usual,
    }
}

/// Bytes that are the same for nobody else, and valid elements of any type: 0 or 1 each.
fn pattern(seed: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (seed as usize + at * 7 + at / 251).count_ones() as u8 & 1).collect()
}

fn tensor_of(dtype: DType, bytes: &[u8]) -> Tensor {
    let region = Region::for_elements(bytes.len()).unwrap();
    region.write(|memory| memory.copy_from_slice(bytes));
    Tensor::contiguous(region, dtype, vec![bytes.len() / dtype.size_bytes()])
}

fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    tensor.region().read(<[u8]>::to_vec)
}

/// A window in which each rank has registered zeros.
fn window_of(group: &ProcessGroup, dtype: DType, elements: usize) -> (Window, Tensor) {
    let window = group.new_window().unwrap();
    let tensor = Tensor::zeros(dtype, &[elements]).unwrap();
    window.tensor_register(tensor.clone()).unwrap();
    (window, tensor)
}

/// Each rank puts a part to the next rank and gets it back from the one after, at several places.
fn put_and_get(group: &ProcessGroup, dtype: DType, elements: usize) {
    let (rank, size) = (group.rank(), group.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let (window, tensor) = window_of(group, dtype, elements);
    if size > 1 {
        assert_eq!(window.get_attr(next).unwrap(), own_way().attribute(elements, dtype));
    }
    assert_eq!(window.get_attr(rank).unwrap(), "UNIFIED");
    let width = dtype.size_bytes();
    for (round, part) in (0..).zip(PARTS.into_iter().filter(|part| *part <= elements)) {
        let offset = (elements - part) / 2;
        let given = tensor_of(dtype, &pattern(rank + 10 * round, part * width));
        window.put(&given, next, offset as u64).unwrap();
        window.fence().unwrap();
        let place = offset * width..(offset + part) * width;
        let came = pattern(previous + 10 * round, part * width);
        assert_eq!(bytes_of(&tensor)[place.clone()], came, "{dtype:?}, {part} of {elements}");
        let mut got = Tensor::zeros(dtype, &[part]).unwrap();
        window.get(&mut got, next, offset as u64).unwrap();
        assert_eq!(bytes_of(&got), bytes_of(&given), "{dtype:?}, {part} of {elements}");
        window.fence().unwrap();
    }
    window.tensor_deregister().unwrap();
}

#[test]
fn what_is_put_is_there_and_what_is_got_is_it() {
    for way in Way::ALL {
        for size in WORLDS {
            let test = "what_is_put_is_there_and_what_is_got_is_it";
            let ended = way.with(|| {
                processes(test, size, |group| {
                    assert!(group.supports_window());
                    for elements in ELEMENTS {
                        DType::ALL
                            .into_iter()
                            .for_each(|dtype| put_and_get(&group, dtype, elements));
                    }
                })
            });
            all_went_well(&ended);
        }
    }
}

#[test]
fn tensors_with_strides_are_put_and_got_by_their_elements() {
    let test = "tensors_with_strides_are_put_and_got_by_their_elements";
    let ended = processes(test, 2, |group| {
        for elements in ELEMENTS {
            let (window, tensor) = window_of(&group, DType::I32, elements);
            let peer = 1 - group.rank();
            let values: Vec<u8> = (0..10_i32).flat_map(i32::to_ne_bytes).collect();
            let region = tensor_of(DType::I32, &values).into_region();
            let odd = |region: Region| Tensor::strided(region, DType::I32, vec![5], vec![2], 0);
            window.put_async(odd(region.slice(4..40)), peer, 3).unwrap().wait(None).unwrap();
            window.fence().unwrap();
            let expected: Vec<u8> =
                [1, 3, 5, 7, 9_i32].into_iter().flat_map(i32::to_ne_bytes).collect();
            assert_eq!(bytes_of(&tensor)[12..32], expected);
            let into = tensor_of(DType::I32, &[0; 40]).into_region();
            window.get_async(odd(into.slice(0..36)), peer, 3).unwrap().wait(None).unwrap();
            let got = into.read(<[u8]>::to_vec);
            let evens: Vec<u8> = got.chunks(8).flat_map(|pair| pair[..4].to_vec()).collect();
            assert_eq!(evens, expected);
            assert!(got.chunks(8).all(|pair| pair[4..] == [0; 4]));
            window.tensor_deregister().unwrap();
        }
    });
    all_went_well(&ended);
}

/// Rank 0 and 1 send each other a counter by put and signal.
fn ping_pong(group: &ProcessGroup, elements: usize, rounds: i64) {
    let (window, tensor) = window_of(group, DType::I64, elements);
    let (rank, last) = (group.rank(), elements as u64 - 1);
    let read = || i64::from_ne_bytes(*bytes_of(&tensor).last_chunk().unwrap());
    if rank < 2 && group.size() > 1 {
        let peer = 1 - rank;
        for round in 1..=rounds {
            if rank == 0 {
                window.put(&[round], peer, last).unwrap();
                window.signal(peer).unwrap();
                window.wait_signal(peer).unwrap();
                assert_eq!(read(), -round);
            } else {
                window.wait_signal(peer).unwrap();
                assert_eq!(read(), round);
                window.put(&[-round], peer, last).unwrap();
                window.signal(peer).unwrap();
            }
        }
    } else {
        // A rank signals itself as it does any other.
        window.put(&[7_i64], rank, last).unwrap();
        window.signal(rank).unwrap();
        window.wait_signal(rank).unwrap();
        assert_eq!(read(), 7);
    }
    window.tensor_deregister().unwrap();
}

#[test]
fn what_was_put_is_there_when_the_signal_is() {
    for way in Way::ALL {
        for size in [1, 2, 3] {
            let test = "what_was_put_is_there_when_the_signal_is";
            let ended = way.with(|| {
                processes(test, size, |group| {
                    ELEMENTS.into_iter().for_each(|elements| ping_pong(&group, elements, 200));
                })
            });
            all_went_well(&ended);
        }
    }
}

#[test]
fn puts_that_are_not_waited_for_come_before_the_signal_after_them() {
    for way in Way::ALL {
        let test = "puts_that_are_not_waited_for_come_before_the_signal_after_them";
        let ended = way.with(|| {
            processes(test, 2, |group| {
                // More than may be under way at once.
                let elements = 3 << 20;
                let (window, tensor) = window_of(&group, DType::U8, elements);
                let parts: Vec<Vec<u8>> = (0..300).map(|part| pattern(part, 10_007)).collect();
                if group.rank() == 0 {
                    let works = (0..).zip(&parts).map(|(index, part)| {
                        let tensor = Tensor::from(part.clone());
                        window.put_async(tensor, 1, index * 10_007).unwrap()
                    });
                    let works: Vec<_> = works.collect();
                    let signal = window.signal_async(1).unwrap();
                    window.flush(Some(1)).unwrap();
                    assert!(works.iter().all(|work| work.is_success()));
                    assert!(signal.is_success());
                } else {
                    window.wait_signal(0).unwrap();
                    let all = bytes_of(&tensor);
                    assert!(all.chunks(10_007).zip(&parts).all(|(came, part)| came == part));
                }
                window.tensor_deregister().unwrap();
            })
        });
        all_went_well(&ended);
    }
}

/// Runs the program of all languages on a job of these ranks, each of which must say that all went
/// well.
fn run(parts: &[(Language, u32)]) {
    every_rank_says(WINDOWS, parts, |_, _| "windows passed".to_owned());
}

#[test]
fn each_language_alone() {
    for language in [Language::Rust, Language::Python, Language::Node] {
        [1, 2, 3].into_iter().for_each(|world| run(&[(language, world)]));
    }
}

#[test]
fn several_languages_in_one_group() {
    use Language::{Node, Python, Rust};
    run(&[(Python, 1), (Node, 1)]);
    run(&[(Node, 1), (Rust, 1), (Python, 1)]);
    run(&[(Rust, 1), (Python, 2), (Node, 2)]);
    run(&[(Python, 3), (Rust, 3), (Node, 2)]);
}

#[test]
fn browsers_beside_the_others() {
    use Language::{Browser, Node, Python, Rust};
    run(&[(Browser, 2)]);
    run(&[(Rust, 1), (Browser, 1), (Python, 1), (Node, 1)]);
}
