//! What the program waits for in a store, and which of that has not come. Only calls of the program
//! itself are told of: what the library waits for has words of its own. Knows no store.

#[cfg(feature = "tcp")]
use super::StoreRequest;
#[cfg(feature = "tcp")]
use super::silence::does_not_answer;
#[cfg(feature = "tcp")]
use crate::stall_report::{AwaitedNames, WaitingCall};

/// Most keys that a sentence names.
#[cfg(feature = "tcp")]
const MAX_NAMED: usize = 4;

/// What a look at the store finds, while the program waits.
#[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "nobody says what is missing"))]
pub(super) enum Finding {
    /// The positions of the keys that have not come, among those that are waited for.
    Missing(Vec<usize>),
    /// The store does not answer.
    Silence,
    /// It could not be found out.
    Nothing,
}

/// The call in which the program waits for what `request` waits for in `store`, by the keys that it
/// knows; none for a request that waits for nothing.
#[cfg(feature = "tcp")]
pub(crate) fn waiting_call(
    request: &StoreRequest<'_>,
    store: impl FnOnce() -> String,
) -> Option<WaitingCall> {
    let key = request.key();
    let keys = request.keys().unwrap_or(key.as_slice());
    let (does, missing): (String, fn(&str) -> String) = match request {
        StoreRequest::Get { .. } | StoreRequest::Wait { .. } | StoreRequest::MultiGet { .. } => {
            (format!("needs {}", named(keys)), |keys| format!("nobody has set {keys}"))
        }
        StoreRequest::QueuePop { block: true, .. } => {
            let what = format!("needs an element of the queue {}", named(keys));
            (what, |keys| format!("nobody has pushed one to {keys}"))
        }
        StoreRequest::Barrier { .. } => {
            (format!("is at the barrier {}", named(keys)), |_| "not all have come".to_owned())
        }
        _ => return None,
    };
    // Whether a barrier's key is there says nothing.
    let named = keys.iter().filter(|_| !matches!(request, StoreRequest::Barrier { .. }));
    let names = AwaitedNames { names: named.map(|&key| key.to_owned()).collect(), missing };
    Some(WaitingCall::of_names(format!("a client of {} that {does}", store()), names))
}

/// What a store is called: "the store at 10.0.0.1:29500".
#[cfg(feature = "tcp")]
pub(crate) fn store_name(store: &dyn super::Store) -> String {
    match store.server_address() {
        Some(address) => format!("the store at {address}"),
        None => store.description(),
    }
}

/// Whether it is to be said now what has not come that the program waits for: true once each time.
#[cfg(feature = "tcp")]
pub(super) fn is_due() -> bool {
    WaitingCall::present().is_some_and(|call| call.names().is_some() && call.is_due())
}

/// Says what was found. The name of the `store` is such as "the store at 10.0.0.1:29500".
#[cfg(feature = "tcp")]
pub(super) fn say(found: &Finding, store: &str) {
    let Some(call) = WaitingCall::present() else { return };
    let Some(AwaitedNames { names, missing }) = call.names() else { return };
    let what = match found {
        Finding::Silence => does_not_answer(store),
        _ if names.is_empty() => missing(""),
        Finding::Nothing if names.len() == 1 => missing(&named(&[names[0].as_str()])),
        Finding::Nothing => "it could not be found out what has not come".to_owned(),
        // It has come just now.
        Finding::Missing(positions) if positions.is_empty() => return,
        Finding::Missing(positions) => {
            let names = positions.iter().filter_map(|&at| names.get(at));
            missing(&named(&names.map(String::as_str).collect::<Vec<_>>()))
        }
    };
    call.say(&what);
}

/// Says what `find` finds, if the program waits for long, and after twice as long again.
#[cfg(feature = "tcp")]
pub(super) fn look(store: impl FnOnce() -> String, find: impl FnOnce() -> Finding) {
    if is_due() {
        say(&find(), &store());
    }
}

/// Where nobody says what is missing.
#[cfg(not(feature = "tcp"))]
pub(super) fn look(_: impl FnOnce() -> String, _: impl FnOnce() -> Finding) {}

/// "'a', 'b' and 3 more keys".
#[cfg(feature = "tcp")]
fn named(keys: &[&str]) -> String {
    let (first, others) = keys.split_at(keys.len().min(MAX_NAMED));
    let first: Vec<String> = first.iter().map(|key| format!("'{}'", key.escape_debug())).collect();
    match others.len() {
        0 => first.join(", "),
        1 => format!("{} and 1 more key", first.join(", ")),
        more => format!("{} and {more} more keys", first.join(", ")),
    }
}
