//! JavaScript's arguments as the core's values. Knows what the JavaScript half makes of what its
//! user gave: plain values, and objects that say in `kind` what they stand for.

use std::cell::RefCell;
use std::time::Duration;

use js_sys::{Array, Object, Reflect, Uint8Array};
use polyrank::calls::staged::Tensors;
use polyrank::calls::{Arguments, Foreign, Object as CoreObject, TimeUnit, Value};
use polyrank::{DType, Error, ReduceOp, Result};
use wasm_bindgen::{JsCast, JsValue};

use crate::objects;

/// Lists nested deeper than this are no arguments of ours.
const DEEPEST: u32 = 8;

/// How many lists of interfaces are kept: there are fewer in the IDL.
const MOST_INTERFACES: usize = 64;

/// What was given to a call.
pub(crate) struct Given {
    /// The values.
    pub(crate) arguments: Arguments,
    /// The objects among them; a value's slot is its place here.
    pub(crate) objects: Vec<CoreObject>,
}

impl Given {
    /// The arguments of a call whose tensors are `tensors`.
    ///
    /// # Errors
    /// [`Error::InvalidType`] for what stands for nothing.
    pub(crate) fn new(args: &Array, keywords: &JsValue, tensors: &Tensors) -> Result<Given> {
        let mut reader = Reader { objects: Vec::new(), tensors };
        let positional = args.iter().map(|value| reader.value(&value, 0)).collect::<Result<_>>()?;
        let keywords = reader.members(keywords, 0)?;
        let arguments = Arguments {
            positional,
            keywords,
            spread_options: true,
            time_unit: TimeUnit::Milliseconds,
        };
        Ok(Given { arguments, objects: reader.objects })
    }
}

struct Reader<'a> {
    objects: Vec<CoreObject>,
    tensors: &'a Tensors,
}

impl Reader<'_> {
    fn value(&mut self, value: &JsValue, depth: u32) -> Result<Value> {
        if value.is_null() || value.is_undefined() {
            return Ok(Value::None);
        }
        if let Some(value) = value.as_bool() {
            return Ok(Value::Bool(value));
        }
        if let Some(number) = value.as_f64() {
            return Ok(whole(number).map_or(Value::Float(number), Value::Int));
        }
        if let Some(text) = value.as_string() {
            return Ok(Value::Str(text));
        }
        if value.is_bigint() {
            let number = i64::try_from(value.clone());
            return number.map(Value::Int).map_err(|_| invalid("an integer beyond 64 bits"));
        }
        if let Some(bytes) = value.dyn_ref::<Uint8Array>() {
            return Ok(Value::Bytes(bytes.to_vec()));
        }
        if let Some(items) = value.dyn_ref::<Array>() {
            if depth == DEEPEST {
                return Err(invalid("lists are nested too deeply"));
            }
            let items = items.iter().map(|item| self.value(&item, depth + 1));
            return Ok(Value::List(items.collect::<Result<_>>()?));
        }
        self.marked(value, depth)
    }

    fn keep(&mut self, object: CoreObject) -> Value {
        let value = Value::of_object(&object, self.objects.len());
        self.objects.push(object);
        value
    }

    fn members(&mut self, object: &JsValue, depth: u32) -> Result<Vec<(String, Value)>> {
        let Some(object) = object.dyn_ref::<Object>() else { return Ok(Vec::new()) };
        if depth == DEEPEST {
            return Err(invalid("options are nested too deeply"));
        }
        let entries = Object::entries(object);
        let members = entries.iter().map(|entry| {
            let entry: Array = entry.unchecked_into();
            let name = entry.get(0).as_string().unwrap_or_default();
            Ok((name, self.value(&entry.get(1), depth + 1)?))
        });
        members.collect()
    }

    /// An object that says what it stands for.
    fn marked(&mut self, value: &JsValue, depth: u32) -> Result<Value> {
        let kind = text(value, "kind");
        match kind.as_str() {
            "tensor" => self.tensors.value(number(value, "index") as usize),
            "reduceOp" => reduce_op(value).map(Value::ReduceOp),
            "dtype" => dtype(number(value, "code")).map(Value::DType),
            "duration" => {
                // What is no length of time stays a number, which the resolver says no to.
                let ms = number(value, "ms");
                let duration = Duration::try_from_secs_f64(ms / 1000.0);
                Ok(duration.map_or(Value::Float(ms), Value::Duration))
            }
            "handle" => {
                let object = objects::given(&get(value, "handle"))?;
                let object = object.ok_or_else(|| invalid("a handle is missing"))?;
                Ok(self.keep(object))
            }
            "foreign" if text(value, "typeName") == CoreObject::NonGroupMember.type_name() => {
                Ok(self.keep(CoreObject::NonGroupMember))
            }
            "record" => self.members(&get(value, "members"), depth).map(Value::Members),
            "object" => Ok(payload(value)),
            "foreign" => Ok(Value::Foreign(Foreign {
                type_name: text(value, "typeName"),
                interfaces: interfaces(&get(value, "interfaces")),
                callable: get(value, "callable").is_truthy(),
                slot: number(value, "slot") as usize,
            })),
            _ => Err(invalid(&format!("a value of the kind '{kind}' means nothing here"))),
        }
    }
}

