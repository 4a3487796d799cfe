//! Which overload a call means: declaration order decides. Knows nothing of what calls do.

use std::time::Duration;

use super::array_lists;
use super::describe::{is_any, is_of_tensors};
use super::from_value::{FromValue, ReceivedValue};
use super::settings;
use super::value::{Arguments, Language, Value};
use crate::generated::error::{Error, Result};
use crate::request::{Method, Overload, Parameter, RecordType, Role, Type};

/// A call whose overload is known.
#[derive(Clone, Debug)]
pub struct ResolvedCall {
    /// The method.
    pub method: &'static Method,
    /// The position of its overload.
    pub overload: usize,
    /// One value for each parameter of the overload, defaults filled in.
    pub values: Vec<Value>,
    /// The caller's language.
    pub language: Language,
}

/// Finds the overload that takes `arguments`: the first, in the order of declaration.
///
/// # Errors
/// - [`Error::Unsupported`] if the method is not built.
/// - [`Error::InvalidType`] if no overload takes the arguments; it lists the accepted forms.
/// - [`Error::InvalidArgument`] for a negative length of time.
pub fn resolve(method: &'static Method, mut arguments: Arguments) -> Result<ResolvedCall> {
    if method.unbuilt {
        let name = arguments.language.name(method.name);
        return Err(unsupported(format!("{}.{name}", method.interface)));
    }
    for (position, overload) in method.overloads.iter().enumerate() {
        if let Ok(places) = places(overload, &arguments) {
            let values = fill(method, overload, &places, &mut arguments)?;
            let language = arguments.language;
            return Ok(ResolvedCall { method, overload: position, values, language });
        }
    }
    Err(Error::InvalidType { message: message(method, &arguments) })
}

impl Method {
    /// Whether the parameter at `position` takes any value of the language as it is.
    pub fn takes_any_at(&self, position: usize) -> bool {
        self.only_parameters().get(position).is_some_and(is_any)
    }

    /// Whether the parameter of this name takes any value of the language as it is.
    pub fn takes_any_as(&self, keyword: &str) -> bool {
        self.only_parameters().iter().any(|known| is_name(keyword, known.name) && is_any(known))
    }

    /// Whether a parameter at `position` takes options of a group, which are given with the object
    /// of the language.
    pub fn takes_options_at(&self, position: usize) -> bool {
        let at = |form: &Overload| form.parameters.get(position).is_some_and(is_of_options);
        self.overloads.iter().any(at)
    }

    /// Whether a parameter of this name takes options of a group.
    pub fn takes_options_as(&self, keyword: &str) -> bool {
        let mut parameters = self.overloads.iter().flat_map(|form| form.parameters);
        parameters.any(|known| is_of_options(known) && is_name(keyword, known.name))
    }

    /// The name of the parameter at `position`, of the forms that have one: of the first that takes
    /// lists there, or none, as a list came or none.
    pub fn name_at(&self, position: usize, is_list: bool) -> Option<&'static str> {
        let mut known = self.overloads.iter().filter_map(|form| form.parameters.get(position));
        let first = known.clone().next()?;
        let is_like = |known: &&Parameter| matches!(known.ty, Type::Sequence(_)) == is_list;
        Some(known.find(is_like).unwrap_or(first).name)
    }

    /// The parameters, where there is one overload: of several, which is meant is not known yet.
    fn only_parameters(&self) -> &'static [Parameter] {
        if let [only] = self.overloads { only.parameters } else { &[] }
    }
}

impl ResolvedCall {
    /// The parameters of the overload.
    pub fn parameters(&self) -> &'static [Parameter] {
        self.method.overloads[self.overload].parameters
    }

    /// Takes the value of parameter `position`, as a `T`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it is out of the type's range.
    pub fn take<T: FromValue>(&mut self, position: usize) -> Result<T> {
        let value = std::mem::replace(&mut self.values[position], Value::None);
        self.converted(position, value)
    }

    /// The value of the parameter of this role; none if there is no such parameter.
    ///
    /// # Errors
    /// As [`ResolvedCall::take`].
    pub(in crate::calls) fn look<T: FromValue>(&self, role: Role) -> Result<Option<T>> {
        let position = self.parameters().iter().position(|parameter| parameter.role == role);
        position
            .map_or(Ok(None), |position| self.converted(position, self.values[position].clone()))
    }

    fn converted<T: FromValue>(&self, position: usize, value: Value) -> Result<T> {
        let language = self.language;
        let given = ReceivedValue::of(&value, language);
        T::from_value(value).map_err(|what| {
            let what = given.beside(what);
            let callee = language.callee(self.method);
            let name = language.name(self.parameters()[position].name);
            let message = format!("{callee}(): argument '{name}' must be {what}");
            Error::InvalidArgument { message }
        })
    }
}

