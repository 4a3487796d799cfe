//! Names, types, defaults and doc comments as Python and the binding spell them.

use super::options::records;
use crate::model::names::{camel_case, snake_case};
use crate::model::{Constant, Method, Notes, Parameter, Type};

/// The Python name of an item.
pub(super) fn name<'a>(name: &'a str, notes: &'a Notes) -> &'a str {
    notes.python.as_deref().unwrap_or(name)
}

/// The exception class of an error kind.
pub(super) fn exception(api: &crate::model::Api, kind: &str) -> String {
    let error = api.errors.iter().find(|error| error.name == kind);
    let given = error.and_then(|error| error.notes.python.clone());
    given.unwrap_or_else(|| format!("{kind}Error"))
}

/// `reduce_op` -> `reduceOp`; none if that is the same.
pub(super) fn camel_member(name: &str) -> Option<String> {
    let camel = camel_case(name);
    let mut letters = camel.chars();
    let first = letters.next()?.to_ascii_lowercase();
    let camel = format!("{first}{}", letters.as_str());
    (camel != name).then_some(camel)
}

/// The static table of a method: `PROCESS_GROUP_ALLREDUCE`.
pub(super) fn table(method: &Method) -> String {
    format!("{}_{}", snake_case(&method.owner), method.name).to_uppercase()
}

/// The static table of a record type: `ALLREDUCE_OPTIONS`.
pub(super) fn record_table(name: &str) -> String {
    snake_case(name).to_uppercase()
}

/// A type as the stub writes it for a parameter.
pub(super) fn accepted(api: &crate::model::Api, ty: &Type) -> String {
    match ty {
        Type::Undefined => "None".into(),
        Type::Boolean => "bool".into(),
        Type::Long | Type::UnsignedLong | Type::LongLong | Type::UnsignedLongLong => {
            "SupportsIndex".into()
        }
        Type::Double => "float".into(),
        Type::String => "str".into(),
        Type::Bytes => "_Bytes".into(),
        Type::Duration => "_Duration".into(),
        Type::Tensor => "_Tensor".into(),
        Type::Object => "object".into(),
        Type::ReduceOp => "ReduceOp".into(),
        Type::DType => "DType".into(),
        // A record that no call takes has no class.
        Type::Dictionary(name) if !records(api).any(|known| known.name == *name) => "Any".into(),
        Type::Dictionary(name) | Type::Interface(name) => name.clone(),
        Type::Enum(name) => literal(api, name),
        Type::Callback(name) => callable(api, name),
        Type::Sequence(inner) => format!("Sequence[{}]", accepted(api, inner)),
        Type::Nullable(inner) if inner.is_group() => {
            format!("{} | {NON_MEMBER} | None", accepted(api, inner))
        }
        Type::Nullable(inner) => format!("{} | None", accepted(api, inner)),
    }
}

/// What a function gives instead of a group to a process that is not in it, and takes as a group.
const NON_MEMBER: &str = "NonGroupMember";

/// As [`returned`], for a free function: no group is no None, which would be the default group.
pub(super) fn returned_by_function(api: &crate::model::Api, ty: &Type) -> String {
    match ty {
        Type::Nullable(inner) if inner.is_group() => {
            format!("{} | {NON_MEMBER}", returned(api, inner))
        }
        other => returned(api, other),
    }
}

/// A type as the stub writes it for a result.
pub(super) fn returned(api: &crate::model::Api, ty: &Type) -> String {
    match ty {
        Type::Long | Type::UnsignedLong | Type::LongLong | Type::UnsignedLongLong => "int".into(),
        Type::Bytes => "bytes".into(),
        Type::Duration => "timedelta".into(),
        Type::Tensor | Type::Object => "Any".into(),
        Type::Sequence(inner) => format!("list[{}]", returned(api, inner)),
        Type::Nullable(inner) if matches!(**inner, Type::Tensor | Type::Object) => "Any".into(),
        Type::Nullable(inner) => format!("{} | None", returned(api, inner)),
        other => accepted(api, other),
    }
}

