//! Syntax -> [`Api`]: definitions one by one, in the order of the files.

use super::api::{Api, Callback, Dictionary, Enum, EnumValue, Member};
use super::attributes::AttributeTarget;
use super::builder::Builder;
use super::scope::{DefinedName, Scope, check_opaque};
use super::{constants, errors, interfaces, methods, numbers, roles};
use crate::idl::{Definition, DefinitionKind, Diagnostics, DictionaryMember, Name};
use crate::idl::{EnumValue as EnumValueSyntax, Rule, Sources};

/// The model of `definitions`, which may come from several files. What is wrong is reported and
/// left out.
pub fn build(sources: &Sources, definitions: &[Definition], diagnostics: &mut Diagnostics) -> Api {
    let scope = Scope::new(definitions, diagnostics);
    let mut builder = Builder { sources, scope: &scope, diagnostics, api: Api::default() };
    for definition in definitions.iter().filter(|definition| !definition.partial) {
        // The second definition of a name was reported; the first one counts.
        let first = scope.get(&definition.name.text);
        if let Some(defined) = first.filter(|first| std::ptr::eq(first.definition, definition)) {
            builder.definition(defined);
        }
    }
    numbers::finish(&mut builder, definitions);
    errors::finish(&mut builder, definitions);
    methods::mark_arguments(&mut builder.api);
    builder.api
}

impl<'a> Builder<'a, '_> {
    fn definition(&mut self, defined: &DefinedName<'a>) {
        let definition = defined.definition;
        match &definition.kind {
            DefinitionKind::Interface { .. } => interfaces::interface(self, defined),
            DefinitionKind::Namespace { .. } => interfaces::namespace(self, defined),
            DefinitionKind::Dictionary { .. } => self.dictionary(definition),
            DefinitionKind::Enum { values } => self.enumeration(definition, values),
            DefinitionKind::Callback { returns, parameters } => {
                let attributes = self.attributes(AttributeTarget::Callback, &definition.attributes);
                let callback = Callback {
                    name: definition.name.text.clone(),
                    doc: self.require_doc(&definition.doc, &definition.name),
                    source: self.source(definition.name.span),
                    parameters: methods::parameters(self, parameters, false),
                    returns: self.scope.resolve(returns, self.diagnostics),
                    common: attributes.common(),
                };
                self.api.callbacks.push(callback);
            }
            DefinitionKind::Typedef { ty } => {
                let attributes = self.attributes(AttributeTarget::Typedef, &definition.attributes);
                self.require_doc(&definition.doc, &definition.name);
                if attributes.has("Opaque") {
                    check_opaque(&definition.name, self.diagnostics);
                } else {
                    self.scope.resolve(ty, self.diagnostics);
                }
            }
        }
    }

    fn dictionary(&mut self, definition: &'a Definition) {
        let attributes = self.attributes(AttributeTarget::Dictionary, &definition.attributes);
        let doc = self.require_doc(&definition.doc, &definition.name);
        let chain = self.chain(definition);
        let written = chain.iter().flat_map(|owner| members_of(owner));
        self.reject_duplicates("member", written.map(|member| &member.name));
        let mut members = Vec::new();
        for owner in chain {
            // Mistakes are reported where they were written, not again where they are inherited.
            let reported = self.diagnostics.len();
            members.extend(members_of(owner).iter().map(|member| self.member(member)));
            if !std::ptr::eq(owner, definition) {
                self.diagnostics.truncate(reported);
            }
        }
        if attributes.has("Error") {
            return errors::error(self, definition, &attributes, doc, members);
        }
        errors::only_on_errors(self, &attributes);
        let dictionary = Dictionary {
            name: definition.name.text.clone(),
            doc,
            source: self.source(definition.name.span),
            inherits: inherits_of(definition).map(|name| name.text.clone()),
            members,
            is_argument: false,
            common: attributes.common(),
        };
        self.api.dictionaries.push(dictionary);
    }

    /// The dictionary and its bases, the outermost base first.
    fn chain(&mut self, definition: &'a Definition) -> Vec<&'a Definition> {
        let mut chain = vec![definition];
        let mut current = definition;
        while let Some(base) = inherits_of(current) {
            let reported = self.diagnostics.len();
            let found = self.scope.base(base, "dictionary", self.diagnostics);
            if !std::ptr::eq(current, definition) {
                self.diagnostics.truncate(reported);
            }
            let Some(found) = found else { break };
            current = found.definition;
            if chain.iter().any(|seen| std::ptr::eq(*seen, current)) {
                let message = format!("`{}` is its own base", base.text);
                self.report(Rule::Cycle, base.span, message, "take one of the bases away");
                break;
            }
            chain.insert(0, current);
        }
        chain
    }

    fn member(&mut self, member: &'a DictionaryMember) -> Member {
        let attributes = self.attributes(AttributeTarget::Member, &member.attributes);
        let ty = self.value_type(&member.ty);
        let default = member.default.as_ref();
        Member {
            name: member.name.text.clone(),
            doc: self.require_doc(&member.doc, &member.name),
            required: member.required,
            default: default.and_then(|literal| constants::constant(self, literal, &ty)),
            role: roles::role(self, &attributes, &ty, &member.name),
            common: attributes.common(),
            ty,
        }
    }

    fn enumeration(&mut self, definition: &'a Definition, values: &'a [EnumValueSyntax]) {
        let attributes = self.attributes(AttributeTarget::Enum, &definition.attributes);
        let doc = self.require_doc(&definition.doc, &definition.name);
        self.reject_duplicates("value", values.iter().map(|value| &value.value));
        let numbers = numbers::of_enum(self, &attributes, values.len());
        let values = values.iter().enumerate().map(|(index, value)| EnumValue {
            value: value.value.text.clone(),
            number: numbers.get(index).copied(),
            doc: self.require_doc(&value.doc, &value.value),
        });
        let enumeration = Enum {
            name: definition.name.text.clone(),
            doc,
            values: values.collect(),
            source: self.source(definition.name.span),
            common: attributes.common(),
        };
        self.api.enums.push(enumeration);
    }
}

fn members_of(definition: &Definition) -> &[DictionaryMember] {
    match &definition.kind {
        DefinitionKind::Dictionary { members, .. } => members,
        _ => &[],
    }
}

fn inherits_of(definition: &Definition) -> Option<&Name> {
    match &definition.kind {
        DefinitionKind::Dictionary { inherits, .. } => inherits.as_ref(),
        _ => None,
    }
}
