//! The API as every language sees it: what the IDL says, merged, resolved and checked.
//!
//! Templates print these structs. Knows nothing of syntax, of files, or of any one language.

use serde::Serialize;

use super::listed::listed;
use super::types::{Constant, Type};

/// Everything that the files under `idl/` say. Each list is in the order of declaration, files in
/// alphabetical order, except the ones that are ordered by number.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Api {
    /// The doc comment of `DType`.
    pub dtype_doc: String,
    /// Where `DType` was declared.
    pub dtype_source: Source,
    /// Element types, by number.
    pub dtypes: Vec<DType>,
    /// The doc comment of `ReduceOp`.
    pub reduce_op_doc: String,
    /// Where `ReduceOp` was declared.
    pub reduce_op_source: Source,
    /// Reduction operators, by number.
    pub reduce_ops: Vec<ReduceOp>,
    /// Collectives, by number.
    pub collectives: Vec<Collective>,
    /// Kinds of error.
    pub errors: Vec<ErrorKind>,
    /// Enums: sets of strings.
    pub enums: Vec<Enum>,
    /// Callbacks: functions that the user passes.
    pub callbacks: Vec<Callback>,
    /// Dictionaries that are not errors: options, records.
    pub dictionaries: Vec<Dictionary>,
    /// Interfaces: classes, with their partial interfaces joined.
    pub interfaces: Vec<Interface>,
    /// Namespaces: modules of free functions. `ReduceOp` and `DType` are not among them.
    pub namespaces: Vec<Namespace>,
}

/// Where something was declared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The file, as it was given: `idl/process_group.webidl`.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
}

/// The extended attributes that any sort of item can have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommonAttributes {
    /// `[Alias=…]`: further names.
    pub aliases: Vec<String>,
    /// `[Python=…]`: the Python name, if it is not the IDL's.
    pub python: Option<String>,
    /// `[Rust=…]`: the Rust name, if it is not the IDL's.
    pub rust: Option<String>,
    /// `[Since=…]`: the first version that has it.
    pub since: Option<String>,
    /// `[Throws=…]`: names of error kinds.
    pub throws: Vec<String>,
    /// `[Backends="…"]`: names of the backends that have it; empty: all of them.
    pub backends: Vec<String>,
    /// `[Unbuilt]`: part of the API, but raises `Unsupported`.
    pub unbuilt: bool,
    /// `[Handwritten]`: the binding provides the body.
    pub handwritten: bool,
    /// `[JavaScript=…]`: the JavaScript name, if it is not the IDL's in camelCase.
    pub javascript: Option<String>,
    /// `[NotIn=…]`: languages in which it has no meaning, and which leave it out.
    pub not_in: Vec<String>,
    /// `[NotInPages]`: pages of browsers cannot make objects of it.
    pub not_in_pages: bool,
    /// `[Own=…]`: languages in which it has a form of its own, declared by hand.
    pub own: Vec<String>,
    /// `[Waits]`: the call may wait for others; a promise where calls cannot block.
    pub waits: bool,
    /// `[Blocks]`: a request of a store that waits for what another one does.
    pub blocks: bool,
    /// `[Unordered]`: the call has no place in the order of its group.
    pub unordered: bool,
    /// `[Leaves=…]`: the call leaves groups, `in_order` or `immediately`.
    pub leaves: Option<String>,
    /// `[Factory=…]` on a constructor that waits: the static method that stands for it where
    /// constructors cannot wait.
    pub factory: Option<String>,
    /// `[NonMember]`: a process that is not in the given group gets -1, or nothing.
    pub non_member: bool,
    /// `[Positional]` on an optional parameter: where options are one object, it may stand before.
    pub positional: bool,
    /// `[Constants]` on an enum: its values are constants, named by them in capitals.
    pub constants: bool,
}

impl CommonAttributes {
    /// Whether `language` generates nothing for it: it has no meaning there, or a form of its own.
    pub fn is_out_of(&self, language: &str) -> bool {
        self.not_in.iter().chain(&self.own).any(|name| name == language)
    }
}

/// One element type.
#[derive(Clone, Debug, Serialize)]
pub struct DType {
    /// The name that every language uses: `f32`.
    pub name: String,
    /// The name in CamelCase: `F32`.
    pub variant: String,
    /// Its doc comment, lines joined by newlines.
    pub doc: String,
    /// The number that travels.
    pub number: u32,
    /// Bytes of one element.
    pub size_bytes: u32,
    /// `bool`, `integer`, `float` or `complex`.
    pub class: String,
}