/// The error of something that is only in the surface.
pub(crate) fn unsupported(operation: String) -> Error {
    let who = format!("polyrank {}", env!("CARGO_PKG_VERSION"));
    Error::Unsupported { who, operation }
}

/// Where the value of a parameter comes from.
#[derive(Clone, Copy)]
enum Place {
    Position(usize),
    Keyword(usize),
    /// An options record of all keywords that name its members.
    Members,
    Default,
}

/// Why an overload does not take a call, and how many arguments it took until then. Not in words
/// yet: most calls are taken by a later overload, and words cost more than the whole call.
#[derive(Clone, Copy)]
struct Mismatch {
    taken: usize,
    reason: Reason,
}

#[derive(Clone, Copy)]
enum Reason {
    /// There are more positional arguments than parameters.
    TooMany,
    /// No parameter has the name of this keyword.
    UnknownKeyword(usize),
    /// This parameter is given by position and by name, or twice by name.
    Twice(usize),
    /// This parameter does not take the value from there.
    WrongType(usize, Place),
    /// A member of an options record does not take the value of this keyword.
    WrongMember(usize, &'static Parameter),
    /// This parameter must be given.
    Missing(usize),
}

/// Where each parameter of `overload` gets its value from, if it takes `arguments`.
fn places(overload: &Overload, arguments: &Arguments) -> Result<Vec<Place>, Mismatch> {
    let parameters = overload.parameters;
    let mut taken = 0;
    for (index, value) in arguments.positional.iter().enumerate() {
        let Some(parameter) = parameters.get(index) else {
            return Err(Mismatch { taken, reason: Reason::TooMany });
        };
        if !takes(&parameter.ty, value) {
            let reason = Reason::WrongType(index, Place::Position(index));
            return Err(Mismatch { taken, reason });
        }
        taken += 1;
    }
    let mut places = Vec::with_capacity(parameters.len());
    places.extend((0..taken).map(Place::Position));
    places.resize(parameters.len(), Place::Default);
    for (position, (keyword, value)) in arguments.keywords.iter().enumerate() {
        let Some(index) = parameters.iter().position(|p| is_name(keyword, p.name)) else {
            let index = member_place(parameters, &places, arguments, position)
                .map_err(|reason| Mismatch { taken, reason })?;
            places[index] = Place::Members;
            taken += 1;
            continue;
        };
        if !matches!(places[index], Place::Default) {
            return Err(Mismatch { taken, reason: Reason::Twice(index) });
        }
        let place = Place::Keyword(position);
        if !takes(&parameters[index].ty, value) {
            return Err(Mismatch { taken, reason: Reason::WrongType(index, place) });
        }
        places[index] = place;
        taken += 1;
    }
    for (index, parameter) in parameters.iter().enumerate() {
        if !parameter.optional && matches!(places[index], Place::Default) {
            return Err(Mismatch { taken, reason: Reason::Missing(index) });
        }
    }
    Ok(places)
}

/// The parameter with the options record that the keyword at `position` names a member of.
fn member_place(
    parameters: &'static [Parameter],
    places: &[Place],
    arguments: &Arguments,
    position: usize,
) -> Result<usize, Reason> {
    let (keyword, value) = &arguments.keywords[position];
    let mut found = None;
    if arguments.language.is_script() {
        let mut members = parameters.iter().enumerate();
        found = members.find_map(|(at, p)| Some((at, member(p, keyword)?)));
    }
    let Some((index, member)) = found else { return Err(Reason::UnknownKeyword(position)) };
    if !matches!(places[index], Place::Default | Place::Members) {
        return Err(Reason::Twice(index));
    }
    if !takes(&member.ty, value) {
        return Err(Reason::WrongMember(position, member));
    }
    Ok(index)
}

/// The member of this name of the options record that the parameter takes.
fn member(parameter: &Parameter, keyword: &str) -> Option<&'static Parameter> {
    let record = record_of(&parameter.ty)?;
    record.members.iter().find(|member| is_name(keyword, member.name))
}

