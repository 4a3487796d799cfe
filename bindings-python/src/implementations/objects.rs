//! The free functions that carry objects: encode, exchange without the GIL, decode into lists.

use polyrank::calls::parameters::distributed::*;
use polyrank::objects::{Codec, EncodedObject, MissingObject, Payload};
use polyrank::{Error, ProcessGroup};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::Answer;
use crate::convert::{Call, CoreResult, detached, error_kind, give, invalid, nothing, raise};
use crate::object_codec;

/// All ranks get the objects of `src`.
pub(crate) fn broadcast_object_list<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(broadcast_object_list::GROUP)? {
        return nothing(py);
    }
    let group = call.group_at(broadcast_object_list::GROUP)?;
    let codec = codec_of(&mut call, broadcast_object_list::CODEC)?;
    let list = list_of(py, &call, broadcast_object_list::OBJECT_LIST)?;
    let root =
        call.take_rank(&group, broadcast_object_list::SRC, broadcast_object_list::GROUP_SRC)?;
    let root = root.ok_or_else(|| invalid(py, "Must specify src or group_src"))?;
    let mine = (group.rank() == root).then(|| encoded(list.as_any(), codec));
    let payload = detached(py, || group.broadcast_payload(mine, root))?;
    if group.rank() != root {
        replace(py, &list, &decoded(py, &payload, codec)?)?;
    }
    nothing(py)
}

/// All ranks get every rank's object.
pub(crate) fn all_gather_object<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(all_gather_object::GROUP)? {
        return nothing(py);
    }
    let group = call.group_at(all_gather_object::GROUP)?;
    let codec = codec_of(&mut call, all_gather_object::CODEC)?;
    let list = list_of(py, &call, all_gather_object::OBJECT_LIST)
        .and_then(|list| places(py, list, &group));
    let mine = encoded(&object(py, &call, all_gather_object::OBJ), codec);
    let mine = told(py, &list, mine);
    let payloads = detached(py, || group.all_gather_payloads(mine));
    // What is wrong here says more than that this rank gave nothing.
    fill(py, &list?, &payloads?, codec)
}

/// `dst` gets every rank's object.
pub(crate) fn gather_object<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(gather_object::GROUP)? {
        return nothing(py);
    }
    let group = call.group_at(gather_object::GROUP)?;
    let codec = codec_of(&mut call, gather_object::CODEC)?;
    let root = call.take_root(&group, gather_object::DST, gather_object::GROUP_DST)?;
    let list =
        match (group.rank() == root, call.object(gather_object::OBJECT_GATHER_LIST).is_some()) {
            (true, _) => list_of(py, &call, gather_object::OBJECT_GATHER_LIST)
                .and_then(|list| places(py, list, &group))
                .map(Some),
            (false, false) => Ok(None),
            (false, true) => Err(invalid(
                py,
                "Argument ``object_gather_list`` must NOT be specified on non-destination ranks.",
            )),
        };
    let mine = encoded(&object(py, &call, gather_object::OBJ), codec);
    let mine = told(py, &list, mine);
    let payloads = detached(py, || group.gather_payloads(mine, root));
    match (list?, payloads?) {
        (Some(list), Some(payloads)) => fill(py, &list, &payloads, codec),
        _ => nothing(py),
    }
}

/// Each rank gets its object of the list of `src`.
pub(crate) fn scatter_object_list<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(scatter_object_list::GROUP)? {
        return nothing(py);
    }
    let group = call.group_at(scatter_object_list::GROUP)?;
    let codec = codec_of(&mut call, scatter_object_list::CODEC)?;
    let root = call.take_root(&group, scatter_object_list::SRC, scatter_object_list::GROUP_SRC)?;
    let output =
        list_of(py, &call, scatter_object_list::SCATTER_OBJECT_OUTPUT_LIST).and_then(|list| {
            match list.is_empty() {
                true => {
                    Err(invalid(py, "Expected argument scatter_object_output_list to be non-empty"))
                }
                false => Ok(list),
            }
        });
    let all = (group.rank() == root).then(|| {
        output.as_ref().map_err(|why| missing(py, why))?;
        let list = list_of(py, &call, scatter_object_list::SCATTER_OBJECT_INPUT_LIST)
            .map_err(|why| missing(py, &why))?;
        list.iter().map(|item| encoded(&item, codec)).collect()
    });
    let payload = detached(py, || group.scatter_payloads(all, root));
    output?.set_item(0, decoded(py, &payload?, codec)?)?;
    nothing(py)
}

/// Sends the objects of a list.
pub(crate) fn send_object_list<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(send_object_list::GROUP)? {
        return nothing(py);
    }
    let group = call.group_at(send_object_list::GROUP)?;
    let codec = codec_of(&mut call, send_object_list::CODEC)?;
    let list = list_of(py, &call, send_object_list::OBJECT_LIST)?;
    let peer = call.take_rank(&group, send_object_list::DST, send_object_list::GROUP_DST)?;
    let peer = peer.ok_or_else(|| invalid(py, "one of 'dst' and 'group_dst' must be given"))?;
    let mine = encoded(list.as_any(), codec);
    detached(py, || group.send_payload(mine, peer))?;
    nothing(py)
}

