//! Provisional: the types of the resolver, until its own branch is merged.
#![allow(missing_docs)]

use std::time::Duration;

use crate::{Collective, DType, ReduceOp, Tensor};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Type {
    Bool, Int, Float, Str, Bytes, Duration, Tensor, Object, ReduceOp, DType,
    Record(&'static RecordType),
    Interface(&'static str),
    Enum(&'static [&'static str]),
    Callback,
    Sequence(&'static Type),
    Nullable(&'static Type),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    None, In, Out, InOut, FlatIn, FlatOut, InSplits, OutSplits, Op, Root, RootTensor, Peer, Tag, Timeout, Options,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant { None, Bool(bool), Int(i64), Float(f64), Str(&'static str), ReduceOp(ReduceOp) }

#[derive(Debug, PartialEq)]
pub struct Parameter { pub name: &'static str, pub ty: Type, pub role: Role, pub optional: bool, pub default: Option<Constant> }
#[derive(Debug, PartialEq)]
pub struct Overload { pub form: &'static str, pub parameters: &'static [Parameter] }
#[derive(Debug)]
pub struct Method { pub interface: &'static str, pub name: &'static str, pub collective: Option<Collective>, pub unbuilt: bool, pub overloads: &'static [Overload] }
#[derive(Debug, PartialEq)]
pub struct RecordType { pub name: &'static str, pub members: &'static [Parameter] }

#[derive(Clone, Debug)]
pub enum Value {
    None, Bool(bool), Int(i64), Float(f64), Str(String), Bytes(Vec<u8>), Duration(Duration),
    Tensor(Tensor), ReduceOp(ReduceOp), DType(DType), List(Vec<Value>),
    Record(&'static RecordType, Vec<(String, Value)>),
    Foreign { type_name: String, slot: usize },
}
#[derive(Clone, Debug, Default)]
pub struct Arguments { pub positional: Vec<Value>, pub keywords: Vec<(String, Value)> }
#[derive(Debug)]
pub struct Resolved { pub method: &'static Method, pub overload: usize, pub values: Vec<Value> }
