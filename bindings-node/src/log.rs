//! What polyrank logs, for a function of JavaScript. Knows nothing of what is logged.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::SystemTime;

use napi::bindgen_prelude::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Error, Result};
use napi_derive::napi;
use polyrank_log::{Level, LevelFilter, Logging, Record};

/// A line of the log.
#[napi(object)]
pub struct LogLine {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The part of polyrank: `polyrank::transport::tcp`.
    pub target: String,
    /// What is said.
    pub message: String,
    /// When it was said, ms since 1970.
    pub time: f64,
    /// The rank in the group of which it is said, unless the message begins with the operation.
    pub rank: Option<f64>,
    /// That group's name, likewise.
    pub group: Option<String>,
    /// The operation of which it is said, unless the message begins with it.
    pub operation: Option<String>,
}

/// It does not keep the process alive.
type Reader = ThreadsafeFunction<LogLine, bool, LogLine, Status, false, true>;

/// How much is logged; none until it begins, or where somebody else reads the log.
static LOGGING: Mutex<Option<Logging>> = Mutex::new(None);

/// Begins to log to standard error what the environment says, or else what is as serious as
/// `level`.
#[napi]
pub fn begin_log(level: String) -> Result<()> {
    if let Some(logging) = polyrank_log::start(level_named(&level)?) {
        *LOGGING.lock().unwrap_or_else(PoisonError::into_inner) = Some(logging);
    }
    Ok(())
}

/// Hands lines to `reader` from now on, which returns whether it has taken one; without one, they
/// go to standard error. Without a `level`, the environment says how much is logged, or else
/// warnings are.
#[napi]
pub fn read_log(reader: Option<Reader>, level: Option<String>) -> Result<()> {
    let level = level.as_deref().map(level_named).transpose()?;
    if let Some(logging) = &*LOGGING.lock().unwrap_or_else(PoisonError::into_inner) {
        match level {
            Some(level) => logging.set_level(level),
            None => logging.set_as_environment_says(LevelFilter::WARN),
        }
    }
    let reader = reader.map(|reader| {
        let reader: Arc<polyrank_log::Reader> = Arc::new(move |record| hand(&reader, record));
        reader
    });
    polyrank_log::set_reader(reader);
    Ok(())
}

/// Whether the reader has taken this line. Waits for its thread.
fn hand(reader: &Reader, record: &Record) -> bool {
    let time = record.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let line = LogLine {
        level: record.level.as_str().to_ascii_lowercase(),
        target: record.target.clone(),
        message: record.message.clone(),
        time: time.as_secs_f64() * 1e3,
        rank: record.rank.filter(|_| !record.names_operation()).map(|rank| rank as f64),
        group: record.group.clone().filter(|_| !record.names_operation()),
        operation: record.operation_title().filter(|_| !record.names_operation()),
    };
    let (answer, inbox) = mpsc::sync_channel(1);
    let mode = ThreadsafeFunctionCallMode::NonBlocking;
    let status = reader.call_with_return_value(line, mode, move |is_taken, _| {
        // Nobody waits for the answer of a line that came too late.
        let _ = answer.try_send(is_taken.unwrap_or(false));
        Ok(())
    });
    // The answer never comes where the thread has ended: its end of the channel is gone then. Only
    // warnings are worth their place on standard error.
    (status == Status::Ok && inbox.recv().unwrap_or(false)) || record.level > Level::WARN
}

fn level_named(name: &str) -> Result<LevelFilter> {
    name.parse().map_err(|_| Error::from_reason(format!("unknown level '{name}'")))
}
