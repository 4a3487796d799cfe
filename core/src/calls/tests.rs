//! The resolver on tables written by hand: which overload, which values, which message.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use super::*;
use crate::generated::backend_options::{NcclConfig, NcclOptions};
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::Error;
use crate::generated::reduce_op::ReduceOp;
use crate::tensor::{Region, Tensor};

const TIMEOUT: Type = Type::Nullable(&Type::Duration);
const TENSORS: Type = Type::Sequence(&Type::Tensor);
const LISTS: Type = Type::Sequence(&TENSORS);
const ROWS: Type = Type::Sequence(&Type::Int);

const fn required(name: &'static str, ty: Type, role: Role) -> Parameter {
    Parameter { name, ty, role, optional: false, default: None }
}

const fn optional(name: &'static str, ty: Type, role: Role, default: Constant) -> Parameter {
    Parameter { name, ty, role, optional: true, default: Some(default) }
}

const SUM: Constant = Constant::ReduceOp(ReduceOp::Sum);

static OPTIONS: RecordType = RecordType {
    name: "AllreduceOptions",
    base: None,
    extensions: &[],
    members: &[
        optional("reduce_op", Type::ReduceOp, Role::Op, SUM),
        optional("timeout", TIMEOUT, Role::Timeout, Constant::Null),
        optional("sparse", Type::Nullable(&Type::Object), Role::Unbuilt, Constant::Null),
    ],
};

static COALESCED_OPTIONS: RecordType = RecordType {
    name: "AllreduceCoalescedOptions",
    base: Some("AllreduceOptions"),
    extensions: &[],
    members: OPTIONS.members,
};

static ALLREDUCE: Method = Method {
    interface: "ProcessGroup",
    name: "allreduce",
    factory: None,
    collective: Some(Collective::Allreduce),
    coalesced: false,
    prepares: None,
    unbuilt: false,
    overloads: &[
        Overload {
            parameters: &[
                required("tensors", TENSORS, Role::InOut),
                optional("opts", Type::Record(&OPTIONS), Role::Options, Constant::EmptyRecord),
            ],
        },
        Overload {
            parameters: &[
                required("tensors", TENSORS, Role::InOut),
                optional("op", Type::ReduceOp, Role::Op, SUM),
                optional("timeout", TIMEOUT, Role::Timeout, Constant::Null),
            ],
        },
        Overload {
            parameters: &[
                required("tensor", Type::Tensor, Role::InOut),
                optional("op", Type::ReduceOp, Role::Op, SUM),
                optional("timeout", TIMEOUT, Role::Timeout, Constant::Null),
            ],
        },
    ],
};

static EXCHANGE: Method = Method {
    interface: "ProcessGroup",
    name: "all_to_all_single",
    factory: None,
    collective: Some(Collective::Alltoall),
    coalesced: false,
    prepares: None,
    unbuilt: false,
    overloads: &[Overload {
        parameters: &[
            required("output", Type::Tensor, Role::FlatOut),
            required("input", Type::Tensor, Role::FlatIn),
            optional("output_split_sizes", ROWS, Role::OutSplits, Constant::EmptySequence),
            optional("input_split_sizes", ROWS, Role::InSplits, Constant::EmptySequence),
        ],
    }],
};

static GATHER: Method = Method {
    interface: "distributed",
    name: "gather",
    factory: None,
    collective: Some(Collective::Gather),
    coalesced: false,
    prepares: None,
    unbuilt: false,
    overloads: &[Overload {
        parameters: &[
            required("tensor", Type::Tensor, Role::In),
            optional("gather_list", Type::Nullable(&TENSORS), Role::Out, Constant::Null),
            optional("dst", Type::Nullable(&Type::Int), Role::GlobalRoot, Constant::Null),
            optional(
                "group",
                Type::Nullable(&Type::Interface("ProcessGroup")),
                Role::Group,
                Constant::Null,
            ),
            optional("async_op", Type::Bool, Role::AsyncOp, Constant::Bool(false)),
            optional("group_dst", Type::Nullable(&Type::Int), Role::Root, Constant::Null),
        ],
    }],
};

