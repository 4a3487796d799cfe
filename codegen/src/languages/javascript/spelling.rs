//! Names as JavaScript spells them.

use super::LANGUAGE;
use crate::model::names::{camel_case, snake_case};
use crate::model::{Api, CommonAttributes, Interface, Method, Namespace, Parameter};

/// `all_gather_single` -> `allGatherSingle`; what is in camelCase already stays.
pub(super) fn camel(name: &str) -> String {
    if !name.contains('_') {
        return name.to_owned();
    }
    let camel = camel_case(name);
    let mut letters = camel.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// `init_process_group` -> `InitProcessGroup`.
pub(super) fn pascal(name: &str) -> String {
    camel_case(name)
}

/// The JavaScript name of an item.
pub(crate) fn name(name: &str, common: &CommonAttributes) -> String {
    common.javascript.clone().unwrap_or_else(|| camel(name))
}

/// Further names that mean something in JavaScript: none that only differ in underscores.
pub(crate) fn aliases(of: &str, common: &CommonAttributes) -> Vec<String> {
    let main = name(of, common);
    let spelt = common.aliases.iter().filter(|alias| !alias.starts_with('_'));
    let mut aliases: Vec<String> = Vec::new();
    for alias in spelt.map(|alias| camel(alias)) {
        if alias != main && !aliases.contains(&alias) {
            aliases.push(alias);
        }
    }
    aliases
}

/// The class of an error kind.
pub(crate) fn error_class(api: &Api, kind: &str) -> String {
    let error = api.errors.iter().find(|error| error.name == kind);
    let given = error
        .and_then(|error| error.common.javascript.clone().or_else(|| error.common.python.clone()));
    given.unwrap_or_else(|| format!("{kind}Error"))
}

/// The name of a method in the core's tables: `PROCESS_GROUP_ALLREDUCE`.
pub(super) fn key(owner: &str, name: &str) -> String {
    format!("{}_{name}", snake_case(owner)).to_uppercase()
}

/// The classes that JavaScript has of the IDL's.
pub(super) fn interfaces(api: &Api) -> impl Iterator<Item = &Interface> {
    api.interfaces.iter().filter(|interface| !interface.common.is_out_of(LANGUAGE))
}

/// The methods that JavaScript generates.
pub(super) fn methods(interface: &Interface) -> impl Iterator<Item = &Method> {
    interface.methods.iter().filter(|method| !method.common.is_out_of(LANGUAGE))
}

/// The functions that JavaScript generates.
pub(super) fn functions(namespace: &Namespace) -> impl Iterator<Item = &Method> {
    namespace.functions.iter().filter(|method| !method.common.is_out_of(LANGUAGE))
}

/// Whether JavaScript has the parameter.
pub(super) fn has(parameter: &Parameter) -> bool {
    !parameter.common.is_out_of(LANGUAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camel_case_keeps_what_has_no_underscore() {
        assert_eq!(camel("all_gather_single"), "allGatherSingle");
        assert_eq!(camel("getBackendName"), "getBackendName");
        assert_eq!(camel("allreduce"), "allreduce");
        assert_eq!(pascal("init_process_group"), "InitProcessGroup");
        assert_eq!(key("TCPStore", "new"), "TCP_STORE_NEW");
    }

    #[test]
    fn aliases_differ_in_more_than_underscores() {
        let aliases_of = |of: &str, all: &[&str]| {
            let aliases = all.iter().map(|alias| (*alias).to_owned()).collect();
            super::aliases(of, &CommonAttributes { aliases, ..CommonAttributes::default() })
        };
        assert_eq!(aliases_of("gather", &["_gather", "gather_base"]), ["gatherBase"]);
        assert_eq!(aliases_of("libuv_backend", &["libuvBackend"]), [""; 0]);
    }
}
