//! Reads what the flight recorders of a job's ranks wrote, and says what went wrong. Pure: text in,
//! text out; no file is opened, no clock is read, and nothing of polyrank's core is known here.
//!
//! ```text
//!   texts ──▶ read (checked) ──▶ job (merged, by group and number) ──▶ findings ──▶ report · JSON
//!                                  ├──▶ drawing (SVG)
//!                                  ├──▶ perfetto (trace events)
//!                                  └──▶ flight_recorder (for PyTorch's fr_trace)
//! ```

mod arrivals;
mod drawing;
mod dump;
mod error;
mod fields;
mod findings;
mod flight_recorder;
mod job;
mod lanes;
mod messages;
mod perfetto;
mod read;
mod report;
mod selection;
mod words;

pub use arrivals::{GroupArrivals, RankArrivals};
pub use dump::{Dump, Entry, Frame, Group, Message, Rendezvous, State};
pub use error::TraceError;
pub use findings::{Finding, Kind, Severity};
pub use flight_recorder::{FlightRecording, RecordedEntry, RecordedFrame, RecordedGroup};
pub use job::{Job, JobGroup, Operation};
pub use read::{MAX_FILE_BYTES, RecordedFile, read};
pub use selection::Selection;
