//! Neighbour collectives of grids and graphs, by hand. Ranks are threads.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::distributed::compute_dims;
use polyrank::{Error, Tensor, Topology};
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
