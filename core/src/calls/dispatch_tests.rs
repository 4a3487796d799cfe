//! Calls by name: that all are found, and what some of them do.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::generated::dispatch::ENTRIES;
use crate::generated::error::{Error, Result};

fn invoke(key: &str, this: Option<&Object>, positional: Vec<Value>) -> Result<Answer> {
    let arguments = Arguments { positional, ..Arguments::default() };
    Invocation::new(entry(key)?, this.cloned(), arguments, Vec::new())?.run()
}

fn hash_store() -> Object {
    match invoke("HASH_STORE_NEW", None, vec![]).unwrap() {
        Answer::Object(store) => store,
        other => panic!("no store: {other:?}"),
    }
}

fn text(text: &str) -> Value {
    Value::Str(text.to_owned())
}

#[test]
fn every_method_of_the_tables_has_its_entry() {
    assert!(ENTRIES.is_sorted_by(|a, b| a.key < b.key), "they are searched by halves");
    for method in tables::METHODS {
        let found = ENTRIES.iter().any(|entry| std::ptr::eq(entry.method, *method));
        assert!(found, "{}.{}", method.interface, method.name);
    }
}

#[test]
fn a_store_is_made_and_asked_by_name() {
    let store = hash_store();
    assert_eq!(store.interfaces(), ["HashStore", "Store"]);
    let nothing = invoke("STORE_SET", Some(&store), vec![text("k"), text("v")]).unwrap();
    assert!(matches!(nothing, Answer::Nothing));
    let value = invoke("STORE_GET", Some(&store), vec![text("k")]).unwrap();
    assert!(matches!(value, Answer::Bytes(bytes) if bytes == b"v"));
    let sum = invoke("STORE_ADD", Some(&store), vec![text("n"), Value::Int(-3)]).unwrap();
    assert!(matches!(sum, Answer::Int(-3)));
    let timeout = invoke("STORE_TIMEOUT", Some(&store), vec![]).unwrap();
    assert!(matches!(timeout, Answer::Duration(limit) if limit.as_secs() == 300));
}

#[test]
fn objects_among_the_arguments_are_given_back_as_they_came() {
    let inner = hash_store();
    let positional = vec![text("p"), Value::of_object(&inner, 0)];
    let arguments = Arguments { positional, ..Arguments::default() };
    let call =
        Invocation::new(entry("PREFIX_STORE_NEW").unwrap(), None, arguments, vec![inner.clone()]);
    let Answer::Object(view) = call.unwrap().run().unwrap() else { panic!("no store") };
    let underlying = invoke("PREFIX_STORE_UNDERLYING_STORE", Some(&view), vec![]).unwrap();
    let Answer::Object(underlying) = underlying else { panic!("no store") };
    assert_eq!(underlying.identity(), inner.identity());
    assert_ne!(view.identity(), inner.identity());
}

#[test]
fn what_cannot_be_called_says_so() {
    let store = hash_store();
    let kind = |result: Result<Answer>| result.unwrap_err().kind();
    assert_eq!(kind(invoke("NO_SUCH_CALL", None, vec![])), "Unsupported");
    assert_eq!(kind(invoke("STORE_GET", None, vec![text("k")])), "InvalidType");
    assert_eq!(kind(invoke("PROCESS_GROUP_RANK", Some(&store), vec![])), "InvalidType");
    assert_eq!(kind(invoke("STORE_GET", Some(&store), vec![])), "InvalidType");
    assert_eq!(kind(invoke("TCP_STORE_PORT", Some(&store), vec![])), "InvalidType");
    assert_eq!(kind(invoke("DISTRIBUTED_REGISTER_BACKEND", None, vec![])), "InvalidType");
    let outside = Some(&Object::NonGroupMember);
    let error = invoke("PROCESS_GROUP_SIZE", outside, vec![]).unwrap_err();
    assert!(matches!(error, Error::InvalidGroup { .. }), "{error}");
}
