//! Meshes: the ranks of a job in an n-dimensional array, and a group along each dimension. Knows no
//! backend and no transport.

mod agreement;
mod current;
mod flatten;
mod layout;
mod making;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use self::flatten::Flattened;
use self::layout::{Layout, invalid};
use crate::distributed;
use crate::generated::error::{Error, Result};
use crate::process_group::{ProcessGroup, next_identity};

pub use current::{current_device_mesh, with_device_mesh, with_device_mesh_async};
pub use layout::MeshDim;
pub(crate) use making::init_device_mesh_if;
pub use making::{
    DimensionBackend, MeshOptions, extend_device_mesh, init_device_mesh, init_device_mesh_async,
};

/// The ranks of a job in an n-dimensional array, with a group along each of its dimensions.
///
/// In a group of a dimension, ranks stand as in the mesh. Two meshes are equal if their ranks,
/// shape, names and type of device are. Cheap to clone: a clone is the same mesh.
///
/// ```no_run
/// use polyrank::device_mesh::{MeshOptions, init_device_mesh};
///
/// let mesh = init_device_mesh("cpu", &[2, 4], MeshOptions::default().names(["dp", "tp"]))?;
/// let mut gradients = [1.0f32; 8];
/// mesh.group("dp")?.allreduce(&mut gradients, ())?;
/// # Ok::<(), polyrank::Error>(())
/// ```
#[derive(Clone)]
pub struct DeviceMesh {
    inner: Arc<Inner>,
}

struct Inner {
    identity: u64,
    layout: Layout,
    /// This process's rank, where it is known: a layout alone may be made without a group.
    rank: Option<u32>,
    /// None if this process is not in the mesh.
    coordinate: Option<Vec<u32>>,
    /// One for each dimension; none for a layout without groups. Empty outside of the mesh.
    groups: Option<Vec<ProcessGroup>>,
    /// The group of all ranks that made the mesh, where it is not the default group.
    parent: Option<ProcessGroup>,
    /// The names of the dimensions that [`extend_device_mesh`] added, of whatever size.
    extended: Vec<String>,
    /// The group whose ranks the mesh has: `parent`, or the default group that there was.
    world: Option<ProcessGroup>,
    /// What it was sliced out of or flattened from.
    origin: Option<Origin>,
    /// Dimensions that `flatten` made of several of this one, which is nobody's part.
    flattened: Mutex<Vec<Flattened>>,
}

struct Origin {
    root: DeviceMesh,
    /// For each dimension, those of the root that are in it.
    dims: Vec<Vec<usize>>,
}

impl DeviceMesh {
    /// A number that no other object of this process ever has.
    pub(crate) fn identity(&self) -> u64 {
        self.inner.identity
    }

    /// `cpu` or `cuda`.
    pub fn device_type(&self) -> &str {
        &self.inner.layout.device_type
    }

    /// The length of each dimension.
    pub fn shape(&self) -> &[u32] {
        &self.inner.layout.shape
    }

    /// The global ranks, row-major.
    pub fn ranks(&self) -> &[u32] {
        &self.inner.layout.ranks
    }

    /// The names of the dimensions, if they have any.
    pub fn names(&self) -> Option<&[String]> {
        self.inner.layout.names.as_deref()
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.shape().len()
    }

    /// The length of a dimension, which may be one that [`flatten`](DeviceMesh::flatten) gave, or
    /// with `()` the number of ranks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a dimension that the mesh does not have,
    /// [`Error::MeshDimension`] by its name.
    pub fn size(&self, dim: impl Into<MeshDim>) -> Result<u32> {
        let dim = dim.into();
        match self.flat_dimension(&dim)? {
            Some(flat) => Ok(flat.shape()[0]),
            None if dim == MeshDim::Only => Ok(self.ranks().len() as u32),
            None => Ok(self.shape()[self.inner.layout.dim(&dim)?]),
        }
    }

