//! Says that a store does not answer, where nothing but its answer is waited for, or that another
//! thread has the client. Knows no store.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::stall_report::WaitingCall;

/// What takes no longer is no silence, however long the call has lasted of which it is a part.
const SHORTEST: Duration = Duration::from_secs(1);

/// "the store at 10.0.0.1:29500 does not answer; …".
pub(crate) fn does_not_answer(store: &str) -> String {
    format!("{store} does not answer; whoever serves it, usually rank 0, is stopped or cut off")
}

/// A request that has not been answered since this was made.
pub(super) struct Silence {
    /// Why, as far as this process knows.
    why: String,
    began: Instant,
    /// The call of the program that waits for the answer; none where the request is all of it.
    of: Option<Arc<WaitingCall>>,
    own: Option<WaitingCall>,
}

impl Silence {
    /// That of the server at this address, from now on.
    pub(super) fn of(server: &str) -> Silence {
        Silence::because(server, does_not_answer)
    }

    /// That of a client of the server at this address that another thread has, from now on.
    pub(super) fn of_taken_client(server: &str) -> Silence {
        let why = "another thread of this process waits for an answer at the same client; give \
                   each thread a client of its own, as clone() makes it";
        Silence::because(server, |_| why.to_owned())
    }

    fn because(server: &str, why: impl FnOnce(&str) -> String) -> Silence {
        let (store, of) = (format!("the store at {server}"), WaitingCall::present());
        let client = || WaitingCall::of_process(format!("a client of {store}"));
        let own = of.is_none().then(client);
        Silence { why: why(&store), began: Instant::now(), of, own }
    }

    /// Says it, if it is long, and after twice as long again.
    pub(super) fn look(&self) {
        let is_due = match (&self.of, &self.own) {
            (Some(of), _) => (self.began.elapsed() >= SHORTEST && of.is_due()).then_some(&**of),
            (None, own) => own.as_ref().filter(|own| own.is_due()),
        };
        if let Some(call) = is_due {
            call.say(&self.why);
        }
    }
}
