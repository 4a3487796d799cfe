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
                facts.add(around);
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

impl Facts {
    /// Adds what is told around it, unless that is of another group or rank.
    fn add(&mut self, around: &Facts) {
        let is_other_group =
            self.group.as_ref().zip(around.group.as_ref()).is_some_and(|(own, other)| own != other);
        let is_other_rank = self.rank.zip(around.rank).is_some_and(|(own, other)| own != other);
        if is_other_group || is_other_rank {
            return;
        }
        self.rank = self.rank.or(around.rank);
        self.group = self.group.take().or_else(|| around.group.clone());
        if self.operation.is_none() {
            self.operation.clone_from(&around.operation);
            self.comm_name.clone_from(&around.comm_name);
            self.sequence = self.sequence.or(around.sequence);
        }
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn facts(group: Option<&str>, operation: Option<&str>) -> Facts {
        let [group, operation] = [group, operation].map(|text| text.map(str::to_owned));
        Facts { group, operation, ..Facts::default() }
    }

    #[test]
    fn what_is_told_around_an_event_is_its_own_unless_that_is_of_another_group() {
        let around =
            Facts { rank: Some(2), sequence: Some(3), ..facts(Some("dp"), Some("barrier")) };
        for group in [None, Some("dp")] {
            let mut event = facts(group, None);
            event.add(&around);
            assert_eq!((event.rank, event.sequence), (Some(2), Some(3)));
            assert_eq!(event.group.unwrap() + &event.operation.unwrap(), "dpbarrier");
        }
        let mut other = facts(Some("tp"), None);
        other.add(&around);
        assert_eq!((other.rank, other.operation, other.sequence), (None, None, None));
    }
}
