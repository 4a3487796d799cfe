//! The error that an operation of a broken group ends with, made of the abort that broke it.

use crate::generated::collective::{Collective, Sizes};
use crate::generated::dtype::DType;
use crate::generated::error::Error;
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::Compression;
use crate::wire::abort::{Abort, Side};
use crate::wire::exchange::{Exchange, TopologyNumber};
use crate::wire::frame::{BOARD_ALGORITHM, Fingerprint};

/// Stands between the name of a message's operation and its tag, in [`Abort::TimedOut`].
const TAGGED: &str = " with tag ";

/// What a rank runs that runs nothing more.
pub(crate) const LEAVES: &str = "nothing, and leaves";

/// What the operation with this name and number ends with in a group that broke for this reason.
pub fn error_of(abort: &Abort, group: &str, name: &str, sequence: u64) -> Error {
    let group = group.to_owned();
    match abort {
        Abort::Mismatch { sequence, one, other } => mismatch(group, *sequence, one, other),
        Abort::Failed { rank, why } => Error::RankFailed {
            group,
            rank: *rank,
            why: why.clone(),
            collective: name.to_owned(),
            sequence,
        },
        Abort::Left { rank, retired: false, .. } => Error::RankFailed {
            group,
            rank: *rank,
            why: "it left the group".to_owned(),
            collective: name.to_owned(),
            sequence,
        },
        Abort::TimedOut { rank, sequence, operation, waited_ms, waiting_for } => {
            let tagged = operation.split_once(TAGGED).map(|(name, tag)| (name, Some(tag)));
            let (name, tag) = tagged.unwrap_or((operation, None));
            Error::CollectiveTimeout {
                group,
                collective: name.to_owned(),
                sequence: *sequence,
                rank: waiting_for.first().copied().unwrap_or(*rank),
                missing_ranks: waiting_for.clone().into(),
                waiting_rank: *rank,
                waited_ms: *waited_ms,
                detail: waiting_text(name, waiting_for, tag),
            }
        }
        Abort::User { rank, why } => Error::Aborted {
            group,
            rank: *rank,
            why: why.clone(),
            collective: name.to_owned(),
            sequence,
        },
        Abort::Reconfigured { rank } | Abort::Left { rank, retired: true, .. } => {
            Error::Reconfigured { group, rank: *rank, collective: name.to_owned(), sequence }
        }
        Abort::MessageSize { from, to, tag, sent_bytes, buffer_bytes } => Error::MessageSize {
            from: *from,
            to: *to,
            tag: *tag,
            sent_bytes: *sent_bytes,
            buffer_bytes: *buffer_bytes,
            collective: name.to_owned(),
        },
        Abort::MessageDType { from, to, tag, sent_dtype, buffer_dtype } => Error::MessageDType {
            from: *from,
            to: *to,
            tag: *tag,
            sent_dtype: dtype_name(*sent_dtype).to_owned(),
            buffer_dtype: dtype_name(*buffer_dtype).to_owned(),
            collective: name.to_owned(),
        },
    }
}

/// What operations end with once ranks disagree on operation `sequence`.
fn mismatch(group: String, sequence: u64, one: &Side, other: &Side) -> Error {
    let (ours, theirs) = describe_both(one, other);
    Error::CollectiveMismatch {
        group,
        collective: collective_name(&one.fingerprint).to_owned(),
        sequence,
        rank: one.rank,
        ours,
        other_rank: other.rank,
        theirs,
    }
}

/// What an operation of a forked child ends with in a group of its parent.
pub(crate) fn inherited_error() -> Error {
    let message = "it belongs to the parent process; a forked child has to form a group of its own";
    Error::InvalidGroup { message: message.to_owned() }
}

/// The name of a message's operation with its tag, as [`Abort::TimedOut`] has it.
pub(crate) fn tagged_name(name: &str, tag: u32) -> String {
    format!("{name}{TAGGED}{tag}")
}

/// The name of the collective of a fingerprint, or of the method that it is.
pub(crate) fn collective_name(fingerprint: &Fingerprint) -> &'static str {
    if let Some(exchange) = Exchange::of(fingerprint) {
        return exchange.method.name();
    }
    Collective::from_code(fingerprint.collective).map_or("operation", |known| known.facts().name)
}

