//! The ways to call a method, as the declarations write them: required arguments by position,
//! optional ones in one object after them.

use std::collections::BTreeMap;

use super::calls::{Kind, is_exact, is_option, is_spread, kind, objects, output};
use super::docs::{Doc, comment};
use super::spelling::{has, name, pascal};
use super::types::{accepted, default, returned};
use crate::model::{Api, Method, Overload, Parameter, Role, Type};

/// What a method belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A method of a class.
    Class,
    /// A free function.
    Module,
    /// A static method that stands for a constructor.
    Factory,
    /// A constructor.
    Constructor,
}

/// One way to call a method.
pub(super) struct Form {
    /// Its comment, indented.
    pub(super) doc: String,
    /// `<T extends TensorLike>(tensor: T, options?: WaitOptions): Work<T>`
    pub(super) signature: String,
}

/// Interfaces of options that have names, by name: their members.
pub(super) type NamedOptions = BTreeMap<String, Vec<String>>;

/// From as many options on, they have a name, so that programs can speak of them.
const MIN_NAMED_OPTIONS: usize = 5;

/// Every way to call `method`. Large sets of options are put into `named`.
pub(super) fn forms(
    api: &Api,
    method: &Method,
    place: Place,
    named: &mut NamedOptions,
) -> Vec<Form> {
    let mut forms = Vec::new();
    for overload in &method.overloads {
        let writer = Writer { api, method, overload, place, doc: Doc::of(api, method) };
        forms.extend(writer.forms(named));
    }
    let mut seen: Vec<String> = Vec::new();
    forms.retain(|form| {
        let is_new = !seen.contains(&form.signature);
        seen.push(form.signature.clone());
        is_new
    });
    forms
}

struct Writer<'a> {
    api: &'a Api,
    method: &'a Method,
    overload: &'a Overload,
    place: Place,
    doc: Doc,
}

