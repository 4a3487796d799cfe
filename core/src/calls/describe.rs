//! Methods, types and values in the words of the language that calls, for messages.

use std::borrow::Cow;

use super::answer::camel_case;
use super::resolve::{is_name, record_of, takes};
use super::value::{Arguments, Language, Value};
use crate::generated::dispatch::ENTRIES;
use crate::generated::error::Error;
use crate::request::{Constant, Method, Overload, Parameter, RecordType, Type};

/// What becomes of names between quotation marks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoted {
    Spelt,
    Unchanged,
}

impl Language {
    /// A name of the IDL: `async_op` or `asyncOp`.
    pub(super) fn name(self, name: &str) -> String {
        if self.is_script() { camel_case(name) } else { name.to_owned() }
    }

    /// What an error says: names of the API are spelt as in this language. Texts that quote keys,
    /// addresses or names that a user gave stay as they are.
    pub fn message(self, error: &Error) -> String {
        let text = error.to_string();
        let quoted = match error {
            // Between quotation marks stand names of arguments.
            Error::InvalidArgument { .. }
            | Error::InvalidType { .. }
            | Error::Unsupported { .. } => Quoted::Spelt,
            // Between quotation marks stand names of groups and runs.
            Error::CollectiveMismatch { .. }
            | Error::CollectiveTimeout { .. }
            | Error::WaitTimeout { .. }
            | Error::RankFailed { .. }
            | Error::Aborted { .. }
            | Error::Reconfigured { .. }
            | Error::Rendezvous { .. }
            | Error::RendezvousTimeout { .. } => Quoted::Unchanged,
            _ => return text,
        };
        if self.is_script() { camel_case_names(&text, quoted) } else { text }
    }

    /// How a method is called: `all_reduce`, `TCPStore`, `TCPStore.connect`, `new HashStore`.
    pub(super) fn callee(self, method: &Method) -> String {
        let Method { interface, name, factory, .. } = *method;
        match (name, factory) {
            ("new", Some(factory)) if self.is_script() => format!("{interface}.{factory}"),
            ("new", _) if self.is_script() => format!("new {interface}"),
            ("new", _) => interface.to_owned(),
            _ => self.name(name),
        }
    }

