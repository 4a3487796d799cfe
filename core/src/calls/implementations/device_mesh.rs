//! `DeviceMesh`, and the functions that make meshes.

use super::settings::or_noted;
use crate::backend::BackendOptions;
use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::array_lists::{is_integer, numbers};
use crate::calls::invocation::Invocation;
use crate::calls::object::Object;
use crate::calls::parameters::{device_mesh::*, distributed as functions};
use crate::calls::resolve::record;
use crate::calls::{Settings, Value, tables};
use crate::device_mesh::{self, DeviceMesh, DimensionBackend, MeshDim, MeshOptions};
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::tensor::{Region, Tensor};

/// Makes a mesh of an array of ranks.
pub(crate) async fn new(mut call: Invocation) -> Result<Answer> {
    let device_type: String = call.take(new::DEVICE_TYPE)?;
    let array = array_of(call.value(new::MESH));
    let init_backend: bool = call.take(new::INIT_BACKEND)?;
    // What is wrong with this rank's alone, the others learn.
    let (options, array) =
        match options(&mut call, new::MESH_DIM_NAMES, Some(new::BACKEND_OVERRIDE)) {
            Ok(options) => (options, array),
            Err(why) => (MeshOptions::default(), Err(why)),
        };
    let options = options.layout_only(!init_backend);
    DeviceMesh::of_array(&device_type, array, options).await.into_answer()
}

/// Makes a mesh of a shape.
pub(crate) async fn init_device_mesh(mut call: Invocation) -> Result<Answer> {
    use functions::init_device_mesh::{BACKEND_OVERRIDE, DEVICE_TYPE, MESH_DIM_NAMES, MESH_SHAPE};
    let device_type: String = call.take(DEVICE_TYPE)?;
    let shape: Vec<u32> = call.take(MESH_SHAPE)?;
    let mut possible = Ok(());
    let options = options(&mut call, MESH_DIM_NAMES, Some(BACKEND_OVERRIDE));
    let options = or_noted(options, &mut possible);
    device_mesh::init_device_mesh_if(possible, &device_type, &shape, options).await.into_answer()
}

/// Makes a mesh of groups that exist.
pub(crate) fn from_group(mut call: Invocation) -> Result<Answer> {
    let groups = call.objects(from_group::GROUP).into_iter().map(Object::group);
    let groups = groups.map(|group| group.cloned()).collect::<Result<Vec<_>>>()?;
    let device_type: String = call.take(from_group::DEVICE_TYPE)?;
    let options = options(&mut call, from_group::MESH_DIM_NAMES, None)?;
    let (shape, ranks) = match (call.value(from_group::MESH), groups.as_slice()) {
        (Value::None, [only]) => (vec![only.size()], only.ranks().to_vec()),
        (Value::None, _) => {
            return Err(invalid("Must pass mesh if passing multiple ProcessGroups"));
        }
        (array, _) => array_of(array)?,
    };
    DeviceMesh::from_groups(&groups, &device_type, &shape, &ranks, options).into_answer()
}

/// A mesh with one more dimension.
pub(crate) fn extend_device_mesh(mut call: Invocation) -> Result<Answer> {
    use functions::extend_device_mesh::{DIM, MESH, NAME, PG};
    let mesh = call.object(MESH).ok_or_else(|| invalid("'mesh' must be a DeviceMesh"))?;
    let (mesh, group) = (mesh.mesh()?.clone(), call.group(PG)?);
    let (name, dim): (String, i32) = (call.take(NAME)?, call.take(DIM)?);
    device_mesh::extend_device_mesh(&mesh, &group, &name, dim).into_answer()
}

/// The current mesh of this thread; languages know their own.
pub(crate) fn current_device_mesh(_: Invocation) -> Result<Answer> {
    device_mesh::current_device_mesh().into_answer()
}

/// `cpu` or `cuda`.
pub(crate) fn device_type(call: Invocation) -> Result<Answer> {
    call.this_mesh()?.device_type().into_answer()
}