impl Writer<'_> {
    fn forms(&self, named: &mut NamedOptions) -> Vec<Form> {
        let parameters: Vec<(usize, &Parameter)> =
            self.overload.parameters.iter().enumerate().filter(|(_, known)| has(known)).collect();
        let required: Vec<&Parameter> = parameters
            .iter()
            .filter(|(position, known)| !is_option(*position, known))
            .map(|(_, known)| *known)
            .collect();
        let options: Vec<&Parameter> = parameters
            .iter()
            .filter(|(position, known)| is_option(*position, known))
            .map(|(_, known)| *known)
            .collect();
        // Only those that stand first can be given without those before them.
        let leading = options.iter().take_while(|known| known.common.positional).count();
        // A call without other options, not even those of its wait, takes no object of options.
        if leading == options.len() && (leading == 0 || !self.can_wait()) {
            return vec![self.form(&required, &options, &[], true, named)];
        }
        let form = |count: usize| {
            let (by_position, others) = options.split_at(count);
            (by_position.to_vec(), others.to_vec())
        };
        let mut forms = Vec::new();
        for count in 0..=leading {
            let (by_position, others) = form(count);
            forms.push(self.form(&required, &by_position, &others, false, named));
        }
        forms
    }

    fn form(
        &self,
        required: &[&Parameter],
        by_position: &[&Parameter],
        options: &[&Parameter],
        may_be_absent: bool,
        named: &mut NamedOptions,
    ) -> Form {
        let mut arguments = Vec::new();
        let mut said = Vec::new();
        for parameter in required.iter().chain(by_position) {
            let spelt = name(&parameter.name, &parameter.common);
            let mark = if parameter.optional && may_be_absent { "?" } else { "" };
            // Given by position, it may be a variable without a value all the same.
            let or = if parameter.optional && mark.is_empty() { " | undefined" } else { "" };
            arguments.push(format!("{spelt}{mark}: {}{or}", self.taken(parameter)));
            said.push((spelt, self.doc.parameter(parameter)));
        }
        if let Some(options) = self.options(options, named) {
            arguments.push(options);
        }
        let generics = self.generics(options);
        let arguments = arguments.join(", ");
        let returns = match self.place {
            Place::Constructor => String::new(),
            _ => format!(": {}", self.returns()),
        };
        let indent = if self.place == Place::Module { "" } else { "  " };
        Form {
            doc: self.doc.comment(indent, &said),
            signature: format!("{generics}({arguments}){returns}"),
        }
    }

    /// The type that a parameter takes; of the one with the result, the type variable.
    fn taken(&self, parameter: &Parameter) -> String {
        let is_function = self.place == Place::Module;
        if self.is_result(parameter) {
            return "T".into();
        }
        if is_exact(self.method) && parameter.ty == Type::LongLong {
            return "A".into();
        }
        if kind(self.method) == Kind::Objects
            && objects(self.method).iter().any(|known| known.name == parameter.name)
        {
            return match (parameter.name.as_str(), parameter.optional) {
                ("obj", _) => "T".into(),
                (_, false) => "T[]".into(),
                (_, true) => "T[] | null".into(),
            };
        }
        match (parameter.name.as_str(), parameter.ty.non_null()) {
            ("mesh", Type::Object) => return "MeshLike".into(),
            ("backend_override", Type::Object) => return "BackendOverride".into(),
            _ => {}
        }
        accepted(self.api, &parameter.ty, is_function)
    }

    /// Whether a call has options of its wait.
    fn can_wait(&self) -> bool {
        self.method.common.waits || kind(self.method) == Kind::Operation
    }

    fn is_result(&self, parameter: &Parameter) -> bool {
        kind(self.method) == Kind::Operation
            && output(self.overload).is_some_and(|(_, found)| found.name == parameter.name)
    }

    /// `<T extends TensorLike>`
    fn generics(&self, options: &[&Parameter]) -> String {
        match kind(self.method) {
            Kind::Objects => "<T = any>".into(),
            Kind::Operation => {
                let Some((_, result)) = output(self.overload) else { return String::new() };
                let bound = accepted(self.api, &result.ty, true);
                let is_among_options = options.iter().any(|known| known.name == result.name);
                if is_among_options {
                    return format!("<T extends {bound} | undefined = undefined>");
                }
                format!("<T extends {bound}>")
            }
            _ if is_exact(self.method) => "<A extends number | bigint>".into(),
            _ => String::new(),
        }
    }

    fn returns(&self) -> String {
        let is_function = self.place == Place::Module;
        if let Some(own) = super::classes::own_result(&self.method.name) {
            return own.into();
        }
        let result = output(self.overload).map_or("void", |_| "T");
        if self.method.prepares.is_some() {
            return format!("PreparedOperation<{result}>");
        }
        match kind(self.method) {
            Kind::Operation => format!("Work<{result}>"),
            Kind::Objects => match (&self.overload.returns, self.method.name.starts_with("send")) {
                // The list that is filled need not be given where nothing arrives.
                (Type::Undefined, false) if self.method.name.starts_with("gather") => {
                    "Promise<T[] | null | undefined>".into()
                }
                (Type::Undefined, false) => "Promise<T[]>".into(),
                (Type::Undefined, true) => "Promise<void>".into(),
                _ => "Promise<number>".into(),
            },
            _ if is_exact(self.method) => "Promise<A extends bigint ? bigint : number>".into(),
            _ => {
                let value = returned(self.api, &self.overload.returns, is_function);
                if self.method.common.waits { format!("Promise<{value}>") } else { value }
            }
        }
    }

    /// `options?: WaitOptions & { … }`; none if there is nothing to say.
    fn options(&self, options: &[&Parameter], named: &mut NamedOptions) -> Option<String> {
        let can_wait = self.can_wait();
        let spread = options.iter().find(|known| is_spread(known));
        let members: Vec<String> = options
            .iter()
            .filter(|known| !is_spread(known))
            .map(|known| self.member(known))
            .collect();
        let is_required = options.iter().any(|known| !known.optional);
        let base = match spread.map(|known| known.ty.non_null()) {
            Some(Type::Dictionary(name)) => Some(name.clone()),
            _ if can_wait => Some("WaitOptions".to_owned()),
            _ => None,
        };
        let own = self.own_options(&members, can_wait, named);
        let ty = match (base, own) {
            (None, None) => return None,
            (Some(only), None) | (None, Some(only)) => only,
            (Some(base), Some(own)) if base == "WaitOptions" && !own.starts_with('{') => own,
            (Some(base), Some(own)) => format!("{base} & {own}"),
        };
        Some(format!("options{}: {ty}", if is_required { "" } else { "?" }))
    }

    /// The options that no record has: written here, or by a name if there are many.
    fn own_options(
        &self,
        members: &[String],
        waits: bool,
        named: &mut NamedOptions,
    ) -> Option<String> {
        if members.is_empty() {
            return None;
        }
        let name = match self.place {
            Place::Module => format!("{}Options", pascal(&self.method.name)),
            Place::Factory | Place::Constructor => format!("{}Options", self.method.owner),
            Place::Class => format!("{}{}Options", self.method.owner, pascal(&self.method.name)),
        };
        let is_taken = self.api.dictionaries.iter().any(|known| known.name == name);
        let is_generic = members.iter().any(|member| member.ends_with(": T | undefined;"));
        if members.len() >= MIN_NAMED_OPTIONS && waits && !is_taken && !is_generic {
            let others: Vec<&String> = named.get(&name).into_iter().flatten().collect();
            let mut all = members.to_vec();
            // What one form takes by position is an option of another.
            for other in others {
                if !all.contains(other) {
                    all.push(other.clone());
                }
            }
            named.insert(name.clone(), all);
            return Some(name);
        }
        let indent = |line: &str| format!("    {line}");
        let members: Vec<String> = members
            .iter()
            .map(|member| member.lines().map(indent).collect::<Vec<_>>().join("\n"))
            .collect();
        Some(format!("{{\n{}\n  }}", members.join("\n")))
    }

    /// `/** … */ timeout?: number | null | undefined;`
    fn member(&self, parameter: &Parameter) -> String {
        let mut lines = vec![self.doc.parameter(parameter)];
        let default = default(parameter.default.as_ref());
        // What has no effect has no default either.
        if let Some(default) = default.filter(|_| parameter.role != Role::AsyncOp) {
            lines.push(format!("@defaultValue `{default}`"));
        }
        lines.retain(|line| !line.is_empty());
        let spelt = name(&parameter.name, &parameter.common);
        let ty = self.taken(parameter);
        let declared = match (parameter.optional, ty.as_str()) {
            (false, ty) => format!("{spelt}: {ty};"),
            (true, "unknown") => format!("{spelt}?: unknown;"),
            (true, ty) => format!("{spelt}?: {ty} | undefined;"),
        };
        match comment(&lines, "") {
            doc if doc.is_empty() => declared,
            doc => format!("{doc}\n{declared}"),
        }
    }
}