/// The name of the element type with this number.
fn dtype_name(code: u8) -> &'static str {
    DType::ALL.get(usize::from(code)).map_or("?", |dtype| dtype.name())
}

/// What two ranks run, in words that differ.
fn describe_both(one: &Side, other: &Side) -> (String, String) {
    let (ours, mut theirs) = (describe(one), describe(other));
    if ours == theirs {
        theirs += " with other sizes of blocks or further arguments";
    }
    (ours, theirs)
}

/// What a rank runs: `allreduce of 1000 f32 with SUM`.
fn describe(side: &Side) -> String {
    let fingerprint = &side.fingerprint;
    if *fingerprint == Fingerprint::NOTHING {
        return LEAVES.to_owned();
    }
    let Some(collective) = Collective::from_code(fingerprint.collective) else {
        return format!("collective number {}", fingerprint.collective);
    };
    let facts = collective.facts();
    let exchange = Exchange::of(fingerprint);
    let mut text = collective_name(fingerprint).to_owned();
    if exchange.is_some_and(|it| it.has_no_tensors) {
        text += " of no tensors";
    } else if collective != Collective::Barrier {
        let dtype = dtype_name(fingerprint.dtype);
        match fingerprint.elements {
            0 => text += &format!(" of {dtype}"),
            elements => text += &format!(" of {elements} {dtype}"),
        }
    }
    let tensors = fingerprint.tensors_per_rank();
    if let Some(tensors) = tensors {
        text += &format!(" in {tensors} tensors of each rank");
    }
    if facts.reduces {
        let name = operator_name(fingerprint);
        text += &format!(" with {name}");
        let factor = f64::from_bits(fingerprint.detail);
        // Of several tensors, what stands there is the hash of it.
        let has_factor = name == "PREMUL_SUM" && tensors.is_none();
        if has_factor && (facts.sizes == Sizes::Equal || !factor.is_nan()) {
            text += &format!(" of factor {factor}");
        }
    }
    if facts.rooted {
        text += &format!(", root {}", fingerprint.root);
    }
    if let Some(TopologyNumber { is_grid, made_by }) = exchange.and_then(|it| it.topology) {
        let kind = if is_grid { "grid" } else { "graph" };
        text += &format!(" on the {kind} that operation {made_by} made");
    }
    if fingerprint.algorithm == BOARD_ALGORITHM {
        text += ", over shared memory";
    }
    let compression = Compression::of_operator(fingerprint.reduce_op);
    if let Some(compression) = compression {
        text += &format!(", compressed to {}", compression.name());
    }
    let is_custom = facts.reduces && operator_name(fingerprint) == "CUSTOM";
    // Those run the algorithms of other collectives.
    let is_own = |_: &&_| !is_custom && compression.is_none();
    if let Some(algorithm) =
        collective.algorithms().get(usize::from(fingerprint.algorithm)).filter(is_own)
    {
        text += &format!(", algorithm {}", algorithm.name);
    }
    if let Some(bytes) = side.message_bytes {
        text += &format!(", with a message of {bytes} bytes between the two");
    }
    text
}

/// The operator of a fingerprint, whatever else stands beside its number.
fn operator_name(fingerprint: &Fingerprint) -> &'static str {
    ReduceOp::name_of_code(Compression::operator(fingerprint.reduce_op))
}

/// Whom the operation of this name waited for, and what to do where that is known.
fn waiting_text(name: &str, ranks: &[u32], tag: Option<&str>) -> String {
    let mut text = match ranks {
        [] => "waiting for a message from any rank".to_owned(),
        [rank] if name == "send" => format!("waiting for rank {rank} to receive it"),
        [rank] => format!("waiting for rank {rank}"),
        _ => {
            let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
            format!("waiting for ranks {}", ranks.join(", "))
        }
    };
    if let Some(tag) = tag {
        text.push_str(&format!(", with tag {tag}"));
    }
    if let ("send", [peer]) = (name, ranks) {
        text.push_str(&format!(
            ". A send of much data ends when its receiver takes it: if rank {peer} sends to this \
             rank first too, neither ever receives. Use isend, or batch_isend_irecv for both \
             directions"
        ));
    }
    text
}
