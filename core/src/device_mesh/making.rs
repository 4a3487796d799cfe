//! How meshes are made: with groups of their own, of groups that exist, and with one dimension
//! more. Knows no backend.

use super::agreement::agree;
use super::layout::{Layout, MeshDim, invalid, places};
use super::{DeviceMesh, Inner};
use crate::backend::BackendOptions;
use crate::blocking::block_on;
use crate::distributed::{self, InitOptions, NewGroupOptions};
use crate::generated::error::{Error, Result};
use crate::process_group::{ProcessGroup, SplitOptions};

/// How a mesh is made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MeshOptions {
    /// A name for each dimension.
    pub names: Option<Vec<String>>,
    /// Other backends for the groups of some dimensions.
    pub backend_override: Vec<(MeshDim, DimensionBackend)>,
    /// Whether it is a layout only: no groups are made, and no other rank is asked.
    pub layout_only: bool,
    /// The group whose ranks are in the mesh; the default group by default, which is made if there
    /// is none.
    pub group: Option<ProcessGroup>,
}

setters! {
    MeshOptions {
        names: impl IntoIterator<Item = impl Into<String>> =>
            Some(names.into_iter().map(Into::into).collect()),
        backend_override: Vec<(MeshDim, DimensionBackend)> => backend_override,
        layout_only: bool => layout_only,
        group: ProcessGroup => Some(group),
    }
}

/// Which backend serves the groups of a dimension.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DimensionBackend {
    /// `tcp`, or pairs as `cpu:tcp`; that of the mesh's group by default.
    pub backend: Option<String>,
    /// What is chosen about one backend, as `NcclOptions`.
    pub options: Option<BackendOptions>,
}

setters! {
    DimensionBackend {
        backend: impl Into<String> => Some(backend.into()),
        options: impl Into<BackendOptions> => Some(options.into()),
    }
}

/// Makes a mesh of this shape: rank 0 first, along the last dimension. If there are more ranks than
/// that, the last ones are not in it. All ranks of the default group call it, and wait for one
/// another.
///
/// # Errors
/// [`Error::InvalidArgument`] for a shape that needs more ranks than there are, or names that do
/// not fit it; on all ranks if they do not give the same, with who gave what. The errors of a
/// collective, and of groups that are made.
pub fn init_device_mesh(
    device_type: &str,
    mesh_shape: &[u32],
    options: MeshOptions,
) -> Result<DeviceMesh> {
    block_on(init_device_mesh_async(device_type, mesh_shape, options))
}

/// As [`init_device_mesh`], without blocking.
///
/// # Errors
/// As [`init_device_mesh`].
pub async fn init_device_mesh_async(
    device_type: &str,
    mesh_shape: &[u32],
    options: MeshOptions,
) -> Result<DeviceMesh> {
    init_device_mesh_if(Ok(()), device_type, mesh_shape, options).await
}

/// As [`init_device_mesh_async`], if it is `possible` for this rank; else the others learn why not.
pub(crate) async fn init_device_mesh_if(
    possible: Result<()>,
    device_type: &str,
    mesh_shape: &[u32],
    options: MeshOptions,
) -> Result<DeviceMesh> {
    let parent = parent_of(device_type, &options).await?;
    let layout = possible.and_then(|()| places(mesh_shape)).and_then(|count| {
        check_count(mesh_shape, count, parent.as_ref())?;
        let ranks = (0..count as u32).collect();
        Layout::new(device_type, mesh_shape.to_vec(), ranks, options.names.clone())
    });
    made("init_device_mesh", layout, parent, options).await
}

impl DeviceMesh {
    /// Makes a mesh of these ranks, row-major in an array of this shape. All ranks of the default
    /// group call it, those that are not in it as well, and wait for one another.
    ///
    /// # Errors
    /// As [`init_device_mesh`]; [`Error::InvalidArgument`] for a rank that is there twice or that
    /// the group does not have.
    pub fn new(
        device_type: &str,
        shape: &[u32],
        ranks: &[u32],
        options: MeshOptions,
    ) -> Result<DeviceMesh> {
        block_on(Self::new_async(device_type, shape, ranks, options))
    }

