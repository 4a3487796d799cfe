//! Grids and graphs of a group's ranks: how they are made, and what is known of them. Knows no
//! backend.

mod cartesian;
mod edges;
mod exchange;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::cartesian::{Grid, invalid};
use self::edges::{Adjacent, Edge, Edges};
use super::{ProcessGroup, next_identity, room_for};
use crate::blocking::block_on;
use crate::generated::error::{Error, Result};
use crate::wire::exchange::TopologyNumber;

pub use cartesian::compute_dims;
pub(crate) use exchange::NeighborCall;

/// Who is whose neighbour among the ranks of a group: a grid (MPI's cartesian topology), or a
/// graph.
///
/// All ranks make it together ([`ProcessGroup::create_cart`],
/// [`ProcessGroup::create_dist_graph_adjacent`]). Its operations are collectives of the group. A
/// rank may be its own neighbour, and may have another one twice: the first block that one of them
/// gives the other is the first that this one gets from it, and so on; in a grid, what a rank gives
/// in one direction arrives from the opposite one.
///
/// The neighbours of a rank in a grid are, for each dimension, the one before it and the one after
/// it. Where the grid ends, there is none: what stands there in the inputs goes nowhere, and what
/// stands there in the outputs stays as it was.
///
/// A clone is the same topology.
///
/// ```
/// # use polyrank::store::HashStore;
/// # use polyrank::ProcessGroup;
/// # use std::sync::Arc;
/// # let store = Arc::new(HashStore::new());
/// # let group = ProcessGroup::new(store, 0, 1, "alone", Default::default())?;
/// let ring = group.create_cart(&[group.size()], &[true])?;
/// let mut halo = [[0f32; 2]; 2].map(Vec::from);
/// ring.neighbor_alltoall(&mut halo, &[vec![1f32, 2.], vec![3., 4.]])?;
/// assert_eq!(halo, [[3., 4.], [1., 2.]]);
/// # Ok::<(), polyrank::Error>(())
/// ```
#[derive(Clone)]
pub struct Topology {
    inner: Arc<Inner>,
    /// Limit of its operations; none: the group's.
    timeout: Option<Duration>,
}

struct Inner {
    group: ProcessGroup,
    identity: u64,
    /// The members of the group to which it belongs, this rank among them, and how many there are.
    epoch: u64,
    rank: u32,
    size: u32,
    /// None if it is a graph.
    grid: Option<Grid>,
    edges: Edges,
    /// The number of the operation that made it, which all ranks know it by.
    made_by: u64,
}

/// What a rank gives to make a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Grid(Grid),
    Graph(Adjacent),
}

impl ProcessGroup {
    /// Arranges the ranks in a grid, as many as there are. All ranks call it, with the same
    /// arguments. Ranks stand as in an array: the last dimension counts fastest.
    ///
    /// `dims` are the lengths of the dimensions, of which [`compute_dims`] finds balanced ones;
    /// `periods` says of each whether the last one's next neighbour is the first, and may be empty:
    /// of none of them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the grid has not as many places as there are ranks;
    /// [`Error::TopologyMismatch`] where ranks disagree. The failure of a broken group.
    pub fn create_cart(&self, dims: &[u32], periods: &[bool]) -> Result<Topology> {
        block_on(self.create_cart_async(dims, periods))
    }

    /// As [`ProcessGroup::create_cart`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::create_cart`].
    pub async fn create_cart_async(&self, dims: &[u32], periods: &[bool]) -> Result<Topology> {
        self.require_members("create_cart")?;
        let grid = Grid::new(dims, periods, self.size())?;
        let made = self.make_topology("create_cart", Shape::Grid(grid));
        self.composed("CREATE_CART", -1, made).await
    }

    /// Makes a graph of the ranks, each of which says from whom it gets blocks and to whom it gives
    /// some, in the order of the outputs and inputs. All ranks call it. A rank that names another
    /// as its destination is named by that one as a source, as often; a rank may name itself.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for what is not a rank of the group; [`Error::TopologyMismatch`]
    /// for an edge that its two ends do not name as often. The failure of a broken group.
    pub fn create_dist_graph_adjacent(
        &self,
        sources: &[u32],
        destinations: &[u32],
    ) -> Result<Topology> {
        block_on(self.create_dist_graph_adjacent_async(sources, destinations))
    }

