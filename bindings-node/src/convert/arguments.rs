//! Arguments of a call: JavaScript's neutral values as the core's. Knows nothing of methods.
//!
//! What is no plain value of JavaScript is an object whose `kind` says what it stands for.

use std::time::Duration;

use napi::bindgen_prelude::ClassInstance;
use napi::{Env, Result};
use polyrank::calls::staged::Tensors;
use polyrank::calls::{Arguments, Foreign, Object, TimeUnit, Value};
use polyrank::{DType, Error, ReduceOp};

use super::arrays::View;
use super::errors::raise;
use super::js::{Js, Kind};
use super::tensors::instance;
use crate::object::NativeObject;

/// Lists inside lists inside lists: more than any call takes, and a list may contain itself.
const DEEPEST_LIST: usize = 4;

/// The arguments of a call, and the objects among them.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) arguments: Arguments,
    /// An object's slot is its position here.
    pub(crate) objects: Vec<Object>,
}

/// The arguments by position and by name, with the tensors that they name by index.
pub(crate) fn arguments(args: Js<'_>, keywords: Js<'_>, tensors: &Tensors) -> Result<Given> {
    let mut reader = Reader { env: args.env(), tensors, objects: Vec::new() };
    let mut arguments = Arguments {
        spread_options: true,
        time_unit: TimeUnit::Milliseconds,
        ..Arguments::default()
    };
    if args.kind()? == Kind::Object {
        arguments.positional = reader.list(args, 0)?;
    }
    if keywords.kind()? == Kind::Object {
        arguments.keywords = reader.members(keywords, 0)?;
    }
    Ok(Given { arguments, objects: reader.objects })
}

struct Reader<'t> {
    env: Env,
    tensors: &'t Tensors,
    objects: Vec<Object>,
}