    /// As [`DeviceMesh::new`], without blocking.
    ///
    /// # Errors
    /// As [`DeviceMesh::new`].
    pub async fn new_async(
        device_type: &str,
        shape: &[u32],
        ranks: &[u32],
        options: MeshOptions,
    ) -> Result<DeviceMesh> {
        let layout = Ok((shape.to_vec(), ranks.to_vec()));
        Self::of_array(device_type, layout, options).await
    }

    /// As [`DeviceMesh::new_async`], of a shape and ranks, or of what is wrong with what was given
    /// for them: the other ranks learn it, too.
    pub(crate) async fn of_array(
        device_type: &str,
        array: Result<(Vec<u32>, Vec<u32>)>,
        options: MeshOptions,
    ) -> Result<DeviceMesh> {
        let parent = parent_of(device_type, &options).await?;
        let layout = array.and_then(|(shape, ranks)| {
            let layout = Layout::new(device_type, shape, ranks, options.names.clone())?;
            check_count(&layout.shape, layout.ranks.len() as u64, parent.as_ref())?;
            check_ranks(&layout.ranks, parent.as_ref())?;
            Ok(layout)
        });
        made("DeviceMesh", layout, parent, options).await
    }

    /// Makes a mesh with one dimension, whose group exists, without the other ranks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another number of names than one.
    pub fn from_group(
        group: &ProcessGroup,
        device_type: &str,
        options: MeshOptions,
    ) -> Result<DeviceMesh> {
        let (shape, ranks) = (vec![group.size()], group.ranks().to_vec());
        let groups = std::slice::from_ref(group);
        Self::from_groups(groups, device_type, &shape, &ranks, options)
    }

    /// Makes a mesh whose groups exist, one for each dimension in their order, without the other
    /// ranks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the mesh has not as many dimensions as there are groups, if it
    /// has no names, or where a group does not have the ranks of its dimension in their order.
    pub fn from_groups(
        groups: &[ProcessGroup],
        device_type: &str,
        shape: &[u32],
        ranks: &[u32],
        options: MeshOptions,
    ) -> Result<DeviceMesh> {
        groups.iter().try_for_each(ProcessGroup::unless_left)?;
        if shape.len() != groups.len() {
            let (count, dims) = (groups.len(), shape.len());
            return invalid(format!(
                "{count} groups make a mesh of {count} dimensions, not {dims}"
            ));
        }
        if groups.len() > 1 && options.names.is_none() {
            return invalid("Must pass mesh_dim_names if passing multiple ProcessGroups".into());
        }
        let layout = Layout::new(device_type, shape.to_vec(), ranks.to_vec(), options.names)?;
        let refuse = |dim: usize, group: &ProcessGroup, line: Option<&[u32]>| {
            let (name, members, length) = (group.group_name(), group.ranks(), shape[dim]);
            let here = line.map_or_else(String::new, |line| format!(" here: {line:?}"));
            invalid(format!(
                "group '{name}' with ranks {members:?} cannot be that of dimension {dim} of \
                 {layout}, which has {length} ranks{here}"
            ))
        };
        // Ranks in groups of other sizes are no coordinate.
        let mut sizes = groups.iter().zip(shape).enumerate();
        if let Some((dim, (group, _))) = sizes.find(|(_, (group, size))| group.size() != **size) {
            let own = group.ranks().get(group.rank() as usize);
            let coordinate = own.and_then(|&rank| layout.coordinate(rank));
            let line = match coordinate {
                Some(coordinate) => Some(layout.part(&[dim], &coordinate)),
                None => (shape.len() == 1).then(|| ranks.to_vec()),
            };
            return refuse(dim, group, line.as_deref());
        }
        let coordinate: Vec<u32> = groups.iter().map(ProcessGroup::rank).collect();
        for (dim, group) in groups.iter().enumerate() {
            let line = layout.part(&[dim], &coordinate);
            // Others have no global ranks, or not those of the default group.
            if distributed::is_registered(group) && group.ranks() != line {
                return refuse(dim, group, Some(&line));
            }
        }
        let rank = Some(layout.rank_at(&coordinate));
        let (groups, world) = (Some(groups.to_vec()), distributed::default_group().ok());
        Ok(Self::of(Inner { groups, world, ..Inner::new(layout, rank) }))
    }
}