fn literal(api: &crate::model::Api, name: &str) -> String {
    let values = api.enums.iter().find(|known| known.name == name);
    let values = values.into_iter().flat_map(|known| &known.values);
    let quoted: Vec<String> = values.map(|value| format!("\"{}\"", value.value)).collect();
    format!("Literal[{}]", quoted.join(", "))
}

fn callable(api: &crate::model::Api, name: &str) -> String {
    let Some(callback) = api.callbacks.iter().find(|known| known.name == name) else {
        return "Callable[..., Any]".into();
    };
    // The user's function gets what the package returns, and returns what the package takes.
    let parameters: Vec<String> =
        callback.parameters.iter().map(|parameter| returned(api, &parameter.ty)).collect();
    let returns = match &callback.returns {
        Type::Object => "Any".into(),
        other => accepted(api, other),
    };
    format!("Callable[[{}], {returns}]", parameters.join(", "))
}

/// A default as a Python literal; none if it is not one.
pub(super) fn literal_default(parameter: &Parameter) -> Option<String> {
    match &parameter.default {
        None | Some(Constant::Null) => Some("None".into()),
        Some(constant @ (Constant::Boolean(_) | Constant::Integer(_) | Constant::Float(_))) => {
            Some(constant.to_string())
        }
        Some(Constant::String(text)) => Some(format!("\"{text}\"")),
        Some(_) => None,
    }
}

/// `name: type = default` for a stub.
pub(super) fn parameter(api: &crate::model::Api, parameter: &Parameter) -> String {
    let name = name(&parameter.name, &parameter.notes);
    let ty = accepted(api, &parameter.ty);
    if !parameter.optional {
        return format!("{name}: {ty}");
    }
    let default = literal_default(parameter).unwrap_or_else(|| "...".into());
    format!("{name}: {ty} = {default}")
}

/// The signature that Python shows for a method with one overload and literal defaults only.
pub(super) fn text_signature(method: &Method, receiver: &str) -> Option<String> {
    let [overload] = method.overloads.as_slice() else { return None };
    let mut parts: Vec<String> = Vec::new();
    if !receiver.is_empty() {
        parts.push(receiver.to_owned());
    }
    for parameter in &overload.parameters {
        let name = name(&parameter.name, &parameter.notes);
        parts.push(match parameter.optional {
            false => name.to_owned(),
            true => format!("{name}={}", literal_default(parameter)?.replace('"', "'")),
        });
    }
    Some(format!("({})", parts.join(", ")))
}

/// The lines of a doc comment, with error kinds named as their exception classes.
pub(super) fn lines(api: &crate::model::Api, doc: &str) -> Vec<String> {
    let line = |line: &str| {
        let mut line = line.to_owned();
        for error in api.errors.iter().filter(|error| line_names(doc, &error.name)) {
            let quoted = format!("`{}`", error.name);
            line = line.replace(&quoted, &format!("`{}`", exception(api, &error.name)));
        }
        line
    };
    doc.lines().map(line).collect()
}

fn line_names(doc: &str, kind: &str) -> bool {
    doc.contains(&format!("`{kind}`"))
}

/// The doc comment of a method: its text, its forms if there are several, what it raises.
pub(super) fn method_doc(api: &crate::model::Api, method: &Method) -> Vec<String> {
    let mut lines = lines(api, &method.doc);
    if method.overloads.len() > 1 {
        lines.push(String::new());
        lines.push("Forms:".into());
        lines.push(String::new());
        lines.extend(method.overloads.iter().map(|overload| format!("- `{}`", overload.form)));
    }
    if method.notes.unbuilt {
        lines.push(String::new());
        lines.push("Not built in this version: raises `UnsupportedError`.".into());
    } else if !method.notes.throws.is_empty() {
        let raises: Vec<String> =
            method.notes.throws.iter().map(|kind| format!("`{}`", exception(api, kind))).collect();
        lines.push(String::new());
        lines.push(format!("Raises {}.", raises.join(", ")));
    }
    lines
}

