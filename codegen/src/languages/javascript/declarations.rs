//! `index.d.ts`: what TypeScript and editors see, the same for both packages.

use askama::Template;

use super::LANGUAGE;
use super::docs::{comment, plain, text};
use super::forms::{Form, NamedOptions, Place, forms};
use super::spelling::{aliases, error_class, functions, interfaces, methods, name};
use super::types::{accepted, default, returned};
use super::values::{errors_in_order, is_object, kind, literals, objects};
use crate::languages::stamp;
use crate::model::{Api, Dictionary, ErrorKind, Interface, Method, Role, Type};

/// `index.d.ts`.
#[derive(Template)]
#[template(path = "javascript/index.d.ts.jinja", escape = "none")]
pub(super) struct Declarations {
    stamp: String,
    dtype_doc: String,
    dtypes: Vec<Value>,
    reduce_op_doc: String,
    ops: Vec<Value>,
    constants: Vec<Constants>,
    texts: Vec<Texts>,
    /// The kinds of all errors, each in quotes.
    kinds: Vec<String>,
    errors: Vec<Error>,
    records: Vec<Record>,
    classes: Vec<Class>,
    functions: Vec<Callable>,
}

struct Value {
    name: String,
    doc: String,
}

/// An object with the values of an enum.
struct Constants {
    name: String,
    doc: String,
    values: Vec<Constant>,
}

struct Constant {
    name: String,
    literal: String,
    doc: String,
}

struct Texts {
    name: String,
    doc: String,
    values: String,
}

struct Error {
    class: String,
    /// `"RankFailed"`: its kind, and those of the classes below it.
    kinds: String,
    parent: String,
    doc: String,
    fields: Vec<Field>,
}

struct Field {
    name: String,
    ty: &'static str,
    doc: String,
}

struct Record {
    name: String,
    bases: String,
    doc: String,
    members: Vec<String>,
}

struct Class {
    name: String,
    /// Whether classes of a program have it as their base, with methods of other forms.
    is_derived_by_programs: bool,
    base: String,
    doc: String,
    constructors: Vec<Form>,
    attributes: Vec<Property>,
    methods: Vec<Callable>,
    extra: &'static str,
}

struct Property {
    name: String,
    ty: String,
    readonly: bool,
    doc: String,
}

struct Callable {
    name: String,
    forms: Vec<Form>,
    aliases: Vec<String>,
}

/// Members that JavaScript has and the IDL does not: protocols of the language.
const EXTRA: &[(&str, &str)] = &[
    (
        "ProcessGroup",
        "  /** The kinds of backends. */
  static readonly BackendType: typeof BackendType;
  /**
   * The backend that serves a device.
   *
   * @param device - `cpu`, `cuda`, `cuda:1`, or the number of a CUDA device.
   * @throws {@link InvalidArgumentError} if none does.
   * @throws {@link InvalidGroupError} if the group was destroyed.
   */
  getBackend(device: string | number): DeviceBackend;
  /** Leaves the group cleanly: `await using group = …`. */
  [Symbol.asyncDispose](): Promise<void>;
  /** Begins to leave the group, without waiting: `using group = …`. */
  [Symbol.dispose](): void;
  /** `ProcessGroup`. */
  readonly [Symbol.toStringTag]: string;",
    ),
    (
        "Manager",
        "  /**
   * What `stateDict` gives belongs to the state of a replica, and `loadStateDict` takes it; either
   * may promise it. All replicas register the same keys, before the first quorum. The object
   * travels as that of an object collective: plain values and arrays.
   *
   * `stateDict` is called between `startQuorum` and the end of the quorum, and only if another
   * replica is behind; `loadStateDict` during `shouldCommit`, or `startQuorum` if that waits for
   * the quorum. Neither may wait for what waits for the quorum.
   *
   * @throws {@link InvalidArgumentError} if the key is registered.
   */
  registerStateDictFn(
    key: string,
    loadStateDict: (stateDict: any) => unknown,
    stateDict: () => unknown,
  ): void;",
    ),
    (
        "Store",
        "  /** Releases the store: `using store = …`. */
  [Symbol.dispose](): void;
  /** Releases the store: `await using store = …`. */
  [Symbol.asyncDispose](): Promise<void>;
  /** The name of the class. */
  readonly [Symbol.toStringTag]: string;",
    ),
];

/// What the template prints.
pub(super) fn view(api: &Api) -> Declarations {
    let mut named = NamedOptions::new();
    let classes: Vec<Class> = interfaces(api).map(|it| class(api, it, &mut named)).collect();
    let all = api.namespaces.iter().flat_map(functions);
    let functions: Vec<Callable> =
        all.map(|method| callable(api, method, Place::Module, &mut named)).collect();
    let mut records: Vec<Record> = records(api);
    records.extend(named.into_iter().map(|(name, members)| of_options(name, &members)));
    Declarations {
        stamp: format!("// {}", stamp("idl/*.webidl")),
        dtype_doc: plain(api, &api.dtype_doc, ""),
        dtypes: api.dtypes.iter().map(|it| valued(api, &it.name, &it.doc)).collect(),
        reduce_op_doc: plain(api, &api.reduce_op_doc, ""),
        ops: api.reduce_ops.iter().map(|it| valued(api, &it.name, &it.doc)).collect(),
        constants: constants(api),
        texts: texts(api),
        kinds: api.errors.iter().map(|error| format!("\"{}\"", kind(error))).collect(),
        errors: errors(api),
        records,
        classes,
        functions,
    }
}