/// A mesh with one more dimension, of length 1, whose group is `pg`, of whatever size: one whose
/// members change, as torchft's. `dim` is the index that the dimension gets.
///
/// # Errors
/// [`Error::InvalidArgument`] for a mesh without names, a name that there is already, and an index
/// that is too large; [`Error::InvalidGroup`] for a mesh without groups, and for a group that was
/// destroyed.
pub fn extend_device_mesh(
    mesh: &DeviceMesh,
    pg: &ProcessGroup,
    name: &str,
    dim: i32,
) -> Result<DeviceMesh> {
    let Layout { device_type, mut shape, ranks, names } = mesh.inner.layout.clone();
    let Some(mut names) = names else {
        return invalid(
            "a mesh is extended if its dimensions have names; this one has none".into(),
        );
    };
    let mut groups = mesh.groups()?.to_vec();
    pg.unless_left()?;
    let count = shape.len() as i32;
    let place = if dim < 0 { dim + count + 1 } else { dim };
    let Some(place) = usize::try_from(place).ok().filter(|&place| place <= shape.len()) else {
        return invalid(format!("dim must be from 0 to {count}, not {dim}"));
    };
    shape.insert(place, 1);
    names.insert(place, name.to_owned());
    groups.insert(place, pg.clone());
    let layout = Layout::new(&device_type, shape, ranks, Some(names))?;
    let Inner { parent, world, extended, .. } = &*mesh.inner;
    Ok(DeviceMesh::of(Inner {
        groups: Some(groups),
        extended: extended.iter().cloned().chain([name.to_owned()]).collect(),
        parent: parent.clone(),
        world: world.clone(),
        ..Inner::new(layout, mesh.inner.rank)
    }))
}

/// The group whose ranks are in the mesh; for a layout only, if there is one.
async fn parent_of(device_type: &str, options: &MeshOptions) -> Result<Option<ProcessGroup>> {
    if options.group.is_some() {
        return Ok(options.group.clone());
    }
    if !distributed::is_initialized() && !options.layout_only {
        let backend = if device_type == "cuda" { "cpu:tcp,cuda:nccl" } else { "tcp" };
        let init = InitOptions::default().backend(backend);
        return distributed::init_process_group_async(init).await.map(Some);
    }
    Ok(distributed::default_group().ok())
}

/// Makes the groups of a mesh, if all ranks of `parent` have the same one.
async fn made(
    function: &str,
    layout: Result<Layout>,
    parent: Option<ProcessGroup>,
    options: MeshOptions,
) -> Result<DeviceMesh> {
    let rank = parent.as_ref().map(ProcessGroup::rank);
    let world = match parent {
        Some(world) if !options.layout_only => world,
        world => return Ok(DeviceMesh::of(Inner { world, ..Inner::new(layout?, rank) })),
    };
    let planned = layout.and_then(|layout| {
        let backends = backends_of(&layout, &options.backend_override)?;
        Ok((layout, backends))
    });
    let given = match &planned {
        Ok((layout, backends)) => told(layout, backends),
        Err(error) => format!("what it refused ({error})"),
    };
    agree(&world, &own_ranks(&world), function, &given).await?;
    let (layout, backends) = planned?;
    let parent = options.group;
    let mut inner = Inner { world: Some(world.clone()), ..Inner::new(layout, rank) };
    let mut groups = Vec::new();
    for (dim, backend) in backends.into_iter().enumerate() {
        let description = match inner.layout.names.as_ref() {
            Some(names) => format!("mesh_{}", names[dim]),
            None => format!("mesh_dim_{dim}"),
        };
        let Some(coordinate) = &inner.coordinate else {
            stay_out(&world, backend)?;
            continue;
        };
        let ranks = inner.layout.part(&[dim], coordinate);
        let is_world =
            inner.layout.shape.len() == 1 && backend.is_none() && ranks == own_ranks(&world);
        groups.push(match is_world {
            true => world.clone(),
            false => group_of(parent.as_ref(), &ranks, &description, backend).await?,
        });
    }
    inner.groups = Some(groups);
    inner.parent = parent;
    Ok(DeviceMesh::of(inner))
}

