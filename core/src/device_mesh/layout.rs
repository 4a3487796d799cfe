//! The layout of a mesh: ranks in an n-dimensional array, row-major, and names of its dimensions.
//! Knows no groups and no other process.

use std::fmt;

use crate::generated::error::{Error, Result};

/// Where ranks stand in a mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Layout {
    pub(super) device_type: String,
    pub(super) shape: Vec<u32>,
    /// As many as the shape has places, each once.
    pub(super) ranks: Vec<u32>,
    pub(super) names: Option<Vec<String>>,
}

/// A dimension of a mesh, as a caller names it: `0`, `-1`, `"dp"`, or `()` for the only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshDim {
    /// That of a mesh with one.
    Only,
    /// By its index; a negative one counts from the end.
    Index(i32),
    /// By its name.
    Name(String),
}

impl From<()> for MeshDim {
    fn from((): ()) -> MeshDim {
        MeshDim::Only
    }
}

impl From<i32> for MeshDim {
    fn from(index: i32) -> MeshDim {
        MeshDim::Index(index)
    }
}

impl From<&str> for MeshDim {
    fn from(name: &str) -> MeshDim {
        MeshDim::Name(name.to_owned())
    }
}

impl From<String> for MeshDim {
    fn from(name: String) -> MeshDim {
        MeshDim::Name(name)
    }
}

impl Layout {
    /// The layout of these ranks, if they can be one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an unknown type of device, an empty mesh, a number of ranks
    /// or of names that the shape does not have, and for a rank or a name that is there twice.
    pub(super) fn new(
        device_type: &str,
        shape: Vec<u32>,
        ranks: Vec<u32>,
        names: Option<Vec<String>>,
    ) -> Result<Layout> {
        check_device_type(device_type)?;
        check_names(names.as_deref(), shape.len())?;
        let places = places(&shape)?;
        if places != ranks.len() as u64 {
            let came = ranks.len();
            return invalid(format!("a mesh of shape {shape:?} has {places} ranks, not {came}"));
        }
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let rank = pair[0];
            return invalid(format!("rank {rank} is in the mesh twice; each rank has one place"));
        }
        let device_type = device_type.to_owned();
        Ok(Layout { device_type, shape, ranks, names: names.filter(|names| !names.is_empty()) })
    }

    /// The coordinate of a rank; none if it is not in the mesh.
    pub(super) fn coordinate(&self, rank: u32) -> Option<Vec<u32>> {
        let mut place = self.ranks.iter().position(|&other| other == rank)?;
        let mut coordinate = vec![0; self.shape.len()];
        for (index, &length) in coordinate.iter_mut().zip(&self.shape).rev() {
            *index = (place % length as usize) as u32;
            place /= length as usize;
        }
        Some(coordinate)
    }

    /// The rank at a coordinate.
    pub(super) fn rank_at(&self, coordinate: &[u32]) -> u32 {
        let along = coordinate.iter().zip(&self.shape);
        self.ranks
            [along.fold(0, |place, (&index, &length)| place * length as usize + index as usize)]
    }

    /// The ranks that have `coordinate` in all other dimensions than `dims`: the last of these
    /// varies fastest.
    pub(super) fn part(&self, dims: &[usize], coordinate: &[u32]) -> Vec<u32> {
        let mut at = coordinate.to_vec();
        dims.iter().for_each(|&dim| at[dim] = 0);
        let mut ranks = Vec::new();
        loop {
            ranks.push(self.rank_at(&at));
            let next = dims.iter().rev().find(|&&dim| {
                at[dim] = (at[dim] + 1) % self.shape[dim];
                at[dim] != 0
            });
            if next.is_none() {
                return ranks;
            }
        }
    }

    /// The index of a dimension. Without a name or an index the mesh must have one only.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for one that the mesh does not have, [`Error::MeshDimension`] by
    /// its name.
    pub(super) fn dim(&self, dim: &MeshDim) -> Result<usize> {
        let count = self.shape.len();
        match dim {
            MeshDim::Only if count == 1 => Ok(0),
            MeshDim::Only => invalid(format!(
                "the mesh has {count} dimensions: mesh_dim must say which of them is meant{}",
                self.known_names()
            )),
            MeshDim::Index(index) => {
                let from_start = if *index < 0 { index + count as i32 } else { *index };
                let found = usize::try_from(from_start).ok().filter(|&found| found < count);
                found.map_or_else(
                    || invalid(format!("the mesh has {count} dimensions, and none at {index}")),
                    Ok,
                )
            }
            MeshDim::Name(name) => {
                let found = self.names().iter().position(|known| known == name);
                found.map_or_else(
                    || {
                        let known = self.known_names();
                        let message = format!("the mesh has no dimension '{name}'{known}");
                        Err(Error::MeshDimension { message })
                    },
                    Ok,
                )
            }
        }
    }

    /// The names of the dimensions; none if they have none.
    pub(super) fn names(&self) -> &[String] {
        self.names.as_deref().unwrap_or_default()
    }

    fn known_names(&self) -> String {
        match self.names() {
            [] => "; its dimensions have no names".to_owned(),
            names => format!("; its dimensions are {names:?}"),
        }
    }
}

