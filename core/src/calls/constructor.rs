//! Constructors of options records, for languages that have a class of each: what they take. Knows
//! no values but those that the resolver knows.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::resolve::{is_name, resolve};
use super::value::Arguments;
use crate::generated::error::Result;
use crate::request::{Method, Overload, Parameter, RecordType};

impl RecordType {
    /// Refuses values that the members do not take, by the resolver that all calls go through:
    /// every member is an optional parameter.
    ///
    /// # Errors
    /// As [`resolve`].
    pub fn check(&'static self, members: Arguments) -> Result<()> {
        resolve(self.constructor(), members).map(drop)
    }

    /// The constructor as a method: every member is an optional parameter.
    pub fn constructor(&'static self) -> &'static Method {
        constructor(self)
    }

    /// The position of the member that `keyword` names, in snake_case or in camelCase.
    pub fn position_of(&self, keyword: &str) -> Option<usize> {
        self.members.iter().position(|member| is_name(keyword, member.name))
    }
}

/// The constructor as a method.
fn constructor(record_type: &'static RecordType) -> &'static Method {
    static MADE: Mutex<Option<HashMap<&'static str, &'static Method>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.get_or_insert_default().entry(record_type.name).or_insert_with(|| {
        let members = record_type.members;
        let parameters: Vec<Parameter> =
            members.iter().map(|member| Parameter { optional: true, ..*member }).collect();
        // One for each record type of the IDL, for as long as the process lives.
        let overload = Overload { parameters: parameters.leak() };
        Box::leak(Box::new(Method {
            interface: record_type.name,
            name: record_type.name,
            factory: None,
            collective: None,
            coalesced: false,
            prepares: None,
            unbuilt: false,
            overloads: vec![overload].leak(),
        }))
    })
}
