//! A Rust rank that reads and writes memory of ranks of any language; arithmetic says what is
//! right.
//!
//! `tests/windows/run.py` is the same in Python, `run.mjs` in JavaScript.

use std::error::Error;
use std::time::Duration;

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{DType, ProcessGroup, ReduceOp, Tensor, Window};

const ELEMENTS: [usize; 2] = [67, 40_003];
const ROUNDS: i64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let group = init_process_group(InitOptions::default().timeout(Duration::from_secs(60)))?;
    let (rank, size) = (group.rank(), group.size());
    assert!(group.supports_window());
    for elements in ELEMENTS {
        let memory = Tensor::zeros(DType::I64, &[elements])?;
        write(&memory, 0, &own_values(rank, elements));
        let window = group.new_window_with(memory.clone())?;
        exchange(&group, &window, &memory)?;
        update(&group, &window, &memory)?;
        let mapped = window.map_remote_tensor(rank)?;
        write(&mapped, 9, &[99]);
        assert_eq!(read(&memory, 9), 99);
        let second = window.tensor_register(Tensor::zeros(DType::I64, &[5])?);
        assert!(second.is_err(), "a tensor is registered");
        window.tensor_deregister()?;
        assert!(window.tensor_deregister().is_err(), "nothing is registered");
        assert!(window.put(&[1_i64], 0, 0).is_err(), "it is closed");
    }
    let memory = Tensor::zeros(DType::I64, &[10])?;
    let step = if rank == 0 { 2 } else { 1 };
    let unfit = Tensor::strided(memory.region().clone(), DType::I64, vec![5], vec![step], 0);
    let made = group.new_window_with(unfit);
    assert!(
        matches!(made, Err(polyrank::Error::InvalidArgument { .. })),
        "rank 0 gives what is unfit"
    );
    let new = |elements| group.new_window_with(Tensor::zeros(DType::I64, &[elements])?);
    let windows = ELEMENTS.map(new);
    destroy_process_group(None)?;
    for window in windows {
        check_destroyed(&window?, (rank + 1) % size);
    }
    println!("Rust rank {rank} of {size}: windows passed");
    Ok(())
}

/// Each call of a window is refused whose group was destroyed.
fn check_destroyed(window: &Window, peer: u32) {
    let mut old = [0_i64];
    let ended = [
        window.put(&[1_i64], peer, 0),
        window.get(&mut [1_i64], peer, 0),
        window.accumulate(&[1_i64], peer, 0, ReduceOp::Sum),
        window.fetch_and_add(&[1_i64], &mut old, peer, 0),
        window.compare_and_swap(&[1_i64], &[0_i64], &mut old, peer, 0),
        window.signal(peer),
        window.wait_signal(peer),
        window.flush(Some(peer)),
        window.flush(None),
        window.fence(),
        window.map_remote_tensor(peer).map(drop),
        window.get_attr(peer).map(drop),
        window.tensor_deregister(),
        window.tensor_register(vec![0_i64]),
    ];
    for (at, ended) in ended.into_iter().enumerate() {
        let is_refused = matches!(ended, Err(polyrank::Error::InvalidGroup { .. }));
        assert!(is_refused, "call {at}: {ended:?}");
    }
}

/// What a rank registers.
fn own_values(rank: u32, elements: usize) -> Vec<i64> {
    (0..elements as i64).map(|index| index + i64::from(rank) * 1_000_000).collect()
}

fn read(tensor: &Tensor, index: usize) -> i64 {
    tensor.region().read(|bytes| i64::from_ne_bytes(bytes.as_chunks().0[index]))
}

fn write(tensor: &Tensor, at: usize, values: &[i64]) {
    tensor.region().write(|bytes| {
        let places = bytes.as_chunks_mut().0[at..].iter_mut();
        places.zip(values).for_each(|(place, value)| *place = value.to_ne_bytes());
    });
}

/// What each rank gets, puts and signals.
fn exchange(group: &ProcessGroup, window: &Window, memory: &Tensor) -> Result<(), Box<dyn Error>> {
    let (rank, size, elements) = (group.rank(), group.size(), memory.elements());
    for peer in 0..size {
        let mut got = vec![0_i64; elements];
        window.get(&mut got, peer, 0)?;
        assert_eq!(got, own_values(peer, elements), "got from {peer}");
        let mut part = [0_i64; 5];
        window.get(&mut part, peer, 3)?;
        assert_eq!(part, got[3..8], "a part from {peer}");
    }
    window.fence()?;
    let (following, before) = ((rank + 1) % size, (rank + size - 1) % size);
    window.put(&[-1 - i64::from(rank)], following, 7)?;
    window.signal(following)?;
    window.wait_signal(before)?;
    assert_eq!(read(memory, 7), -1 - i64::from(before));
    for value in 1..=ROUNDS {
        window.put(&[value], following, 8)?;
        window.signal(following)?;
        window.wait_signal(before)?;
        assert_eq!(read(memory, 8), value);
        window.signal(before)?;
        window.wait_signal(following)?;
    }
    // All were taken; that no other comes ends the call, and nothing else.
    let late = window.with_timeout(Duration::from_millis(10)).wait_signal(before);
    assert!(matches!(late, Err(polyrank::Error::CollectiveTimeout { .. })), "{late:?}");
    window.flush(None)?;
    window.fence()?;
    Ok(())
}

/// What all ranks change at once.
fn update(group: &ProcessGroup, window: &Window, memory: &Tensor) -> Result<(), Box<dyn Error>> {
    let (rank, size, last) = (group.rank(), group.size(), memory.elements() as u64 - 1);
    if rank == 0 {
        write(memory, 20, &[0; 4]);
    }
    window.fence()?;
    let mut highest = -1;
    for _ in 0..ROUNDS {
        let mut old = [0_i64];
        window.fetch_and_add(&[1_i64], &mut old, 0, 20)?;
        assert!(old[0] > highest, "{} was there after {highest}", old[0]);
        [highest] = old;
    }
    window.accumulate(&[i64::from(rank)], 0, 21, ReduceOp::Max)?;
    let mut won = [-1_i64];
    window.compare_and_swap(&[i64::from(rank) + 1], &[0_i64], &mut won, 0, 22)?;
    window.accumulate(&[i64::from(won[0] == 0)], 0, 23, ReduceOp::Sum)?;
    window.fence()?;
    if rank == 0 {
        let (ranks, winner) = (i64::from(size), read(memory, 22));
        assert_eq!((read(memory, 20), read(memory, 21)), (ROUNDS * ranks, ranks - 1));
        assert!((1..=ranks).contains(&winner) && read(memory, 23) == 1, "{winner} won");
    }
    assert!(window.put(&[0_i64, 0], 0, last).is_err(), "it is outside");
    assert!(window.put(&[0_f64], 0, 0).is_err(), "it is of another type");
    assert!(window.signal(size).is_err(), "there is no such rank");
    Ok(())
}
