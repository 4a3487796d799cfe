//! Every definition of the IDL, with the name that each language has for it, or that it has none:
//! the list that tests look up in the packages, and the site's page of features. Asks languages for
//! their spellings, and knows nothing of how a package is looked into.

mod coverage;
mod page;
mod rust;

use serde::Serialize;

use crate::files::Files;
use crate::languages::{javascript, python, stamp};
use crate::model::{
    Api, Attribute, CommonAttributes, Dictionary, Enum, ErrorKind, Interface, Member, Method, Role,
};
pub use coverage::{TestSource, find_tests};
pub use rust::absent_in_rust;

/// The list, for the tests of all languages.
pub const LIST: &str = "tests/generated/definitions.json";
/// The page.
const PAGE: &str = "site/reference/features.md";

/// What a definition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A class.
    Class,
    /// How objects of a class are made.
    Constructor,
    /// A method of a class.
    Method,
    /// A property of a class.
    Attribute,
    /// A function.
    Function,
    /// A value of a module.
    Value,
    /// A set of values that have names.
    Enum,
    /// One value of such a set.
    EnumValue,
    /// A set of texts, which is a type in no language but Rust.
    Texts,
    /// One such text.
    Text,
    /// Options, or what a callback is told.
    Options,
    /// A member of options.
    Option,
    /// What a callback is told.
    Record,
    /// A part of that.
    Field,
    /// What a call returns in several parts: in Python a `dict`.
    Result,
    /// One of them.
    Part,
    /// A kind of error.
    Error,
    /// A field of an error.
    ErrorField,
}

/// One definition, and what it is called in each language; none where it is marked as absent.
#[derive(Clone, Debug, Serialize)]
pub struct Definition {
    /// As the IDL says it: `ProcessGroup.allreduce`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The IDL file, without folder and ending.
    pub topic: String,
    /// The end of its path in the crate: `ProcessGroup::allreduce`.
    pub rust: Option<String>,
    /// Its name below the package: `ProcessGroup.allreduce`.
    pub python: Option<String>,
    /// Its name below the package for Node.
    pub node: Option<String>,
    /// Its name below the package for browsers.
    pub browser: Option<String>,
    /// Further names in Python.
    pub python_aliases: Vec<String>,
    /// Further names in both packages of JavaScript.
    pub javascript_aliases: Vec<String>,
    /// A test that exercises it: a file, and the test's name in it.
    pub test: Option<String>,
}

/// The list and the page.
pub fn files(api: &Api, tests: &[TestSource]) -> Files {
    let mut all = definitions(api);
    coverage::find_tests(&mut all, tests);
    let rows: Vec<String> = all.iter().filter_map(|it| serde_json::to_string(it).ok()).collect();
    let list = format!("[\n{}\n]\n", rows.join(",\n"));
    let page = page::text(&all, &stamp("idl/*.webidl and the tests"));
    Files::from([(LIST.to_owned(), list), (PAGE.to_owned(), page)])
}

/// All that is built, in the order of the files.
pub fn definitions(api: &Api) -> Vec<Definition> {
    let mut list = List { api, all: Vec::new() };
    for known in &api.namespaces {
        for attribute in &known.attributes {
            let parts = Parts::of(Kind::Value, "", &attribute.name, &attribute.common);
            list.add(parts.rust(&known.name), &attribute.source.file);
        }
        for function in known.functions.iter().filter(|it| !it.common.unbuilt) {
            let parts = Parts::of(Kind::Function, "", &function.name, &function.common);
            list.add(parts.rust(&known.name), &function.source.file);
        }
    }
    for known in api.interfaces.iter().filter(|it| !it.common.unbuilt) {
        list.class(known);
    }
    for known in api.dictionaries.iter().filter(|it| !it.common.unbuilt) {
        list.dictionary(known);
    }
    for known in api.enums.iter().filter(|it| !it.common.unbuilt) {
        list.enumeration(known);
    }
    for known in &api.errors {
        list.error(known);
    }
    list.numbered();
    let mut all = list.all;
    all.sort_by(|a, b| a.topic.cmp(&b.topic));
    all
}

struct List<'a> {
    api: &'a Api,
    all: Vec<Definition>,
}

