//! Which overload a call means: declaration order decides. Knows nothing of what calls do.

use std::time::Duration;

use super::from_value::FromValue;
use super::types::{Method, Overload, Parameter, RecordType, Type};
use super::value::{Arguments, Value};
use crate::{Error, Result};

/// A call whose overload is known.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The method.
    pub method: &'static Method,
    /// The position of its overload.
    pub overload: usize,
    /// One value for each parameter of the overload, defaults filled in.
    pub values: Vec<Value>,
}

/// Finds the overload that takes `arguments`: the first, in the order of declaration.
///
/// # Errors
/// - [`Error::Unsupported`] if the method is not built.
/// - [`Error::InvalidType`] if no overload takes the arguments; it lists the accepted forms.
/// - [`Error::InvalidArgument`] for a negative length of time.
pub fn resolve(method: &'static Method, mut arguments: Arguments) -> Result<Resolved> {
    if method.unbuilt {
        return Err(unsupported(format!("{}.{}", method.interface, method.name)));
    }
    let mut closest = Closest::default();
    for (position, overload) in method.overloads.iter().enumerate() {
        match places(overload, &arguments) {
            Err(mismatch) => closest.add(mismatch),
            Ok(places) => {
                let values = fill(method, overload, &places, &mut arguments)?;
                return Ok(Resolved { method, overload: position, values });
            }
        }
    }
    Err(Error::InvalidType { message: closest.message(method, &arguments) })
}

impl Resolved {
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
        let given = match &value {
            Value::Int(number) => number.to_string(),
            other => other.to_string(),
        };
        T::from_value(value).map_err(|what| {
            let name = self.parameters()[position].name;
            let message =
                format!("{}(): argument '{name}' must be {what}, not {given}", self.method.name);
            Error::InvalidArgument { message }
        })
    }
}

/// The error of something that stands in the surface only.
pub(super) fn unsupported(operation: String) -> Error {
    let who = format!("polyrank {}", env!("CARGO_PKG_VERSION"));
    Error::Unsupported { who, operation }
}

/// Where the value of a parameter comes from.
#[derive(Clone, Copy)]
enum Place {
    Position(usize),
    Keyword(usize),
    Default,
}

/// Why an overload does not take a call, and how many arguments it took until then.
struct Mismatch {
    taken: usize,
    reason: String,
}

/// Where each parameter of `overload` gets its value from, if it takes `arguments`.
fn places(overload: &Overload, arguments: &Arguments) -> Result<Vec<Place>, Mismatch> {
    let parameters = overload.parameters;
    let mut places = vec![Place::Default; parameters.len()];
    let mut taken = 0;
    for (position, value) in arguments.positional.iter().enumerate() {
        let Some(parameter) = parameters.get(position) else {
            let most = parameters.len();
            let came = arguments.positional.len();
            let reason = format!("it takes at most {most} positional arguments, not {came}");
            return Err(Mismatch { taken, reason });
        };
        check(parameter, value).map_err(|reason| Mismatch { taken, reason })?;
        places[position] = Place::Position(position);
        taken += 1;
    }
    for (position, (keyword, value)) in arguments.keywords.iter().enumerate() {
        let Some(index) = parameters.iter().position(|p| is_name(keyword, p.name)) else {
            let reason = format!("there is no argument '{keyword}'");
            return Err(Mismatch { taken, reason });
        };
        if !matches!(places[index], Place::Default) {
            let reason = format!("argument '{}' is given twice", parameters[index].name);
            return Err(Mismatch { taken, reason });
        }
        check(&parameters[index], value).map_err(|reason| Mismatch { taken, reason })?;
        places[index] = Place::Keyword(position);
        taken += 1;
    }
    for (parameter, place) in parameters.iter().zip(&places) {
        if !parameter.optional && matches!(place, Place::Default) {
            let reason = format!("argument '{}' is missing", parameter.name);
            return Err(Mismatch { taken, reason });
        }
    }
    Ok(places)
}

fn check(parameter: &Parameter, value: &Value) -> Result<(), String> {
    if takes(&parameter.ty, value) {
        return Ok(());
    }
    Err(format!("argument '{}' must be {}, not {value}", parameter.name, parameter.ty))
}

/// Whether `keyword` is `name`, in snake_case or in camelCase.
fn is_name(keyword: &str, name: &str) -> bool {
    if keyword == name {
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
fn takes(ty: &Type, value: &Value) -> bool {
    match (ty, value) {
        (Type::Object, _) | (Type::Nullable(_), Value::None) => true,
        (Type::Nullable(inner), value) => takes(inner, value),
        (Type::Sequence(inner), Value::List(values)) => {
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
        (Type::Enum(values), Value::Str(text)) => values.contains(&text.as_str()),
        (Type::Record(wanted), Value::Record(given, _)) => is_record(given, wanted),
        (Type::Interface(name), Value::Foreign(foreign)) => foreign.interfaces.contains(name),
        (Type::Callback, Value::Foreign(foreign)) => foreign.callable,
        _ => false,
    }
}

fn is_record(given: &RecordType, wanted: &RecordType) -> bool {
    given.name == wanted.name || given.base == Some(wanted.name)
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
            Place::Default => match parameter.default {
                Some(constant) => Value::of_constant(constant, &parameter.ty),
                None => Value::None,
            },
        };
        values.push(converted(value, &parameter.ty).map_err(|what| {
            let message = format!("{}(): argument '{}' must {what}", method.name, parameter.name);
            Error::InvalidArgument { message }
        })?);
    }
    Ok(values)
}

/// Numbers for lengths of time become such; else what the number must be.
fn converted(value: Value, ty: &Type) -> Result<Value, String> {
    let seconds = match (ty, &value) {
        (Type::Nullable(inner), _) if !matches!(value, Value::None) => {
            return converted(value, inner);
        }
        (Type::Duration, Value::Float(seconds)) => *seconds,
        (Type::Duration, Value::Int(seconds)) => *seconds as f64,
        _ => return Ok(value),
    };
    Duration::try_from_secs_f64(seconds)
        .map(Value::Duration)
        .map_err(|_| format!("be a number of seconds that is not negative, not {seconds}"))
}

/// The overloads that took most of the call.
#[derive(Default)]
struct Closest {
    taken: usize,
    reasons: Vec<String>,
}

impl Closest {
    fn add(&mut self, mismatch: Mismatch) {
        if mismatch.taken > self.taken {
            self.reasons.clear();
            self.taken = mismatch.taken;
        }
        if mismatch.taken == self.taken && !self.reasons.contains(&mismatch.reason) {
            self.reasons.push(mismatch.reason);
        }
    }

    fn message(&self, method: &Method, arguments: &Arguments) -> String {
        let name = method.name;
        let forms = method.overloads;
        let plural = if forms.len() == 1 { "" } else { "s" };
        let mut text = if forms.len() == 1 {
            format!("{name}() does not take {arguments}. Accepted form{plural}:")
        } else {
            format!("{name}(): no overload takes {arguments}. Accepted form{plural}:")
        };
        for overload in forms {
            text.push_str("\n  ");
            text.push_str(overload.form);
        }
        text.push_str("\nClosest: ");
        text.push_str(&self.reasons.join("; or "));
        text
    }
}