/// As Python writes the call that makes it.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceMesh('{}', ", self.device_type)?;
        write_nested(f, &self.shape, &self.ranks)?;
        if let Some(names) = &self.names {
            f.write_str(", mesh_dim_names=[")?;
            for (position, name) in names.iter().enumerate() {
                write!(f, "{}'{name}'", if position == 0 { "" } else { ", " })?;
            }
            f.write_str("]")?;
        }
        f.write_str(")")
    }
}

/// Writes the ranks of an array of this shape as nested lists.
fn write_nested(f: &mut fmt::Formatter<'_>, shape: &[u32], ranks: &[u32]) -> fmt::Result {
    let [length, inner @ ..] = shape else { return write!(f, "{}", ranks[0]) };
    f.write_str("[")?;
    let each = ranks.len() / *length as usize;
    for (position, part) in ranks.chunks(each).enumerate() {
        f.write_str(if position == 0 { "" } else { ", " })?;
        write_nested(f, inner, part)?;
    }
    f.write_str("]")
}

/// More ranks than any group has.
const MAX_RANKS: u64 = 1 << 24;

/// How many ranks a mesh of this shape has.
pub(super) fn places(shape: &[u32]) -> Result<u64> {
    if shape.is_empty() || shape.contains(&0) {
        let what = "expected one dimension or more, each with one rank or more";
        return invalid(format!("a mesh cannot have the shape {shape:?}: {what}"));
    }
    let product = shape.iter().try_fold(1u64, |product, &length| {
        product.checked_mul(u64::from(length)).filter(|&product| product <= MAX_RANKS)
    });
    product.map_or_else(|| invalid(format!("a mesh of shape {shape:?} has too many ranks")), Ok)
}

fn check_device_type(device_type: &str) -> Result<()> {
    if matches!(device_type, "cpu" | "cuda") {
        return Ok(());
    }
    let why = match device_type.split_once(':') {
        Some((kind @ ("cpu" | "cuda"), _)) => format!("; it has no index: give '{kind}'"),
        _ => String::new(),
    };
    invalid(format!("device_type must be 'cpu' or 'cuda', not '{device_type}'{why}"))
}

fn check_names(names: Option<&[String]>, count: usize) -> Result<()> {
    let names = names.unwrap_or_default();
    if !names.is_empty() && names.len() != count {
        let came = names.len();
        return invalid(format!("a mesh of {count} dimensions has {count} names, not {came}"));
    }
    let twice = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name));
    match twice {
        Some((_, name)) => invalid(format!("each name of a dimension is there once, not '{name}'")),
        None => Ok(()),
    }
}

