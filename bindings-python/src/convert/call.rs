//! One call from Python: arguments in, an overload chosen, values taken out one by one.

use polyrank::calls::{
    self, Arguments, Constant, FromValue, GivenOptions, Invocation, Language, Method, Object,
    Parameter, ResolvedCall, Role, Type, Value,
};
use polyrank::tensor::single_tensor;
use polyrank::{DType, Device, Tensor, distributed};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyString, PyTuple, PyType};

use super::exception::{CoreResult, error_kind, invalid, invalid_type};
use super::handles::{handle_of, handle_of_argument};
use super::value::{OpaqueObjects, opaque, value};
use crate::classes::{NonGroupMember, TensorObjects};
use crate::hooks::CallObjects;

/// A call whose overload is known.
pub(crate) struct Call<'py> {
    py: Python<'py>,
    resolved: ResolvedCall,
    opaque_objects: OpaqueObjects<'py>,
}

/// The neutral values of a call's arguments. Where `method` takes any object, nobody looks into it.
pub(crate) fn arguments<'py>(
    method: Option<&Method>,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
    opaque_objects: &mut OpaqueObjects<'py>,
) -> PyResult<Arguments> {
    let mut arguments =
        Arguments { positional: Vec::with_capacity(positional.len()), ..Arguments::default() };
    for (position, item) in positional.iter().enumerate() {
        let is_any = method.is_some_and(|method| method.takes_any_at(position));
        let value =
            if is_any { opaque(&item, opaque_objects) } else { value(&item, opaque_objects) };
        let value = value.map_err(|error| {
            let is_list = item.is_instance_of::<PyList>() || item.is_instance_of::<PyTuple>();
            let name = method.and_then(|method| method.name_at(position, is_list));
            of_argument(item.py(), error, method, name)
        });
        let is_options = method.is_some_and(|method| method.takes_options_at(position));
        arguments.positional.push(with_object(value?, &item, is_options));
    }
    for (name, item) in keywords.into_iter().flatten() {
        let name: String = name.extract()?;
        let is_any = method.is_some_and(|method| method.takes_any_as(&name));
        let value =
            if is_any { opaque(&item, opaque_objects) } else { value(&item, opaque_objects) };
        let value = value.map_err(|error| of_argument(item.py(), error, method, Some(&name)));
        let is_options = method.is_some_and(|method| method.takes_options_as(&name));
        arguments.keywords.push((name, with_object(value?, &item, is_options)));
    }
    Ok(arguments)
}

/// Options of a group with their object, which a backend that is written in Python is given.
fn with_object(value: Value, object: &Bound<'_, PyAny>, is_options: bool) -> Value {
    if !is_options || object.is_none() {
        return value;
    }
    Value::Options(GivenOptions::new(object.clone().unbind()), Box::new(value))
}

/// What is wrong with a value that was given for an argument, with the call and the argument.
fn of_argument(py: Python<'_>, error: PyErr, method: Option<&Method>, name: Option<&str>) -> PyErr {
    let Some(method) = method else { return error };
    let callee = if method.name == "new" { method.interface } else { method.name };
    let argument =
        name.map_or_else(|| "an argument".to_owned(), |name| format!("argument '{name}'"));
    let text = || format!("{callee}(): {argument}: {}", error.value(py));
    match error_kind(error.value(py)).as_deref() {
        Some("InvalidType") => invalid_type(py, text()),
        Some("InvalidArgument") => invalid(py, text()),
        // What code of others raised is theirs.
        _ => error,
    }
}

/// Chooses the overload of `method` that takes the arguments.
pub(crate) fn resolve<'py>(
    py: Python<'py>,
    method: &'static Method,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Call<'py>> {
    let mut opaque_objects = OpaqueObjects::default();
    if let Some(resolved) = common_shape(method, positional, keywords) {
        return Ok(Call { py, resolved, opaque_objects });
    }
    let mut arguments = arguments(Some(method), positional, keywords, &mut opaque_objects)?;
    if !takes_tensors(method) {
        bytes_for_tensors(&mut arguments);
    }
    let resolved = calls::resolve(method, arguments).or_raise(py)?;
    let call = Call { py, resolved, opaque_objects };
    call.resolved.refuse_read_only_outputs().or_raise(py)?;
    Ok(call)
}