pub(super) fn record_of(ty: &Type) -> Option<&'static RecordType> {
    match ty {
        Type::Record(record) => Some(record),
        Type::Nullable(inner) => record_of(inner),
        _ => None,
    }
}

impl Reason {
    fn in_words(self, overload: &Overload, arguments: &Arguments) -> String {
        let (parameters, language) = (overload.parameters, arguments.language);
        let name_of = |index: usize| language.name(parameters[index].name);
        match self {
            Reason::TooMany => {
                let came = arguments.positional.len();
                format!("it takes at most {} positional arguments, not {came}", parameters.len())
            }
            Reason::UnknownKeyword(position) => {
                let name = language.name(&arguments.keywords[position].0);
                format!("there is no argument '{name}'")
            }
            Reason::Twice(index) => format!("argument '{}' is given twice", name_of(index)),
            Reason::Missing(index) => format!("argument '{}' is missing", name_of(index)),
            Reason::WrongType(index, place) => {
                let value = match place {
                    Place::Position(position) => &arguments.positional[position],
                    Place::Keyword(position) => &arguments.keywords[position].1,
                    Place::Members | Place::Default => &Value::None,
                };
                let wrong = language.wrong_type(&parameters[index].ty, value);
                format!("argument '{}' must be {wrong}", name_of(index))
            }
            Reason::WrongMember(position, Parameter { name, ty, .. }) => {
                let wrong = language.wrong_type(ty, &arguments.keywords[position].1);
                format!("option '{}' must be {wrong}", language.name(name))
            }
        }
    }

    /// Whether a tensor was expected.
    fn is_of_tensors(self, overload: &Overload) -> bool {
        let Reason::WrongType(index, _) = self else { return false };
        is_of_tensors(&overload.parameters[index].ty)
    }
}

fn is_of_options(parameter: &Parameter) -> bool {
    record_of(&parameter.ty).is_some_and(settings::is_of_groups)
}

/// Whether `keyword` is `name`, in snake_case or in camelCase, or with the underscore that c10d
/// writes before what is private, and names of the IDL do not have.
pub(super) fn is_name(keyword: &str, name: &str) -> bool {
    if keyword == name || keyword.strip_prefix('_') == Some(name) {
        return true;
    }
    let mut letters = keyword.chars();
    let mut raise = false;
    for letter in name.chars() {
        if letter == '_' {
            raise = true;
            continue;
        }
        let expected = if raise { letter.to_ascii_uppercase() } else { letter };
        raise = false;
        if letters.next() != Some(expected) {
            return false;
        }
    }
    letters.next().is_none()
}

/// Whether a parameter of type `ty` takes `value`.
pub(super) fn takes(ty: &Type, value: &Value) -> bool {
    match (ty, value) {
        (Type::Object, _) | (Type::Nullable(_), Value::None) => true,
        (Type::Nullable(inner), value) => takes(inner, value),
        (Type::Record(wanted), Value::Options(_, value)) if settings::is_of_groups(wanted) => {
            takes(ty, value) || settings::is_foreign(value)
        }
        (_, Value::Options(_, value)) => takes(ty, value),
        (Type::Sequence(_), Value::Tensor(tensor)) => array_lists::is_list(tensor, ty),
        (Type::Sequence(Type::Int), Value::Bytes(_)) => true,
        (Type::Sequence(inner), Value::List(values) | Value::Tuple(values)) => {
            values.iter().all(|value| takes(inner, value))
        }
        (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Float, Value::Float(_) | Value::Int(_))
        | (Type::Str, Value::Str(_))
        | (Type::Bytes, Value::Bytes(_) | Value::Str(_))
        | (Type::Duration, Value::Duration(_) | Value::Float(_) | Value::Int(_))
        | (Type::Tensor, Value::Tensor(_))
        | (Type::ReduceOp, Value::ReduceOp(_))
        | (Type::DType, Value::DType(_)) => true,
        (Type::Enum(names, _), Value::Str(text)) => names.contains(&text.as_str()),
        (Type::Enum(_, numbers), Value::Int(number)) => {
            numbers.iter().any(|&known| i64::from(known) == *number)
        }
        (Type::Record(wanted), Value::Record(given, _)) => is_record(given, wanted),
        (Type::Record(wanted), Value::Members(given)) => record_for(wanted, given).is_some(),
        (Type::Interface(name), Value::Foreign(foreign)) => foreign.interfaces.contains(name),
        (Type::Callback, Value::Foreign(foreign)) => foreign.callable,
        _ => false,
    }
}

