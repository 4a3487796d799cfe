//! Grids of ranks: where each rank stands, who is next to it, and balanced lengths of dimensions.
//! Pure.

use crate::generated::error::{Error, Result};

/// How many dimensions a grid may have.
const MAX_DIMS: usize = 64;

/// A grid, in which the last dimension counts fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) dims: Vec<u32>,
    /// Whether each dimension goes on with its first index after its last.
    pub(super) periods: Vec<bool>,
}

impl Grid {
    /// A grid of `size` ranks; without `periods`, it ends in every dimension.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it has not as many places as there are ranks, and for periods
    /// that are not one for each dimension.
    pub(super) fn new(dims: &[u32], periods: &[bool], size: u32) -> Result<Grid> {
        let name = "create_cart";
        if dims.len() > MAX_DIMS {
            let given = dims.len();
            return invalid(format!("{name}: at most {MAX_DIMS} dimensions, got {given}"));
        }
        if !periods.is_empty() && periods.len() != dims.len() {
            let (given, expected) = (periods.len(), dims.len());
            return invalid(format!(
                "{name}: 'periods' must have one value for each of {expected} dimensions, got \
                 {given}"
            ));
        }
        let places = dims.iter().try_fold(1u32, |places, &length| places.checked_mul(length));
        if places != Some(size) {
            let places = places.map_or_else(|| "too many".to_owned(), |places| places.to_string());
            return invalid(format!(
                "{name}: a grid of {dims:?} has {places} places, but the group has {size} ranks; \
                 compute_dims finds lengths that fit, and split_group makes a group of fewer ranks"
            ));
        }
        let periods = match periods {
            [] => vec![false; dims.len()],
            given => given.to_vec(),
        };
        Ok(Grid { dims: dims.to_vec(), periods })
    }

    /// The index of a rank in each dimension.
    pub(super) fn coordinates(&self, rank: u32) -> Vec<u32> {
        let mut rest = rank;
        let mut indices: Vec<u32> = self
            .dims
            .iter()
            .rev()
            .map(|&length| {
                let index = rest % length;
                rest /= length;
                index
            })
            .collect();
        indices.reverse();
        indices
    }

    /// The rank at these indices; none if one lies outside of a dimension that is not periodic.
    /// There is an index for each dimension.
    pub(super) fn rank_at(&self, indices: impl IntoIterator<Item = i64>) -> Option<u32> {
        let mut rank = 0;
        for ((&length, &is_periodic), index) in self.dims.iter().zip(&self.periods).zip(indices) {
            let inside = if is_periodic { index.rem_euclid(length.into()) } else { index };
            let inside = u32::try_from(inside).ok().filter(|&inside| inside < length)?;
            rank = rank * length + inside;
        }
        Some(rank)
    }

    /// The rank that lies `displacement` away from `rank` along a dimension, if there is one.
    pub(super) fn beside(&self, rank: u32, dimension: usize, displacement: i64) -> Option<u32> {
        let indices = self.coordinates(rank).into_iter().enumerate();
        self.rank_at(indices.map(|(place, index)| {
            i64::from(index) + if place == dimension { displacement } else { 0 }
        }))
    }

    /// The neighbours of a rank: of each dimension, the one before it, and the one after it.
    pub(super) fn neighbours(&self, rank: u32) -> Vec<Option<u32>> {
        let both = |dimension| [-1, 1].map(|step| self.beside(rank, dimension, step));
        (0..self.dims.len()).flat_map(both).collect()
    }
}

/// The lengths of the dimensions of a grid of `size` ranks, as MPI's `Dims_create` gives them: each
/// 0 in `dims` becomes a length, as close to one another as they can be, the longest first; what
/// else is in `dims` stays.
///
/// ```
/// # use polyrank::distributed::compute_dims;
/// assert_eq!(compute_dims(12, &[0, 0])?, [4, 3]);
/// assert_eq!(compute_dims(12, &[0, 3, 0])?, [2, 3, 2]);
/// # Ok::<(), polyrank::Error>(())
/// ```
///
/// # Errors
/// [`Error::InvalidArgument`] if `size` is 0, or no lengths give it.
pub fn compute_dims(size: u32, dims: &[u32]) -> Result<Vec<u32>> {
    let name = "compute_dims";
    if size == 0 || dims.len() > MAX_DIMS {
        let given = dims.len();
        return invalid(format!(
            "{name}: expected at least 1 rank and at most {MAX_DIMS} dimensions, got {size} and \
             {given}"
        ));
    }
    let mut known = dims.iter().filter(|&&length| length > 0);
    let known = known.try_fold(1u32, |product, &length| product.checked_mul(length));
    let rest = known.filter(|&known| size.is_multiple_of(known)).map(|known| size / known);
    let free = dims.iter().filter(|&&length| length == 0).count();
    let found = rest.and_then(|rest| balanced(rest, free, rest));
    let Some(found) = found else {
        return invalid(format!("{name}: a grid of {dims:?} cannot have {size} places"));
    };
    let mut found = found.into_iter();
    let lengths = dims.iter().map(|&length| match length {
        0 => found.next().unwrap_or(1),
        known => known,
    });
    Ok(lengths.collect())
}

