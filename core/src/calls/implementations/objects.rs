//! The free functions that carry objects, for languages that encode and decode on their own side.
//!
//! Where the IDL has an object that is sent, a call has its CBOR as bytes, or as a string why it
//! could not be encoded, which is then what the other ranks raise; where the IDL has a list that is
//! filled, a call has the number of its places. What came is returned as bytes.

#[cfg(feature = "objects")]
pub(crate) use here::*;

#[cfg(feature = "objects")]
mod here {
    use crate::calls::Value;
    use crate::calls::answer::{Answer, IntoAnswer};
    use crate::calls::invocation::Invocation;
    use crate::calls::parameters::distributed::*;
    use crate::generated::error::{Error, Result};
    use crate::objects::{Codec, EncodedObject, MissingObject, Payload};
    use crate::process_group::ProcessGroup;

    /// All ranks get the objects of `src`: the bytes of its list, nothing on `src` itself.
    pub(crate) async fn broadcast_object_list(mut call: Invocation) -> Result<Answer> {
        if call.is_outside(broadcast_object_list::GROUP) {
            return ().into_answer();
        }
        let group = call.group(broadcast_object_list::GROUP)?;
        only_cbor(&mut call, broadcast_object_list::CODEC)?;
        let root =
            call.rank(&group, broadcast_object_list::SRC, broadcast_object_list::GROUP_SRC)?;
        let root = root.ok_or_else(|| invalid("Must specify src or group_src"))?;
        let is_root = group.rank() == root;
        is_list(call.value(broadcast_object_list::OBJECT_LIST))?;
        let mine = if is_root {
            Some(encoded(call.value(broadcast_object_list::OBJECT_LIST))?)
        } else {
            None
        };
        let payload = group.exchange().broadcast(mine, root).await?;
        if is_root { ().into_answer() } else { bytes(payload) }
    }

    /// All ranks get every rank's object.
    pub(crate) async fn all_gather_object(mut call: Invocation) -> Result<Answer> {
        if call.is_outside(all_gather_object::GROUP) {
            return ().into_answer();
        }
        let group = call.group(all_gather_object::GROUP)?;
        only_cbor(&mut call, all_gather_object::CODEC)?;
        let places = places(call.value(all_gather_object::OBJECT_LIST), &group);
        let mine = told(&places, encoded(call.value(all_gather_object::OBJ))?);
        let payloads = group.exchange().all_gather(mine).await;
        // What is wrong here says more than that this rank gave nothing.
        places?;
        list(payloads?)
    }

    /// `dst` gets every rank's object; the others get nothing.
    pub(crate) async fn gather_object(mut call: Invocation) -> Result<Answer> {
        if call.is_outside(gather_object::GROUP) {
            return ().into_answer();
        }
        let group = call.group(gather_object::GROUP)?;
        only_cbor(&mut call, gather_object::CODEC)?;
        let root = call.root(&group, gather_object::DST, gather_object::GROUP_DST)?;
        let has_list = !matches!(call.value(gather_object::OBJECT_GATHER_LIST), Value::None);
        let places = match (group.rank() == root, has_list) {
            (true, _) => places(call.value(gather_object::OBJECT_GATHER_LIST), &group),
            (false, false) => Ok(()),
            (false, true) => Err(invalid(
                "Argument ``object_gather_list`` must NOT be specified on non-destination ranks.",
            )),
        };
        let mine = told(&places, encoded(call.value(gather_object::OBJ))?);
        let payloads = group.exchange().gather(mine, root).await;
        places?;
        payloads?.map_or_else(|| ().into_answer(), list)
    }

    /// Each rank gets its object of the list of `src`.
    pub(crate) async fn scatter_object_list(mut call: Invocation) -> Result<Answer> {
        if call.is_outside(scatter_object_list::GROUP) {
            return ().into_answer();
        }
        let group = call.group(scatter_object_list::GROUP)?;
        only_cbor(&mut call, scatter_object_list::CODEC)?;
        let root = call.root(&group, scatter_object_list::SRC, scatter_object_list::GROUP_SRC)?;
        let output = match call.value(scatter_object_list::SCATTER_OBJECT_OUTPUT_LIST) {
            Value::Int(places) if *places > 0 => Ok(()),
            _ => Err(invalid("Expected argument scatter_object_output_list to be non-empty")),
        };
        let all = (group.rank() == root).then(|| {
            output.as_ref().map_err(unfit)?;
            let Value::List(items) = call.value(scatter_object_list::SCATTER_OBJECT_INPUT_LIST)
            else {
                let why = "scatter_object_input_list must be a list of objects".to_owned();
                return Err(MissingObject::NotEncoded(why));
            };
            items.iter().map(|item| encoded(item).map_err(|error| unfit(&error))?).collect()
        });
        let payload = group.exchange().scatter(all, root).await;
        output?;
        bytes(payload?)
    }