/// Lines as a Rust doc comment, indented.
pub(super) fn rust_doc(lines: &[String], indent: &str) -> String {
    let line = |line: &String| match line.is_empty() {
        true => format!("{indent}///\n"),
        false => format!("{indent}/// {line}\n"),
    };
    lines.iter().map(line).collect::<String>().trim_end().to_owned()
}

/// Lines as a Python docstring, indented.
pub(super) fn docstring(lines: &[String], indent: &str) -> String {
    let escaped: Vec<String> =
        lines.iter().map(|line| line.replace('\\', "\\\\").replace("\"\"\"", "'''")).collect();
    match escaped.as_slice() {
        [only] => format!("{indent}\"\"\"{only}\"\"\""),
        all => {
            let mut text = format!("{indent}\"\"\"");
            for (index, line) in all.iter().enumerate() {
                if index > 0 {
                    text.push('\n');
                    if !line.is_empty() {
                        text.push_str(indent);
                    }
                }
                text.push_str(line);
            }
            format!("{text}\n{indent}\"\"\"")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::model::Api;

    fn api() -> Api {
        let types = include_str!("../../../../idl/types.webidl");
        let text = "\
/// A store.
interface Store {
  /// Sets; raises `Broken`.
  [Throws=Broken] undefined set(DOMString key, Bytes value, optional Duration? timeout = null);
  /// Waits.
  undefined wait(sequence<DOMString> keys);
  undefined wait(sequence<DOMString> keys, Duration timeout);
  /// Opens.
  undefined open(optional Duration timeout = 300);
};
/// It broke.
[Error, Python=BrokenError, Message=\"broken\"]
dictionary Broken {};
";
        let files =
            vec![("types".to_owned(), types.to_owned()), ("it".to_owned(), text.to_owned())];
        crate::read(files).unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false)))
    }

    fn method(api: &Api, name: &str) -> Method {
        api.interfaces[0].methods.iter().find(|method| method.name == name).unwrap().clone()
    }

    #[test]
    fn a_signature_is_shown_if_python_can_read_all_of_it() {
        let api = api();
        let shown = |name| text_signature(&method(&api, name), "$self");
        assert_eq!(shown("set").as_deref(), Some("($self, key, value, timeout=None)"));
        assert_eq!(shown("wait"), None, "it has two");
        assert_eq!(shown("open"), None, "300 seconds are no literal");
    }

    #[test]
    fn stubs_take_more_than_they_give() {
        let api = api();
        let set = method(&api, "set");
        let parameters: Vec<String> =
            set.overloads[0].parameters.iter().map(|known| parameter(&api, known)).collect();
        assert_eq!(parameters, ["key: str", "value: _Bytes", "timeout: _Duration | None = None"]);
        assert_eq!(returned(&api, &Type::Sequence(Box::new(Type::Bytes))), "list[bytes]");
        assert_eq!(accepted(&api, &Type::Nullable(Box::new(Type::Long))), "SupportsIndex | None");
    }

    #[test]
    fn docs_name_exception_classes_and_forms() {
        let api = api();
        assert_eq!(
            method_doc(&api, &method(&api, "set")),
            ["Sets; raises `BrokenError`.", "", "Raises `BrokenError`."]
        );
        assert_eq!(method_doc(&api, &method(&api, "wait")).len(), 6);
        let text = docstring(&["One \"\"\" and \\.".to_owned()], "    ");
        assert_eq!(text, "    \"\"\"One ''' and \\\\.\"\"\"");
    }

    #[test]
    fn members_have_camel_case_spellings() {
        assert_eq!(camel_member("reduce_op").as_deref(), Some("reduceOp"));
        assert_eq!(camel_member("timeout"), None);
    }
}
