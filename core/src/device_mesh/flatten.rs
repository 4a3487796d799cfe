//! All dimensions of a mesh in one. Knows no backend.

use super::DeviceMesh;
use super::agreement::agree;
use super::layout::{Layout, MeshDim, invalid};
use super::making::group_of;
use crate::blocking::block_on;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;

#[derive(Clone)]
pub(super) struct Flattened {
    pub(super) name: String,
    /// Dimensions of the mesh.
    pub(super) dims: Vec<usize>,
    pub(super) group: ProcessGroup,
}

impl DeviceMesh {
    /// A mesh with all dimensions of this one in one, whose group is made by this call. All ranks
    /// of this mesh call it. The mesh that this one was sliced out of knows it by its name, too, as
    /// do all parts of that mesh. Without a name it is that of the dimensions, with `_` between
    /// them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] without names of dimensions, for a name that there is already,
    /// and where ranks disagree; [`Error::InvalidGroup`] if this process is not in the mesh; the
    /// errors of [`ProcessGroup::split_group`].
    pub fn flatten(&self, name: Option<&str>) -> Result<DeviceMesh> {
        block_on(self.flatten_async(name))
    }

    /// As [`DeviceMesh::flatten`], without blocking.
    ///
    /// # Errors
    /// As [`DeviceMesh::flatten`].
    pub async fn flatten_async(&self, name: Option<&str>) -> Result<DeviceMesh> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => self.inner.layout.names().join("_"),
        };
        if self.inner.layout.names() == [name.as_str()] {
            return Ok(self.clone());
        }
        // A rank without it has nobody to wait for.
        self.groups()?;
        let root = self.root();
        if let Some(known) = self.flattened_before(&name) {
            return root.flat(known);
        }
        let dims = self.dims_of_root();
        let flattens = self.flattens(&name, &dims);
        let world = self.world()?;
        let given = match &flattens {
            Ok(()) => {
                let names = root.inner.layout.names();
                format!("'{name}' of {dims:?} in the dimensions {names:?}")
            }
            Err(error) => format!("what it refused ({error})"),
        };
        agree(&world, self.ranks(), "flatten", &given).await?;
        flattens?;
        let ranks = root.inner.layout.part(&dims, root.own_coordinate()?);
        let parent = root.inner.parent.as_ref();
        let group = group_of(parent, &ranks, &format!("mesh_{name}"), None).await?;
        let made = Flattened { name, dims, group };
        root.inner.lock_flattened().push(made.clone());
        root.flat(made)
    }

    /// Whether this mesh can have all of its dimensions in one of this name.
    fn flattens(&self, name: &str, dims: &[usize]) -> Result<()> {
        if self.inner.layout.names().is_empty() {
            return invalid("Cannot flatten a DeviceMesh without mesh_dim_names!".into());
        }
        let root = self.root();
        if root.flattened(name).is_some() || root.inner.layout.names().iter().any(|it| it == name) {
            return invalid(format!(
                "'{name}' is a dimension of the mesh already; give another name"
            ));
        }
        let mut names = dims.iter().map(|&dim| &root.inner.layout.names()[dim]);
        match names.find(|name| root.inner.extended.contains(name)) {
            Some(extended) => invalid(format!(
                "the group of dimension '{extended}', which extend_device_mesh added, has members \
                 of its own, which are not in the mesh; flatten the other dimensions"
            )),
            None => Ok(()),
        }
    }

    /// What this mesh is with all of its dimensions in one of this name, if that was made before.
    fn flattened_before(&self, name: &str) -> Option<Flattened> {
        let known = self.root().flattened(name)?;
        (known.dims == self.dims_of_root()).then_some(known)
    }

    /// The mesh of a dimension that `flatten` made of several, if that is what is named.
    pub(super) fn flat_dimension(&self, dim: &MeshDim) -> Result<Option<DeviceMesh>> {
        let MeshDim::Name(name) = dim else { return Ok(None) };
        let root = self.root();
        root.flattened(name).map(|known| root.flat(known)).transpose()
    }

    /// A dimension of this mesh that was made of several.
    fn flat(&self, made: Flattened) -> Result<DeviceMesh> {
        let Flattened { name, dims, group } = made;
        let ranks = self.inner.layout.part(&dims, self.own_coordinate()?);
        let shape = vec![ranks.len() as u32];
        let layout = Layout::new(self.device_type(), shape, ranks, Some(vec![name]))?;
        Ok(self.part(layout, Some(vec![group]), vec![dims]))
    }

    /// The dimensions of the root that this one has.
    fn dims_of_root(&self) -> Vec<usize> {
        match &self.inner.origin {
            Some(origin) => origin.dims.concat(),
            None => (0..self.ndim()).collect(),
        }
    }

    /// The group whose ranks the mesh has, which has to be there still.
    fn world(&self) -> Result<ProcessGroup> {
        let root = self.root();
        let Some(world) = root.inner.world.clone() else { return Err(Error::NotInitialized) };
        world.unless_left().map(|()| world)
    }

    /// The dimension of this name that was made of several of this mesh.
    pub(super) fn flattened(&self, name: &str) -> Option<Flattened> {
        self.inner.lock_flattened().iter().find(|known| known.name == name).cloned()
    }
}