    /// Sends the objects of a list.
    pub(crate) async fn send_object_list(mut call: Invocation) -> Result<Answer> {
        if call.is_outside(send_object_list::GROUP) {
            return ().into_answer();
        }
        let group = call.group(send_object_list::GROUP)?;
        only_cbor(&mut call, send_object_list::CODEC)?;
        let peer = call.rank(&group, send_object_list::DST, send_object_list::GROUP_DST)?;
        let peer = peer.ok_or_else(|| invalid("one of 'dst' and 'group_dst' must be given"))?;
        let mine = encoded(call.value(send_object_list::OBJECT_LIST))?;
        group.exchange().send(mine, peer).await.into_answer()
    }

    /// Receives objects: the bytes of the list (`payload`), and the sender's global rank
    /// (`source`).
    pub(crate) async fn recv_object_list(mut call: Invocation) -> Result<Answer> {
        if call.is_outside(recv_object_list::GROUP) {
            return ().into_answer();
        }
        let group = call.group(recv_object_list::GROUP)?;
        only_cbor(&mut call, recv_object_list::CODEC)?;
        let peer = call.rank(&group, recv_object_list::SRC, recv_object_list::GROUP_SRC)?;
        is_list(call.value(recv_object_list::OBJECT_LIST))?;
        let (payload, peer) = group.exchange().recv(peer).await?;
        let source = group.global_rank(peer)?.into_answer()?;
        Ok(Answer::Record(vec![("payload", bytes(payload)?), ("source", source)]))
    }

    fn only_cbor(call: &mut Invocation, position: usize) -> Result<()> {
        let codec: String = call.take(position)?;
        if codec == "cbor" {
            return Ok(());
        }
        let (who, operation) = ("this language".to_owned(), format!("the codec {codec}"));
        Err(Error::Unsupported { who, operation })
    }

    fn encoded(value: &Value) -> Result<EncodedObject> {
        match value {
            Value::Bytes(bytes) => Ok(Ok(Payload { codec: Codec::Cbor, bytes: bytes.clone() })),
            Value::Str(why) => Ok(Err(MissingObject::NotEncoded(why.clone()))),
            _ => Err(invalid("expected a list of objects")),
        }
    }

    /// Whether there is a list, with any number of places, or what a list holds.
    fn is_list(value: &Value) -> Result<()> {
        match value {
            Value::Int(_) | Value::Bytes(_) | Value::Str(_) => Ok(()),
            _ => Err(invalid("a list for the objects was expected")),
        }
    }

    /// Whether a list has a place for each rank.
    fn places(value: &Value, group: &ProcessGroup) -> Result<()> {
        let size = group.size();
        match value {
            Value::Int(places) if *places == i64::from(size) => Ok(()),
            Value::Int(places) => Err(invalid(&format!(
                "the list has {places} places for the objects of {size} ranks"
            ))),
            _ => Err(invalid("a list for the objects was expected")),
        }
    }

    /// `mine`, unless the list cannot hold the result: then that is what the others are told, who
    /// would wait for this rank.
    fn told(places: &Result<()>, mine: EncodedObject) -> EncodedObject {
        places.as_ref().map_err(unfit).and(mine)
    }

    fn unfit(why: &Error) -> MissingObject {
        MissingObject::UnfitList(why.to_string())
    }

    fn bytes(payload: Payload) -> Result<Answer> {
        match payload.codec {
            Codec::Cbor => payload.bytes.into_answer(),
            Codec::Pickle => {
                Err(invalid("a pickle came, which only Python reads: send objects as cbor"))
            }
        }
    }

    fn list(payloads: Vec<Payload>) -> Result<Answer> {
        payloads.into_iter().map(bytes).collect::<Result<Vec<_>>>()?.into_answer()
    }

    fn invalid(message: &str) -> Error {
        Error::InvalidArgument { message: message.to_owned() }
    }
}

#[cfg(not(feature = "objects"))]
mod absent {
    use crate::calls::answer::Answer;
    use crate::calls::invocation::Invocation;
    use crate::calls::resolve::unsupported;
    use crate::generated::error::Result;

    macro_rules! absent {
        ($($function:ident),*) => {$(
            /// This build has no objects.
            pub(crate) async fn $function(call: Invocation) -> Result<Answer> {
                Err(unsupported(format!("distributed.{}", call.name())))
            }
        )*};
    }

    absent!(
        broadcast_object_list,
        all_gather_object,
        gather_object,
        scatter_object_list,
        send_object_list,
        recv_object_list
    );
}

#[cfg(not(feature = "objects"))]
pub(crate) use absent::*;