/// One reduction operator.
#[derive(Clone, Debug, Serialize)]
pub struct ReduceOp {
    /// The name that every language uses: `PREMUL_SUM`.
    pub name: String,
    /// The name in CamelCase: `PremulSum`.
    pub variant: String,
    /// Its doc comment.
    pub doc: String,
    /// The number that travels.
    pub number: u32,
    /// Names of the dtypes that it reduces, by number.
    pub dtypes: Vec<String>,
    /// `[Factor]`: whether it carries a factor.
    pub factor: bool,
    /// `[Custom]`: whether it carries a function of the program.
    pub custom: bool,
    /// `[Pairs]`: whether its operands are pairs of elements.
    pub pairs: bool,
}

/// One collective: the facts that stand on one of its overloads.
#[derive(Clone, Debug, Serialize)]
pub struct Collective {
    /// The name that every language uses, and the name of its schedule module: `reduce_scatter`.
    pub name: String,
    /// The name in CamelCase: `ReduceScatter`.
    pub variant: String,
    /// The doc comment of that overload.
    pub doc: String,
    /// The number that travels.
    pub number: u32,
    /// `None`, `One`, `All`, `OneAtRoot` or `AllAtRoot`.
    pub input: String,
    /// As `input`.
    pub output: String,
    /// `Equal`, `PerRank`, `PerRankAtRoot` or `Pairwise`.
    pub sizes: String,
    /// Whether one rank is the root.
    pub rooted: bool,
    /// Whether elements are reduced.
    pub reduces: bool,
    /// Where the facts stand.
    pub source: Source,
}

/// One kind of error.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorKind {
    /// The name: `CollectiveTimeout`. Its Python class is `common.python`, or the language's rule.
    pub name: String,
    /// Its doc comment.
    pub doc: String,
    /// Where it was declared.
    pub source: Source,
    /// `[Bases=(…)]`: the built-in exceptions that it is as well.
    pub bases: Vec<String>,
    /// `[Parent=…]`: the error kind that it is a case of.
    pub parent: Option<String>,
    /// `[Carries]`: in Rust it carries what code of a language threw.
    pub carries: bool,
    /// `[Message="…"]`, with `{field}` for the fields.
    pub message: String,
    /// The fields, in order.
    pub fields: Vec<Member>,
    /// The other attributes.
    pub common: CommonAttributes,
}

/// A set of strings.
#[derive(Clone, Debug, Serialize)]
pub struct Enum {
    /// The name.
    pub name: String,
    /// Its doc comment.
    pub doc: String,
    /// Where it was declared.
    pub source: Source,
    /// The values, in order.
    pub values: Vec<EnumValue>,
    /// The attributes.
    pub common: CommonAttributes,
}

impl Enum {
    /// Its values as constants: name, string, doc comment.
    pub fn constants(&self) -> impl Iterator<Item = (String, &str, &str)> {
        self.values.iter().map(|it| (it.value.to_uppercase(), &*it.value, &*it.doc))
    }

    /// Whether its values have numbers.
    pub fn is_numbered(&self) -> bool {
        self.values.iter().all(|value| value.number.is_some())
    }
}

/// One string of an enum.
#[derive(Clone, Debug, Serialize)]
pub struct EnumValue {
    /// The string.
    pub value: String,
    /// Its number, from `[Numbers="…"]` on the enum.
    pub number: Option<u32>,
    /// Its doc comment.
    pub doc: String,
}

/// The type of a function that the user passes.
#[derive(Clone, Debug, Serialize)]
pub struct Callback {
    /// The name.
    pub name: String,
    /// Its doc comment.
    pub doc: String,
    /// Where it was declared.
    pub source: Source,
    /// What it is called with.
    pub parameters: Vec<Parameter>,
    /// What it returns.
    pub returns: Type,
    /// The attributes.
    pub common: CommonAttributes,
}

/// A record of named values: options, or a result with several parts.
#[derive(Clone, Debug, Serialize)]
pub struct Dictionary {
    /// The name: `AllreduceOptions`.
    pub name: String,
    /// Its doc comment.
    pub doc: String,
    /// Where it was declared.
    pub source: Source,
    /// The dictionary whose members it has too; they are in `members`, first.
    pub inherits: Option<String>,
    /// All members, in order, the inherited ones first.
    pub members: Vec<Member>,
    /// Whether a parameter of some method has this type: a language then lets the user build it.
    pub is_argument: bool,
    /// The attributes.
    pub common: CommonAttributes,
}