static GATHER_LISTS: Method = Method {
    interface: "ProcessGroup",
    name: "gather",
    factory: None,
    collective: Some(Collective::Gather),
    coalesced: false,
    prepares: None,
    unbuilt: false,
    overloads: &[Overload {
        parameters: &[
            required("output_tensors", LISTS, Role::Out),
            required("input_tensors", TENSORS, Role::In),
            required("root", Type::Int, Role::Root),
        ],
    }],
};

static SET: Method = Method {
    interface: "Store",
    name: "set",
    factory: None,
    collective: None,
    coalesced: false,
    prepares: None,
    unbuilt: false,
    overloads: &[Overload {
        parameters: &[
            required("key", Type::Str, Role::None),
            required("value", Type::Bytes, Role::None),
        ],
    }],
};

fn tensor(shape: &[usize]) -> Value {
    let elements: usize = shape.iter().product();
    let region = Region::zeroed(elements * DType::F32.size_bytes());
    Value::Tensor(Tensor::contiguous(region, DType::F32, shape.to_vec()))
}

fn call(positional: Vec<Value>, keywords: Vec<(&str, Value)>) -> Arguments {
    let keywords = keywords.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Arguments { positional, keywords, ..Arguments::default() }
}

fn message(method: &'static Method, arguments: Arguments) -> String {
    match resolve(method, arguments).unwrap_err() {
        Error::InvalidType { message } => message,
        other => panic!("not a type error: {other:?}"),
    }
}

fn rows(blocks: &[Tensor]) -> Vec<usize> {
    blocks.iter().map(|block| block.shape()[0]).collect()
}

fn foreign(interfaces: &'static [&'static str]) -> Value {
    let type_name = "Thing".to_owned();
    Value::Foreign(Foreign { type_name, interfaces, callable: false, slot: 7 })
}

#[test]
fn declaration_order_decides() {
    let list = || Value::List(vec![tensor(&[2])]);
    let cases = [
        (call(vec![list()], vec![]), 0),
        (call(vec![Value::List(vec![])], vec![]), 0),
        (call(vec![list(), Value::ReduceOp(ReduceOp::Max)], vec![]), 1),
        (call(vec![], vec![("timeout", Value::Int(3)), ("tensors", list())]), 1),
        (call(vec![tensor(&[])], vec![]), 2),
        (call(vec![tensor(&[])], vec![("op", Value::ReduceOp(ReduceOp::Min))]), 2),
    ];
    for (arguments, overload) in cases {
        let text = format!("{arguments:?}");
        assert_eq!(resolve(&ALLREDUCE, arguments).unwrap().overload, overload, "{text}");
    }
}

#[test]
fn members_of_options_may_stand_among_the_keywords() {
    let list = || Value::List(vec![tensor(&[2])]);
    let spread = |positional, keywords| Arguments {
        language: Language::JavaScript,
        ..call(positional, keywords)
    };
    let max = || Value::ReduceOp(ReduceOp::Max);
    let options = vec![("reduceOp", max()), ("timeout", Value::Int(1500))];
    let resolved = resolve(&ALLREDUCE, spread(vec![list()], options.clone())).unwrap();
    assert_eq!(resolved.overload, 0);
    let request = resolved.request_in(2, Ok).unwrap();
    assert_eq!(
        (request.reduce_op, request.timeout),
        (ReduceOp::Max, Some(Duration::from_millis(1500)))
    );
    let members = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let untyped = Value::Members(members.collect());
    let resolved = resolve(&ALLREDUCE, spread(vec![list(), untyped], vec![])).unwrap();
    assert_eq!(resolved.request_in(2, Ok).unwrap().reduce_op, ReduceOp::Max);
    // A name that a parameter has is that parameter.
    let own = resolve(&ALLREDUCE, spread(vec![list()], vec![("op", max())])).unwrap();
    assert_eq!(own.overload, 1);
    // Without the wish nothing is spread, and a record that is given cannot be given again.
    assert!(message(&ALLREDUCE, call(vec![list()], options.clone())).contains("'reduceOp'"));
    let text = message(&ALLREDUCE, spread(vec![list()], vec![("rootRank", Value::Int(0))]));
    assert!(text.contains("there is no argument 'rootRank'"), "{text}");
    let text = message(&ALLREDUCE, spread(vec![list()], vec![("reduceOp", Value::Int(0))]));
    assert!(text.contains("option 'reduceOp' must be ReduceOp, not number"), "{text}");
}