impl Reader<'_> {
    fn list(&mut self, list: Js<'_>, depth: usize) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        for index in 0..list.len()? {
            values.push(self.value(list.at(index)?, depth)?);
        }
        Ok(values)
    }

    fn members(&mut self, object: Js<'_>, depth: usize) -> Result<Vec<(String, Value)>> {
        let names = object.names()?;
        let mut members = Vec::new();
        for index in 0..names.len()? {
            let name = names.at(index)?;
            let value = object.get_by(name)?;
            // What is left undefined is not given.
            if !value.is_nothing()? {
                members.push((name.text()?, self.value(value, depth)?));
            }
        }
        Ok(members)
    }

    fn value(&mut self, value: Js<'_>, depth: usize) -> Result<Value> {
        Ok(match value.kind()? {
            Kind::Nothing => Value::None,
            Kind::Bool => Value::Bool(value.bool()?),
            Kind::Number => number(value.number()?),
            Kind::BigInt => Value::Int(value.big_int()?.ok_or_else(|| {
                self.invalid("a BigInt of more than 64 bits is no argument of any call")
            })?),
            Kind::Text => Value::Str(value.text()?),
            Kind::Other => foreign("function", true),
            Kind::Object => return self.object(value, depth),
        })
    }

    fn object(&mut self, value: Js<'_>, depth: usize) -> Result<Value> {
        if depth > DEEPEST_LIST {
            return Err(self.invalid("a list is nested more deeply than any call takes"));
        }
        if value.is_array()? {
            return self.list(value, depth + 1).map(Value::List);
        }
        if let Some(view) = View::of(value)? {
            return Ok(Value::Bytes(view.to_vec()));
        }
        let kind = value.get(c"kind")?;
        let kind = if kind.kind()? == Kind::Text { kind.text()? } else { String::new() };
        match kind.as_str() {
            "tensor" => {
                let index = value.get(c"index")?.number()?;
                // A number that is no index of a tensor is one of none.
                let tensor = self.tensors.value(index as usize);
                tensor.map_err(|error| raise(self.env, &error))
            }
            "duration" => self.duration(value.get(c"ms")?.number()?),
            "reduceOp" => self.reduce_op(value),
            "dtype" => {
                let code = value.get(c"code")?.number()?;
                let dtype = DType::from_code(code as u8);
                dtype.map(Value::DType).ok_or_else(|| self.invalid("an unknown dtype"))
            }
            "handle" => self.handle(value.get(c"handle")?),
            "record" => self.members(value.get(c"members")?, depth + 1).map(Value::Members),
            "object" => self.payload(value),
            "foreign" => self.foreign(value),
            _ => Ok(foreign("object", false)),
        }
    }

    /// A length of time; one that is none stays a number, which the resolver says no to.
    fn duration(&self, milliseconds: f64) -> Result<Value> {
        Ok(match Duration::try_from_secs_f64(milliseconds / 1000.0) {
            Ok(duration) => Value::Duration(duration),
            Err(_) => Value::Float(milliseconds),
        })
    }

    fn reduce_op(&self, value: Js<'_>) -> Result<Value> {
        let code = value.get(c"code")?.number()? as u8;
        if let Some(plain) = ReduceOp::WITHOUT_FACTOR.into_iter().find(|it| it.code() == code) {
            return Ok(Value::ReduceOp(plain));
        }
        let factor = value.get(c"factor")?;
        let factor = match factor.kind()? {
            Kind::Number => Some(factor.number()?),
            _ => None,
        };
        let factor = factor.filter(|_| code == ReduceOp::PremulSum(0.0).code());
        factor
            .map(|factor| Value::ReduceOp(ReduceOp::PremulSum(factor)))
            .ok_or_else(|| self.invalid("an unknown reduction operator, or one without its factor"))
    }

    fn handle(&mut self, handle: Js<'_>) -> Result<Value> {
        let handle: ClassInstance<'_, NativeObject> = instance(handle)?;
        let object = handle.object().map_err(|error| raise(self.env, &error))?;
        Ok(self.keep(object))
    }

    fn keep(&mut self, object: Object) -> Value {
        let value = Value::of_object(&object, self.objects.len());
        self.objects.push(object);
        value
    }

    /// An object that is sent, a list of such, or the places for those that come: see the bodies of
    /// the core that carry objects.
    fn payload(&self, value: Js<'_>) -> Result<Value> {
        let length = value.find(c"length")?.map(|length| length.number()).transpose()?;
        if length.is_some_and(|length| length < 0.0) {
            // It is no list, which the core says no to.
            return Ok(Value::Bool(false));
        }
        if let Some(items) = value.find(c"items")? {
            let items = (0..items.len()?).map(|index| self.payload(items.at(index)?));
            return Ok(Value::List(items.collect::<Result<_>>()?));
        }
        if let Some(failure) = value.find(c"failed")? {
            return Ok(Value::Str(failure.text()?));
        }
        if let Some(bytes) = value.find(c"bytes")? {
            let view = View::of(bytes)?.ok_or_else(|| self.invalid("an object is its bytes"))?;
            return Ok(Value::Bytes(view.to_vec()));
        }
        Ok(length.map_or(Value::None, |length| Value::Int(length as i64)))
    }

    fn foreign(&mut self, value: Js<'_>) -> Result<Value> {
        let name = value.get(c"typeName")?.text()?;
        if name == Object::NonGroupMember.type_name() {
            return Ok(self.keep(Object::NonGroupMember));
        }
        Ok(foreign(&name, value.get(c"callable")?.bool()?))
    }

    fn invalid(&self, message: &str) -> napi::Error {
        raise(self.env, &Error::InvalidArgument { message: message.to_owned() })
    }
}

/// An integer if it is one that a number of JavaScript says exactly.
fn number(number: f64) -> Value {
    const SAFE: f64 = 9_007_199_254_740_991.0;
    if number.fract() == 0.0 && number.abs() <= SAFE {
        Value::Int(number as i64)
    } else {
        Value::Float(number)
    }
}

/// A value that only JavaScript understands.
fn foreign(type_name: &str, callable: bool) -> Value {
    let type_name = type_name.to_owned();
    Value::Foreign(Foreign { type_name, interfaces: &[], callable, slot: usize::MAX })
}