/// `count` numbers of this product, none above `limit`, in descending order: the first as small as
/// can be, then the second, and so on.
fn balanced(product: u32, count: usize, limit: u32) -> Option<Vec<u32>> {
    if count == 0 {
        return (product == 1).then(Vec::new);
    }
    // The rest are not larger than the first.
    let reaches = |first: u32| {
        let power = u32::try_from(count).ok().and_then(|count| first.checked_pow(count));
        power.is_none_or(|power| power >= product)
    };
    let first = divisors(product).into_iter().filter(|&first| first <= limit && reaches(first));
    first.into_iter().find_map(|first| {
        let mut found = vec![first];
        found.extend(balanced(product / first, count - 1, first)?);
        Some(found)
    })
}

/// The divisors of a number above 0, in ascending order.
fn divisors(number: u32) -> Vec<u32> {
    let small: Vec<u32> =
        (1..=number.isqrt()).filter(|&divisor| number.is_multiple_of(divisor)).collect();
    let large = small.iter().rev().map(|divisor| number / divisor);
    let large: Vec<u32> = large.filter(|divisor| !small.contains(divisor)).collect();
    [small, large].concat()
}

pub(super) fn invalid<T>(message: String) -> Result<T> {
    Err(Error::InvalidArgument { message })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranks_stand_as_in_an_array() {
        let grid = Grid::new(&[2, 3], &[], 6).unwrap();
        let all: Vec<Vec<u32>> = (0..6).map(|rank| grid.coordinates(rank)).collect();
        assert_eq!(all, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        for (rank, indices) in (0..).zip(&all) {
            assert_eq!(grid.rank_at(indices.iter().map(|&it| i64::from(it))), Some(rank));
        }
        assert_eq!(grid.rank_at([0, 3]), None);
        assert_eq!(grid.rank_at([-1, 0]), None);
    }

    #[test]
    fn neighbours_stand_before_and_after_in_each_dimension() {
        let grid = Grid::new(&[2, 3], &[false, true], 6).unwrap();
        assert_eq!(grid.neighbours(0), [None, Some(3), Some(2), Some(1)]);
        assert_eq!(grid.neighbours(4), [Some(1), None, Some(3), Some(5)]);
        assert_eq!(Grid::new(&[1], &[true], 1).unwrap().neighbours(0), [Some(0); 2]);
        assert_eq!(Grid::new(&[], &[], 1).unwrap().neighbours(0), []);
    }

    #[test]
    fn a_grid_has_as_many_places_as_there_are_ranks() {
        for (dims, what) in [(&[2, 2][..], "4 places"), (&[0, 6], "0 places"), (&[], "1 places")] {
            let text = Grid::new(dims, &[], 6).unwrap_err().to_string();
            assert!(text.contains(what), "{text}");
        }
        assert!(Grid::new(&[u32::MAX, 2], &[], 6).unwrap_err().to_string().contains("too many"));
        assert!(Grid::new(&[6], &[true, false], 6).is_err());
    }

    #[test]
    fn dimensions_are_balanced() {
        for (size, count, expected) in [
            (1, 3, &[1, 1, 1][..]),
            (7, 2, &[7, 1]),
            (12, 3, &[3, 2, 2]),
            (16, 3, &[4, 2, 2]),
            (36, 3, &[4, 3, 3]),
            (60, 3, &[5, 4, 3]),
            (144, 3, &[6, 6, 4]),
            (1 << 31, 31, &[2; 31]),
            (4_294_967_291, 3, &[4_294_967_291, 1, 1]),
        ] {
            assert_eq!(compute_dims(size, &vec![0; count]).unwrap(), expected);
        }
        assert_eq!(compute_dims(24, &[2, 0, 3, 0]).unwrap(), [2, 2, 3, 2]);
        assert_eq!(compute_dims(6, &[2, 3]).unwrap(), [2, 3]);
        for dims in [&[4, 0][..], &[2, 2], &[]] {
            assert!(compute_dims(6, dims).is_err(), "{dims:?}");
        }
        assert!(compute_dims(0, &[0]).is_err());
    }

    /// By trying all of them: the longest dimension is as short as can be.
    #[test]
    fn no_grid_has_a_shorter_longest_dimension() {
        for size in 1..200 {
            let found = compute_dims(size, &[0, 0, 0]).unwrap();
            assert_eq!(found.iter().product::<u32>(), size);
            assert!(found.is_sorted_by(|one, next| one >= next), "{found:?}");
            let all = divisors(size).into_iter().flat_map(|first| {
                divisors(size / first)
                    .into_iter()
                    .map(move |second| first.max(second).max(size / first / second))
            });
            assert_eq!(all.min(), found.first().copied(), "{size}");
        }
    }
}