/// The call of a method with one form, if every parameter is given by position and has exactly the
/// type that the form names, or is nothing unless it is given: what the small requests of a store
/// are, and waiting. Nothing else is decided here; all other calls go through the resolver.
fn common_shape(
    method: &'static Method,
    positional: &Bound<'_, PyTuple>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> Option<ResolvedCall> {
    let [form] = method.overloads else { return None };
    let left_out = form.parameters.get(positional.len()..)?;
    let is_nothing = |parameter: &Parameter| {
        parameter.optional && matches!(parameter.default, None | Some(Constant::Null))
    };
    if method.unbuilt || keywords.is_some() || !left_out.iter().all(is_nothing) {
        return None;
    }
    let mut values = Vec::with_capacity(form.parameters.len());
    for (parameter, item) in form.parameters.iter().zip(positional.iter_borrowed()) {
        values.push(match parameter.ty {
            Type::Str => Value::Str(item.cast_exact::<PyString>().ok()?.extract().ok()?),
            Type::Bytes => Value::Bytes(item.cast_exact::<PyBytes>().ok()?.as_bytes().to_vec()),
            Type::Int => Value::Int(item.cast_exact::<PyInt>().ok()?.extract().ok()?),
            _ => return None,
        });
    }
    values.resize(form.parameters.len(), Value::None);
    Some(ResolvedCall { method, overload: 0, values, language: Language::Python })
}

