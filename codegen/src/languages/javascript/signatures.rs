//! How JavaScript writes calls, for pages that show several languages.

use super::LANGUAGE;
use super::forms::{NamedOptions, Place, forms};
use super::spelling::name;
use crate::model::{Api, Interface, Method};

/// The forms of a method of `class`, of its constructor, or of a free function.
pub(crate) fn signatures(api: &Api, class: Option<&Interface>, method: &Method) -> Vec<String> {
    let is_out = |class: &&Interface| class.common.is_out_of(LANGUAGE);
    if method.common.is_out_of(LANGUAGE) || class.as_ref().is_some_and(is_out) {
        return Vec::new();
    }
    let spelt = name(&method.name, &method.common);
    let (place, call) = match (class, &method.common.factory) {
        (Some(class), Some(factory)) if method.name == "new" => {
            (Place::Factory, format!("await {}.{factory}", class.name))
        }
        (Some(class), None) if method.name == "new" => {
            (Place::Constructor, format!("new {}", class.name))
        }
        (Some(class), _) if method.is_static => (Place::Class, format!("{}.{spelt}", class.name)),
        (Some(class), _) => (Place::Class, format!("{}#{spelt}", class.name)),
        (None, _) => (Place::Module, spelt),
    };
    let forms = forms(api, method, place, &mut NamedOptions::new());
    forms.into_iter().map(|form| format!("{call}{}", on_one_line(&form.signature))).collect()
}

/// The names of a class and of its method, or of a function.
pub(crate) fn names<'a>(
    class: Option<&'a Interface>,
    method: &Method,
) -> (Option<&'a str>, String) {
    let made = if method.name == "new" { method.common.factory.clone() } else { None };
    let name = made.unwrap_or_else(|| match method.name.as_str() {
        "new" => "constructor".to_owned(),
        _ => name(&method.name, &method.common),
    });
    (class.map(|class| class.name.as_str()), name)
}

/// A signature without the comments in it.
fn on_one_line(signature: &str) -> String {
    let lines = signature.lines().map(str::trim);
    let code = lines.filter(|line| !line.starts_with("/*") && !line.starts_with('*'));
    code.collect::<Vec<_>>().join(" ")
}
