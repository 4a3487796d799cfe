//! The one reader of calls from JavaScript, for Node and for browsers: neutral values, and objects
//! whose `kind` says what they stand for, as [`Value`]s. How a value is looked at is the binding's
//! affair: it implements [`ScriptValue`]. Knows nothing of methods.

use std::ffi::CStr;
use std::time::Duration;

use super::invocation::{Entry, Invocation};
use super::object::Object;
use super::staged::{Memory, StagedOperation, TensorDescription, Tensors};
use super::value::{Arguments, Foreign, Language, Value};
use crate::backend::options::GivenOptions;
use crate::generated::dtype::DType;
use crate::generated::error::Error;
use crate::generated::reduce_op::ReduceOp;
use crate::request::CustomOp;
use crate::tensor::{Region, Tensor};

/// How many lists and records may be nested. A list may contain itself.
const MAX_DEPTH: usize = 8;

/// Numbers up to this one say integers exactly: 2^53 - 1.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// What `kind` may say.
const KINDS: &str =
    "tensor, array, reduceOp, dtype, duration, handle, record, options, object, foreign";

/// A value of JavaScript, with what the reader asks of it.
pub trait ScriptValue: Sized {
    /// What a function of the binding returns to throw an error.
    type Failure;
    /// Which pieces of JavaScript's memory the arrays of a call lie in, if they have to be counted.
    type Pieces: Default;

    /// What throws `error`.
    fn failure(&self, error: Error) -> Self::Failure;

    /// What it is.
    ///
    /// # Errors
    /// As all of these: a failure of the interface to JavaScript.
    fn content(&self) -> Result<Content<Self>, Self::Failure>;

    /// A property of an object, unless that is undefined or null.
    ///
    /// # Errors
    /// As [`ScriptValue::content`].
    fn member(&self, name: &CStr) -> Result<Option<Self>, Self::Failure>;

    /// The own properties of an object that are neither undefined nor null.
    ///
    /// # Errors
    /// As [`ScriptValue::content`].
    fn members(&self) -> Result<Vec<(String, Self)>, Self::Failure>;

    /// The group or store that a handle stands for.
    ///
    /// # Errors
    /// It is not a handle, or was released.
    fn object(&self) -> Result<Object, Self::Failure>;

    /// The memory of a `Uint8Array`.
    ///
    /// # Errors
    /// It is not a `Uint8Array`.
    fn caller_memory(&self, pieces: &mut Self::Pieces) -> Result<Memory, Self::Failure>;

    /// The memory of the core that a handle on memory stands for.
    ///
    /// # Errors
    /// It is not such a handle, or was released.
    fn region(&self) -> Result<Region, Self::Failure>;
}

/// What a value of JavaScript is, as far as calls tell.
#[derive(Debug)]
pub enum Content<V> {
    /// Undefined or null.
    Nothing,
    /// True or false.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A BigInt; none: it has more than 64 bits.
    BigInt(Option<i64>),
    /// A string.
    Text(String),
    /// A copy of a `Uint8Array`.
    Bytes(Vec<u8>),
    /// An array.
    List(Vec<V>),
    /// Any other object.
    Object,
    /// A function or a symbol.
    Other,
}

impl Invocation {
    /// A call of `entry` on `this`, with arguments by position and by name.
    ///
    /// # Errors
    /// Values that stand for nothing; those of [`Invocation::new`]; failures of the interface to
    /// JavaScript.
    pub fn read<V: ScriptValue>(
        entry: &'static Entry,
        this: Option<Object>,
        positional: &V,
        keywords: &V,
    ) -> Result<Invocation, V::Failure> {
        let CallArguments { arguments, objects } =
            CallArguments::read(positional, keywords, &Tensors::default())?;
        let call = Invocation::new(entry, this, arguments, objects);
        call.map_err(|error| positional.failure(error))
    }
}

/// What a call on tensors is given.
#[derive(Debug)]
pub struct OperationArguments<V> {
    /// Arguments by position; tensors are named by their positions in `arrays`.
    pub positional: V,
    /// Arguments by name.
    pub keywords: V,
    /// The tensors.
    pub arrays: V,
    /// What each tensor is: the number of a dtype for a flat array, or an object with dtype, shape,
    /// strides, offset, readOnly, memory.
    pub infos: V,
}

