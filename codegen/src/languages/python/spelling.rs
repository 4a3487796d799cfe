//! Names, types, defaults and doc comments as Python and the binding spell them.

use super::callback_arguments::told;
use super::records::records;
use crate::model::names::{camel_case, snake_case};
use crate::model::{CommonAttributes, Constant, Method, Parameter, Type};

/// The Python name of an item.
pub(super) fn name<'a>(name: &'a str, common: &'a CommonAttributes) -> &'a str {
    common.python.as_deref().unwrap_or(name)
}

/// The exception class of an error kind.
pub(super) fn exception(api: &crate::model::Api, kind: &str) -> String {
    let error = api.errors.iter().find(|error| error.name == kind);
    let given = error.and_then(|error| error.common.python.clone());
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

/// Core's entry of an attribute: `STORE_TIMEOUT`.
pub(super) fn attribute_entry(owner: &str, name: &str) -> String {
    format!("{}_{name}", snake_case(owner)).to_uppercase()
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
        // A record that no call takes and no callback is given has no class.
        Type::Dictionary(name)
            if !records(api).chain(told(api)).any(|known| known.name == *name) =>
        {
            "Any".into()
        }
        Type::Dictionary(name) | Type::Interface(name) => name.clone(),
        Type::Enum(name) if is_numbered(api, name) => format!("{name} | {}", literal(api, name)),
        Type::Enum(name) => literal(api, name),
        Type::Callback(name) => callable(api, name),
        Type::Sequence(inner) => format!("Sequence[{}]", accepted(api, inner)),
        Type::Nullable(inner) if inner.is_group() => {
            format!("{} | {NON_MEMBER} | None", accepted(api, inner))
        }
        // A backend that the program registered has options of its own.
        Type::Nullable(inner) if inner.is_options_of_groups() => {
            format!("{} | Any", accepted(api, inner))
        }
        Type::Nullable(inner) => format!("{} | None", accepted(api, inner)),
    }
}

/// What a function returns instead of a group to a process that is not in it, and takes as a group.
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

/// As [`returned`], for an attribute: a list that cannot be changed is a tuple.
pub(super) fn returned_by_attribute(api: &crate::model::Api, ty: &Type) -> String {
    match ty {
        Type::Sequence(inner) => format!("tuple[{}, ...]", returned(api, inner)),
        Type::Nullable(inner) => match &**inner {
            Type::Sequence(_) => format!("{} | None", returned_by_attribute(api, inner)),
            _ => returned(api, ty),
        },
        other => returned(api, other),
    }
}

/// A type as the stub writes it for a result.
pub(super) fn returned(api: &crate::model::Api, ty: &Type) -> String {
    match ty {
        Type::Long | Type::UnsignedLong | Type::LongLong | Type::UnsignedLongLong => "int".into(),
        Type::Bytes => "bytes".into(),
        Type::Enum(name) if is_numbered(api, name) => name.clone(),
        Type::Duration => "timedelta".into(),
        Type::Tensor | Type::Object => "Any".into(),
        Type::Sequence(inner) => format!("list[{}]", returned(api, inner)),
        Type::Nullable(inner) if matches!(**inner, Type::Tensor | Type::Object) => "Any".into(),
        Type::Nullable(inner) => format!("{} | None", returned(api, inner)),
        Type::Dictionary(name) if api.results().any(|known| known.name == *name) => {
            "dict[str, Any]".into()
        }
        other => accepted(api, other),
    }
}

/// Whether the values of an enum are an `IntEnum` of Python.
fn is_numbered(api: &crate::model::Api, name: &str) -> bool {
    api.enums.iter().any(|known| known.name == name && known.is_numbered())
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
    let name = name(&parameter.name, &parameter.common);
    let ty = accepted(api, &parameter.ty);
    if !parameter.optional {
        return format!("{name}: {ty}");
    }
    let default = literal_default(parameter).unwrap_or_else(|| "...".into());
    format!("{name}: {ty} = {default}")
}

