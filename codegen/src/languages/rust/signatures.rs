//! How Rust writes calls, for pages that show several languages.

use super::surface::{bounds, buffer, is_buffer, trait_name, typed};
use crate::model::{Api, Interface, Method};

/// The forms of a collective of `ProcessGroup`. What else there is in Rust is not generated, and
/// is in the documentation of the crate.
pub(crate) fn signatures(api: &Api, class: Option<&Interface>, method: &Method) -> Vec<String> {
    let Some(class) = class.filter(|class| class.name == "ProcessGroup") else {
        return Vec::new();
    };
    let Some(known) = typed(api).find(|known| known.name == method.name) else {
        return Vec::new();
    };
    let parameters = known.overloads.first().map_or(&[][..], |it| &it.parameters);
    let tensors: Vec<_> = parameters.iter().filter(|parameter| is_buffer(parameter)).collect();
    let buffers: Vec<_> = tensors
        .iter()
        .zip('A'..='Z')
        .map(|(parameter, generic)| buffer(parameter, generic))
        .collect();
    let arguments = format!("arguments: impl {}", trait_name(known));
    let call = |suffix: &str, generics: &str, tensors: Vec<String>, returns: &str| {
        let parameters = [vec!["&self".to_owned()], tensors, vec![arguments.clone()]].concat();
        let (class, name, parameters) = (&class.name, &known.name, parameters.join(", "));
        format!("{class}::{name}{suffix}{generics}({parameters}) -> Result<{returns}>")
    };
    let borrowed = buffers.iter().map(|it| format!("{}: {}", it.name, it.borrowed)).collect();
    let owned = buffers.iter().map(|it| format!("{}: impl OwnedBuffers", it.name)).collect();
    vec![call("", &bounds(&buffers), borrowed, "()"), call("_async", "", owned, "Work")]
}