impl<V: ScriptValue> OperationArguments<V> {
    /// Resolves and checks a call of `entry`, on `this` or on the group among the arguments.
    ///
    /// # Errors
    /// Values and descriptions that make no sense; those of [`StagedOperation::prepare`]; failures
    /// of the interface to JavaScript.
    pub fn prepare(
        &self,
        entry: &'static Entry,
        this: Option<&Object>,
    ) -> Result<StagedOperation, V::Failure> {
        let tensors = read_tensors(&self.arrays, &self.infos)?;
        let CallArguments { arguments, objects } =
            CallArguments::read(&self.positional, &self.keywords, &tensors)?;
        let staged = StagedOperation::prepare(entry, this, arguments, &objects, tensors);
        staged.map_err(|error| self.positional.failure(error))
    }
}

/// The arguments of a call, and the objects among them, whose slots are their positions.
struct CallArguments {
    arguments: Arguments,
    /// The groups and stores among them.
    objects: Vec<Object>,
}

impl CallArguments {
    /// Reads arguments by position and by name; tensors among them are named by their positions in
    /// `tensors`.
    fn read<V: ScriptValue>(
        positional: &V,
        keywords: &V,
        tensors: &Tensors,
    ) -> Result<CallArguments, V::Failure> {
        let mut reader = Reader { tensors, objects: Vec::new() };
        let mut arguments = Arguments { language: Language::JavaScript, ..Arguments::default() };
        if let Content::List(values) = positional.content()? {
            arguments.positional = reader.list(&values, 0)?;
        }
        if let Content::Object = keywords.content()? {
            arguments.keywords = reader.record(keywords, 0)?;
        }
        Ok(CallArguments { arguments, objects: reader.objects })
    }
}

/// Reads the tensors of a call.
fn read_tensors<V: ScriptValue>(arrays: &V, infos: &V) -> Result<Tensors, V::Failure> {
    let lists = (arrays.content()?, infos.content()?);
    let (Content::List(memories), Content::List(descriptions)) = lists else {
        return Err(arrays.failure(invalid_type("tensors come as a list".to_owned())));
    };
    let (expected, came) = (descriptions.len(), memories.len());
    if expected != came {
        let message = format!("{came} arrays came for {expected} descriptions of tensors");
        return Err(arrays.failure(invalid(message)));
    }
    let mut pieces = V::Pieces::default();
    let described = memories.iter().zip(&descriptions);
    let described = described.map(|(array, info)| describe(array, info, &mut pieces));
    let described = described.collect::<Result<_, _>>()?;
    Tensors::new(described).map_err(|error| arrays.failure(error))
}

fn describe<V: ScriptValue>(
    array: &V,
    info: &V,
    pieces: &mut V::Pieces,
) -> Result<TensorDescription, V::Failure> {
    let (code, is_flat) = match info.content()? {
        Content::Number(code) => (code, true),
        _ => (number(info, c"dtype")?, false),
    };
    let dtype = dtype(code).map_err(|error| info.failure(error))?;
    let own = if is_flat { None } else { info.member(c"memory")? };
    let memory = match own {
        Some(handle) => Memory::Own(handle.region()?),
        None => array.caller_memory(pieces)?,
    };
    let (shape, strides) = (None, None);
    let mut described =
        TensorDescription { dtype, shape, strides, offset: 0, read_only: false, memory };
    if !is_flat {
        described.shape = integers(info, c"shape")?;
        described.strides = integers(info, c"strides")?;
        if let Some(offset) = info.member(c"offset")? {
            described.offset = integer(&offset, c"offset")?;
        }
        if let Some(read_only) = info.member(c"readOnly")? {
            described.read_only = matches!(read_only.content()?, Content::Bool(true));
        }
    }
    Ok(described)
}

struct Reader<'t> {
    tensors: &'t Tensors,
    objects: Vec<Object>,
}

