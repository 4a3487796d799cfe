//! What messages and the recorder call an operation. Knows nothing of how it runs.

#[cfg(feature = "tcp")]
use std::sync::Arc;

use super::CommName;
#[cfg(feature = "tcp")]
use super::{Part, all_of};
use crate::clock::Instant;
#[cfg(feature = "tcp")]
use crate::completion::Completion;
#[cfg(feature = "tcp")]
use crate::recorder::{IssuedNote, OperationKind, OperationNote, Recorder};

/// What messages call an operation.
#[derive(Clone)]
pub(crate) struct OperationLabel {
    /// The method that was called.
    pub(crate) name: &'static str,
    /// The identity of its group.
    pub(crate) group: u64,
    /// What the user calls it.
    pub(crate) comm_name: Option<CommName>,
    /// When it was called: it may be done before there is a work.
    pub(crate) began: Instant,
    /// Where it is recorded, and what is noted of it.
    #[cfg(feature = "tcp")]
    pub(crate) record: Option<(Arc<Recorder>, OperationNote)>,
}

#[cfg(feature = "tcp")]
impl OperationLabel {
    /// The same of an operation of which this is noted.
    pub(crate) fn noting(mut self, note: impl FnOnce() -> OperationNote) -> OperationLabel {
        if let Some((_, known)) = &mut self.record {
            *known = note();
        }
        self
    }

    /// Where it is noted where operations are called: done when `parts` are, and when an error of
    /// them can say where the ranks are that disagree.
    pub(super) fn located(&self, parts: &[Part]) -> Option<Arc<Completion>> {
        let (recorder, note) = self.record.as_ref()?;
        if !recorder.notes_calls() || note.kind != OperationKind::Collective {
            return None;
        }
        let recorder = recorder.clone();
        let (whole, ending) = (all_of(parts.iter().map(|(it, _)| it)), Arc::new(Completion::new()));
        let located = ending.clone();
        whole.on_end(move |result| match result.clone() {
            Ok(()) => located.complete(Ok(())),
            Err(error) => {
                let known = recorder.clone();
                recorder.find_sites(&error.clone(), move || {
                    located.complete(Err(known.with_sites(error)));
                });
            }
        });
        Some(ending)
    }

    /// Has the recorder note the operation, which is done when `completion` is.
    pub(super) fn recorded(
        mut self,
        (sequence, parts): (u64, u64),
        issued: Instant,
        completion: &Arc<Completion>,
    ) -> (OperationLabel, Option<Arc<Recorder>>) {
        let Some((recorder, note)) = self.record.take() else { return (self, None) };
        let (name, completion) = (self.name, completion.clone());
        let comm_name = self.comm_name.as_ref().map(CommName::text);
        let frames = Arc::default();
        let issued =
            IssuedNote { name, comm_name, sequence, parts, note, issued, completion, frames };
        recorder.note_issued(issued);
        (self, Some(recorder))
    }
}
