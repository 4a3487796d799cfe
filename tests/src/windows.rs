//! What the suites of windows share: how ranks reach one another, and tensors that may be mapped.

/// How ranks reach one another: mapped memory, frames over shared memory, frames over TCP.
pub const WAYS: [(&str, &str); 3] =
    [("POLYRANK_COPY", "auto"), ("POLYRANK_COPY", "slots"), ("POLYRANK_TRANSPORT", "tcp")];

/// Elements that are mapped, if ranks map anything.
pub const MAPPED_ELEMENTS: usize = 40_003;