/// Receives objects into a list; the sender's global rank.
pub(crate) fn recv_object_list<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(recv_object_list::GROUP)? {
        return give(py, -1);
    }
    let group = call.group_at(recv_object_list::GROUP)?;
    let codec = codec_of(&mut call, recv_object_list::CODEC)?;
    let list = list_of(py, &call, recv_object_list::OBJECT_LIST)?;
    let peer = call.take_rank(&group, recv_object_list::SRC, recv_object_list::GROUP_SRC)?;
    let (payload, peer) = detached(py, || group.recv_payload(peer))?;
    replace(py, &list, &decoded(py, &payload, codec)?)?;
    give(py, group.global_rank(peer).or_raise(py)?)
}

fn codec_of(call: &mut Call<'_>, index: usize) -> PyResult<Codec> {
    let name: String = call.take(index)?;
    Ok(if name == "pickle" { Codec::Pickle } else { Codec::Cbor })
}

/// The object that parameter `index` was given.
fn object<'py>(py: Python<'py>, call: &Call<'py>, index: usize) -> Bound<'py, PyAny> {
    call.object(index).cloned().unwrap_or_else(|| py.None().into_bound(py))
}

fn list_of<'py>(py: Python<'py>, call: &Call<'py>, index: usize) -> PyResult<Bound<'py, PyList>> {
    let object = object(py, call, index);
    object.cast_into::<PyList>().map_err(|error| {
        let class = error.into_inner().get_type();
        let message = format!("{}(): expected a list of objects, not {class}", call.name());
        raise(py, &Error::InvalidType { message })
    })
}

/// `list`, if it has a place for each rank.
fn places<'py>(
    py: Python<'py>,
    list: Bound<'py, PyList>,
    group: &ProcessGroup,
) -> PyResult<Bound<'py, PyList>> {
    let (places, size) = (list.len(), group.size() as usize);
    if places != size {
        let message = format!("the list has {places} places for the objects of {size} ranks");
        return Err(invalid(py, message));
    }
    Ok(list)
}

/// `mine`, unless the list cannot hold the result: then that is what the others are told, who would
/// wait for this rank.
fn told<T>(py: Python<'_>, list: &PyResult<T>, mine: EncodedObject) -> EncodedObject {
    list.as_ref().map_err(|why| missing(py, why)).and(mine)
}

/// Why there is no object, as the others are told. The class of polyrank's own errors they raise
/// themselves; that of others belongs to the text.
fn missing(py: Python<'_>, why: &PyErr) -> MissingObject {
    let own = why.value(py);
    match error_kind(own.as_any()).as_deref() {
        Some("InvalidArgument") => MissingObject::UnfitList(own.to_string()),
        Some(_) => MissingObject::NotEncoded(own.to_string()),
        None => MissingObject::NotEncoded(why.to_string()),
    }
}

fn encoded(object: &Bound<'_, PyAny>, codec: Codec) -> EncodedObject {
    let py = object.py();
    let bytes = match codec {
        Codec::Cbor => object_codec::encode(object),
        Codec::Pickle => py.import(intern!(py, "pickle")).and_then(|pickle| {
            pickle.call_method1(intern!(py, "dumps"), (object,))?.extract::<Vec<u8>>()
        }),
    };
    bytes.map(|bytes| Payload { codec, bytes }).map_err(|why| missing(py, &why))
}

/// The object of a payload. A pickle is read only by who asked for it.
fn decoded<'py>(py: Python<'py>, payload: &Payload, allowed: Codec) -> Answer<'py> {
    match payload.codec {
        Codec::Cbor => object_codec::decode(py, &payload.bytes),
        Codec::Pickle if allowed == Codec::Pickle => {
            let bytes = PyBytes::new(py, &payload.bytes);
            py.import(intern!(py, "pickle"))?.call_method1(intern!(py, "loads"), (bytes,))
        }
        Codec::Pickle => Err(invalid(
            py,
            "a pickle came, which may run code when it is read: codec=\"pickle\" reads it",
        )),
    }
}

/// Puts the objects of `came` into `list`, which has as many.
fn replace<'py>(
    py: Python<'py>,
    list: &Bound<'py, PyList>,
    came: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let (places, objects) = (list.len(), came.len()?);
    if places != objects {
        let message = format!("the list has {places} places, but {objects} objects came");
        return Err(invalid(py, message));
    }
    for (index, item) in came.try_iter()?.enumerate() {
        list.set_item(index, item?)?;
    }
    Ok(())
}

fn fill<'py>(
    py: Python<'py>,
    list: &Bound<'py, PyList>,
    payloads: &[Payload],
    codec: Codec,
) -> Answer<'py> {
    for (index, payload) in payloads.iter().enumerate() {
        list.set_item(index, decoded(py, payload, codec)?)?;
    }
    nothing(py)
}