    /// As [`ProcessGroup::create_dist_graph_adjacent`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::create_dist_graph_adjacent`].
    pub async fn create_dist_graph_adjacent_async(
        &self,
        sources: &[u32],
        destinations: &[u32],
    ) -> Result<Topology> {
        let name = "create_dist_graph_adjacent";
        self.require_members(name)?;
        for (side, ranks) in [("source", sources), ("destination", destinations)] {
            ranks.iter().try_for_each(|&rank| self.check_peer(name, side, rank))?;
        }
        let (sources, destinations) = (sources.to_vec(), destinations.to_vec());
        let graph = Shape::Graph(Adjacent { sources, destinations });
        let made = self.make_topology(name, graph);
        self.composed("CREATE_DIST_GRAPH_ADJACENT", -1, made).await
    }

    async fn make_topology(&self, name: &str, own: Shape) -> Result<Topology> {
        let epoch = self.epoch();
        let (rank, size) = (self.rank(), self.size());
        let (made_by, edges) = match (&own, self.is_alone()) {
            (Shape::Grid(grid), true) => (0, Edges::of_grid(grid, rank)),
            // Of a group without peers, nobody else says anything.
            (Shape::Graph(graph), true) if size > 1 => (0, Edges::of_adjacent(graph)),
            (Shape::Graph(graph), true) => (0, Edges::of_graph(std::slice::from_ref(graph), rank)?),
            (_, false) => self.agreed_edges(&own).await?,
        };
        self.check_epoch(epoch, name)?;
        let grid = if let Shape::Grid(grid) = own { Some(grid) } else { None };
        let (group, identity) = (self.clone(), next_identity());
        let inner = Inner { group, identity, epoch, rank, size, grid, edges, made_by };
        Ok(Topology { inner: Arc::new(inner), timeout: None })
    }

    /// The edges of this rank, if the ranks agree, and the number of the operation by which they
    /// do.
    async fn agreed_edges(&self, own: &Shape) -> Result<(u64, Edges)> {
        let words = own.words();
        let all = vec![vec![0u64]; self.size() as usize];
        let lengths = self.all_gather_vecs(all, vec![words.len() as u64], None).await?;
        let room = lengths.iter().map(|length| room_for::<u32>(length[0]));
        let room = room.collect::<Result<_>>()?;
        let (made_by, given) = self.all_gather_numbered(room, words, None).await?;
        let given: Vec<Shape> = given.iter().map(|words| Shape::of_words(words)).collect();
        let edges = match own {
            Shape::Grid(grid) => {
                check_same(&given, |it| it == own)?;
                Edges::of_grid(grid, self.rank())
            }
            Shape::Graph(_) => {
                check_same(&given, |it| matches!(it, Shape::Graph(_)))?;
                let graphs = given.into_iter().filter_map(|it| match it {
                    Shape::Graph(graph) => Some(graph),
                    Shape::Grid(_) => None,
                });
                Edges::of_graph(&graphs.collect::<Vec<_>>(), self.rank())?
            }
        };
        Ok((made_by, edges))
    }
}

/// Checks that what ranks gave is like that of this one, and else says which two ranks differ: the
/// same two on all ranks.
fn check_same(given: &[Shape], is_like_own: impl Fn(&Shape) -> bool) -> Result<()> {
    if given.iter().all(is_like_own) {
        return Ok(());
    }
    let is_other = |first: &Shape, other: &Shape| match (first, other) {
        (Shape::Graph(_), Shape::Graph(_)) => false,
        (first, other) => first != other,
    };
    let mut ranks = (0..).zip(given);
    let Some((rank, first)) = ranks.next() else { return Ok(()) };
    let Some((other_rank, other)) = ranks.find(|(_, other)| is_other(first, other)) else {
        return Ok(());
    };
    let (ours, theirs) = (first.to_string(), other.to_string());
    Err(Error::TopologyMismatch { rank, ours, other_rank, theirs })
}

impl Shape {
    /// As it travels.
    fn words(&self) -> Vec<u32> {
        let (kind, first, second) = match self {
            Shape::Grid(grid) => {
                (0, &grid.dims, grid.periods.iter().map(|&it| u32::from(it)).collect())
            }
            Shape::Graph(graph) => (1, &graph.sources, graph.destinations.clone()),
        };
        let mut words = vec![kind, first.len() as u32];
        words.extend(first);
        words.extend(second);
        words
    }

    /// What [`Shape::words`] made words of.
    fn of_words(words: &[u32]) -> Shape {
        let [kind, length, rest @ ..] = words else {
            return Shape::Graph(Adjacent::default());
        };
        let (first, second) = rest.split_at_checked(*length as usize).unwrap_or((rest, &[]));
        match kind {
            0 => {
                let periods = second.iter().map(|&it| it != 0).collect();
                Shape::Grid(Grid { dims: first.to_vec(), periods })
            }
            _ => {
                let (sources, destinations) = (first.to_vec(), second.to_vec());
                Shape::Graph(Adjacent { sources, destinations })
            }
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Grid(grid) => write!(f, "{grid}"),
            Shape::Graph(_) => f.write_str("a graph"),
        }
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a grid of {:?} with periods {:?}", self.dims, self.periods)
    }
}