    /// What a tensor is.
    pub(super) fn tensor(self) -> &'static str {
        match self.is_script() {
            true => "a typed array, a DataView, or what tensor() gives",
            false => "a NumPy array, or anything with the buffer protocol or DLPack",
        }
    }

    /// One form of a call: `allreduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM)`,
    /// `allreduce(tensor: Tensor, options?: { op?: ReduceOp })`.
    pub(super) fn form(self, method: &Method, overload: &Overload) -> String {
        let parameters = overload.parameters;
        let callee = self.callee(method);
        if !self.is_script() {
            let parameters = parameters.iter().map(|known| self.parameter(known));
            return format!("{callee}({})", parameters.collect::<Vec<_>>().join(", "));
        }
        // A limit stands among the options, where it must be given, too.
        let is_option = |(position, known): &(usize, &Parameter)| {
            known.optional || (*position > 0 && matches!(known.ty, Type::Duration))
        };
        let required = parameters.iter().enumerate().take_while(|it| !is_option(it)).count();
        let (required, options) = parameters.split_at(required);
        let mut parts: Vec<String> = required.iter().map(|known| self.parameter(known)).collect();
        let members = options.iter().flat_map(|known| match known {
            // The members of a record that may be left out stand among the options themselves.
            Parameter {
                ty: Type::Record(record), default: Some(Constant::EmptyRecord), ..
            } => record.members,
            known => std::slice::from_ref(known),
        });
        let members: Vec<&Parameter> = members.collect();
        if !members.is_empty() {
            let mark = if members.iter().all(|known| known.optional) { "?" } else { "" };
            let members: Vec<_> = members.iter().map(|known| self.parameter(known)).collect();
            parts.push(format!("options{mark}: {{ {} }}", members.join(", ")));
        }
        format!("{callee}({})", parts.join(", "))
    }

    fn parameter(self, parameter: &Parameter) -> String {
        let Parameter { name, ty, optional, default, .. } = parameter;
        let is_list = is_list_of_objects(parameter);
        let name = self.name(name);
        match ty {
            _ if !optional && is_list => format!("{name}: {}", self.list_of_objects()),
            _ if !optional => format!("{name}: {}", self.ty(ty)),
            _ if is_list && self.is_script() => format!("{name}?: {}", self.list_of_objects()),
            _ if is_list => format!("{name}: {} = None", self.list_of_objects()),
            Type::Nullable(inner) if self.is_script() => format!("{name}?: {}", self.ty(inner)),
            ty if self.is_script() => format!("{name}?: {}", self.ty(ty)),
            ty => {
                let default = default_in_python(default.unwrap_or(Constant::Null), ty);
                format!("{name}: {} = {default}", self.ty(ty))
            }
        }
    }

    /// A type.
    pub(super) fn ty(self, ty: &Type) -> String {
        let script = self.is_script();
        let name = match ty {
            Type::Bool if script => "boolean",
            Type::Bool => "bool",
            Type::Int | Type::Float | Type::Duration if script => "number",
            Type::Int => "int",
            Type::Float => "float",
            Type::Duration => "timedelta | float",
            Type::Str if script => "string",
            Type::Str => "str",
            Type::Bytes if script => "Uint8Array | string",
            Type::Bytes => "bytes | str",
            Type::Tensor => "Tensor",
            Type::Object if script => "unknown",
            Type::Object => "object",
            Type::ReduceOp => "ReduceOp",
            Type::DType => "DType",
            Type::Record(record) => record.name,
            Type::Interface(name) => name,
            Type::Callback if script => "function",
            Type::Callback => "Callable",
            Type::Enum(values, numbers) => {
                let number = |place: usize| numbers.get(place).map(|number| format!(" ({number})"));
                let value =
                    |(place, value)| format!("'{value}'{}", number(place).unwrap_or_default());
                return values.iter().enumerate().map(value).collect::<Vec<_>>().join(" | ");
            }
            Type::Sequence(inner) => {
                let inner = self.ty(inner);
                return match inner.contains(' ') {
                    _ if !script => format!("Sequence[{inner}]"),
                    true => format!("({inner})[]"),
                    false => format!("{inner}[]"),
                };
            }
            Type::Nullable(inner) => {
                let none = if script { "null" } else { "None" };
                return format!("{} | {none}", self.ty(inner));
            }
        };
        name.to_owned()
    }

    /// What sort of value it is: `list of 2 Tensor`. Costs nothing for most.
    pub(super) fn sort(self, value: &Value) -> Cow<'static, str> {
        let script = self.is_script();
        Cow::Borrowed(match value {
            // The layer of JavaScript makes one of both.
            Value::None if script => "null or undefined",
            Value::None => "None",
            Value::Bool(_) if script => "boolean",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Float(_) | Value::Duration(_) if script => "number",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Duration(_) => "timedelta",
            Value::Str(_) if script => "string",
            Value::Str(_) => "str",
            Value::Bytes(_) if script => "Uint8Array",
            Value::Bytes(_) => "bytes",
            Value::Tensor(_) => "Tensor",
            Value::ReduceOp(_) => "ReduceOp",
            Value::DType(_) => "DType",
            Value::Record(record, _) => record.name,
            Value::Members(_) if script => "object",
            Value::Members(_) => "options",
            Value::Foreign(foreign) => return Cow::Owned(foreign.type_name.clone()),
            Value::Options(_, value) => return self.sort(value),
            Value::List(values) => {
                let list = if script { "array" } else { "list" };
                return Cow::Owned(self.list(list, values));
            }
            Value::Tuple(values) => return Cow::Owned(self.list("tuple", values)),
        })
    }

    /// What was expected, and what came: `bool, not int`. JavaScript has one type for integers and
    /// other numbers, so that there the value itself tells what is wrong.
    pub(super) fn wrong_type(self, expected: &Type, value: &Value) -> String {
        let is_of_integers = match expected {
            Type::Nullable(inner) => matches!(**inner, Type::Int),
            ty => matches!(ty, Type::Int),
        };
        match value {
            Value::Float(number) if self.is_script() && is_of_integers => {
                format!("an integer, not {number}")
            }
            Value::Members(given) => self
                .wrong_member(expected, given)
                .unwrap_or_else(|| format!("{}, not {}", self.ty(expected), self.sort(value))),
            Value::Foreign(foreign) if !self.is_script() && is_store(expected) => {
                // In JavaScript the methods are enough; a class of Python is derived from it.
                let ty = self.ty(expected);
                format!("{ty}, not {}: derive it from polyrank.Store", foreign.type_name)
            }
            Value::Options(_, value) => self.wrong_type(expected, value),
            value => format!("{}, not {}", self.ty(expected), self.sort(value)),
        }
    }

    /// What is wrong with the members of an options record: `NcclOptions whose config is NcclConfig
    /// whose min_ctas is int, not str`. Of the types that may be meant, it is the one that has most
    /// of them.
    fn wrong_member(self, expected: &Type, given: &[(String, Value)]) -> Option<String> {
        let wanted = record_of(expected)?;
        let member = |record: &'static RecordType, name: &str| {
            record.members.iter().find(|known| is_name(name, known.name))
        };
        let lacks = |record: &&'static RecordType| {
            given.iter().filter(|(name, _)| member(record, name).is_none()).count()
        };
        let types = std::iter::once(wanted).chain(wanted.extensions.iter().copied());
        let record = types.min_by_key(lacks)?;
        given.iter().find_map(|(name, value)| match member(record, name) {
            None => Some(format!("{}, which has no '{}'", record.name, self.name(name))),
            Some(known) if takes(&known.ty, value) => None,
            Some(known) => {
                let wrong = self.wrong_type(&known.ty, value);
                Some(format!("{} whose {} is {wrong}", record.name, self.name(known.name)))
            }
        })
    }

    fn list(self, list: &str, values: &[Value]) -> String {
        let mut sorts: Vec<Cow<'static, str>> = Vec::new();
        for value in values {
            let sort = self.sort(value);
            if !sorts.contains(&sort) {
                sorts.push(sort);
            }
        }
        match sorts.as_slice() {
            [] => format!("empty {list}"),
            [sort] => format!("{list} of {} {sort}", values.len()),
            [first, second] => format!("{list} of {first} and {second}"),
            [first, second, ..] => format!("{list} of {first}, {second} and others"),
        }
    }

    /// A list that a collective of objects takes or fills.
    fn list_of_objects(self) -> &'static str {
        if self.is_script() { "unknown[]" } else { "list[object]" }
    }

    /// What sort of value the argument is that parameter `known` has: the layer of JavaScript
    /// passes other values for objects and lists of such.
    fn sort_of_argument(self, known: Option<&Parameter>, value: &Value) -> Cow<'static, str> {
        let is_other = self.is_script() && known.is_some_and(is_any);
        match value {
            Value::None | Value::Foreign(_) => self.sort(value),
            _ if is_other && known.is_some_and(is_list_of_objects) => Cow::Borrowed("array"),
            _ if is_other => Cow::Borrowed("object"),
            _ => self.sort(value),
        }
    }

    /// What sorts of values they are: `(list of 2 Tensor, op=str)`,
    /// `(array of 2 Tensor, { op: string })`.
    pub(super) fn arguments(self, method: &Method, arguments: &Arguments) -> String {
        let known = if let [only] = method.overloads { only.parameters } else { &[] };
        let positional = arguments.positional.iter().enumerate();
        let mut all: Vec<String> = positional
            .map(|(at, value)| self.sort_of_argument(known.get(at), value).into_owned())
            .collect();
        let sign = if self.is_script() { ": " } else { "=" };
        let by_name = arguments.keywords.iter();
        // The layer of JavaScript passes names in snake_case.
        let by_name = by_name.map(|(name, value)| {
            let known = known.iter().find(|known| is_name(name, known.name));
            format!("{}{sign}{}", self.name(name), self.sort_of_argument(known, value))
        });
        let by_name: Vec<String> = by_name.collect();
        if self.is_script() && !by_name.is_empty() {
            all.push(format!("{{ {} }}", by_name.join(", ")));
        } else {
            all.extend(by_name);
        }
        format!("({})", all.join(", "))
    }
}

