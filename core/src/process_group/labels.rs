//! What messages call the operations of a group, and what its recorder notes of them. Knows no
//! backend.

use super::ProcessGroup;
#[cfg(feature = "tcp")]
use super::hook_arguments::of_collective;
use super::messages::MessageRequest;
use crate::clock::Instant;
#[cfg(feature = "tcp")]
use crate::completion::WaitIntent;
use crate::generated::error::Result;
#[cfg(feature = "tcp")]
use crate::recorder::{OperationKind, OperationNote, TensorNote};
use crate::request::{Request, SingleTensorRequest};
use crate::work::OperationLabel;
use crate::work::comm_name::CommName;

impl ProcessGroup {
    pub(super) fn label(&self, name: &'static str) -> OperationLabel {
        OperationLabel {
            name,
            group: self.identity(),
            comm_name: CommName::current(),
            began: Instant::now(),
            #[cfg(feature = "tcp")]
            record: Some((self.inner.recorder.clone(), OperationNote::default())),
        }
    }

    /// How leaving the group ended: an error says where ranks that disagree have called, if that is
    /// noted and they tell it soon.
    pub(super) async fn located(&self, ended: Result<()>) -> Result<()> {
        #[cfg(feature = "tcp")]
        if let Err(error) = ended {
            return Err(self.inner.recorder.located(error).await);
        }
        ended
    }

    /// What messages call `request`, and what is noted of it.
    pub(super) fn request_label(&self, request: &Request) -> OperationLabel {
        let label = self.label(request.name);
        #[cfg(feature = "tcp")]
        let label = label.noting(|| {
            let waiting = WaitIntent::Later;
            let told = of_collective(request, self.inner.rank, waiting);
            OperationNote::of_arguments(&told)
        });
        label
    }

    /// What messages call `message`, and what is noted of it.
    pub(super) fn message_label(&self, message: &MessageRequest) -> OperationLabel {
        let label = self.label(message.name());
        #[cfg(feature = "tcp")]
        let label = label.noting(|| OperationNote {
            tag: Some(message.tag),
            ..OperationNote::of_arguments(&message.hook_arguments(WaitIntent::Later))
        });
        label
    }

    /// What messages call such a collective, and what is noted of it.
    pub(super) fn plain_label(
        &self,
        plain: &SingleTensorRequest,
        lengths: (usize, usize),
    ) -> OperationLabel {
        let label = self.label(plain.name);
        #[cfg(feature = "tcp")]
        let label = label.noting(|| {
            let facts = plain.collective.facts();
            let side = |bytes: usize| match bytes {
                0 => Box::default(),
                _ => Box::new([TensorNote::of_bytes(plain.dtype, bytes)]) as Box<[TensorNote]>,
            };
            OperationNote {
                kind: OperationKind::Collective,
                reduce_op: facts.reduces.then(|| plain.reduce_op.name()),
                peer: facts.rooted.then_some(plain.root),
                tag: None,
                inputs: side(lengths.0),
                outputs: side(lengths.1),
            }
        });
        #[cfg(not(feature = "tcp"))]
        let _ = lengths;
        label
    }
}
