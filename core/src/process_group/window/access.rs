//! Accesses to the memory of other ranks: checked, then made by load and store where the memory is
//! mapped, else issued. Knows nothing of how memory is found.

use super::registration::{Reached, Registration, Target};
use super::{Registered, Window, invalid, not_registered};
use crate::backend::{AccessAction, AccessTarget, IssueOptions, WindowAccess, WindowOperation};
use crate::completion::{Outcome, WaitIntent};
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::kernels;
use crate::process_group::messages::{to_read, to_write};
use crate::tensor::{
    Buffers, ConstBuffers, InPlace, MAX_ATOMIC_BYTES, OwnedBuffers, PlainInput, Region, Tensor,
    given, in_place, lend, lend_mut, single_tensor,
};
use crate::work::Work;

/// Where an access goes: elements of the memory of a rank.
#[derive(Clone, Copy)]
struct Place {
    name: &'static str,
    peer: u32,
    /// In elements.
    offset: u64,
}

impl Window {
    /// Writes `tensor` to the memory of `dst`, from element `offset` of its tensor on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the elements are not all inside of that tensor, or of another
    /// type, or nothing is registered; [`Error::InvalidGroup`] if the group was destroyed; the
    /// failure of a broken group, such as of one whose rank died.
    pub fn put<I: ConstBuffers + ?Sized>(&self, tensor: &I, dst: u32, offset: u64) -> Result<()> {
        if let Some(plain) = given(tensor)
            && let Some(done) = self.put_plain(&plain, Place { name: "put", peer: dst, offset })
        {
            return done;
        }
        let tensor = single_tensor("put", lend(tensor))?;
        self.issue_put(tensor, dst, offset, WaitIntent::Soon)?.wait(None)
    }

    /// As [`Window::put`], of these elements, if the memory is mapped; its work, which is over.
    /// None if nothing was done: then another call is the way, which also says what is wrong.
    #[doc(hidden)]
    pub fn put_at_once(
        &self,
        (dtype, bytes): (DType, &[u8]),
        dst: u32,
        offset: u64,
    ) -> Option<Result<Work>> {
        let place = Place { name: "put", peer: dst, offset };
        let done = self.put_plain(&PlainInput::Borrowed(dtype, bytes), place)?;
        Some(done.map(|()| Work::done(place.name, self.group().identity(), 0)))
    }

    /// As [`Window::get`], as [`Window::put_at_once`].
    #[doc(hidden)]
    pub fn get_at_once(
        &self,
        (dtype, bytes): (DType, &mut [u8]),
        src: u32,
        offset: u64,
    ) -> Option<Result<Work>> {
        let place = Place { name: "get", peer: src, offset };
        let done = self.get_plain(InPlace::Borrowed(dtype, bytes), place)?;
        Some(done.map(|()| Work::done(place.name, self.group().identity(), 0)))
    }

    /// As [`Window::put`], owning the tensor until the work is done: the elements are there then.
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn put_async(&self, tensor: impl OwnedBuffers, dst: u32, offset: u64) -> Result<Work> {
        let tensor = single_tensor("put", tensor.into_tensors())?;
        self.issue_put(tensor, dst, offset, WaitIntent::Later)
    }

    pub(crate) fn issue_put(
        &self,
        tensor: Tensor,
        dst: u32,
        offset: u64,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let place = Place { name: "put", peer: dst, offset };
        let memory = to_read(place.name, &tensor)?;
        self.access(place, tensor, (AccessAction::Put, memory, None), waiting)
    }

    /// Reads the memory of `src`, from element `offset` of its tensor on, into `tensor`.
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn get<B: Buffers + ?Sized>(&self, tensor: &mut B, src: u32, offset: u64) -> Result<()> {
        if let Some(plain) = in_place(tensor)
            && let Some(done) = self.get_plain(plain, Place { name: "get", peer: src, offset })
        {
            return done;
        }
        let tensor = single_tensor("get", lend_mut(tensor))?;
        self.issue_get(tensor, src, offset, WaitIntent::Soon)?.wait(None)
    }

