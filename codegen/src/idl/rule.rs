//! The rules of the IDL, by name. Each has a file with one mistake under `tests/mistakes/`.

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $rule:ident = $name:literal,)*) => {
        /// A rule of the IDL that a file can break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $($(#[doc = $doc])+ $rule,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Rule] = &[$(Rule::$rule),*];

            /// The name that is in messages and names the rule's file.
            pub fn name(self) -> &'static str {
                match self {
                    $(Rule::$rule => $name,)*
                }
            }
        }
    };
}

rules! {
    // What the lexer sees.
    /// Only characters of WebIDL.
    StrayCharacter = "stray-character",
    /// Strings end on their line.
    UnterminatedString = "unterminated-string",
    /// Comments end.
    UnterminatedComment = "unterminated-comment",
    /// Numbers fit 64 bits.
    BadNumber = "bad-number",

    // What the parser sees.
    /// The grammar.
    Syntax = "syntax",
    /// Definitions are of the kinds that this IDL has.
    UnknownDefinition = "unknown-definition",
    /// Unions, promises, records, variadic parameters are not part of this IDL.
    UnsupportedSyntax = "unsupported-syntax",
    /// Sequences of sequences end somewhere.
    TypeTooDeep = "type-too-deep",
    /// A `///` comment stands right before what it documents.
    LostDoc = "lost-doc",
    /// Only optional parameters have defaults.
    DefaultOfRequired = "default-of-required",

    // Names.
    /// A name is defined once.
    DuplicateName = "duplicate-name",
    /// A member, parameter or value is named once.
    DuplicateMember = "duplicate-member",
    /// An alias is not the name or alias of another member.
    DuplicateAlias = "duplicate-alias",
    /// A partial interface has an interface.
    PartialOfNothing = "partial-of-nothing",
    /// Types are built-in or defined.
    UnknownType = "unknown-type",
    /// A base is a definition of the same kind.
    UnknownBase = "unknown-base",
    /// Typedefs and bases do not lead back to themselves.
    Cycle = "cycle",
    /// Public things are documented.
    MissingDoc = "missing-doc",

    // Types and defaults.
    /// Each type stands where it can.
    MisplacedType = "misplaced-type",
    /// A default has its parameter's type.
    DefaultType = "default-type",
    /// Required parameters come before optional ones.
    OptionalBeforeRequired = "optional-before-required",

    // Extended attributes.
    /// Extended attributes are those of `idl/README.md`.
    UnknownAttribute = "unknown-attribute",
    /// They stand where they mean something.
    MisplacedAttribute = "misplaced-attribute",
    /// Each stands once.
    RepeatedAttribute = "repeated-attribute",
    /// Their values are of the right form.
    AttributeValue = "attribute-value",
    /// What they need beside them is there.
    MissingAttribute = "missing-attribute",
    /// `Prepares` names a method of the same interface.
    UnknownMethod = "unknown-method",
    /// `Positional` stands on optional parameters: required ones come by position anyway.
    PositionalRequired = "positional-required",
    /// `Factory` stands on constructors that wait: others are called with `new`.
    FactoryWithoutWaits = "factory-without-waits",
    /// `Throws` names kinds of error.
    UnknownError = "unknown-error",

    // Numbers, errors, reductions.
    /// Numbers that travel are 0, 1, 2, … without gap or repetition.
    Number = "number",
    /// A message's `{field}`s are members.
    MessageField = "message-field",
    /// A field of an error is not called as what every error has in some language.
    ReservedField = "reserved-field",
    /// `DTypes` names dtypes or their classes.
    UnknownDType = "unknown-dtype",

    // Methods and collectives.
    /// A collective's facts stand on exactly one overload.
    CollectiveFacts = "collective-facts",
    /// A collective's parameters have roles that fit their types.
    ParameterRole = "parameter-role",
    /// `Splits=name` names a parameter of role `Splits`.
    UnknownSplits = "unknown-splits",
    /// Overloads of one method agree on what they are.
    OverloadConflict = "overload-conflict",
    /// No call is read by two overloads in different ways.
    AmbiguousOverloads = "ambiguous-overloads",
    /// Every overload takes some call that no earlier one takes.
    UnreachableOverload = "unreachable-overload",
}
