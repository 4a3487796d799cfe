//! The syntax tree: what was written, with its place. Knows nothing of what it means.

use super::span::Span;

/// An identifier and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    /// The identifier, without WebIDL's escaping underscore.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// One definition of a file.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The `///` lines before it, joined by newlines.
    pub doc: String,
    /// `[…]` before it.
    pub attributes: Vec<ExtendedAttribute>,
    /// Its name.
    pub name: Name,
    /// `partial`.
    pub partial: bool,
    /// What it is.
    pub kind: DefinitionKind,
}

/// The kinds of definition.
#[derive(Clone, Debug)]
pub enum DefinitionKind {
    /// `interface Name : Base { … };`
    Interface {
        /// The base.
        inherits: Option<Name>,
        /// The members.
        members: Vec<Member>,
    },
    /// `namespace Name { … };`
    Namespace {
        /// The members.
        members: Vec<Member>,
    },
    /// `dictionary Name : Base { … };`
    Dictionary {
        /// The base.
        inherits: Option<Name>,
        /// The members.
        members: Vec<DictionaryMember>,
    },
    /// `enum Name { "value", … };`
    Enum {
        /// The values.
        values: Vec<EnumValue>,
    },
    /// `callback Name = Type (parameters);`
    Callback {
        /// What it returns.
        returns: TypeSyntax,
        /// What it is called with.
        parameters: Vec<Parameter>,
    },
    /// `typedef Type Name;`
    Typedef {
        /// What the name stands for.
        ty: TypeSyntax,
    },
}

impl DefinitionKind {
    /// The word that starts such a definition.
    pub fn keyword(&self) -> &'static str {
        match self {
            DefinitionKind::Interface { .. } => "interface",
            DefinitionKind::Namespace { .. } => "namespace",
            DefinitionKind::Dictionary { .. } => "dictionary",
            DefinitionKind::Enum { .. } => "enum",
            DefinitionKind::Callback { .. } => "callback",
            DefinitionKind::Typedef { .. } => "typedef",
        }
    }
}

/// `Name`, `Name=value` or `Name=(value, …)` between square brackets.
#[derive(Clone, Debug)]
pub struct ExtendedAttribute {
    /// Before the `=`.
    pub name: Name,
    /// After the `=`.
    pub value: AttributeValue,
    /// All of it.
    pub span: Span,
}

/// What stands after the `=` of an extended attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// There is no `=`.
    None,
    /// One identifier, or a list of them, or of strings, in parentheses.
    Words(Vec<Name>),
    /// A string.
    Text(Name),
    /// A number, as it was written.
    Number(Name),
}

impl AttributeValue {
    /// Every identifier, string or number of the value.
    pub fn words(&self) -> &[Name] {
        match self {
            AttributeValue::None => &[],
            AttributeValue::Words(words) => words,
            AttributeValue::Text(word) | AttributeValue::Number(word) => std::slice::from_ref(word),
        }
    }
}

/// A member of an interface or a namespace.
#[derive(Clone, Debug)]
pub struct Member {
    /// The `///` lines before it.
    pub doc: String,
    /// `[…]` before it.
    pub attributes: Vec<ExtendedAttribute>,
    /// Its name; `constructor` for a constructor.
    pub name: Name,
    /// What it is.
    pub kind: MemberKind,
}

/// The kinds of member.
#[derive(Clone, Debug)]
pub enum MemberKind {
    /// `constructor(parameters);`
    Constructor {
        /// The parameters.
        parameters: Vec<Parameter>,
    },
    /// `static Type name(parameters);`
    Operation {
        /// `static`.
        is_static: bool,
        /// What it returns.
        returns: TypeSyntax,
        /// The parameters.
        parameters: Vec<Parameter>,
    },
    /// `static readonly attribute Type name;`
    Attribute {
        /// `static`.
        is_static: bool,
        /// `readonly`.
        readonly: bool,
        /// Its type.
        ty: TypeSyntax,
    },
    /// `const Type name = value;`
    Constant {
        /// Its type.
        ty: TypeSyntax,
        /// Its value.
        value: Literal,
    },
}

/// A member of a dictionary.
#[derive(Clone, Debug)]
pub struct DictionaryMember {
    /// The `///` lines before it.
    pub doc: String,
    /// `[…]` before it.
    pub attributes: Vec<ExtendedAttribute>,
    /// `required`.
    pub required: bool,
    /// Its type.
    pub ty: TypeSyntax,
    /// Its name.
    pub name: Name,
    /// After `=`.
    pub default: Option<Literal>,
}

/// A value of an enum.
#[derive(Clone, Debug)]
pub struct EnumValue {
    /// The `///` lines before it.
    pub doc: String,
    /// The string.
    pub value: Name,
}

/// A parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// `[…]` before it.
    pub attributes: Vec<ExtendedAttribute>,
    /// `optional`.
    pub optional: bool,
    /// Its type.
    pub ty: TypeSyntax,
    /// Its name.
    pub name: Name,
    /// After `=`.
    pub default: Option<Literal>,
}

/// A type, as it was written.
#[derive(Clone, Debug)]
pub struct TypeSyntax {
    /// Without the `?`.
    pub kind: TypeKind,
    /// Whether a `?` follows.
    pub nullable: bool,
    /// All of it.
    pub span: Span,
}

/// A type without `?`.
#[derive(Clone, Debug)]
pub enum TypeKind {
    /// A name, or the words of a built-in type: `unsigned long long`.
    Named(String),
    /// `sequence<T>`.
    Sequence(Box<TypeSyntax>),
}

/// A default or the value of a constant.
#[derive(Clone, Debug)]
pub struct Literal {
    /// What it is.
    pub kind: LiteralKind,
    /// Where it stands.
    pub span: Span,
}

/// The kinds of literal.
#[derive(Clone, Debug, PartialEq)]
pub enum LiteralKind {
    /// `null`.
    Null,
    /// `true`, `false`.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A number with a point or an exponent.
    Decimal(f64),
    /// A string.
    String(String),
    /// `[]`.
    EmptySequence,
    /// `{}`.
    EmptyDictionary,
}