impl Api {
    /// What an error is a case of: its parent, that one's parent, and so on.
    pub fn parents<'a>(&'a self, error: &'a ErrorKind) -> impl Iterator<Item = &'a ErrorKind> {
        let parent = |error: &ErrorKind| {
            self.errors.iter().find(|known| Some(&known.name) == error.parent.as_ref())
        };
        std::iter::successors(parent(error), move |above| parent(above))
    }

    /// Whether an error that is a case of this one does not have a field of it.
    pub fn is_lacked_by_case(&self, error: &ErrorKind, field: &str) -> bool {
        let is_case =
            |other: &&ErrorKind| self.parents(other).any(|above| above.name == error.name);
        let mut cases = self.errors.iter().filter(is_case);
        cases.any(|case| case.fields.iter().all(|known| known.name != field))
    }

    /// The dictionaries that callbacks are given.
    pub fn callback_arguments(&self) -> impl Iterator<Item = &Dictionary> {
        let parameters = self.callbacks.iter().flat_map(|callback| &callback.parameters);
        let named: Vec<&str> = parameters.filter_map(|parameter| parameter.ty.named()).collect();
        self.dictionaries.iter().filter(move |known| named.contains(&known.name.as_str()))
    }

    /// The dictionaries that methods and functions return, and those in them.
    pub fn results(&self) -> impl Iterator<Item = &Dictionary> {
        let methods = self.interfaces.iter().flat_map(|interface| &interface.methods);
        let functions = self.namespaces.iter().flat_map(|namespace| &namespace.functions);
        let overloads = methods.chain(functions).flat_map(|method| &method.overloads);
        let mut named: Vec<&str> = overloads.filter_map(|it| it.returns.named()).collect();
        loop {
            let known = self.dictionaries.iter().filter(|it| named.contains(&&*it.name));
            let inside = known.flat_map(|it| &it.members).filter_map(|it| it.ty.named());
            let more: Vec<&str> = inside.filter(|name| !named.contains(name)).collect();
            if more.is_empty() {
                break;
            }
            named.extend(more);
        }
        self.dictionaries.iter().filter(move |known| named.contains(&known.name.as_str()))
    }

    /// The dictionaries that stand where `base` does, and say more.
    pub fn extensions<'a>(&'a self, base: &'a str) -> impl Iterator<Item = &'a Dictionary> {
        let of_base = self.dictionaries.iter().find(|known| known.name == base);
        let members = of_base.map_or(0, |base| base.members.len());
        let extends = move |known: &&Dictionary| known.inherits.as_deref() == Some(base);
        let all = self.dictionaries.iter().filter(extends);
        all.filter(move |known| known.members.len() > members)
    }
}

/// One member of a dictionary, or one field of an error.
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    /// The name.
    pub name: String,
    /// Its doc comment.
    pub doc: String,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: Type,
    /// `required`: whether it must be given.
    pub required: bool,
    /// What it is if it is not given.
    pub default: Option<Constant>,
    /// What it means for a collective.
    pub role: Role,
    /// The attributes.
    pub common: CommonAttributes,
}

/// A class.
#[derive(Clone, Debug, Serialize)]
pub struct Interface {
    /// The name.
    pub name: String,
    /// Its doc comment.
    pub doc: String,
    /// Where it was declared.
    pub source: Source,
    /// Its base class.
    pub inherits: Option<String>,
    /// How it is made, if the user can make one. Its name is `new`.
    pub constructor: Option<Method>,
    /// Its attributes (properties).
    pub attributes: Vec<Attribute>,
    /// Its constants.
    pub constants: Vec<NamedConstant>,
    /// Its methods, without the inherited ones.
    pub methods: Vec<Method>,
    /// The extended attributes.
    pub common: CommonAttributes,
}

/// A module of free functions.
#[derive(Clone, Debug, Serialize)]
pub struct Namespace {
    /// The name.
    pub name: String,
    /// Its doc comment.
    pub doc: String,
    /// Where it was declared.
    pub source: Source,
    /// Its values.
    pub attributes: Vec<Attribute>,
    /// Its constants.
    pub constants: Vec<NamedConstant>,
    /// Its functions.
    pub functions: Vec<Method>,
    /// The extended attributes.
    pub common: CommonAttributes,
}