impl Topology {
    /// The group whose ranks they are.
    pub fn group(&self) -> &ProcessGroup {
        &self.inner.group
    }

    /// The same topology, whose operations have this limit instead of the group's; zero is none.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Topology {
        Topology { inner: self.inner.clone(), timeout: Some(timeout) }
    }

    /// A number that no other object of this process ever has.
    pub(crate) fn identity(&self) -> u64 {
        self.inner.identity
    }

    /// What all ranks know it by.
    fn number(&self) -> TopologyNumber {
        let Inner { grid, made_by, .. } = &*self.inner;
        TopologyNumber { is_grid: grid.is_some(), made_by: *made_by as u32 }
    }

    /// The length of each dimension of a grid; none for a graph.
    pub fn dims(&self) -> Option<&[u32]> {
        self.inner.grid.as_ref().map(|grid| grid.dims.as_slice())
    }

    /// Whether each dimension of a grid goes on with its first index after its last; none for a
    /// graph.
    pub fn periods(&self) -> Option<&[bool]> {
        self.inner.grid.as_ref().map(|grid| grid.periods.as_slice())
    }

    /// The ranks from which this one gets blocks, in the order of the outputs; none where a grid
    /// ends.
    pub fn sources(&self) -> Vec<Option<u32>> {
        peers(&self.inner.edges.sources)
    }

    /// The ranks to which this one gives blocks, in the order of the inputs; none where a grid
    /// ends.
    pub fn destinations(&self) -> Vec<Option<u32>> {
        peers(&self.inner.edges.destinations)
    }

    /// The index of a rank in each dimension of a grid.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it is not a rank of the group, or this is a graph.
    pub fn coordinates(&self, rank: u32) -> Result<Vec<u32>> {
        let (name, size) = ("coordinates", self.inner.size);
        let grid = self.grid(name)?;
        if rank >= size {
            let last = size - 1;
            return invalid(format!("{name}: rank must be from 0 to {last}, got {rank}"));
        }
        Ok(grid.coordinates(rank))
    }

    /// The rank with this index in each dimension of a grid. In a dimension that is periodic, an
    /// index may be any number.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for indices outside of the grid, if there is not one for each
    /// dimension, or if this is a graph.
    pub fn rank_at(&self, coordinates: &[i32]) -> Result<u32> {
        let name = "rank_at";
        let grid = self.grid(name)?;
        let indices = coordinates.iter().copied().map(i64::from);
        let is_whole = coordinates.len() == grid.dims.len();
        match grid.rank_at(indices).filter(|_| is_whole) {
            Some(rank) => Ok(rank),
            None => invalid(format!("{name}: {coordinates:?} is not in {grid}")),
        }
    }

    /// The rank from which this one gets, and the one to which it gives, where all of a grid shift
    /// something by `displacement` along a dimension; none where the grid ends.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such dimension, or this is a graph.
    pub fn shift(&self, dimension: u32, displacement: i32) -> Result<(Option<u32>, Option<u32>)> {
        let name = "shift";
        let grid = self.grid(name)?;
        let (dimension, dims) = (dimension as usize, grid.dims.len());
        let Some(last) = dims.checked_sub(1) else {
            return invalid(format!("{name}: the grid has no dimension, got {dimension}"));
        };
        if dimension > last {
            return invalid(format!("{name}: dimension must be from 0 to {last}, got {dimension}"));
        }
        let displacement = i64::from(displacement);
        let beside = |by| grid.beside(self.inner.rank, dimension, by);
        Ok((beside(-displacement), beside(displacement)))
    }

    fn grid(&self, name: &str) -> Result<&Grid> {
        match &self.inner.grid {
            Some(grid) => Ok(grid),
            None => invalid(format!("{name}: a graph has no coordinates")),
        }
    }
}

fn peers(edges: &[Option<Edge>]) -> Vec<Option<u32>> {
    edges.iter().map(|edge| edge.map(|edge| edge.peer)).collect()
}

/// A short description for debugging, the same in every language.
impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { group, rank, size, grid, .. } = &*self.inner;
        let name = group.group_name();
        match grid {
            Some(grid) => write!(f, "Topology({name}, rank {rank} of {size}, {grid})"),
            None => write!(f, "Topology({name}, rank {rank} of {size}, a graph)"),
        }
    }
}
