//! The model of small files, against facts written by hand.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank_codegen::idl::Rule;
use polyrank_codegen::model::{Api, Constant, Role, Type};
use polyrank_codegen::read;

const TYPES: &str = "
/// A tensor.
[Opaque] typedef any Tensor;
/// A length of time.
[Opaque] typedef any Duration;
/// A rank.
typedef unsigned long Rank;
/// Element types.
[DTypes] namespace DType {
  /// Signed.
  [Number=1, Bytes=4, Class=integer] readonly attribute DType i32;
  /// `bool`.
  [Number=0, Bytes=1, Class=bool] readonly attribute DType bool;
  /// Single.
  [Number=2, Bytes=4, Class=\"float\"] readonly attribute DType f32;
  /// A pair.
  [Number=3, Bytes=8, Class=complex] readonly attribute DType complex64;
};
/// Operators.
[ReduceOps] namespace ReduceOp {
  /// Addition.
  [Number=0, DTypes=\"all -bool\"] readonly attribute ReduceOp SUM;
  /// Bitwise and.
  [Number=1, DTypes=\"bool integers\"] readonly attribute ReduceOp BAND;
};
/// Options.
dictionary AllreduceOptions {
  /// How.
  ReduceOp reduce_op = \"SUM\";
  /// Limit.
  Duration? timeout = null;
};
";

fn api(text: &str) -> Api {
    let files =
        vec![("a.webidl".to_owned(), TYPES.to_owned()), ("b.webidl".to_owned(), text.into())];
    read(files).unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false)))
}

fn rules(text: &str) -> Vec<Rule> {
    let files =
        vec![("a.webidl".to_owned(), TYPES.to_owned()), ("b.webidl".to_owned(), text.into())];
    match read(files) {
        Ok(_) => Vec::new(),
        Err(mistakes) => mistakes.diagnostics().iter().map(|it| it.rule).collect(),
    }
}

fn group(members: &str) -> String {
    format!("/// A group.\ninterface ProcessGroup {{\n{members}\n}};")
}

#[test]
fn dtypes_are_ordered_by_number_and_operators_have_theirs() {
    let api = api("");
    let names: Vec<&str> = api.dtypes.iter().map(|dtype| dtype.name.as_str()).collect();
    assert_eq!(names, ["bool", "i32", "f32", "complex64"]);
    assert_eq!(api.dtypes[3].variant, "Complex64");
    assert_eq!(api.reduce_ops[0].dtypes, ["i32", "f32", "complex64"]);
    assert_eq!(api.reduce_ops[1].dtypes, ["bool", "i32"]);
}

#[test]
fn overloads_of_one_name_are_one_method() {
    let text = "
        /// Reduces.
        [Collective=allreduce, Number=0, Input=None, Output=One, Sizes=Equal, Reduces]
        undefined allreduce([InOut] sequence<Tensor> tensors, optional AllreduceOptions opts = {});
        [Collective=allreduce, Alias=(all_reduce)]
        undefined allreduce([InOut] sequence<Tensor> tensors, optional ReduceOp op = \"SUM\",
                            optional Duration? timeout = null);
        [Collective=allreduce]
        undefined allreduce([InOut] Tensor tensor, optional ReduceOp op = \"SUM\",
                            optional Duration? timeout = null);";
    let api = api(&group(text));
    let [method] = api.interfaces[0].methods.as_slice() else { panic!("one method") };
    assert_eq!(method.common.aliases, ["all_reduce"]);
    assert_eq!(method.doc, "Reduces.");
    let forms: Vec<&str> = method.overloads.iter().map(|it| it.form.as_str()).collect();
    assert_eq!(
        forms,
        [
            "allreduce(tensors: Sequence[Tensor], opts: AllreduceOptions = {})",
            "allreduce(tensors: Sequence[Tensor], op: ReduceOp = SUM, timeout: Duration? = None)",
            "allreduce(tensor: Tensor, op: ReduceOp = SUM, timeout: Duration? = None)",
        ]
    );
    let roles: Vec<Role> = method.overloads[1].parameters.iter().map(|it| it.role).collect();
    assert_eq!(roles, [Role::InOut, Role::Op, Role::Timeout]);
    let op = &method.overloads[2].parameters[1];
    assert_eq!(op.default, Some(Constant::ReduceOp("SUM".to_owned())));
    assert_eq!(op.ty, Type::ReduceOp);
    assert_eq!(api.collectives[0].variant, "Allreduce");
    assert!(api.dictionaries[0].is_argument);
}