impl Reader<'_> {
    fn list<V: ScriptValue>(&mut self, list: &[V], depth: usize) -> Result<Vec<Value>, V::Failure> {
        list.iter().map(|value| self.value(value, depth)).collect()
    }

    fn record<V: ScriptValue>(
        &mut self,
        object: &V,
        depth: usize,
    ) -> Result<Vec<(String, Value)>, V::Failure> {
        let members = object.members()?.into_iter();
        members.map(|(name, value)| Ok((name, self.value(&value, depth)?))).collect()
    }

    fn value<V: ScriptValue>(&mut self, value: &V, depth: usize) -> Result<Value, V::Failure> {
        Ok(match value.content()? {
            Content::Nothing => Value::None,
            Content::Bool(is) => Value::Bool(is),
            Content::Number(number) => exact(number),
            Content::BigInt(Some(integer)) => Value::Int(integer),
            Content::BigInt(None) => {
                let range = "integers are from -2^63 to 2^63 - 1";
                return Err(value.failure(invalid(format!("a BigInt beyond 64 bits: {range}"))));
            }
            Content::Text(text) => Value::Str(text),
            Content::Bytes(bytes) => Value::Bytes(bytes),
            Content::List(items) => Value::List(self.list(&items, deeper(value, depth)?)?),
            Content::Object => return self.marked(value, depth),
            Content::Other => foreign("function".to_owned(), true),
        })
    }

    /// An object that says what it stands for.
    fn marked<V: ScriptValue>(&mut self, value: &V, depth: usize) -> Result<Value, V::Failure> {
        let kind = text(value, c"kind")?;
        match kind.as_str() {
            "tensor" => {
                let position = member(value, c"index")?;
                let tensor = self.tensors.value(integer(&position, c"index")?);
                tensor.map_err(|error| value.failure(error))
            }
            // In memory of the core, whichever call takes it; or in memory that it cannot have.
            "array" => {
                let Some(info) = value.member(c"info")? else {
                    let elsewhere = Tensor::contiguous(Region::elsewhere(), DType::U8, vec![0]);
                    return Ok(Value::Tensor(elsewhere));
                };
                let described = describe(&info, &info, &mut V::Pieces::default())?;
                let tensor = Tensors::new(vec![described]).and_then(|tensors| tensors.value(0));
                tensor.map_err(|error| value.failure(error))
            }
            "duration" => Ok(duration(number(value, c"ms")?)),
            "reduceOp" => reduce_op(value),
            "dtype" => {
                let dtype = dtype(number(value, c"code")?).map_err(|error| value.failure(error))?;
                Ok(Value::DType(dtype))
            }
            "handle" => Ok(self.keep(member(value, c"handle")?.object()?)),
            "record" => {
                let members = member(value, c"members")?;
                self.record(&members, deeper(value, depth)?).map(Value::Members)
            }
            // Options of a group, with what a backend of this language is given of them.
            "options" => {
                let given = match member(value, c"bytes")?.content()? {
                    Content::Bytes(bytes) => GivenOptions::new(bytes),
                    _ => return Err(value.failure(lacks(c"bytes", "a Uint8Array"))),
                };
                let options = self.value(&member(value, c"options")?, depth)?;
                Ok(Value::Options(given, options.into()))
            }
            "object" => payload(value),
            "foreign" => {
                let type_name = text(value, c"typeName")?;
                if type_name == Object::NonGroupMember.type_name() {
                    return Ok(self.keep(Object::NonGroupMember));
                }
                let callable = value.member(c"callable")?.map(|it| it.content()).transpose()?;
                Ok(foreign(type_name, matches!(callable, Some(Content::Bool(true)))))
            }
            _ => {
                let message = format!("'{kind}' is not a kind of value; expected one of {KINDS}");
                Err(value.failure(invalid_type(message)))
            }
        }
    }

    fn keep(&mut self, object: Object) -> Value {
        let value = Value::of_object(&object, self.objects.len());
        self.objects.push(object);
        value
    }
}

/// The depth of what a list or a record contains.
fn deeper<V: ScriptValue>(value: &V, depth: usize) -> Result<usize, V::Failure> {
    if depth < MAX_DEPTH {
        return Ok(depth + 1);
    }
    let message = format!("lists and records are nested deeper than {MAX_DEPTH} levels");
    Err(value.failure(invalid_type(message)))
}

/// An object that is sent, a list of such, or the places for those that come: see the
/// implementations of the collectives of objects.
fn payload<V: ScriptValue>(value: &V) -> Result<Value, V::Failure> {
    let length = match value.member(c"length")?.map(|length| length.content()).transpose()? {
        Some(Content::Number(length)) => Some(length),
        _ => None,
    };
    if length.is_some_and(|length| length < 0.0) {
        // It is not a list, which the core refuses.
        return Ok(Value::Bool(false));
    }
    if let Some(items) = value.member(c"items")?
        && let Content::List(items) = items.content()?
    {
        return items.iter().map(payload).collect::<Result<_, _>>().map(Value::List);
    }
    if let Some(failed) = value.member(c"failed")?
        && let Content::Text(why) = failed.content()?
    {
        return Ok(Value::Str(why));
    }
    if let Some(bytes) = value.member(c"bytes")? {
        return match bytes.content()? {
            Content::Bytes(bytes) => Ok(Value::Bytes(bytes)),
            _ => Err(value.failure(invalid_type("expected an object as a Uint8Array".to_owned()))),
        };
    }
    Ok(length.map_or(Value::None, |length| Value::Int(length as i64)))
}