/// A group of ranks of `parent`, in their order; of the default group if none is given.
pub(super) async fn group_of(
    parent: Option<&ProcessGroup>,
    ranks: &[u32],
    description: &str,
    backend: Option<DimensionBackend>,
) -> Result<ProcessGroup> {
    let DimensionBackend { backend, options } = backend.unwrap_or_default();
    let made = match parent {
        Some(parent) => {
            let split = SplitOptions {
                description: Some(description.to_owned()),
                backend: backend.map(|backend| backend.parse()).transpose()?,
                backend_options: options,
                ..SplitOptions::default()
            };
            parent.split_group_async(ranks, split).await?
        }
        None => {
            let new = NewGroupOptions {
                ranks: Some(ranks.to_vec()),
                description: Some(description.to_owned()),
                keep_order: true,
                backend,
                backend_options: options,
                ..NewGroupOptions::default()
            };
            distributed::new_group_async(new).await?
        }
    };
    // Its caller is one of the ranks.
    made.ok_or_else(|| Error::InvalidGroup { message: "this rank is not in it".to_owned() })
}

/// Takes part in a split that all ranks have to take part in, where they do: not in the mesh.
fn stay_out(world: &ProcessGroup, backend: Option<DimensionBackend>) -> Result<()> {
    let DimensionBackend { backend, options } = backend.unwrap_or_default();
    world.stay_out_of_split(&SplitOptions {
        backend: backend.map(|backend| backend.parse()).transpose()?,
        backend_options: options,
        ..SplitOptions::default()
    })
}

/// The ranks of a group as a mesh of it has them.
fn own_ranks(group: &ProcessGroup) -> Vec<u32> {
    (0..group.size()).collect()
}

/// The backends that were given for each dimension.
fn backends_of(
    layout: &Layout,
    given: &[(MeshDim, DimensionBackend)],
) -> Result<Vec<Option<DimensionBackend>>> {
    let mut backends = vec![None; layout.shape.len()];
    for (dim, backend) in given {
        let place = &mut backends[layout.dim(dim)?];
        if place.is_some() {
            return invalid("backend_override names a dimension twice".into());
        }
        if let Some(name) = &backend.backend {
            name.parse::<crate::backend::registry::BackendSpec>()?;
        }
        *place = Some(backend.clone());
    }
    Ok(backends)
}

/// A mesh as it is compared with the others'.
fn told(layout: &Layout, backends: &[Option<DimensionBackend>]) -> String {
    let backends = backends.iter().enumerate().filter_map(|(dim, backend)| {
        let name = backend.as_ref()?.backend.as_deref().unwrap_or("the group's");
        Some(format!(" with {name} for dimension {dim}"))
    });
    format!("{layout}{}", backends.collect::<String>())
}

fn check_count(shape: &[u32], count: u64, parent: Option<&ProcessGroup>) -> Result<()> {
    match parent.map(ProcessGroup::size) {
        Some(size) if count > u64::from(size) => invalid(format!(
            "a mesh of shape {shape:?} has {count} ranks, but there are only {size}"
        )),
        _ => Ok(()),
    }
}

fn check_ranks(ranks: &[u32], parent: Option<&ProcessGroup>) -> Result<()> {
    let Some(size) = parent.map(ProcessGroup::size) else { return Ok(()) };
    match ranks.iter().find(|&&rank| rank >= size) {
        Some(rank) => {
            invalid(format!("rank {rank} is in the mesh, but the ranks are 0 to {}", size - 1))
        }
        None => Ok(()),
    }
}