fn valued(api: &Api, name: &str, doc: &str) -> Value {
    Value { name: name.to_owned(), doc: plain(api, doc, "  ") }
}

fn constants(api: &Api) -> Vec<Constants> {
    let constants = objects(api).map(|known| Constants {
        name: known.name.clone(),
        doc: plain(api, &known.doc, ""),
        values: literals(known)
            .map(|(name, literal, doc)| Constant { name, literal, doc: plain(api, doc, "  ") })
            .collect(),
    });
    constants.collect()
}

fn texts(api: &Api) -> Vec<Texts> {
    let known = api.enums.iter().filter(|known| !known.common.is_out_of(LANGUAGE));
    let known = known.filter(|known| !is_object(known));
    let texts = known.map(|known| {
        let values = known.values.iter().map(|value| format!("\"{}\"", value.value));
        Texts {
            name: known.name.clone(),
            doc: plain(api, &known.doc, ""),
            values: values.collect::<Vec<_>>().join(" | "),
        }
    });
    texts.collect()
}

fn errors(api: &Api) -> Vec<Error> {
    let errors = errors_in_order(api).into_iter().map(|error| Error {
        class: error_class(api, &error.name),
        kinds: kinds_under(api, error),
        parent: match &error.parent {
            Some(parent) => error_class(api, parent),
            None => "PolyrankError".to_owned(),
        },
        doc: plain(api, &error.doc, ""),
        fields: error
            .fields
            .iter()
            // The message is what every error of JavaScript has.
            .filter(|field| field.name != "message")
            .map(|field| Field {
                name: name(&field.name, &field.common),
                ty: match (&field.ty, api.is_lacked_by_case(error, &field.name)) {
                    (Type::Sequence(_), false) => "number[]",
                    (Type::Sequence(_), true) => "number[] | undefined",
                    (ty, false) if ty.is_integer() => "number",
                    (ty, true) if ty.is_integer() => "number | undefined",
                    (_, false) => "string",
                    (_, true) => "string | undefined",
                },
                doc: plain(api, &field.doc, "  "),
            })
            .collect(),
    });
    errors.collect()
}

/// The kind of an error and of those that are cases of it: `"Store" | "StoreTimeout"`.
fn kinds_under(api: &Api, error: &ErrorKind) -> String {
    let mut kinds = vec![format!("\"{}\"", kind(error))];
    let is_case = |other: &&ErrorKind| other.parent.as_ref() == Some(&error.name);
    kinds.extend(api.errors.iter().filter(is_case).map(|case| kinds_under(api, case)));
    kinds.join(" | ")
}

fn records(api: &Api) -> Vec<Record> {
    let told = api.callback_arguments().chain(api.results());
    let told = told.map(|known| known.name.as_str());
    let attributes = api.interfaces.iter().flat_map(|interface| &interface.attributes);
    let kept = attributes.filter_map(|attribute| match attribute.ty.non_null() {
        Type::Dictionary(name) => Some(name.as_str()),
        _ => None,
    });
    let told: Vec<&str> = told.chain(kept).collect();
    let is_told = |known: &Dictionary| told.contains(&known.name.as_str());
    let records = api.dictionaries.iter().filter(|known| known.is_argument || is_told(known));
    let records = records.filter(|known| !known.common.is_out_of(LANGUAGE));
    records.map(|record| of_dictionary(api, record)).collect()
}

fn of_dictionary(api: &Api, record: &Dictionary) -> Record {
    let inherited = record.inherits.as_ref().and_then(|base| {
        let base = api.dictionaries.iter().find(|known| known.name == *base)?;
        Some(base.members.iter().map(|member| member.name.clone()).collect::<Vec<_>>())
    });
    let inherited = inherited.unwrap_or_default();
    let members = record
        .members
        .iter()
        .filter(|member| !inherited.contains(&member.name) && !member.common.is_out_of(LANGUAGE));
    let members = members.map(|member| {
        let mut lines = vec![text(api, &member.doc.replace('\n', " "))];
        if *member.ty.non_null() == Type::Duration {
            lines[0].push_str(" In ms.");
        }
        let default = default(member.default.as_ref());
        lines.extend(default.map(|default| format!("@defaultValue `{default}`")));
        let ty = match (record.name.as_str(), member.name.as_str()) {
            // The layer makes a list of them, and reads from a set that they have no order.
            ("ReconfigureOptions", "handles") => "Iterable<string>".into(),
            // A record that is only received has numbers, also where a call would take a BigInt.
            _ if !record.is_argument && member.ty.non_null().is_integer() => {
                returned(api, &member.ty, true)
            }
            _ => accepted(api, &member.ty, true),
        };
        let spelt = name(&member.name, &member.common);
        let declared = match (member.required, ty.as_str()) {
            (true, ty) => format!("  {spelt}: {ty};"),
            (false, "unknown") => format!("  {spelt}?: unknown;"),
            (false, ty) => format!("  {spelt}?: {ty} | undefined;"),
        };
        format!("{}\n{declared}", comment(&lines, "  "))
    });
    // Where the record is what a call is told besides its tensors, it can wait.
    let waits = record.members.iter().any(|member| member.role == Role::AsyncOp);
    Record {
        name: record.name.clone(),
        bases: match &record.inherits {
            Some(base) => format!(" extends {base}"),
            None if waits => " extends WaitOptions".to_owned(),
            None => String::new(),
        },
        doc: plain(api, &record.doc, ""),
        members: members.collect(),
    }
}