/// An object that is sent: its bytes, or why it could not be encoded; else the objects of a list,
/// or the number of places of a list for objects.
fn payload(value: &JsValue) -> Value {
    let length = get(value, "length").as_f64();
    if length.is_some_and(|length| length < 0.0) {
        // It is no list, which the core says no to.
        return Value::Bool(false);
    }
    if let Some(items) = get(value, "items").dyn_ref::<Array>() {
        return Value::List(items.iter().map(|item| payload(&item)).collect());
    }
    if let Some(why) = get(value, "failed").as_string() {
        return Value::Str(why);
    }
    if let Some(bytes) = get(value, "bytes").dyn_ref::<Uint8Array>() {
        return Value::Bytes(bytes.to_vec());
    }
    length.map_or(Value::None, |length| Value::Int(length as i64))
}

fn reduce_op(value: &JsValue) -> Result<ReduceOp> {
    let code = number(value, "code");
    let known = ReduceOp::WITHOUT_FACTOR.into_iter().find(|it| f64::from(it.code()) == code);
    match (known, get(value, "factor").as_f64()) {
        (Some(reduce_op), _) => Ok(reduce_op),
        (None, Some(factor)) if code == f64::from(ReduceOp::PremulSum(factor).code()) => {
            Ok(ReduceOp::PremulSum(factor))
        }
        _ => Err(invalid(&format!("{code} is the number of no reduction operator"))),
    }
}

/// The element type with this number.
///
/// # Errors
/// [`Error::InvalidType`] if there is none.
pub(super) fn dtype(code: f64) -> Result<DType> {
    let known = DType::ALL.into_iter().find(|dtype| f64::from(*dtype as u8) == code);
    known.ok_or_else(|| invalid(&format!("{code} is the number of no element type")))
}

/// The names as the core has them: for ever. There are as many lists as the IDL has interfaces.
fn interfaces(names: &JsValue) -> &'static [&'static str] {
    thread_local! {
        static KNOWN: RefCell<Vec<&'static [&'static str]>> = RefCell::default();
    }
    let Some(names) = names.dyn_ref::<Array>().filter(|names| names.length() > 0) else {
        return &[];
    };
    let names: Vec<String> = names.iter().filter_map(|name| name.as_string()).collect();
    KNOWN.with_borrow_mut(|known| {
        if let Some(found) = known.iter().find(|it| it.iter().eq(names.iter())) {
            return *found;
        }
        if known.len() == MOST_INTERFACES {
            return &[];
        }
        let names = names.into_iter().map(|name| &*Box::leak(name.into_boxed_str()));
        let names: &'static [&'static str] = Box::leak(names.collect::<Vec<_>>().into());
        known.push(names);
        names
    })
}

/// The integer that a number is, if it is one and no loss is possible.
fn whole(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
    exact.then_some(number as i64)
}

/// A property; undefined if there is none.
pub(super) fn get(object: &JsValue, name: &str) -> JsValue {
    Reflect::get(object, &name.into()).unwrap_or(JsValue::UNDEFINED)
}

/// A property that is a number; NaN if it is none.
pub(super) fn number(object: &JsValue, name: &str) -> f64 {
    get(object, name).as_f64().unwrap_or(f64::NAN)
}

fn text(object: &JsValue, name: &str) -> String {
    get(object, name).as_string().unwrap_or_default()
}

/// An argument that stands for nothing.
pub(super) fn invalid(message: &str) -> Error {
    Error::InvalidType { message: message.to_owned() }
}