/// What a definition is made of.
struct Parts<'a> {
    kind: Kind,
    /// What it belongs to, and that in Rust; empty for what stands alone.
    owner: &'a str,
    rust_owner: &'a str,
    name: &'a str,
    common: &'a CommonAttributes,
    /// What it belongs to is not in these languages.
    owners: Option<&'a CommonAttributes>,
    /// Its names where they follow no rule.
    rust_name: Option<String>,
    python_name: Option<String>,
    javascript_name: Option<String>,
}

impl<'a> Parts<'a> {
    fn of(kind: Kind, owner: &'a str, name: &'a str, common: &'a CommonAttributes) -> Parts<'a> {
        Parts {
            kind,
            owner,
            rust_owner: owner,
            name,
            common,
            owners: None,
            rust_name: None,
            python_name: None,
            javascript_name: None,
        }
    }

    fn rust(self, owner: &'a str) -> Parts<'a> {
        Parts { rust_owner: owner, ..self }
    }

    fn owned_by(self, common: &'a CommonAttributes) -> Parts<'a> {
        let rust_owner = common.rust.as_deref().unwrap_or(self.rust_owner);
        Parts { owners: Some(common), rust_owner, ..self }
    }

    fn is_not_in(&self, language: &str) -> bool {
        let all = self.common.not_in.iter().chain(self.owners.iter().flat_map(|it| &it.not_in));
        all.into_iter().any(|name| name == language)
    }
}

impl List<'_> {
    fn add(&mut self, parts: Parts<'_>, file: &str) {
        let Parts { kind, owner, name, common, .. } = parts;
        let below = |name: &str| match owner {
            "" => name.to_owned(),
            owner => format!("{owner}.{name}"),
        };
        let present = |language: &str, name: String| (!parts.is_not_in(language)).then_some(name);
        let rust = parts.rust_name.clone().unwrap_or_else(|| {
            rust::path(parts.rust_owner, common.rust.as_deref().unwrap_or(name))
        });
        let spelt = python::spelt(name, common).to_owned();
        let in_python = parts.python_name.clone().unwrap_or_else(|| below(&spelt));
        let spelt = javascript::spelt(name, common);
        let in_javascript = parts.javascript_name.clone().unwrap_or_else(|| below(&spelt));
        let javascript = present("javascript", in_javascript);
        let has_aliases = matches!(kind, Kind::Method | Kind::Attribute | Kind::Function);
        let python = present("python", in_python);
        let python_aliases = match (has_aliases, &python) {
            (true, Some(_)) => common.aliases.iter().map(|alias| below(alias)).collect(),
            _ => Vec::new(),
        };
        let javascript_aliases = match (has_aliases && common.own.is_empty(), &javascript) {
            (true, Some(_)) => {
                let all = javascript::further(name, common);
                all.iter().map(|alias| below(alias)).collect()
            }
            _ => Vec::new(),
        };
        let topic = file.trim_start_matches("idl/").trim_end_matches(".webidl").to_owned();
        self.all.push(Definition {
            name: match parts.kind {
                Kind::Constructor => format!("{owner}.constructor"),
                _ => below(name),
            },
            kind,
            topic,
            rust: present("rust", rust),
            python,
            browser: javascript.clone(),
            node: javascript,
            python_aliases,
            javascript_aliases,
            test: None,
        });
    }

    fn class(&mut self, known: &Interface) {
        let Interface { name, common, source, .. } = known;
        self.add(Parts::of(Kind::Class, "", name, common), &source.file);
        if let Some(constructor) = &known.constructor {
            self.constructor(known, constructor);
        }
        for Attribute { name: attribute, common: its, source, .. } in &known.attributes {
            let parts = Parts::of(Kind::Attribute, name, attribute, its).owned_by(common);
            self.add(parts, &source.file);
        }
        for method in known.methods.iter().filter(|it| !it.common.unbuilt) {
            let parts = Parts::of(Kind::Method, name, &method.name, &method.common);
            self.add(parts.owned_by(common), &method.source.file);
        }
    }

    fn constructor(&mut self, class: &Interface, constructor: &Method) {
        let made = constructor.common.factory.as_ref();
        let parts = Parts {
            python_name: Some(class.name.clone()),
            javascript_name: Some(match made {
                Some(factory) => format!("{}.{factory}", class.name),
                None => class.name.clone(),
            }),
            ..Parts::of(Kind::Constructor, &class.name, "new", &constructor.common)
        };
        self.add(parts.owned_by(&class.common), &constructor.source.file);
    }

    fn dictionary(&mut self, known: &Dictionary) {
        let Dictionary { name, common, source, .. } = known;
        let is_told = self.api.callback_arguments().any(|it| it.name == *name);
        let is_result = !known.is_argument && self.api.results().any(|it| it.name == *name);
        let (kind, part) = match (is_told, is_result) {
            (true, _) => (Kind::Record, Kind::Field),
            (false, false) => (Kind::Options, Kind::Option),
            (false, true) => (Kind::Result, Kind::Part),
        };
        self.add(Parts::of(kind, "", name, common), &source.file);
        for member in self.own_members(known) {
            if member.common.unbuilt {
                continue;
            }
            let mut common_of_member = member.common.clone();
            // Rust has a method of its own for it.
            if member.role == Role::AsyncOp {
                common_of_member.not_in.push("rust".to_owned());
            }
            let parts = Parts::of(part, name, &member.name, &common_of_member);
            self.add(parts.owned_by(common), &source.file);
        }
    }

    /// The members that the base does not have.
    fn own_members<'a>(&self, known: &'a Dictionary) -> Vec<&'a Member> {
        let base = known.inherits.as_ref();
        let base = base.and_then(|base| self.api.dictionaries.iter().find(|it| it.name == *base));
        known.members.iter().skip(base.map_or(0, |base| base.members.len())).collect()
    }