    /// As [`Window::get`], owning the tensor until the work is done.
    ///
    /// # Errors
    /// As [`Window::get`].
    pub fn get_async(&self, tensor: impl OwnedBuffers, src: u32, offset: u64) -> Result<Work> {
        let tensor = single_tensor("get", tensor.into_tensors())?;
        self.issue_get(tensor, src, offset, WaitIntent::Later)
    }

    pub(crate) fn issue_get(
        &self,
        tensor: Tensor,
        src: u32,
        offset: u64,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let place = Place { name: "get", peer: src, offset };
        let (memory, finish) = to_write(place.name, &tensor)?;
        self.access(place, tensor, (AccessAction::Get, memory, finish), waiting)
    }

    /// Reduces `tensor` into the memory of `dst`: each element becomes what the operator makes of
    /// it and of the given one, atomically. `Avg` is none for which this has a meaning.
    ///
    /// # Errors
    /// As [`Window::put`]; [`Error::UnsupportedDType`] if the operator does not take the elements.
    pub fn accumulate<I: ConstBuffers + ?Sized>(
        &self,
        tensor: &I,
        dst: u32,
        offset: u64,
        op: ReduceOp,
    ) -> Result<()> {
        let tensor = single_tensor("accumulate", lend(tensor))?;
        self.issue_accumulate(tensor, dst, (offset, op), WaitIntent::Soon)?.wait(None)
    }

    /// As [`Window::accumulate`], owning the tensor until the work is done.
    ///
    /// # Errors
    /// As [`Window::accumulate`].
    pub fn accumulate_async(
        &self,
        tensor: impl OwnedBuffers,
        dst: u32,
        offset: u64,
        op: ReduceOp,
    ) -> Result<Work> {
        let tensor = single_tensor("accumulate", tensor.into_tensors())?;
        self.issue_accumulate(tensor, dst, (offset, op), WaitIntent::Later)
    }

    pub(crate) fn issue_accumulate(
        &self,
        tensor: Tensor,
        dst: u32,
        (offset, op): (u64, ReduceOp),
        waiting: WaitIntent,
    ) -> Result<Work> {
        let place = Place { name: "accumulate", peer: dst, offset };
        let (op, memory) = operand(place.name, &tensor, op)?;
        self.access(place, tensor, (AccessAction::Accumulate(op), memory, None), waiting)
    }

    /// Adds `tensor` to the memory of `dst`, each element atomically, and gives `result` what was
    /// there before.
    ///
    /// # Errors
    /// As [`Window::put`], also if the two tensors differ in length or type.
    pub fn fetch_and_add<I: ConstBuffers + ?Sized, B: Buffers + ?Sized>(
        &self,
        tensor: &I,
        result: &mut B,
        dst: u32,
        offset: u64,
    ) -> Result<()> {
        let tensor = single_tensor("fetch_and_add", lend(tensor))?;
        let result = single_tensor("fetch_and_add", lend_mut(result))?;
        self.issue_fetch_and_add(tensor, result, (dst, offset), WaitIntent::Soon)?.wait(None)
    }

    /// As [`Window::fetch_and_add`], owning the tensors until the work is done.
    ///
    /// # Errors
    /// As [`Window::fetch_and_add`].
    pub fn fetch_and_add_async(
        &self,
        tensor: impl OwnedBuffers,
        result: impl OwnedBuffers,
        dst: u32,
        offset: u64,
    ) -> Result<Work> {
        let tensor = single_tensor("fetch_and_add", tensor.into_tensors())?;
        let result = single_tensor("fetch_and_add", result.into_tensors())?;
        self.issue_fetch_and_add(tensor, result, (dst, offset), WaitIntent::Later)
    }

    pub(crate) fn issue_fetch_and_add(
        &self,
        tensor: Tensor,
        result: Tensor,
        (dst, offset): (u32, u64),
        waiting: WaitIntent,
    ) -> Result<Work> {
        let place = Place { name: "fetch_and_add", peer: dst, offset };
        same_elements(place.name, &tensor, &result)?;
        let (op, memory) = operand(place.name, &tensor, ReduceOp::Sum)?;
        let (old, finish) = to_write(place.name, &result)?;
        let action = AccessAction::FetchAndUpdate(op, old);
        self.access(place, result, (action, memory, finish), waiting)
    }