pub(super) fn invalid<T>(message: String) -> Result<T> {
    Err(Error::InvalidArgument { message })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn layout(shape: &[u32]) -> Layout {
        let count = places(shape).unwrap() as u32;
        Layout::new("cpu", shape.to_vec(), (0..count).collect(), None).unwrap()
    }

    #[test]
    fn every_rank_stands_where_its_coordinate_says() {
        for shape in [&[1][..], &[5], &[2, 4], &[1, 3], &[2, 3, 4], &[2, 1, 2, 3]] {
            let layout = layout(shape);
            for rank in 0..layout.ranks.len() as u32 {
                let coordinate = layout.coordinate(rank).unwrap();
                assert_eq!(layout.rank_at(&coordinate), rank, "{shape:?}");
                // Row-major, from hand: each index times the ranks that one step passes.
                let strides = (0..shape.len()).map(|dim| shape[dim + 1..].iter().product::<u32>());
                let place: u32 = coordinate.iter().zip(strides).map(|(at, step)| at * step).sum();
                assert_eq!(place, rank);
            }
            assert_eq!(layout.coordinate(layout.ranks.len() as u32), None);
        }
    }

    #[test]
    fn parts_have_the_ranks_that_torch_documents() {
        // The example of `DeviceMesh.__getitem__`: dimensions dp, pp and cp of 2 ranks each.
        let mesh = layout(&[2, 2, 2]);
        for (ranks, part) in [([0, 1, 4, 5], [0, 1, 4, 5]), ([2, 3, 6, 7], [2, 3, 6, 7])] {
            for rank in ranks {
                let coordinate = mesh.coordinate(rank).unwrap();
                assert_eq!(mesh.part(&[0, 2], &coordinate), part);
            }
        }
        let mesh = layout(&[2, 4]);
        assert_eq!(mesh.part(&[0], &[1, 2]), [2, 6]);
        assert_eq!(mesh.part(&[1], &[1, 2]), [4, 5, 6, 7]);
        assert_eq!(mesh.part(&[0, 1], &[1, 2]), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_wrong_with_a_layout_is_said() {
        let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        let refused = |shape: &[u32], ranks: &[u32], known: Option<Vec<String>>| {
            let made = Layout::new("cpu", shape.to_vec(), ranks.to_vec(), known);
            made.unwrap_err().to_string()
        };
        for (text, part) in [
            (refused(&[2, 2], &[0, 1, 2], None), "[2, 2] has 4 ranks, not 3"),
            (refused(&[2, 0], &[], None), "cannot have the shape [2, 0]"),
            (refused(&[], &[0], None), "cannot have the shape []"),
            (refused(&[65536, 65536], &[0], None), "too many ranks"),
            (refused(&[3], &[4, 1, 4], None), "rank 4 is in the mesh twice"),
            (refused(&[1, 2], &[0, 1], names(&["a"])), "2 dimensions has 2 names, not 1"),
            (refused(&[1, 2], &[0, 1], names(&["a", "a"])), "is there once, not 'a'"),
        ] {
            assert!(text.contains(part), "{text}");
        }
        let text = Layout::new("cuda:1", vec![1], vec![0], None).unwrap_err().to_string();
        assert!(text.contains("not 'cuda:1'; it has no index: give 'cuda'"), "{text}");
    }

    #[test]
    fn a_layout_is_written_as_the_call_that_makes_it() {
        let names = Some(vec!["dp".to_owned(), "tp".to_owned()]);
        let mesh = Layout::new("cuda", vec![2, 2], vec![3, 1, 0, 2], names).unwrap();
        let text = "DeviceMesh('cuda', [[3, 1], [0, 2]], mesh_dim_names=['dp', 'tp'])";
        assert_eq!(mesh.to_string(), text);
        assert_eq!(layout(&[1]).to_string(), "DeviceMesh('cpu', [0])");
    }
}