/// The first record type, of the wanted one and those that extend it, that has all these members.
fn record_for(
    wanted: &'static RecordType,
    given: &[(String, Value)],
) -> Option<&'static RecordType> {
    let has_all = |record: &&'static RecordType| {
        given.iter().all(|(name, value)| {
            let member = record.members.iter().find(|member| is_name(name, member.name));
            member.is_some_and(|member| takes(&member.ty, value))
        })
    };
    std::iter::once(wanted).chain(wanted.extensions.iter().copied()).find(has_all)
}

fn is_record(given: &RecordType, wanted: &RecordType) -> bool {
    given.name == wanted.name || given.base == Some(wanted.name)
}

/// The options record that `value` is one of the type `wanted`, or of one that extends it; none if
/// it is something else.
pub(super) fn record(
    value: &Value,
    wanted: &'static RecordType,
    language: Language,
) -> Option<Value> {
    let ty = Type::Record(wanted);
    takes(&ty, value).then(|| converted(value.clone(), &ty, language).ok()).flatten()
}

/// One value for each parameter, taken from `arguments`, converted to the parameter's type.
fn fill(
    method: &Method,
    overload: &'static Overload,
    places: &[Place],
    arguments: &mut Arguments,
) -> Result<Vec<Value>> {
    let take = |value: &mut Value| std::mem::replace(value, Value::None);
    let mut values = Vec::with_capacity(places.len());
    for (parameter, place) in overload.parameters.iter().zip(places) {
        let value = match *place {
            Place::Position(position) => take(&mut arguments.positional[position]),
            Place::Keyword(position) => take(&mut arguments.keywords[position].1),
            Place::Members => gathered(overload, &parameter.ty, &mut arguments.keywords),
            Place::Default => match parameter.default {
                Some(constant) => Value::of_constant(constant, &parameter.ty),
                None => Value::None,
            },
        };
        let language = arguments.language;
        let value = if language.is_script() { value } else { value.without_tuples() };
        values.push(converted(value, &parameter.ty, language).map_err(|what| {
            let (callee, name) = (language.callee(method), language.name(parameter.name));
            let message = format!("{callee}(): argument '{name}' must {what}");
            Error::InvalidArgument { message }
        })?);
    }
    Ok(values)
}

impl Value {
    /// The value with lists for all tuples.
    #[must_use]
    pub fn without_tuples(self) -> Value {
        match self {
            Value::List(values) | Value::Tuple(values) => {
                Value::List(values.into_iter().map(Value::without_tuples).collect())
            }
            Value::Record(record, values) => {
                Value::Record(record, values.into_iter().map(Value::without_tuples).collect())
            }
            value => value,
        }
    }
}

/// The options record of all keywords that name its members.
fn gathered(overload: &Overload, ty: &Type, keywords: &mut [(String, Value)]) -> Value {
    let Some(record) = record_of(ty) else { return Value::None };
    let is_argument = |keyword: &str| overload.parameters.iter().any(|p| is_name(keyword, p.name));
    let members = keywords.iter_mut().filter(|(keyword, _)| !is_argument(keyword));
    let members = members.map(|(name, value)| (&**name, std::mem::replace(value, Value::None)));
    record_with(record, members)
}

/// The record of this type, or of one that extends it, that has these members.
pub(super) fn typed(wanted: &'static RecordType, value: Value) -> Value {
    let Value::Members(mut members) = value else { return value };
    let record = record_for(wanted, &members).unwrap_or(wanted);
    let members = members.iter_mut();
    let members = members.map(|(name, value)| (&**name, std::mem::replace(value, Value::None)));
    record_with(record, members)
}

fn record_with<'a>(
    record: &'static RecordType,
    members: impl Iterator<Item = (&'a str, Value)>,
) -> Value {
    let mut values = record.defaults();
    for (name, value) in members {
        let named = record.members.iter().position(|member| is_name(name, member.name));
        if let Some(place) = named.and_then(|position| values.get_mut(position)) {
            *place = value;
        }
    }
    Value::Record(record, values)
}