/// The ranks: a tensor, or nested lists for JavaScript.
pub(crate) fn mesh(call: Invocation) -> Result<Answer> {
    let mesh = call.this_mesh()?;
    if call.language().is_script() {
        return nested(mesh.shape(), mesh.ranks());
    }
    let ranks: Vec<u8> = mesh.ranks().iter().flat_map(|rank| rank.to_le_bytes()).collect();
    let memory = Region::zeroed(ranks.len());
    memory.write(|bytes| bytes.copy_from_slice(&ranks));
    let shape = mesh.shape().iter().map(|&length| length as usize).collect();
    Tensor::contiguous(memory, DType::I32, shape).into_answer()
}

/// The names of the dimensions.
pub(crate) fn mesh_dim_names(call: Invocation) -> Result<Answer> {
    call.this_mesh()?.names().map(<[String]>::to_vec).into_answer()
}

/// The number of dimensions.
pub(crate) fn ndim(call: Invocation) -> Result<Answer> {
    (call.this_mesh()?.ndim() as u32).into_answer()
}

/// The length of each dimension.
pub(crate) fn shape(call: Invocation) -> Result<Answer> {
    call.this_mesh()?.shape().into_answer()
}

/// The number of ranks, or the length of a dimension.
pub(crate) fn size(call: Invocation) -> Result<Answer> {
    call.this_mesh()?.size(dim_of(call.value(size::MESH_DIM))?).into_answer()
}

/// This process's global rank.
pub(crate) fn get_rank(call: Invocation) -> Result<Answer> {
    call.this_mesh()?.rank().into_answer()
}

/// This process's index in each dimension.
pub(crate) fn get_coordinate(call: Invocation) -> Result<Answer> {
    call.this_mesh()?.coordinate().into_answer()
}

/// This process's index in a dimension.
pub(crate) fn get_local_rank(call: Invocation) -> Result<Answer> {
    call.this_mesh()?.local_rank(dim_of(call.value(get_local_rank::MESH_DIM))?).into_answer()
}

/// The group along a dimension.
pub(crate) fn get_group(call: Invocation) -> Result<Answer> {
    call.this_mesh()?.group(dim_of(call.value(get_group::MESH_DIM))?).into_answer()
}

/// The groups along all dimensions.
pub(crate) fn get_all_groups(call: Invocation) -> Result<Answer> {
    call.this_mesh()?.groups()?.to_vec().into_answer()
}

/// The part with this process and some dimensions.
pub(crate) fn slice(mut call: Invocation) -> Result<Answer> {
    let mesh = call.this_mesh()?;
    let names: Vec<String> = match call.value(slice::MESH_DIM_NAMES) {
        Value::Str(name) => vec![name.clone()],
        _ => call.take(slice::MESH_DIM_NAMES)?,
    };
    mesh.slice(names).into_answer()
}

/// All dimensions in one.
pub(crate) async fn flatten(mut call: Invocation) -> Result<Answer> {
    let name: Option<String> = call.take(flatten::MESH_DIM_NAME)?;
    call.this_mesh()?.flatten_async(name.as_deref()).await.into_answer()
}

/// Whether two meshes have the same ranks, shape, names and device type.
pub(crate) fn equals(call: Invocation) -> Result<Answer> {
    let other = call.object(equals::OTHER).map(Object::mesh).transpose()?;
    (other == Some(&call.this_mesh()?)).into_answer()
}

/// What the mesh was made of.
pub(crate) fn get_root_mesh(call: Invocation) -> Result<Answer> {
    call.this_mesh()?.root().into_answer()
}

fn options(call: &mut Invocation, names: usize, backends: Option<usize>) -> Result<MeshOptions> {
    let options = MeshOptions { names: call.take(names)?, ..MeshOptions::default() };
    Ok(match backends {
        Some(backends) => options.backend_override(backends_of(call, backends)?),
        None => options,
    })
}