    /// Sets each element of the memory of `dst` that is, bit by bit, that of `compare` to that of
    /// `tensor`, atomically, and gives `result` what was there before.
    ///
    /// # Errors
    /// As [`Window::put`], also if the three tensors differ in length or type.
    pub fn compare_and_swap<I, C, B>(
        &self,
        tensor: &I,
        compare: &C,
        result: &mut B,
        dst: u32,
        offset: u64,
    ) -> Result<()>
    where
        I: ConstBuffers + ?Sized,
        C: ConstBuffers + ?Sized,
        B: Buffers + ?Sized,
    {
        let tensor = single_tensor("compare_and_swap", lend(tensor))?;
        let given = [tensor, single_tensor("compare_and_swap", lend(compare))?];
        let result = single_tensor("compare_and_swap", lend_mut(result))?;
        self.issue_compare_and_swap(given, result, (dst, offset), WaitIntent::Soon)?.wait(None)
    }

    /// As [`Window::compare_and_swap`], owning the tensors until the work is done.
    ///
    /// # Errors
    /// As [`Window::compare_and_swap`].
    pub fn compare_and_swap_async(
        &self,
        tensor: impl OwnedBuffers,
        compare: impl OwnedBuffers,
        result: impl OwnedBuffers,
        dst: u32,
        offset: u64,
    ) -> Result<Work> {
        let tensor = single_tensor("compare_and_swap", tensor.into_tensors())?;
        let compare = single_tensor("compare_and_swap", compare.into_tensors())?;
        let result = single_tensor("compare_and_swap", result.into_tensors())?;
        let place = (dst, offset);
        self.issue_compare_and_swap([tensor, compare], result, place, WaitIntent::Later)
    }

    pub(crate) fn issue_compare_and_swap(
        &self,
        [tensor, compare]: [Tensor; 2],
        result: Tensor,
        (dst, offset): (u32, u64),
        waiting: WaitIntent,
    ) -> Result<Work> {
        let place = Place { name: "compare_and_swap", peer: dst, offset };
        same_elements(place.name, &tensor, &compare)?;
        same_elements(place.name, &tensor, &result)?;
        let memory = to_read(place.name, &tensor)?;
        let compare = to_read(place.name, &compare)?;
        let (old, finish) = to_write(place.name, &result)?;
        let action = AccessAction::CompareAndSwap(compare, old);
        self.access(place, result, (action, memory, finish), waiting)
    }

    /// A flat tensor over the memory of a rank on this host. When this rank deregisters its tensor,
    /// closes the window or leaves the group, the tensor is one of zeros of its own from then on:
    /// it never shows, or changes, what the other rank has there afterwards. The tensor of this
    /// rank itself is the registered one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if that memory cannot be mapped into this process;
    /// [`Error::InvalidArgument`] as for [`Window::put`].
    pub fn map_remote_tensor(&self, rank: u32) -> Result<Tensor> {
        let name = "map_remote_tensor";
        self.with_target(name, rank, |registration, target, memory| {
            self.check_here(name, rank)?;
            let memory = memory.ok_or_else(|| Error::Unsupported {
                who: format!("this rank, to which the memory of rank {rank} is not mapped,"),
                operation: name.into(),
            })?;
            Ok(match memory.own {
                Some(_) => registration.own_tensor().clone(),
                None => {
                    let region = memory.shared.to_region();
                    Tensor::contiguous(region, target.dtype, vec![target.elements])
                }
            })
        })
    }