    /// This process's global rank.
    ///
    /// # Errors
    /// [`Error::NotInitialized`] for a layout that was made without a default group, and once the
    /// group that the mesh was made in is destroyed; [`Error::InvalidGroup`] for the latter if
    /// there is another default group.
    pub fn rank(&self) -> Result<u32> {
        let rank = self.inner.rank.ok_or(Error::NotInitialized)?;
        let is_left = match &self.root().inner.world {
            Some(world) => world.unless_left(),
            // It has its rank from them.
            None => {
                let mut groups = self.inner.groups.iter().flatten();
                groups.try_for_each(ProcessGroup::unless_left)
            }
        };
        match is_left {
            Ok(()) => Ok(rank),
            Err(why) if distributed::is_initialized() => Err(why),
            Err(_) => Err(Error::NotInitialized),
        }
    }

    /// This process's index in each dimension; none if it is not in the mesh.
    pub fn coordinate(&self) -> Option<&[u32]> {
        self.inner.coordinate.as_deref()
    }

    /// This process's index in a dimension, which is its rank in that dimension's group. It may be
    /// one that [`flatten`](DeviceMesh::flatten) gave.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a dimension that the mesh does not have,
    /// [`Error::MeshDimension`] by its name;
    /// [`Error::InvalidGroup`] if this process is not in the mesh.
    pub fn local_rank(&self, dim: impl Into<MeshDim>) -> Result<u32> {
        let dim = dim.into();
        let flat = self.flat_dimension(&dim)?;
        let mesh = flat.as_ref().unwrap_or(self);
        let dim = mesh.inner.layout.dim(&dim)?;
        Ok(mesh.own_coordinate()?[dim])
    }

    /// The group of this process along a dimension, which may be one that
    /// [`flatten`](DeviceMesh::flatten) gave; with `()` along the only one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a dimension that the mesh does not have,
    /// [`Error::MeshDimension`] by its name;
    /// [`Error::InvalidGroup`] if this process is not in the mesh, or the mesh has no groups.
    pub fn group(&self, dim: impl Into<MeshDim>) -> Result<ProcessGroup> {
        let dim = dim.into();
        let flat = self.flat_dimension(&dim)?;
        let mesh = flat.as_ref().unwrap_or(self);
        let dim = mesh.inner.layout.dim(&dim)?;
        Ok(mesh.groups()?[dim].clone())
    }

    /// The groups of this process along all dimensions.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if this process is not in the mesh, or the mesh has no groups.
    pub fn groups(&self) -> Result<&[ProcessGroup]> {
        self.own_coordinate()?;
        self.inner.groups.as_deref().ok_or_else(|| Error::InvalidGroup {
            message: "the mesh is a layout only, which was made without groups".to_owned(),
        })
    }

    /// The part of the mesh that has this process and the dimensions of these names, in the order
    /// in which they stand in the mesh. Its groups are those of the mesh. A name may be one that
    /// [`flatten`](DeviceMesh::flatten) gave.
    ///
    /// # Errors
    /// [`Error::MeshDimension`] for a name that the mesh does not have, or that stands elsewhere;
    /// [`Error::InvalidGroup`] if this process is not in the mesh.
    pub fn slice<S: AsRef<str>>(&self, names: impl AsRef<[S]>) -> Result<DeviceMesh> {
        let names: Vec<&str> = names.as_ref().iter().map(AsRef::as_ref).collect();
        let layout = &self.inner.layout;
        if layout.names().is_empty() {
            return invalid("Cannot slice a DeviceMesh without mesh_dim_names!".into());
        }
        if names == layout.names() {
            return Ok(self.clone());
        }
        let root = self.root();
        let (mut dims, mut groups) = (Vec::new(), Vec::new());
        for name in &names {
            let (of_root, group) = self.dimension(name)?;
            dims.push(of_root);
            groups.extend(group);
        }
        let given = dims.concat();
        if names.is_empty() || !given.is_sorted_by(|one, next| one < next) {
            let message = format!(
                "a mesh cannot be sliced by {names:?}: expected one name or more, in the order of \
                 the dimensions {:?}",
                root.inner.layout.names()
            );
            return Err(Error::MeshDimension { message });
        }
        let of_root = &root.inner;
        let ranks = of_root.layout.part(&given, root.own_coordinate()?);
        let length = |dims: &Vec<usize>| dims.iter().map(|&dim| root.shape()[dim]).product();
        let names = names.into_iter().map(str::to_owned).collect();
        let shape = dims.iter().map(length).collect();
        let layout = Layout::new(self.device_type(), shape, ranks, Some(names))?;
        let groups = of_root.groups.is_some().then_some(groups);
        Ok(root.part(layout, groups, dims))
    }

