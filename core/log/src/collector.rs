//! Makes lines of what polyrank's parts report. Knows nothing of who reads them.

use std::fmt::{self, Write};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::delivery;
use crate::record::Record;

/// Makes a line of each event, and hands it on.
pub(crate) struct Collector;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut facts = Facts::default();
        attributes.record(&mut facts);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(facts);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut facts = Facts::default();
        event.record(&mut facts);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(around) = span.extensions().get::<Facts>() {
                facts.rank = facts.rank.or(around.rank);
                facts.group = facts.group.take().or_else(|| around.group.clone());
                if facts.operation.is_none() {
                    facts.operation.clone_from(&around.operation);
                    facts.comm_name.clone_from(&around.comm_name);
                    facts.sequence = facts.sequence.or(around.sequence);
                }
            }
        }
        delivery::deliver(Record {
            level: *event.metadata().level(),
            target: event.metadata().target().to_owned(),
            message: facts.message + &facts.values,
            at: SystemTime::now(),
            rank: facts.rank,
            group: facts.group,
            operation: facts.operation,
            sequence: facts.sequence,
            comm_name: facts.comm_name,
        });
    }
}

/// What an event or a span tells.
#[derive(Default)]
struct Facts {
    message: String,
    /// What is neither the message nor told apart: ` name=value` of each.
    values: String,
    rank: Option<u64>,
    group: Option<String>,
    operation: Option<String>,
    sequence: Option<u64>,
    comm_name: Option<String>,
}

impl Visit for Facts {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "rank" => self.rank = Some(value),
            "sequence" => self.sequence = Some(value),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match u64::try_from(value) {
            Ok(rank) if field.name() == "rank" => self.rank = Some(rank),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "group" => self.group = Some(value.to_owned()),
            "operation" => self.operation = Some(value.to_owned()),
            "comm_name" => self.comm_name = Some(value.to_owned()),
            "message" => self.message.push_str(value),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Nothing is lost where a value cannot be written: writing to a text does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "group" => {
                self.group = Some(format!("{value:?}"));
                Ok(())
            }
            name => write!(self.values, " {name}={value:?}"),
        };
    }
}