impl<'py> Call<'py> {
    /// The name of the method, for messages.
    pub(crate) fn name(&self) -> &'static str {
        self.resolved.method.name
    }

    /// Takes the value of parameter `index`, once.
    pub(crate) fn take<T: FromValue>(&mut self, index: usize) -> PyResult<T> {
        self.resolved.take(index).or_raise(self.py)
    }

    /// The value of parameter `index`.
    pub(crate) fn value(&self, index: usize) -> &Value {
        self.resolved.values.get(index).unwrap_or(&Value::None)
    }

    /// The object that parameter `index` was given, if it is one that only Python knows.
    pub(crate) fn object(&self, index: usize) -> Option<&Bound<'py, PyAny>> {
        match self.resolved.values.get(index) {
            Some(Value::Foreign(foreign)) => self.opaque_objects.object(foreign.slot),
            _ => None,
        }
    }

    /// Has core look into the object that parameter `index` was given.
    pub(crate) fn look_into(&mut self, index: usize) -> PyResult<()> {
        if let Some(object) = self.object(index).cloned() {
            self.give(index, &object)?;
        }
        Ok(())
    }

    /// Gives `object` to parameter `index`, and has core look into it.
    pub(crate) fn give(&mut self, index: usize, object: &Bound<'py, PyAny>) -> PyResult<()> {
        let value = value(object, &mut self.opaque_objects)?;
        self.resolved.values[index] = value.without_tuples();
        Ok(())
    }

    /// The object of this class that parameter `index` was given, if it was given one.
    pub(crate) fn instance<T: pyo3::PyClass>(
        &self,
        index: usize,
    ) -> PyResult<Option<Bound<'py, T>>> {
        let object = self.object(index);
        if object.is_some_and(|object| object.is_instance_of::<NonGroupMember>()) {
            Object::NonGroupMember.group().or_raise(self.py)?;
        }
        Ok(object.map(Bound::cast::<T>).transpose()?.cloned())
    }

    /// The objects of this class that parameter `index` was given a list of.
    pub(crate) fn instances<T: pyo3::PyClass>(&self, index: usize) -> PyResult<Vec<Bound<'py, T>>> {
        let Some(Value::List(items)) = self.resolved.values.get(index) else {
            return Ok(Vec::new());
        };
        let objects = items.iter().filter_map(|item| match item {
            Value::Foreign(foreign) => self.opaque_objects.object(foreign.slot),
            _ => None,
        });
        objects.map(|object| Ok(object.cast::<T>()?.clone())).collect()
    }

    /// The group that parameter `index` was given, or the default group.
    pub(crate) fn group_at(&self, index: usize) -> PyResult<polyrank::ProcessGroup> {
        self.group_of(self.object(index))
    }

    /// The group of an operation: that of its parameter for it, or the default group.
    pub(crate) fn group(&self) -> PyResult<polyrank::ProcessGroup> {
        let given = self.resolved.group();
        self.group_of(given.and_then(|foreign| self.opaque_objects.object(foreign.slot)))
    }

    fn group_of(&self, given: Option<&Bound<'py, PyAny>>) -> PyResult<polyrank::ProcessGroup> {
        let given = given.map(handle_of).transpose()?.flatten();
        let given = given.as_ref().map(Object::group).transpose().or_raise(self.py)?;
        distributed::group_or_default(given).or_raise(self.py)
    }

    /// As [`ResolvedCall::take_rank`].
    pub(crate) fn take_rank(
        &mut self,
        group: &polyrank::ProcessGroup,
        global: usize,
        in_group: usize,
    ) -> PyResult<Option<u32>> {
        self.resolved.take_rank(group, global, in_group).or_raise(self.py)
    }

    /// As [`ResolvedCall::take_root`].
    pub(crate) fn take_root(
        &mut self,
        group: &polyrank::ProcessGroup,
        global: usize,
        in_group: usize,
    ) -> PyResult<u32> {
        self.resolved.take_root(group, global, in_group).or_raise(self.py)
    }

    /// Whether parameter `index` was given what stands for a group without this process.
    pub(crate) fn is_outside(&self, index: usize) -> bool {
        self.object(index).is_some_and(|object| object.is_instance_of::<NonGroupMember>())
    }

    /// As [`Call::is_outside`], for a function that then does nothing: warns, as c10d does.
    pub(crate) fn is_left_out(&self, index: usize) -> PyResult<bool> {
        let is_outside = self.is_outside(index);
        if is_outside {
            warn_left_out(self.py, self.resolved.method.name)?;
        }
        Ok(is_outside)
    }

    /// Whether the caller wants a handle.
    pub(crate) fn async_op(&self) -> bool {
        self.resolved.async_op()
    }

    /// As [`Call::is_left_out`], of an operation: its parameter for the group is what counts.
    pub(crate) fn is_operation_left_out(&self) -> PyResult<bool> {
        let mut parameters = self.resolved.parameters().iter();
        let group = parameters.position(|parameter| parameter.role == Role::Group);
        group.map_or(Ok(false), |position| self.is_left_out(position))
    }

    /// The call for core to run, as the entry `key` of `this`.
    pub(crate) fn invocation(
        mut self,
        key: &'static str,
        this: Option<Object>,
    ) -> PyResult<Invocation> {
        let py = self.py;
        let entry = calls::entry(key).or_raise(py)?;
        for value in &mut self.resolved.values {
            if let Value::Foreign(foreign) = value
                && foreign.interfaces.is_empty()
                && let Some(object) = self.opaque_objects.object(foreign.slot)
            {
                *value = described(object)?;
            }
        }
        let objects = self.opaque_objects.objects().map(|object| {
            // What is neither a group nor a store is the argument of no call that core runs.
            Ok(handle_of_argument(object)?.unwrap_or(Object::NonGroupMember))
        });
        let objects = objects.collect::<PyResult<Vec<_>>>()?;
        Ok(Invocation::of(entry, this, self.resolved, objects))
    }

    /// The object of the tensor that parameter `index` was given.
    pub(crate) fn tensor_object(&self, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let tensor = self.tensor(index)?;
        let object = self.opaque_objects.object_of(&tensor).cloned();
        object.ok_or_else(|| PyTypeError::new_err("a tensor was expected"))
    }

    /// The one tensor of parameter `index`, which is a tensor or a list with one.
    pub(crate) fn tensor(&self, index: usize) -> PyResult<Tensor> {
        let tensors = self.resolved.values.get(index).map(Value::tensors).unwrap_or_default();
        let tensor = single_tensor(self.resolved.method.name, tensors);
        tensor.or_raise(self.py)
    }

    /// The type of the object that `tensor` of this call was, if it is on a device.
    fn type_on_device(&self, tensor: &Tensor) -> Option<Py<PyType>> {
        let object =
            self.opaque_objects.object_of(tensor).filter(|_| tensor.device() != Device::Cpu)?;
        Some(object.get_type().unbind())
    }

    /// The type of the first tensor's object of a call, if it is on a device: for a rank that only
    /// reads, as one that is not the root of a gather, and has no output that tells its own.
    fn first_type_on_device(&self) -> Option<Py<PyType>> {
        let mut first = None;
        for (_, value) in self.parameters() {
            value.for_each_tensor(&mut |tensor| {
                first = first.take().or_else(|| self.type_on_device(tensor));
            });
        }
        first
    }

    /// The objects whose memory the call writes, in one flat list.
    fn outputs(&self) -> Vec<Py<PyAny>> {
        let mut outputs = Vec::new();
        for (parameter, value) in self.parameters() {
            if parameter.role.is_written() {
                value.for_each_tensor(&mut |tensor| {
                    outputs
                        .extend(self.opaque_objects.object_of(tensor).map(|o| o.clone().unbind()));
                });
            }
        }
        outputs
    }

    /// The objects of its tensors, for the hooks of `group`, if that has any.
    pub(crate) fn objects_for_hooks(&self, group: &polyrank::ProcessGroup) -> Option<CallObjects> {
        group.is_observed().then(|| {
            let outputs = TensorObjects { outputs: self.outputs(), read: None };
            CallObjects { tensors: self.tensor_objects(), outputs, timeout: group.timeout() }
        })
    }

    /// All its tensors, with their objects.
    pub(super) fn tensor_objects(&self) -> Vec<(Tensor, Py<PyAny>)> {
        let tensors = self.opaque_objects.tensors();
        tensors.map(|(tensor, object)| (tensor.clone(), object.clone().unbind())).collect()
    }

    /// The resolved call, for methods that become operations, and the objects of its tensors.
    pub(crate) fn into_operation(self) -> (ResolvedCall, TensorObjects) {
        let outputs = self.outputs();
        let read = if outputs.is_empty() { self.first_type_on_device() } else { None };
        (self.resolved, TensorObjects { outputs, read })
    }

    fn parameters(&self) -> impl Iterator<Item = (&'static Parameter, &Value)> {
        self.resolved.parameters().iter().zip(&self.resolved.values)
    }
}