#[test]
fn partial_interfaces_are_joined_and_typedefs_are_gone() {
    let text = "
        partial interface ProcessGroup {
          /// The ranks.
          sequence<Rank>? ranks();
        };
        /// A group.
        interface ProcessGroup {
          /// The size.
          unsigned long size();
        };";
    let api = api(text);
    let names: Vec<&str> =
        api.interfaces[0].methods.iter().map(|method| method.name.as_str()).collect();
    assert_eq!(names, ["size", "ranks"]);
    let returns = &api.interfaces[0].methods[1].overloads[0].returns;
    let ranks = Type::Sequence(Box::new(Type::UnsignedLong));
    assert_eq!(*returns, Type::Nullable(Box::new(ranks)));
}

#[test]
fn overloads_that_read_a_call_alike_are_harmless() {
    let timeouts = "
        /// Waits.
        undefined wait(optional AllreduceOptions opts = {});
        undefined wait(optional Duration? timeout = null);";
    assert_eq!(rules(&group(timeouts)), []);
    let by_type = "
        /// Sends.
        undefined send([In] Tensor tensor, [Peer] Rank peer);
        undefined send([In] sequence<Tensor> tensors, [Tag] Rank tag);";
    assert_eq!(rules(&group(by_type)), []);
    let by_keyword = "
        /// Sends.
        undefined send([Peer] Rank peer, optional boolean block = false);
        undefined send([Peer] Rank peer, DOMString text);";
    assert_eq!(rules(&group(by_keyword)), []);
}

#[test]
fn overloads_that_read_a_call_differently_are_not() {
    let numbers = "
        /// Sends.
        undefined send([Peer] Rank peer);
        undefined send([Tag] long long tag);";
    assert_eq!(rules(&group(numbers)), [Rule::AmbiguousOverloads]);
    let seconds = "
        /// Sends.
        undefined send(Duration timeout);
        undefined send([Tag] long long tag);";
    assert_eq!(rules(&group(seconds)), [Rule::AmbiguousOverloads]);
    let empty_lists = "
        /// Sends.
        undefined send([In] sequence<Tensor> tensors);
        undefined send(sequence<DOMString> names);";
    assert_eq!(rules(&group(empty_lists)), [Rule::AmbiguousOverloads]);
    let nulls = "
        /// Sends.
        undefined send(DOMString? name, optional boolean block = false);
        undefined send(Duration? timeout, optional boolean block = false);";
    assert_eq!(rules(&group(nulls)), [Rule::AmbiguousOverloads]);
    let keyword = "
        /// Sends.
        undefined send(DOMString name, [Tag] optional Rank number = 0);
        undefined send(boolean now, [Peer] Rank number);
        undefined send(Tensor tensor, [Peer] Rank number);";
    assert_eq!(rules(&group(keyword)), []);
}

#[test]
fn an_item_is_found_by_name_and_a_misspelt_one_is_suggested() {
    let api = api(&group("/// The size.\nunsigned long size();"));
    for name in ["ProcessGroup", "ProcessGroup.size", "size", "SUM", "AllreduceOptions.timeout"] {
        assert!(api.find(name).unwrap().contains("\"doc\""), "{name}");
    }
    let message = api.find("ProcesGroup.sise").unwrap_err();
    assert_eq!(
        message,
        "the IDL has nothing called `ProcesGroup.sise`; did you mean `ProcessGroup.size`?"
    );
}