/// The signature that Python shows for a method: that of its longest overload, if the others take
/// the first of its parameters and nothing else.
pub(super) fn text_signature(method: &Method, receiver: &str) -> Option<String> {
    let named = |parameter: &Parameter| name(&parameter.name, &parameter.common).to_owned();
    let longest = method.overloads.iter().max_by_key(|overload| overload.parameters.len())?;
    for overload in &method.overloads {
        let pairs = overload.parameters.iter().zip(&longest.parameters);
        if pairs.into_iter().any(|(one, other)| named(one) != named(other)) {
            return None;
        }
    }
    let lengths = method.overloads.iter().map(|overload| overload.parameters.len());
    let always = lengths.min().unwrap_or_default();
    let mut parts: Vec<String> = Vec::new();
    if !receiver.is_empty() {
        parts.push(receiver.to_owned());
    }
    for (place, parameter) in longest.parameters.iter().enumerate() {
        // What one form lets out, a call may let out.
        let mut forms = method.overloads.iter().filter_map(|it| it.parameters.get(place));
        parts.push(match forms.find(|parameter| parameter.optional) {
            Some(optional) => format!("{}={}", named(optional), shown_default(optional)),
            None if place >= always => format!("{}={UNSHOWN}", named(parameter)),
            None => named(parameter),
        });
    }
    Some(format!("({})", parts.join(", ")))
}

/// Stands for a default in a signature that Python could not read.
const UNSHOWN: &str = "...";

/// A default as a literal that Python takes in its place, for a signature.
fn shown_default(parameter: &Parameter) -> String {
    match &parameter.default {
        Some(Constant::Enum(_, value)) => format!("'{value}'"),
        Some(Constant::Seconds(seconds)) => seconds.to_string(),
        Some(Constant::EmptySequence) => "()".to_owned(),
        _ => literal_default(parameter).map_or(UNSHOWN.to_owned(), |text| text.replace('"', "'")),
    }
}

/// What a signature cannot show of a method's defaults.
fn default_lines(method: &Method) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for parameter in method.overloads.iter().flat_map(|overload| &overload.parameters) {
        let (Some(default), UNSHOWN) = (&parameter.default, shown_default(parameter).as_str())
        else {
            continue;
        };
        let name = name(&parameter.name, &parameter.common);
        let line = match default {
            Constant::EmptyDictionary => format!("`{name}` has its usual values by default."),
            Constant::ReduceOp(op) => format!("`{name}` is `ReduceOp.{op}` by default."),
            Constant::DType(dtype) => format!("`{name}` is `DType.{dtype}` by default."),
            default => format!("`{name}` is `{default}` by default."),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
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
    let defaults = default_lines(method);
    if !defaults.is_empty() {
        lines.push(String::new());
        lines.extend(defaults);
    }
    if method.overloads.len() > 1 {
        lines.push(String::new());
        lines.push("Forms:".into());
        lines.push(String::new());
        lines.extend(method.overloads.iter().map(|overload| format!("- `{}`", overload.form)));
    }
    if method.common.unbuilt {
        lines.push(String::new());
        lines.push("Not implemented in this version: raises `UnsupportedError`.".into());
    } else if !method.common.throws.is_empty() {
        let raises: Vec<String> =
            method.common.throws.iter().map(|kind| format!("`{}`", exception(api, kind))).collect();
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
        let operators = "\
/// How.
[ReduceOps]
namespace ReduceOp {
  /// Addition.
  [Number=0, DTypes=\"all\"] readonly attribute ReduceOp SUM;
};
/// The type.
[DTypes]
namespace DType {
  /// Bytes.
  [Number=0, Bytes=1, Class=\"integer\"] readonly attribute DType u8;
};
";
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
  /// Reduces.
  undefined reduce(Tensor tensor, optional ReduceOp op = \"SUM\");
  /// Gets.
  undefined get(DOMString key);
  undefined get(sequence<DOMString> keys);
  /// Asks.
  undefined ask(optional long? what = null);
  undefined ask(DOMString what);
};
/// It broke.
[Error, Python=BrokenError, Message=\"broken\"]
dictionary Broken {};
";
        let files = [("types", types), ("operators", operators), ("it", text)];
        let files = files.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
        crate::read(files).unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false)))
    }

    fn method(api: &Api, name: &str) -> Method {
        api.interfaces[0].methods.iter().find(|method| method.name == name).unwrap().clone()
    }

    #[test]
    fn a_signature_is_shown_if_one_fits_all_forms() {
        let api = api();
        let shown = |name| text_signature(&method(&api, name), "$self");
        assert_eq!(shown("set").as_deref(), Some("($self, key, value, timeout=None)"));
        assert_eq!(shown("wait").as_deref(), Some("($self, keys, timeout=...)"));
        assert_eq!(shown("open").as_deref(), Some("($self, timeout=300)"));
        assert_eq!(shown("reduce").as_deref(), Some("($self, tensor, op=...)"));
        assert_eq!(shown("ask").as_deref(), Some("($self, what=None)"));
        assert_eq!(shown("get"), None, "its forms have not the same names");
        let doc = method_doc(&api, &method(&api, "reduce"));
        assert_eq!(doc, ["Reduces.", "", "`op` is `ReduceOp.SUM` by default."]);
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