/// What stands for an object that core knows only by what is said of it, as a device of PyTorch.
fn described(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if object.is_instance_of::<PyInt>()
        && let Ok(number) = object.extract()
    {
        return Ok(Value::Int(number));
    }
    Ok(Value::Str(object.str()?.to_str()?.to_owned()))
}

fn takes_tensors(method: &Method) -> bool {
    fn is_tensor(ty: &Type) -> bool {
        match ty {
            Type::Tensor => true,
            Type::Sequence(inner) | Type::Nullable(inner) => is_tensor(inner),
            _ => false,
        }
    }
    method.overloads.iter().any(|overload| overload.parameters.iter().any(|p| is_tensor(&p.ty)))
}

/// A `bytearray` or a `memoryview` is a tensor where tensors are meant, else a run of bytes.
fn bytes_for_tensors(arguments: &mut Arguments) {
    fn change(value: &mut Value) {
        match value {
            Value::Tensor(tensor) if tensor.dtype() == DType::U8 && tensor.shape().len() == 1 => {
                let contiguous = tensor.to_contiguous();
                *value = Value::Bytes(contiguous.region().read(<[u8]>::to_vec));
            }
            Value::List(items) | Value::Tuple(items) => items.iter_mut().for_each(change),
            _ => {}
        }
    }
    arguments.positional.iter_mut().for_each(change);
    arguments.keywords.iter_mut().for_each(|(_, value)| change(value));
}

/// Says that a call does nothing, as c10d does.
pub(super) fn warn_left_out(py: Python<'_>, name: &str) -> PyResult<()> {
    let rank = polyrank::distributed::get_rank().map_or(-1, i64::from);
    let message =
        format!("Running {name} on global rank {rank} which does not belong to the given group.");
    py.import("warnings")?.call_method1("warn", (message,)).map(drop)
}