/// What a list of pairs says: a dimension, and a backend, its options, or both in a pair.
fn backends_of(call: &Invocation, position: usize) -> Result<Vec<(MeshDim, DimensionBackend)>> {
    let pairs = match call.value(position) {
        Value::List(pairs) => pairs.as_slice(),
        Value::None => &[],
        _ => return Err(no_override()),
    };
    let read = |pair: &Value| {
        let Value::List(pair) = pair else { return Err(no_override()) };
        let [dim, given] = pair.as_slice() else { return Err(no_override()) };
        let mut backend = DimensionBackend::default();
        for part in if let Value::List(parts) = given { parts } else { std::slice::from_ref(given) }
        {
            match part {
                Value::Str(name) => backend.backend = Some(name.clone()),
                Value::None => {}
                part => {
                    let options = record(part, &tables::BACKEND_OPTIONS, call.language());
                    let options = options.ok_or_else(no_override)?;
                    backend = with_options(call, position, &options, backend)?;
                }
            }
        }
        Ok((dim_of(dim)?, backend))
    };
    pairs.iter().map(read).collect()
}

fn with_options(
    call: &Invocation,
    position: usize,
    record: &Value,
    before: DimensionBackend,
) -> Result<DimensionBackend> {
    let settings = Settings::of(call.name(), call.parameter(position), record)?;
    let options: Option<BackendOptions> = settings.backend_options;
    let mut backend = DimensionBackend::default();
    backend.backend = before.backend.or(settings.backend);
    backend.options = options;
    Ok(backend)
}

fn no_override() -> Error {
    invalid(
        "backend_override must name dimensions by index or name, and for each a backend, its \
         BackendOptions, or both in a pair",
    )
}

fn dim_of(value: &Value) -> Result<MeshDim> {
    match value {
        Value::None => Ok(MeshDim::Only),
        Value::Str(name) => Ok(MeshDim::Name(name.clone())),
        Value::Int(index) => Ok(MeshDim::Index(i32::try_from(*index).unwrap_or(i32::MAX))),
        _ => Err(invalid("a dimension is named by its index or its name")),
    }
}

/// The shape and the ranks of nested lists of equal lengths, or of an array of integers.
fn array_of(value: &Value) -> Result<(Vec<u32>, Vec<u32>)> {
    let (mut shape, mut ranks) = (Vec::new(), Vec::new());
    match value {
        Value::Tensor(tensor) => {
            shape.extend(tensor.shape().iter().map(|&length| length as u32));
            if !is_integer(tensor.dtype()) {
                let dtype = tensor.dtype().name();
                return Err(invalid(&format!("a mesh is an array of integers, not of {dtype}")));
            }
            for number in numbers(tensor) {
                ranks.push(rank_of(number)?);
            }
        }
        value => flatten_into(value, 0, &mut shape, &mut ranks)?,
    }
    Ok((shape, ranks))
}

fn flatten_into(
    value: &Value,
    depth: usize,
    shape: &mut Vec<u32>,
    ranks: &mut Vec<u32>,
) -> Result<()> {
    match value {
        Value::List(items) => {
            let length = items.len() as u32;
            // The first list of each depth says how long the others are.
            if shape.len() == depth && ranks.is_empty() {
                shape.push(length);
            }
            if shape.get(depth) != Some(&length) {
                let what = if shape.len() == depth { "depths" } else { "lengths" };
                return Err(invalid(&format!(
                    "a mesh is an array: its nested lists must have equal {what}"
                )));
            }
            items.iter().try_for_each(|item| flatten_into(item, depth + 1, shape, ranks))
        }
        Value::Int(number) if depth > 0 && depth == shape.len() => {
            ranks.push(rank_of(*number)?);
            Ok(())
        }
        Value::Int(_) if depth > 0 => {
            Err(invalid("a mesh is an array: its nested lists must have equal depths"))
        }
        _ => Err(invalid("a mesh is given as nested lists or as an array of ranks")),
    }
}

fn rank_of(number: i64) -> Result<u32> {
    u32::try_from(number).map_err(|_| invalid(&format!("{number} is not a rank")))
}

/// An array of this shape as nested lists.
fn nested(shape: &[u32], ranks: &[u32]) -> Result<Answer> {
    match shape {
        [] | [_] => ranks.into_answer(),
        [length, inner @ ..] => {
            let parts = ranks.chunks(ranks.len() / *length as usize);
            parts.map(|part| nested(inner, part)).collect::<Result<Vec<_>>>()?.into_answer()
        }
    }
}

fn invalid(message: &str) -> Error {
    Error::InvalidArgument { message: message.to_owned() }
}