    /// `UNIFIED` if this rank reads and writes the memory of `rank` where it lies; `SEPARATE` if
    /// that rank's process does it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] as for [`Window::put`].
    pub fn get_attr(&self, rank: u32) -> Result<&'static str> {
        self.with_target("get_attr", rank, |_, _, memory| {
            Ok(if memory.is_some() { "UNIFIED" } else { "SEPARATE" })
        })
    }

    /// As [`Window::put`], by a store, if the memory is mapped; else nothing is done.
    fn put_plain(&self, plain: &PlainInput<'_>, place: Place) -> Option<Result<()>> {
        let (dtype, bytes) = match plain {
            PlainInput::Borrowed(dtype, bytes) => (*dtype, bytes.len()),
            PlainInput::Owned(tensor) => (tensor.dtype(), tensor.bytes()),
        };
        self.with_mapped(place, (dtype, bytes), |target| match plain {
            PlainInput::Borrowed(_, bytes) => target.put(bytes),
            PlainInput::Owned(tensor) => AccessAction::Put.perform(target, tensor.region()),
        })
    }

    /// As [`Window::get`], by a load, if the memory is mapped; else nothing is done.
    fn get_plain(&self, plain: InPlace<'_>, place: Place) -> Option<Result<()>> {
        let (dtype, bytes) = match &plain {
            InPlace::Borrowed(dtype, bytes) => (*dtype, bytes.len()),
            InPlace::Owned(tensor) => (tensor.dtype(), tensor.bytes()),
        };
        self.with_mapped(place, (dtype, bytes), |target| match plain {
            InPlace::Borrowed(_, bytes) => target.get(bytes),
            InPlace::Owned(tensor) => AccessAction::Get.perform(target, tensor.region()),
        })
    }

    /// Lets `access` have the memory of a place, if it is mapped.
    fn with_mapped(
        &self,
        place: Place,
        (dtype, bytes): (DType, usize),
        access: impl FnOnce(&AccessTarget<'_>),
    ) -> Option<Result<()>> {
        let Place { name, peer, .. } = place;
        // As long as this is held, the memory is not given up.
        let registered = self.registered();
        let Registered::Tensor(registration) = &*registered else { return None };
        let (target, memory) = registration.target(name, peer).ok()?;
        let memory = memory?;
        let checked = self
            .check_unbroken(name)
            .and_then(|()| self.check_here(name, peer))
            .and_then(|()| place.check(target, dtype, bytes));
        Some(checked.map(|at| access(&memory.target(at, dtype))))
    }

    /// Makes an access, or issues it. Its `tensor` is what its work has.
    fn access(
        &self,
        place: Place,
        tensor: Tensor,
        (action, memory, finish): (AccessAction, Region, Option<Outcome>),
        waiting: WaitIntent,
    ) -> Result<Work> {
        let Place { name, peer, .. } = place;
        check_host(name, &action, &memory)?;
        check_apart(name, &action, &memory)?;
        let dtype = tensor.dtype();
        let (offset, is_done) = self.with_target(name, peer, |_, target, mapped| {
            let offset = place.check(target, dtype, memory.len())?;
            self.check_unbroken(name)?;
            self.check_here(name, peer)?;
            if let Some(own) = mapped.and_then(|it| it.own) {
                check_apart_from_target(name, &action, &own.slice(offset..offset + memory.len()))?;
            }
            let copies = matches!(action, AccessAction::Put | AccessAction::Get);
            let here = mapped.filter(|_| copies || dtype.size_bytes() <= MAX_ATOMIC_BYTES);
            if let Some(mapped) = here {
                action.perform(&mapped.target(offset, dtype), &memory);
            }
            Ok((offset, here.is_some() || memory.is_empty()))
        })?;
        let group = self.group();
        if is_done {
            finish.into_iter().for_each(|finish| finish());
            return Ok(Work::done(name, group.identity(), 0));
        }
        let window = self.inner.number;
        let access = WindowAccess { action, window, peer, dtype, offset, memory };
        let options = IssueOptions { deadline: group.deadline(self.timeout), waiting };
        let issued = self.windows()?.issue(WindowOperation::Access(access), options, finish);
        let issued = vec![(issued, self.inner.backend.clone())];
        Ok(Work::new(group.label(name), issued, vec![tensor]))
    }

    /// Lets `use_it` have what `rank` has registered. As long as it runs, that is not given up.
    fn with_target<R>(
        &self,
        name: &str,
        rank: u32,
        use_it: impl FnOnce(&Registration, &Target, Option<Reached<'_>>) -> Result<R>,
    ) -> Result<R> {
        let registered = self.registered();
        let Registered::Tensor(registration) = &*registered else {
            drop(registered);
            self.check_members(name)?;
            return Err(not_registered(name));
        };
        self.check_unbroken(name)?;
        let (target, memory) = registration.target(name, rank)?;
        use_it(registration, target, memory)
    }
}

impl Place {
    /// The offset in bytes of so many bytes of elements of this type, if the target has them.
    #[inline]
    fn check(self, target: &Target, dtype: DType, bytes: usize) -> Result<usize> {
        let size = dtype.size_bytes();
        let given = bytes / size;
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let is_inside = offset.checked_add(given).is_some_and(|end| end <= target.elements);
        if let (true, Some(at)) = (is_inside && dtype == target.dtype, offset.checked_mul(size)) {
            return Ok(at);
        }
        Err(self.misfit(target, dtype, given))
    }

    #[cold]
    fn misfit(self, target: &Target, dtype: DType, given: usize) -> Error {
        let Place { name, peer, offset } = self;
        let Target { elements, dtype: theirs, .. } = target;
        if dtype != *theirs {
            let (given, theirs) = (dtype.name(), theirs.name());
            let what = format!("elements are {given}, those that rank {peer} registered {theirs}");
            return invalid(name, &what);
        }
        let what = format!(
            "{given} elements from element {offset} on are not inside of the {elements} elements \
             that rank {peer} registered"
        );
        invalid(name, &what)
    }
}

/// Refuses memory of a device.
fn check_host(name: &str, action: &AccessAction, memory: &Region) -> Result<()> {
    let compare = match action {
        AccessAction::CompareAndSwap(compare, _) => Some(compare),
        _ => None,
    };
    let mut operands = [Some(memory), action.result(), compare].into_iter().flatten();
    if operands.any(|operand| operand.device().is_some()) {
        return Err(invalid(name, "its tensors must lie in memory of the host"));
    }
    Ok(())
}

/// Refuses a result that shares memory with what is given: it would change that halfway.
fn check_apart(name: &str, action: &AccessAction, memory: &Region) -> Result<()> {
    let Some(result) = action.result() else { return Ok(()) };
    let compare = match action {
        AccessAction::CompareAndSwap(compare, _) => Some(compare),
        _ => None,
    };
    match [Some(memory), compare].into_iter().flatten().any(|given| given.overlaps(result)) {
        true => Err(invalid(name, "its result shares memory with a tensor that it is given")),
        false => Ok(()),
    }
}

/// Refuses a result that lies where the access changes elements.
fn check_apart_from_target(name: &str, action: &AccessAction, target: &Region) -> Result<()> {
    match action.result().is_some_and(|result| result.overlaps(target)) {
        true => Err(invalid(name, "its result lies in the elements that the call changes")),
        false => Ok(()),
    }
}

/// What is reduced into memory, and by which operator: a factor is applied to it here.
fn operand(name: &str, tensor: &Tensor, op: ReduceOp) -> Result<(ReduceOp, Region)> {
    let dtype = tensor.dtype();
    if op == ReduceOp::Avg {
        let what =
            "AVG has no meaning where nobody knows how many ranks take part; sum, and divide";
        return Err(invalid(name, what));
    }
    if op.takes_pairs() || matches!(op, ReduceOp::Custom(_)) {
        return Err(Error::Unsupported {
            who: "a window".into(),
            operation: format!("{name} with {}", op.name()),
        });
    }
    if !op.supports(dtype) {
        return Err(Error::UnsupportedDType {
            reduce_op: op.name().into(),
            dtype: dtype.name().into(),
        });
    }
    if let ReduceOp::PremulSum(factor) = op {
        let scaled = tensor.to_contiguous().into_region();
        scaled.write(|memory| kernels::scale(dtype, memory, factor));
        return Ok((ReduceOp::Sum, scaled));
    }
    Ok((op, to_read(name, tensor)?))
}

fn same_elements(name: &str, one: &Tensor, other: &Tensor) -> Result<()> {
    if one.dtype() == other.dtype() && one.elements() == other.elements() {
        return Ok(());
    }
    let of = |tensor: &Tensor| format!("{} {}", tensor.elements(), tensor.dtype().name());
    let what = format!("its tensors must be alike, got {} and {}", of(one), of(other));
    Err(invalid(name, &what))
}