#[test]
fn defaults_and_conversions_are_filled_in() {
    let arguments = call(vec![tensor(&[2])], vec![("timeout", Value::Float(1.5))]);
    let request = resolve(&ALLREDUCE, arguments).unwrap().request_in(2, Ok).unwrap();
    assert_eq!(request.reduce_op, ReduceOp::Sum);
    assert_eq!(request.timeout, Some(Duration::from_millis(1500)));
    assert_eq!((request.inputs.len(), request.outputs.len()), (0, 1));
    for (seconds, says) in
        [(1e300, "at most 1e19 seconds, not 1e300"), (f64::INFINITY, "not inf"), (-1.0, "not -1")]
    {
        let keywords = vec![("timeout", Value::Float(seconds))];
        let refused = resolve(&ALLREDUCE, call(vec![tensor(&[2])], keywords));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn a_record_may_be_one_that_extends_it() {
    let values =
        vec![Value::ReduceOp(ReduceOp::Product), Value::Duration(Duration::MAX), Value::None];
    let record = Value::Record(&COALESCED_OPTIONS, values);
    let list = Value::List(vec![tensor(&[1]), tensor(&[2])]);
    let request =
        resolve(&ALLREDUCE, call(vec![list, record], vec![])).unwrap().request_in(1, Ok).unwrap();
    assert_eq!(request.reduce_op, ReduceOp::Product);
    assert_eq!(request.timeout, Some(Duration::MAX));
    assert_eq!(request.outputs.len(), 2);
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    let values = vec![Value::ReduceOp(ReduceOp::Sum), Value::None, Value::Bool(true)];
    let list = Value::List(vec![tensor(&[1])]);
    let arguments = call(vec![list, Value::Record(&OPTIONS, values)], vec![]);
    let error = resolve(&ALLREDUCE, arguments).unwrap().request_in(1, Ok).unwrap_err();
    assert!(error.to_string().ends_with("does not support argument 'sparse' of allreduce"));
    static UNBUILT: Method = Method { unbuilt: true, ..SET };
    let error = resolve(&UNBUILT, Arguments::default()).unwrap_err();
    assert!(error.to_string().ends_with("does not support Store.set"), "{error}");
}

#[test]
fn a_message_lists_the_forms_and_the_closest() {
    let arguments = |keywords, language| {
        let list = Value::List(vec![tensor(&[1]), tensor(&[1])]);
        Arguments { language, ..call(vec![list, Value::Str("sum".to_owned())], keywords) }
    };
    let expected = "\
allreduce(): no overload takes (list of 2 Tensor, str). Accepted forms:
  allreduce(tensors: Sequence[Tensor], opts: AllreduceOptions = AllreduceOptions())
  allreduce(tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, \
timeout: timedelta | float | None = None)
  allreduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, timeout: timedelta | float | None = None)
Closest: argument 'opts' must be AllreduceOptions, not str; or argument 'op' must be ReduceOp, \
not str";
    assert_eq!(message(&ALLREDUCE, arguments(vec![], Language::Python)), expected);
    let keywords = vec![("timeout", Value::Int(5))];
    let expected = "\
allreduce(): no overload takes (array of 2 Tensor, string, { timeout: number }). Accepted forms:
  allreduce(tensors: Tensor[], options?: { reduceOp?: ReduceOp, timeout?: number, \
sparse?: unknown })
  allreduce(tensors: Tensor[], options?: { op?: ReduceOp, timeout?: number })
  allreduce(tensor: Tensor, options?: { op?: ReduceOp, timeout?: number })
Closest: argument 'opts' must be AllreduceOptions, not string; or argument 'op' must be \
ReduceOp, not string";
    assert_eq!(message(&ALLREDUCE, arguments(keywords, Language::JavaScript)), expected);
}

#[test]
fn a_message_says_what_a_tensor_is_and_what_is_made_how() {
    let numbers = || Value::List(vec![Value::Int(1), Value::Int(2)]);
    let text = message(&GATHER, call(vec![numbers()], vec![]));
    let end = "argument 'tensor' must be Tensor, not list of 2 int. A Tensor: a NumPy array, or \
               anything with the buffer protocol or DLPack";
    assert!(text.ends_with(end), "{text}");
    let script =
        |positional| Arguments { language: Language::JavaScript, ..call(positional, vec![]) };
    let text = message(&GATHER, script(vec![numbers()]));
    let end = "argument 'tensor' must be Tensor, not array of 2 number. A Tensor: a typed array, \
               a DataView, or what tensor() gives";
    assert!(text.ends_with(end), "{text}");
    let form = "gather(tensor: Tensor, options?: { gatherList?: Tensor[], dst?: number, \
                group?: ProcessGroup, asyncOp?: boolean, groupDst?: number })";
    assert!(text.contains(form), "{text}");
    let tables = &crate::generated::calls::METHODS;
    let made = |interface| {
        let mut methods = tables.iter().filter(|it| it.interface == interface && it.name == "new");
        let method = methods.next().unwrap();
        let start = |arguments| message(method, arguments).split_once("()").unwrap().0.to_owned();
        (start(call(vec![Value::None], vec![])), start(script(vec![Value::None])))
    };
    assert_eq!(made("TCPStore"), ("TCPStore".to_owned(), "TCPStore.connect".to_owned()));
    assert_eq!(made("PrefixStore"), ("PrefixStore".to_owned(), "new PrefixStore".to_owned()));
}

#[test]
fn a_tuple_is_called_a_tuple_and_is_taken_as_a_list() {
    let tuple = |items| Value::Tuple(items);
    let text = message(&GATHER, call(vec![tuple(vec![Value::Int(1), Value::Int(2)])], vec![]));
    assert!(text.contains("gather() does not take (tuple of 2 int)"), "{text}");
    assert!(text.contains("must be Tensor, not tuple of 2 int"), "{text}");
    let nested = tuple(vec![tensor(&[1]), tensor(&[2])]);
    let taken = resolve(&ALLREDUCE, call(vec![nested], vec![])).unwrap();
    assert!(matches!(&taken.values[0], Value::List(items) if items.len() == 2));
}

#[test]
fn errors_have_the_names_of_javascript_there() {
    let texts = [
        ("world_size must be at least 1, got 0", "worldSize must be at least 1, got 0"),
        ("one of 'dst' and 'group_dst'", "one of 'dst' and 'groupDst'"),
        ("all_gather_into_tensor: 2 and root_tensor", "allGatherIntoTensor: 2 and rootTensor"),
        ("ws://h/?rank=0&world_size=2 of my_own_key", "ws://h/?rank=0&world_size=2 of my_own_key"),
    ];
    for (python, script) in texts {
        let error = Error::InvalidArgument { message: python.to_owned() };
        assert_eq!(Language::Python.message(&error), python);
        assert_eq!(Language::JavaScript.message(&error), script);
    }
    let keys = "world_size".to_owned();
    let error = Error::StoreTimeout { operation: "wait".to_owned(), keys, waited_ms: 1 };
    assert!(Language::JavaScript.message(&error).ends_with("world_size"), "the key of a user");
    // A peer's apostrophe begins no name.
    let message = "a peer's new_group of group 'new_group' in room= or by group_name".to_owned();
    let error = Error::Rendezvous { message };
    let said = "a peer's newGroup of group 'new_group' in room= or by groupName";
    assert!(Language::JavaScript.message(&error).ends_with(said), "the name of a user");
}

#[test]
fn mistakes_are_named() {
    let key = || Value::Str("key".to_owned());
    let bytes = || Value::Bytes(vec![1]);
    let cases = [
        (call(vec![], vec![]), "argument 'key' is missing"),
        (call(vec![key()], vec![]), "argument 'value' is missing"),
        (
            call(vec![key(), Value::Bool(true)], vec![]),
            "argument 'value' must be bytes | str, not bool",
        ),
        (call(vec![key(), bytes()], vec![("key", key())]), "argument 'key' is given twice"),
        (call(vec![key(), bytes()], vec![("ttl", key())]), "there is no argument 'ttl'"),
        (
            call(vec![key(), bytes(), key()], vec![]),
            "it takes at most 2 positional arguments, not 3",
        ),
        (call(vec![Value::List(vec![key(), Value::None])], vec![]), "not list of str and None"),
    ];
    for (arguments, closest) in cases {
        let text = message(&SET, arguments);
        assert!(text.starts_with("set() does not take ("), "{text}");
        assert!(text.ends_with(closest), "{text}");
    }
}

#[test]
fn a_boolean_is_no_integer_and_a_string_is_bytes() {
    let text = message(&GATHER, call(vec![tensor(&[1])], vec![("dst", Value::Bool(true))]));
    assert!(text.ends_with("argument 'dst' must be int | None, not bool"), "{text}");
    let arguments = call(vec![Value::Str("k".into()), Value::Str("é".into())], vec![]);
    let mut resolved = resolve(&SET, arguments).unwrap();
    assert_eq!(resolved.take::<String>(0).unwrap(), "k");
    assert_eq!(resolved.take::<Vec<u8>>(1).unwrap(), "é".as_bytes());
}

#[test]
fn keywords_may_be_camel_case() {
    let arguments = call(
        vec![],
        vec![
            ("output", tensor(&[3])),
            ("input", tensor(&[3])),
            ("outputSplitSizes", Value::List(vec![Value::Int(1), Value::Int(2)])),
        ],
    );
    let error = resolve(&EXCHANGE, arguments).unwrap().request_in(2, Ok).unwrap_err();
    // The output is cut as said; only the input does not come out even.
    assert!(error.to_string().contains("does not divide equally"), "{error}");
    let wrong = call(vec![], vec![("outputsplitsizes", Value::None)]);
    assert!(message(&EXCHANGE, wrong).ends_with("there is no argument 'outputsplitsizes'"));
}

#[test]
fn flat_tensors_are_cut_along_dimension_0() {
    let splits = |rows: &[i64]| Value::List(rows.iter().map(|&row| Value::Int(row)).collect());
    let request = |out: &[i64], into: &[i64]| {
        let arguments =
            call(vec![tensor(&[4, 2]), tensor(&[6, 2]), splits(out), splits(into)], vec![]);
        resolve(&EXCHANGE, arguments).unwrap().request_in(2, Ok)
    };
    let cut = request(&[4, 0], &[]).unwrap();
    assert_eq!(rows(&cut.outputs[0]), [4, 0]);
    assert_eq!(rows(&cut.inputs[0]), [3, 3]);
    let failures = [
        (request(&[], &[1, 2, 3]), "Number of tensor splits not equal to group size"),
        (request(&[1, 1], &[]), "Split sizes doesn't match total dim 0 size"),
        (request(&[5, -1], &[]), "rows cannot be negative"),
    ];
    for (result, text) in failures {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }));
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_free_function_translates_global_ranks() {
    let to_group = |rank: u32| Ok(rank + 10);
    let gather = |keywords| {
        let arguments = call(vec![tensor(&[1])], keywords);
        resolve(&GATHER, arguments).unwrap().request_in(3, to_group)
    };
    assert_eq!(gather(vec![]).unwrap().root, 10);
    assert_eq!(gather(vec![("dst", Value::Int(2))]).unwrap().root, 12);
    assert_eq!(gather(vec![("group_dst", Value::Int(2))]).unwrap().root, 2);
    // Without a list, an empty one: only the root has one.
    let outputs = gather(vec![]).unwrap().outputs;
    assert_eq!((outputs.len(), outputs[0].len()), (1, 0));
    let both = vec![("dst", Value::Int(2)), ("group_dst", Value::Int(2))];
    let error = gather(both).unwrap_err();
    assert_eq!(error.to_string(), "Can't specify both dst and group_dst");
    let negative = gather(vec![("dst", Value::Int(-1))]).unwrap_err();
    assert_eq!(negative.to_string(), "gather(): argument 'dst' must not be negative, not -1");
    let far = gather(vec![("dst", Value::Int(1 << 32))]).unwrap_err().to_string();
    assert!(far.contains("'dst' must be a rank, not 4294967296"), "{far}");
}

