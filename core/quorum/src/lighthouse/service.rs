//! The lighthouse as replicas see it: the service of torchft's protocol.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::state::State;
use crate::proto::lighthouse_service_server::LighthouseService;
use crate::proto::{
    LighthouseHeartbeatRequest, LighthouseHeartbeatResponse, LighthouseQuorumRequest,
    LighthouseQuorumResponse,
};
use crate::serve::Connection;
use crate::{deadline, member};

/// The service.
pub(super) struct Service {
    pub(super) state: Arc<State>,
}

impl Service {
    fn invalid(&self, message: String) -> Status {
        self.state.lock().counts.refused += 1;
        Status::invalid_argument(message)
    }
}

#[tonic::async_trait]
impl LighthouseService for Service {
    async fn quorum(
        &self,
        request: Request<LighthouseQuorumRequest>,
    ) -> Result<Response<LighthouseQuorumResponse>, Status> {
        let limit = deadline::of(request.metadata().as_ref());
        let Some(requester) = request.into_inner().requester else {
            return Err(self.invalid("the request has no requester".to_owned()));
        };
        member::check(&requester).map_err(|wrong| self.invalid(wrong))?;
        let mut waiting = self.state.join(requester).map_err(Status::resource_exhausted)?;
        let answer = &mut waiting.answer;
        let answer = match limit {
            None => answer.await,
            Some(limit) => match tokio::time::timeout(limit.kept, answer).await {
                Ok(answer) => answer,
                Err(_) => {
                    let reason = self.state.reason(limit.asked);
                    return Err(Status::deadline_exceeded(format!("no quorum: {reason}")));
                }
            },
        };
        let quorum = answer.map_err(|_| Status::unavailable("the lighthouse ends"))?;
        Ok(Response::new(LighthouseQuorumResponse { quorum: Some((*quorum).clone()) }))
    }

    async fn heartbeat(
        &self,
        request: Request<LighthouseHeartbeatRequest>,
    ) -> Result<Response<LighthouseHeartbeatResponse>, Status> {
        let connection = request.extensions().get::<Connection>().cloned();
        let replica_id = request.into_inner().replica_id;
        member::check_id(&replica_id).map_err(|wrong| self.invalid(wrong))?;
        let heard = self.state.heartbeat(&replica_id);
        heard.map_err(|refusal| Status::resource_exhausted(refusal.to_string()))?;
        if let Some(connection) = connection {
            self.state.watch(&replica_id, &connection);
        }
        Ok(Response::new(LighthouseHeartbeatResponse {}))
    }
}