    fn enumeration(&mut self, known: &Enum) {
        let Enum { name, common, source, values, .. } = known;
        let is_texts = !common.constants && values.iter().any(|it| it.number.is_none());
        let (kind, part) = match is_texts {
            true => (Kind::Texts, Kind::Text),
            false => (Kind::Enum, Kind::EnumValue),
        };
        self.add(Parts::of(kind, "", name, common), &source.file);
        let none = CommonAttributes::default();
        for value in values {
            let spelt = match common.constants {
                true => value.value.to_uppercase(),
                false => value.value.clone(),
            };
            let rust_owner = common.rust.as_deref().unwrap_or(name);
            let parts = Parts {
                rust_name: Some(rust::variant(rust_owner, &value.value)),
                python_name: Some(format!("{name}.{spelt}")),
                javascript_name: Some(format!("{name}.{spelt}")),
                ..Parts::of(part, name, &value.value, &none)
            };
            self.add(parts.owned_by(common), &source.file);
        }
    }

    fn error(&mut self, known: &ErrorKind) {
        let ErrorKind { name, common, source, .. } = known;
        let variant = common.rust.as_deref().unwrap_or(name);
        let python = python::exception_class(self.api, name);
        let javascript = javascript::error_class(self.api, name);
        let parts = Parts {
            rust_name: Some(format!("Error::{variant}")),
            python_name: Some(python.clone()),
            javascript_name: Some(javascript.clone()),
            ..Parts::of(Kind::Error, "", name, common)
        };
        self.add(parts, &source.file);
        // The message is what every error has.
        for field in known.fields.iter().filter(|field| field.name != "message") {
            let in_python = python::spelt(&field.name, &field.common);
            let in_javascript = javascript::spelt(&field.name, &field.common);
            let parts = Parts {
                rust_name: Some(format!("Error::{variant}::{}", field.name)),
                python_name: Some(format!("{python}.{in_python}")),
                javascript_name: Some(format!("{javascript}.{in_javascript}")),
                ..Parts::of(Kind::ErrorField, name, &field.name, &field.common)
            };
            self.add(parts.owned_by(common), &source.file);
        }
    }

    /// Element types and reduction operators.
    fn numbered(&mut self) {
        let none = CommonAttributes::default();
        let api = self.api;
        let dtypes = api
            .dtypes
            .iter()
            .map(|it| ("DType", &api.dtype_source, it.name.clone(), it.variant.clone()));
        let operators = api
            .reduce_ops
            .iter()
            .map(|it| ("ReduceOp", &api.reduce_op_source, it.name.clone(), it.variant.clone()));
        let sets = [("DType", &api.dtype_source), ("ReduceOp", &api.reduce_op_source)];
        for (name, source) in sets {
            self.add(Parts::of(Kind::Enum, "", name, &none), &source.file);
        }
        for (set, source, name, variant) in dtypes.chain(operators) {
            let parts = Parts {
                rust_name: Some(format!("{set}::{variant}")),
                python_name: Some(format!("{set}.{name}")),
                javascript_name: Some(format!("{set}.{name}")),
                ..Parts::of(Kind::EnumValue, set, &name, &none)
            };
            self.add(parts, &source.file);
        }
    }
}
