//! Says which keys are not there, where the program waits for nothing but those. Knows no store.

#[cfg(feature = "tcp")]
use super::silence::does_not_answer;
#[cfg(feature = "tcp")]
use crate::stall_report::WaitingCall;

/// Most keys that a sentence names.
#[cfg(feature = "tcp")]
const MAX_NAMED: usize = 4;

/// What a client waits for.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "nobody says what is missing"))]
pub(super) enum Awaited<'a> {
    /// These keys.
    Keys(&'a [&'a str]),
    /// That all have come to this barrier.
    Barrier(&'a str),
}

/// What a look at the store finds meanwhile.
#[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "nobody says what is missing"))]
pub(super) enum Found {
    /// Those that are not there, of those that are waited for.
    Missing(Vec<String>),
    /// The store does not answer.
    Silence,
    /// It could not be found out.
    Nothing,
}

/// A wait for keys, in which the program may be by that alone.
pub(super) struct AwaitedKeys<'a> {
    #[cfg_attr(not(feature = "tcp"), expect(dead_code, reason = "nobody says what is missing"))]
    what: Awaited<'a>,
    #[cfg(feature = "tcp")]
    long: Option<LongWait>,
}

impl<'a> AwaitedKeys<'a> {
    /// The wait for `what`.
    pub(super) fn of(what: Awaited<'a>) -> AwaitedKeys<'a> {
        AwaitedKeys {
            what,
            #[cfg(feature = "tcp")]
            long: None,
        }
    }
}

/// One that was not over at once.
#[cfg(feature = "tcp")]
struct LongWait {
    store: String,
    /// None if it is a part of another call, which has words of its own.
    call: Option<WaitingCall>,
}

#[cfg(feature = "tcp")]
impl AwaitedKeys<'_> {
    /// Says what `find` finds, if the wait is long, and after twice as long again. The name of the
    /// `store` is such as "the store at 10.0.0.1:29500".
    pub(super) fn look(&mut self, store: impl FnOnce() -> String, find: impl FnOnce() -> Found) {
        let wait = self.long.get_or_insert_with(|| LongWait::begin(store(), self.what));
        let Some(call) = wait.call.as_ref().filter(|call| call.is_due()) else { return };
        // Of a store that does not answer, it is said here.
        match (self.what, WaitingCall::unsaid().run(find)) {
            (_, Found::Silence) => call.say(&does_not_answer(&wait.store)),
            (Awaited::Barrier(_), _) => call.say("not all have come"),
            (Awaited::Keys(_), Found::Nothing) => call.say("not all of that is there"),
            // It has come just now.
            (Awaited::Keys(_), Found::Missing(keys)) if keys.is_empty() => {}
            (Awaited::Keys(_), Found::Missing(keys)) => {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                call.say(&format!("nobody has set {}", named(&keys)));
            }
        }
    }
}

#[cfg(feature = "tcp")]
impl LongWait {
    fn begin(store: String, what: Awaited<'_>) -> LongWait {
        let does = match what {
            Awaited::Keys(keys) => format!("needs {}", named(keys)),
            Awaited::Barrier(key) => format!("is at the barrier {}", named(&[key])),
        };
        let is_own = WaitingCall::present().is_none();
        let call =
            is_own.then(|| WaitingCall::of_process(format!("a client of {store} that {does}")));
        LongWait { store, call }
    }
}

/// Where nobody says what is missing.
#[cfg(not(feature = "tcp"))]
impl AwaitedKeys<'_> {
    pub(super) fn look(&mut self, _: impl FnOnce() -> String, _: impl FnOnce() -> Found) {}
}

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