#[test]
fn lists_of_lists_are_entries_of_blocks() {
    let gather = |outputs: Vec<Value>, inputs: usize| {
        let inputs = (0..inputs).map(|_| tensor(&[1])).collect();
        let positional = vec![Value::List(outputs), Value::List(inputs), Value::Int(1)];
        resolve(&GATHER_LISTS, call(positional, vec![])).unwrap().request_in(2, Ok)
    };
    let two = || Value::List(vec![tensor(&[1]), tensor(&[1])]);
    let request = gather(vec![two(), two()], 2).unwrap();
    assert_eq!(request.inputs.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(request.outputs.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    let elsewhere = gather(vec![], 2).unwrap();
    assert_eq!(elsewhere.outputs.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0]);
    let error = gather(vec![two()], 2).unwrap_err();
    assert!(error.to_string().contains("2 inputs for 1 outputs"), "{error}");
}

#[test]
fn groups_and_handles_are_found_by_role() {
    let keywords = vec![("group", foreign(&["ProcessGroup"])), ("async_op", Value::Bool(true))];
    let resolved = resolve(&GATHER, call(vec![tensor(&[1])], keywords)).unwrap();
    assert_eq!(resolved.group().map(|foreign| foreign.slot), Some(7));
    assert!(resolved.async_op());
    let text = message(&GATHER, call(vec![tensor(&[1])], vec![("group", foreign(&["Store"]))]));
    assert!(text.ends_with("argument 'group' must be ProcessGroup | None, not Thing"), "{text}");
}

#[test]
fn numbers_out_of_range_are_refused() {
    static ADD: Method = Method {
        overloads: &[Overload {
            parameters: &[
                required("amount", Type::Int, Role::None),
                required("timeout", Type::Duration, Role::None),
            ],
        }],
        name: "add",
        ..SET
    };
    let add = |amount, timeout| resolve(&ADD, call(vec![Value::Int(amount), timeout], vec![]));
    let error = add(-1, Value::Int(1)).unwrap().take::<u32>(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "add(): argument 'amount' must be an integer from 0 to 4294967295, not -1"
    );
    for seconds in [-1.0, f64::NAN, f64::INFINITY] {
        let error = add(0, Value::Float(seconds)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    }
}

#[test]
fn options_of_one_backend_stand_where_those_of_all_do() {
    let new_group = &crate::generated::calls::DISTRIBUTED_NEW_GROUP;
    let members = |members: Vec<(&str, Value)>| {
        let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
        Value::Members(members.collect())
    };
    let settings = |options: Value| {
        let resolved = resolve(new_group, call(vec![], vec![("pgOptions", options)])).unwrap();
        let position = resolved.parameters().iter().position(|it| it.name == "pg_options");
        Settings::of("new_group", "pg_options", &resolved.values[position.unwrap()])
    };
    let name = ("groupName", Value::Str("x".into()));
    let plain = settings(members(vec![name.clone()])).unwrap();
    assert_eq!((plain.group_name.as_deref(), plain.backend_options), (Some("x"), None));
    let config = |blocks| ("config", members(vec![("minCtas", Value::Int(blocks))]));
    let chosen = settings(members(vec![name, config(3)])).unwrap();
    let expected = NcclOptions::default().config(NcclConfig::default().min_ctas(3));
    assert_eq!(
        (chosen.group_name.as_deref(), chosen.backend_options),
        (Some("x"), Some(expected.into()))
    );
    let error = settings(members(vec![config(-1)])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "new_group(): argument 'pg_options' must be NcclOptions whose config is NcclConfig whose \
         min_ctas is an integer from 0 to 4294967295, not -1"
    );
    let unknown = members(vec![("channels", Value::Int(1))]);
    let text = message(new_group, call(vec![], vec![("pgOptions", unknown)]));
    assert!(
        text.contains("'pg_options' must be BackendOptions, which has no 'channels'"),
        "{text}"
    );
}
