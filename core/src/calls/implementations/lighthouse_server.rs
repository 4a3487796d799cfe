//! `LighthouseServer`.

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::object::Object;
use crate::calls::parameters::lighthouse_server::*;
use crate::calls::replicas::{LighthouseObject, LighthouseServerOptions};
use crate::generated::error::Result;

/// Starts one.
pub(crate) async fn new(mut call: Invocation) -> Result<Answer> {
    let options = LighthouseServerOptions {
        min_replicas: call.take(new::MIN_REPLICAS)?,
        bind: call.take(new::BIND)?,
        join_timeout: call.take(new::JOIN_TIMEOUT)?,
        quorum_tick: call.take(new::QUORUM_TICK)?,
        heartbeat_timeout: call.take(new::HEARTBEAT_TIMEOUT)?,
        token: call.take(new::TOKEN)?,
    };
    Object::Lighthouse(LighthouseObject::start(options)?).into_answer()
}

/// Where it is.
pub(crate) fn address(call: Invocation) -> Result<Answer> {
    call.this_lighthouse()?.address().into_answer()
}

/// Ends it.
pub(crate) async fn shutdown(call: Invocation) -> Result<Answer> {
    call.this_lighthouse()?.shutdown();
    ().into_answer()
}