/// The text with the names of the API in camelCase: methods, parameters, options. A part of an
/// address or of a longer name is none.
fn camel_case_names(text: &str, quoted: Quoted) -> String {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let (mut spelt, mut before) = (String::with_capacity(text.len()), ' ');
    let mut is_quoted = false;
    for part in text.split_inclusive(|letter: char| !is_letter(letter)) {
        let word = part.trim_end_matches(|letter: char| !is_letter(letter));
        let after = &part[word.len()..];
        let is_part = matches!(before, '/' | '?' | '&' | '-') || matches!(after, "/" | "=" | "-");
        let is_users = is_quoted && quoted == Quoted::Unchanged;
        if word.contains('_') && !is_part && !is_users && is_name_of_api(word) {
            spelt.push_str(&camel_case(word));
        } else {
            spelt.push_str(word);
        }
        spelt.push_str(after);
        // One that follows a word and begins nothing is an apostrophe.
        if after == "'" && (is_quoted || word.is_empty()) {
            is_quoted = !is_quoted;
        }
        before = after.chars().next().unwrap_or(before);
    }
    spelt
}

/// Whether it takes any value of the language as it is.
pub(super) fn is_any(parameter: &Parameter) -> bool {
    matches!(parameter.ty, Type::Object | Type::Nullable(Type::Object))
}

