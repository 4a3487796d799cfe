//! Calls of a program that wait for something in a store: what they wait for is said when it does
//! not come. Knows no store.

use super::invocation::Invocation;
use super::value::Value;
use crate::stall_report::WaitingCall;
use crate::store::{self, StoreRequest, store_name};

/// The call in which the program waits, if `call` is one that waits for keys of a store.
pub(super) fn waiting_call(call: &Invocation) -> Option<WaitingCall> {
    let key = || text(call.value(0));
    // What the keys are is asked of these alone: every call comes by here.
    let request = match call.key() {
        "STORE_GET" => StoreRequest::Get { key: key()? },
        "STORE_MULTI_GET" | "STORE_WAIT" => {
            let Value::List(keys) = call.value(0) else { return None };
            let keys: Vec<&str> = keys.iter().filter_map(text).collect();
            return said_of(call, &StoreRequest::MultiGet { keys: &keys });
        }
        "STORE_QUEUE_POP" => {
            let block = !matches!(call.value(1), Value::Bool(false));
            StoreRequest::QueuePop { key: key()?, block }
        }
        "STORE_BARRIER" => StoreRequest::Barrier { key: key()?, world_size: 0, timeout: None },
        _ => return None,
    };
    said_of(call, &request)
}

fn said_of(call: &Invocation, request: &StoreRequest<'_>) -> Option<WaitingCall> {
    let object = call.this_store().ok()?;
    store::waiting_call(request, || store_name(&**object.get()))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Str(text) => Some(text),
        _ => None,
    }
}