fn of_options(name: String, members: &[String]) -> Record {
    let indent = |member: &String| {
        member.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    };
    let of = name.trim_end_matches("Options");
    let mut letters = of.chars();
    let is_class = of.contains("Store") || of == "ProcessGroup";
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    let function: String = match is_class {
        true => of.to_owned(),
        false => first.into_iter().chain(letters).collect(),
    };
    Record {
        doc: format!("/** Options of `{function}`. */"),
        name,
        bases: " extends WaitOptions".to_owned(),
        members: members.iter().map(indent).collect(),
    }
}

fn class(api: &Api, interface: &Interface, named: &mut NamedOptions) -> Class {
    let unbuilt_alone = interface.common.unbuilt && interface.inherits.is_none();
    let mut all = Vec::new();
    let constructors = match &interface.constructor {
        Some(constructor) => match &constructor.common.factory {
            Some(factory) => {
                let forms = forms(api, constructor, Place::Factory, named);
                let name = format!("static {factory}");
                all.push(Callable { name, forms, aliases: Vec::new() });
                // A class that is derived from it may have methods of its own.
                let is_extended = interface.inherits.is_some() || is_base(api, interface);
                vec![hidden(if is_extended { "protected" } else { "private" })]
            }
            None => public(forms(api, constructor, Place::Constructor, named)),
        },
        None if interface.name == Type::STORE => Vec::new(),
        None => vec![hidden(if is_base(api, interface) { "protected" } else { "private" })],
    };
    let mut attributes = Vec::new();
    if !unbuilt_alone {
        let members = methods(interface);
        all.extend(members.map(|method| callable(api, method, Place::Class, named)));
        attributes = properties(api, interface);
    }
    let extra = EXTRA.iter().find(|(name, _)| *name == interface.name);
    Class {
        name: interface.name.clone(),
        is_derived_by_programs: interface.name == Type::STORE,
        base: base(interface),
        doc: plain(api, &interface.doc, ""),
        constructors,
        attributes,
        methods: all,
        extra: extra.map_or("", |(_, text)| text),
    }
}

fn is_base(api: &Api, interface: &Interface) -> bool {
    api.interfaces.iter().any(|known| known.inherits.as_ref() == Some(&interface.name))
}

fn public(forms: Vec<Form>) -> Vec<Form> {
    let named = |form: Form| Form { signature: format!("constructor{}", form.signature), ..form };
    forms.into_iter().map(named).collect()
}

/// What a class of the package extends: stores a base that has all methods as they declare them.
fn base(interface: &Interface) -> String {
    let base = interface.inherits.clone().unwrap_or_default();
    if base == Type::STORE { format!("Package{base}") } else { base }
}

fn hidden(visibility: &str) -> Form {
    Form { doc: String::new(), signature: format!("{visibility} constructor()") }
}

fn properties(api: &Api, interface: &Interface) -> Vec<Property> {
    let known = interface.attributes.iter().filter(|it| !it.common.is_out_of(LANGUAGE));
    let mut properties = Vec::new();
    for attribute in known {
        let main = name(&attribute.name, &attribute.common);
        let others = aliases(&attribute.name, &attribute.common);
        for spelling in std::iter::once(main).chain(others) {
            let unit = if attribute.ty == Type::Duration { " In ms." } else { "" };
            properties.push(Property {
                name: spelling,
                ty: match (interface.name.as_str(), attribute.name.as_str()) {
                    (Type::MESH, "mesh") => "NestedRanks".to_owned(),
                    _ => returned(api, &attribute.ty, false),
                },
                readonly: attribute.readonly,
                doc: plain(api, &format!("{}{unit}", attribute.doc.trim_end()), "  "),
            });
        }
    }
    properties
}

fn callable(api: &Api, method: &Method, place: Place, named: &mut NamedOptions) -> Callable {
    Callable {
        name: match method.is_static {
            true => format!("static {}", name(&method.name, &method.common)),
            false => name(&method.name, &method.common),
        },
        forms: forms(api, method, place, named),
        aliases: aliases(&method.name, &method.common),
    }
}