/// Whether it is a list of objects that are sent, or that come.
fn is_list_of_objects(parameter: &Parameter) -> bool {
    is_any(parameter) && parameter.name.ends_with("_list")
}

fn is_name_of_api(word: &str) -> bool {
    let has = |parameter: &Parameter| match &parameter.ty {
        _ if parameter.name == word => true,
        Type::Record(record) => record.members.iter().any(|member| member.name == word),
        _ => false,
    };
    ENTRIES.iter().any(|entry| {
        let mut overloads = entry.method.overloads.iter();
        entry.method.name == word || overloads.any(|it| it.parameters.iter().any(has))
    })
}

/// Whether it is or holds a tensor.
pub(super) fn is_of_tensors(ty: &Type) -> bool {
    match ty {
        Type::Tensor => true,
        Type::Sequence(inner) | Type::Nullable(inner) => is_of_tensors(inner),
        _ => false,
    }
}

fn default_in_python(default: Constant, ty: &Type) -> String {
    match default {
        Constant::Null => "None".to_owned(),
        Constant::Bool(true) => "True".to_owned(),
        Constant::Bool(false) => "False".to_owned(),
        Constant::Int(number) => number.to_string(),
        Constant::Float(number) | Constant::Seconds(number) => number.to_string(),
        Constant::Str(text) => format!("'{text}'"),
        Constant::ReduceOp(op) => format!("ReduceOp.{}", op.name()),
        Constant::DType(dtype) => format!("DType.{}", dtype.name()),
        Constant::EmptySequence => "()".to_owned(),
        Constant::EmptyRecord => format!("{}()", Language::Python.ty(ty)),
    }
}

/// Whether a store is expected.
fn is_store(expected: &Type) -> bool {
    match expected {
        Type::Nullable(inner) => is_store(inner),
        ty => matches!(ty, Type::Interface("Store")),
    }
}
