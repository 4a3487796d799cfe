//! How Python writes calls, for pages that show several languages.

use super::spelling::{exception, name};
use super::stub::function;
use crate::model::{Api, CommonAttributes, Interface, Method};

/// The stub's aliases for what several types can stand for.
const ALIASES: [&str; 3] = ["Tensor", "Bytes", "Duration"];

/// The forms of a method of `class`, of its constructor, or of a free function.
pub(crate) fn signatures(api: &Api, class: Option<&Interface>, method: &Method) -> Vec<String> {
    // What is written by hand there is declared from here all the same.
    if method.common.not_in.iter().any(|language| language == "python") {
        return Vec::new();
    }
    let spelt = name(&method.name, &method.common);
    let is_constructor = class.is_some() && method.name == "new";
    let receiver = if class.is_some() && !is_constructor { "self" } else { "" };
    let call = match class {
        Some(class) if is_constructor => class.name.clone(),
        Some(class) => format!("{}.{spelt}", class.name),
        None => spelt.to_owned(),
    };
    let forms = function(api, method, receiver, "").forms.into_iter();
    let written = forms.map(|form| {
        let parameters = form.parameters.strip_prefix("self").unwrap_or(&form.parameters);
        let parameters = public(parameters.trim_start_matches(", "));
        match is_constructor {
            true => format!("{call}({parameters})"),
            false => format!("{call}({parameters}) -> {}", form.returns),
        }
    });
    written.collect()
}

/// The stub's aliases are private; a reader knows the things by their names.
fn public(parameters: &str) -> String {
    let rename = |text: String, alias: &&str| text.replace(&format!("_{alias}"), alias);
    ALIASES.iter().fold(parameters.to_owned(), rename)
}

/// The class of a kind of error.
pub(crate) fn exception_class(api: &Api, kind: &str) -> String {
    exception(api, kind)
}

/// The name of an item.
pub(crate) fn spelt<'a>(of: &'a str, common: &'a CommonAttributes) -> &'a str {
    name(of, common)
}