fn reduce_op<V: ScriptValue>(value: &V) -> Result<Value, V::Failure> {
    let code = number(value, c"code")?;
    let known = ReduceOp::WITHOUT_FACTOR.into_iter().find(|it| f64::from(it.code()) == code);
    if let Some(plain) = known {
        return Ok(Value::ReduceOp(plain));
    }
    let factor = match value.member(c"factor")?.map(|factor| factor.content()).transpose()? {
        Some(Content::Number(factor)) => Some(factor),
        _ => None,
    };
    let with_factor = factor.into_iter().flat_map(|factor| {
        // Of a function, the factor is its number.
        [ReduceOp::PremulSum(factor), ReduceOp::Custom(CustomOp::of_number(factor as u32))]
    });
    let mut scaled = with_factor.filter(|it| f64::from(it.code()) == code);
    scaled.next().map(Value::ReduceOp).ok_or_else(|| {
        let message = format!("{code} is not the number of a reduction operator without a factor");
        value.failure(invalid(message))
    })
}

fn dtype(code: f64) -> Result<DType, Error> {
    let known = DType::ALL.into_iter().find(|dtype| f64::from(*dtype as u8) == code);
    known.ok_or_else(|| invalid(format!("{code} is not the number of an element type")))
}

/// A length of time; a number that cannot be one stays a number, which the resolver refuses.
fn duration(milliseconds: f64) -> Value {
    let duration = Duration::try_from_secs_f64(milliseconds / 1000.0);
    duration.map_or(Value::Float(milliseconds), Value::Duration)
}

/// An integer if a number says one exactly.
fn exact(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() <= MAX_SAFE_INTEGER {
        Value::Int(number as i64)
    } else {
        Value::Float(number)
    }
}

/// A value that only JavaScript understands.
fn foreign(type_name: String, callable: bool) -> Value {
    Value::Foreign(Foreign { type_name, interfaces: &[], callable, slot: usize::MAX })
}

fn member<V: ScriptValue>(value: &V, name: &CStr) -> Result<V, V::Failure> {
    value.member(name)?.ok_or_else(|| value.failure(lacks(name, "a value")))
}

fn text<V: ScriptValue>(value: &V, name: &CStr) -> Result<String, V::Failure> {
    match value.member(name)?.map(|text| text.content()).transpose()? {
        Some(Content::Text(text)) => Ok(text),
        _ => Err(value.failure(lacks(name, "a string"))),
    }
}

fn number<V: ScriptValue>(value: &V, name: &CStr) -> Result<f64, V::Failure> {
    match value.member(name)?.map(|number| number.content()).transpose()? {
        Some(Content::Number(number)) => Ok(number),
        _ => Err(value.failure(lacks(name, "a number"))),
    }
}

/// The integers of the list that a property is, if it is there.
fn integers<V: ScriptValue, T: TryFrom<i64>>(
    value: &V,
    name: &CStr,
) -> Result<Option<Vec<T>>, V::Failure> {
    let Some(list) = value.member(name)? else { return Ok(None) };
    let Content::List(items) = list.content()? else {
        return Err(value.failure(lacks(name, "a list of integers")));
    };
    items.iter().map(|item| integer(item, name)).collect::<Result<_, _>>().map(Some)
}

/// The integer that `value`, the property `name`, is.
fn integer<V: ScriptValue, T: TryFrom<i64>>(value: &V, name: &CStr) -> Result<T, V::Failure> {
    let number = match value.content()? {
        Content::Number(number) => number,
        _ => f64::NAN,
    };
    let Value::Int(whole) = exact(number) else {
        return Err(value.failure(lacks(name, &format!("an integer, not {number}"))));
    };
    let fits = T::try_from(whole);
    fits.map_err(|_| value.failure(lacks(name, &format!("an integer in range, not {whole}"))))
}

/// What is said where the property `name` has to be something that it is not.
fn lacks(name: &CStr, expected: &str) -> Error {
    invalid_type(format!("'{}' of a value must be {expected}", name.to_string_lossy()))
}

fn invalid(message: String) -> Error {
    Error::InvalidArgument { message }
}

fn invalid_type(message: String) -> Error {
    Error::InvalidType { message }
}