    /// The mesh that this one was sliced out of, or flattened from; else itself.
    pub fn root(&self) -> DeviceMesh {
        self.inner.origin.as_ref().map_or(self, |origin| &origin.root).clone()
    }

    /// The dimensions of the root that `name` means, and this process's group along them, if it has
    /// groups.
    fn dimension(&self, name: &str) -> Result<(Vec<usize>, Option<ProcessGroup>)> {
        if let Some(known) = self.root().flattened(name)
            && (self.inner.origin.is_none() || !self.inner.layout.names().contains(&known.name))
        {
            return Ok((known.dims, Some(known.group)));
        }
        let dim = self.inner.layout.dim(&MeshDim::Name(name.to_owned()))?;
        let dims = self.inner.origin.as_ref().map_or_else(|| vec![dim], |it| it.dims[dim].clone());
        Ok((dims, self.inner.groups.as_ref().and_then(|groups| groups.get(dim)).cloned()))
    }

    /// A part of this mesh, which is nobody's part.
    fn part(
        &self,
        layout: Layout,
        groups: Option<Vec<ProcessGroup>>,
        dims: Vec<Vec<usize>>,
    ) -> DeviceMesh {
        let origin = Some(Origin { root: self.clone(), dims });
        let (rank, parent) = (self.inner.rank, self.inner.parent.clone());
        let coordinate = rank.and_then(|rank| layout.coordinate(rank));
        DeviceMesh::of(Inner { coordinate, groups, parent, origin, ..Inner::new(layout, rank) })
    }

    fn of(inner: Inner) -> DeviceMesh {
        DeviceMesh { inner: Arc::new(inner) }
    }

    fn own_coordinate(&self) -> Result<&[u32]> {
        self.coordinate().ok_or_else(|| {
            let who = self.inner.rank.map_or("this process".into(), |rank| format!("rank {rank}"));
            Error::InvalidGroup { message: format!("{who} is not in the mesh {self}") }
        })
    }
}

impl Inner {
    /// A mesh without groups, which is nobody's part.
    fn new(layout: Layout, rank: Option<u32>) -> Inner {
        Inner {
            identity: next_identity(),
            coordinate: rank.and_then(|rank| layout.coordinate(rank)),
            layout,
            rank,
            groups: None,
            parent: None,
            extended: Vec::new(),
            world: None,
            origin: None,
            flattened: Mutex::default(),
        }
    }

    fn lock_flattened(&self) -> std::sync::MutexGuard<'_, Vec<Flattened>> {
        self.flattened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for DeviceMesh {
    fn eq(&self, other: &DeviceMesh) -> bool {
        self.inner.layout == other.inner.layout
    }
}

impl Eq for DeviceMesh {}

impl Hash for DeviceMesh {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.layout.hash(state);
    }
}

/// As Python writes the call that makes it: `DeviceMesh('cpu', [[0, 1], [2, 3]])`.
impl fmt::Display for DeviceMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.layout.fmt(f)
    }
}

impl fmt::Debug for DeviceMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
