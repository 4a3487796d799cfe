//! What is noted of an operation besides its name. Knows no time.

use crate::generated::callback_arguments::PreHookArgs;
use crate::generated::dtype::DType;
use crate::tensor::TensorRef;

/// Most tensors of an operation that are noted on either side.
const MAX_TENSORS: usize = 64;

/// What an operation does with which tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OperationNote {
    pub(crate) kind: OperationKind,
    /// The name of the operator, where elements are reduced.
    pub(crate) reduce_op: Option<&'static str>,
    /// The root, or the peer of a message, as a rank of the group.
    pub(crate) peer: Option<u32>,
    pub(crate) tag: Option<u32>,
    /// Those that are read.
    pub(crate) inputs: Box<[TensorNote]>,
    /// Those that are written.
    pub(crate) outputs: Box<[TensorNote]>,
}

/// What calls have to agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// All ranks of the group call it, in the same order.
    Collective,
    /// A message to another rank.
    Send,
    /// A message from another rank, or from any.
    Receive,
    /// What takes part in no order of collectives: windows, probes.
    #[default]
    Other,
}

/// A tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorNote {
    pub(crate) dtype: DType,
    pub(crate) shape: Box<[usize]>,
}

impl OperationKind {
    /// What dumps call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OperationKind::Collective => "collective",
            OperationKind::Send => "send",
            OperationKind::Receive => "receive",
            OperationKind::Other => "other",
        }
    }
}

impl OperationNote {
    /// What hooks are told.
    pub(crate) fn of_arguments(arguments: &PreHookArgs<'_>) -> OperationNote {
        let kind = match arguments.name {
            "SEND" => OperationKind::Send,
            "RECV" | "RECVANYSOURCE" => OperationKind::Receive,
            _ => OperationKind::Collective,
        };
        OperationNote {
            kind,
            reduce_op: arguments.reduce_op.map(|reduce_op| reduce_op.name()),
            peer: u32::try_from(arguments.root).ok(),
            tag: None,
            inputs: notes(&arguments.input_tensors),
            outputs: notes(&arguments.output_tensors),
        }
    }

    /// Bytes of all tensors on the side that has more.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |side: &[TensorNote]| side.iter().map(TensorNote::bytes).sum::<u64>();
        bytes(&self.inputs).max(bytes(&self.outputs))
    }
}

impl TensorNote {
    /// Of elements in one piece.
    pub(crate) fn of_bytes(dtype: DType, bytes: usize) -> TensorNote {
        TensorNote { dtype, shape: [bytes / dtype.size_bytes()].into() }
    }

    fn bytes(&self) -> u64 {
        let elements = self.shape.iter().fold(1u64, |all, &side| all.saturating_mul(side as u64));
        elements.saturating_mul(self.dtype.size_bytes() as u64)
    }
}

fn notes(tensors: &[TensorRef<'_>]) -> Box<[TensorNote]> {
    let note = |it: &TensorRef<'_>| TensorNote { dtype: it.dtype(), shape: it.shape().into() };
    tensors.iter().take(MAX_TENSORS).map(note).collect()
}
