//! Calls of a program that wait for something in a store: what they wait for is said when it does
//! not come. Knows no store.

use super::invocation::Invocation;
use super::value::Value;
use crate::stall_report::WaitingCall;
use crate::store::{self, StoreRequest, store_name};

/// The call in which the program waits, if `call` is one that waits for keys of a store.
pub(super) fn waiting_call(call: &Invocation) -> Option<WaitingCall> {
    let first = call.value(0);
    let keys = match first {
        Value::Str(key) => vec![key.as_str()],
        Value::List(keys) => keys.iter().filter_map(text).collect(),
        _ => return None,
    };
    let key = keys.first().copied()?;
    let request = match call.key() {
        "STORE_GET" => StoreRequest::Get { key },
        "STORE_MULTI_GET" => StoreRequest::MultiGet { keys: &keys },
        "STORE_WAIT" => StoreRequest::Wait { keys: &keys, timeout: None },
        "STORE_QUEUE_POP" => {
            let block = !matches!(call.value(1), Value::Bool(false));
            StoreRequest::QueuePop { key, block }
        }
        "STORE_BARRIER" => StoreRequest::Barrier { key, world_size: 0, timeout: None },
        _ => return None,
    };
    let object = call.this_store().ok()?;
    store::waiting_call(&request, &store_name(&**object.get()))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Str(text) => Some(text),
        _ => None,
    }
}