/// A property.
#[derive(Clone, Debug, Serialize)]
pub struct Attribute {
    /// The name.
    pub name: String,
    /// Its doc comment.
    pub doc: String,
    /// Where it was declared.
    pub source: Source,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: Type,
    /// Whether it cannot be set.
    pub readonly: bool,
    /// Whether it belongs to the class, not to its instances.
    pub is_static: bool,
    /// The extended attributes.
    pub common: CommonAttributes,
}

/// A constant of an interface or a namespace.
#[derive(Clone, Debug, Serialize)]
pub struct NamedConstant {
    /// The name.
    pub name: String,
    /// Its doc comment.
    pub doc: String,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: Type,
    /// Its value.
    pub value: Constant,
    /// The extended attributes.
    pub common: CommonAttributes,
}

/// A method, a free function or a constructor, with all its overloads.
#[derive(Clone, Debug, Serialize)]
pub struct Method {
    /// The interface or namespace that it belongs to.
    pub owner: String,
    /// The name; `new` for a constructor.
    pub name: String,
    /// The doc comment of its first overload that has one.
    pub doc: String,
    /// Where its first overload was declared.
    pub source: Source,
    /// Whether it belongs to the class, not to its instances.
    pub is_static: bool,
    /// `[Collective=…]`: the collective that a call becomes.
    pub collective: Option<String>,
    /// `[Coalesced]`: each tensor of a list is an operation of its own.
    pub coalesced: bool,
    /// `[Prepares=…]`: the method of the same interface whose calls are prepared.
    pub prepares: Option<String>,
    /// In the order in which a call is tried against them.
    pub overloads: Vec<Overload>,
    /// The attributes of all its overloads together.
    pub common: CommonAttributes,
}

/// One way to call a method.
#[derive(Clone, Debug, Serialize)]
pub struct Overload {
    /// How a person reads it: `allreduce(tensor: Tensor, op: ReduceOp = SUM)`.
    pub form: String,
    /// Its doc comment, perhaps empty.
    pub doc: String,
    /// Where it was declared.
    pub source: Source,
    /// What it is called with.
    pub parameters: Vec<Parameter>,
    /// What it returns.
    pub returns: Type,
}

/// One parameter.
#[derive(Clone, Debug, Serialize)]
pub struct Parameter {
    /// The name, also as a keyword.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: Type,
    /// Whether a call may leave it out.
    pub optional: bool,
    /// What it is if it is left out; `None` if it is required, or simply absent then.
    pub default: Option<Constant>,
    /// What it means for a collective.
    pub role: Role,
    /// For a flat buffer: the parameter that says how it is cut.
    pub splits: Option<String>,
    /// The extended attributes.
    pub common: CommonAttributes,
}

listed! {
    /// What a parameter, or a member of an options dictionary, means for a collective.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    pub enum Role {
        /// Nothing.
        None,
        /// Tensors that are read: `In`.
        In,
        /// Tensors that are written: `Out`.
        Out,
        /// Tensors that are read and written: `InOut`.
        InOut,
        /// Tensors that each hold all blocks, which are read: `In, Flat`.
        FlatIn,
        /// Tensors that each hold all blocks, which are written: `Out, Flat`.
        FlatOut,
        /// How a flat input is cut, in rows of dimension 0: `Splits`, which the input names.
        InSplits,
        /// How a flat output is cut, in rows of dimension 0: `Splits`, which the output names.
        OutSplits,
        /// The reduction operator.
        Op,
        /// The root, a rank in the group: `Root`.
        Root,
        /// Which tensor of the root's list is meant: `RootTensor`.
        RootTensor,
        /// The root, a global rank: `GlobalRoot`.
        GlobalRoot,
        /// The other rank of a message, in the group: `Peer`.
        Peer,
        /// The other rank of a message, a global rank: `GlobalPeer`.
        GlobalPeer,
        /// The tag of a message: `Tag`.
        Tag,
        /// The group that the operation runs in; none is the default group: `Group`.
        Group,
        /// Whether the caller wants a handle: `AsyncOp`.
        AsyncOp,
        /// The limit of the operation: a `Duration`.
        Timeout,
        /// The name of the form in which elements travel: `Compression`.
        Compression,
        /// A record whose members have roles.
        Options,
        /// Something that is not built: any value but none is refused: `Unbuilt`.
        Unbuilt,
    }
}