/// Numbers for lengths of time become such, and those of an enum its names; else what the number
/// must be.
fn converted(value: Value, ty: &Type, language: Language) -> Result<Value, String> {
    let number = match (ty, &value) {
        (Type::Nullable(inner), _) if !matches!(value, Value::None) => {
            return converted(value, inner, language);
        }
        (_, Value::Options(given, options)) => {
            let is_foreign = settings::is_foreign(options);
            let (given, options) = (given.clone(), (**options).clone());
            return match ty {
                Type::Record(wanted) if settings::is_of_groups(wanted) => {
                    let options = match is_foreign {
                        true => options,
                        false => converted(options, ty, language)?,
                    };
                    Ok(Value::Options(given, options.into()))
                }
                _ => converted(options, ty, language),
            };
        }
        (Type::Sequence(_), Value::Tensor(tensor)) => return Ok(array_lists::list(tensor)),
        (Type::Sequence(Type::Int), Value::Bytes(bytes)) => {
            let numbers = bytes.iter().map(|&byte| Value::Int(byte.into()));
            return Ok(Value::List(numbers.collect()));
        }
        (Type::Sequence(Type::Sequence(Type::Int)), Value::List(_) | Value::Tuple(_)) => {
            let Value::List(rows) = value.without_tuples() else { return Ok(Value::None) };
            let inner = &Type::Sequence(&Type::Int);
            let rows = rows.into_iter().map(|row| converted(row, inner, language));
            return rows.collect::<Result<_, _>>().map(Value::List);
        }
        (Type::Enum(names, numbers), Value::Int(number)) => {
            let place = numbers.iter().position(|&known| i64::from(known) == *number);
            let name = place.and_then(|place| names.get(place));
            return Ok(name.map_or(value, |name| Value::Str((*name).to_owned())));
        }
        (Type::Record(_), Value::Record(..)) => return converted_members(value, language),
        (Type::Record(record), Value::Members(_)) => {
            return converted_members(typed(record, value), language);
        }
        (Type::Duration, Value::Float(number)) => *number,
        (Type::Duration, Value::Int(number)) => *number as f64,
        _ => return Ok(value),
    };
    // Beside the unit: about the longest time that is a length of time.
    let (seconds, unit, most, none) = match language.is_script() {
        true => (number / 1000.0, "milliseconds", 1e22, "null"),
        false => (number, "seconds", 1e19, "None"),
    };
    Duration::try_from_secs_f64(seconds).map(Value::Duration).map_err(|_| match number >= 0.0 {
        // As few digits as tell it apart, for it may have hundreds.
        true => format!("be at most {most:e} {unit}, not {number:e}; {none} is the default"),
        false => format!("be a number of {unit} that is not negative, not {number}"),
    })
}

/// An options record whose members have their types.
fn converted_members(value: Value, language: Language) -> Result<Value, String> {
    let Value::Record(record, values) = value else { return Ok(value) };
    let members = values.into_iter().zip(record.members);
    let members = members.map(|(value, member)| {
        converted(value, &member.ty, language).map_err(|must| {
            let what = must.strip_prefix("be ").unwrap_or(&must);
            format!("be {} whose {} is {what}", record.name, language.name(member.name))
        })
    });
    Ok(Value::Record(record, members.collect::<Result<_, _>>()?))
}

/// What is wrong with a call that no overload takes: the accepted forms, and what those overloads
/// missed that took most of it.
fn message(method: &Method, arguments: &Arguments) -> String {
    let overloads = method.overloads;
    let mismatch = |overload| places(overload, arguments).err();
    let mismatches = || overloads.iter().filter_map(|o| mismatch(o).map(|mismatch| (o, mismatch)));
    let most = mismatches().map(|(_, mismatch)| mismatch.taken).max().unwrap_or(0);
    let language = arguments.language;
    let (mut reasons, mut of_tensors): (Vec<String>, bool) = (Vec::new(), false);
    for (overload, mismatch) in mismatches().filter(|(_, mismatch)| mismatch.taken == most) {
        of_tensors |= mismatch.reason.is_of_tensors(overload);
        let reason = mismatch.reason.in_words(overload, arguments);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    let (callee, given) = (language.callee(method), language.arguments(method, arguments));
    let mut text = match overloads.len() {
        1 => format!("{callee}() does not take {given}. Accepted form:"),
        _ => format!("{callee}(): no overload takes {given}. Accepted forms:"),
    };
    // Forms that differ in what this language has no word for are one.
    let mut forms: Vec<String> = overloads.iter().map(|it| language.form(method, it)).collect();
    forms.dedup();
    for form in forms {
        text.push_str("\n  ");
        text.push_str(&form);
    }
    text.push_str("\nClosest: ");
    text.push_str(&reasons.join("; or "));
    if of_tensors {
        text.push_str(". A Tensor: ");
        text.push_str(language.tensor());
    }
    text
}
