//! Doc comments as Markdown. Of what they are about it knows the kinds of errors.

use crate::languages::python;
use crate::model::Api;

/// A page whose sentences speak of kinds of errors, with their classes in the place of the kinds:
/// no language has a class `StoreTimeout`.
pub(super) fn with_classes(api: &Api, page: &str) -> String {
    let parts = page.split('`').enumerate().map(|(position, part)| {
        let is_kind = position % 2 == 1 && api.errors.iter().any(|error| error.name == part);
        if is_kind { python::exception_class(api, part) } else { part.to_owned() }
    });
    parts.collect::<Vec<_>>().join("`")
}

/// A doc comment as a paragraph of Markdown. What looks like a tag is shown, not obeyed.
pub(super) fn paragraphs(doc: &str) -> String {
    let mut in_code = false;
    let escape = |letter: char| {
        if letter == '`' {
            in_code = !in_code;
        }
        match letter {
            '<' if !in_code => "&lt;".to_owned(),
            '{' if !in_code => "&#123;".to_owned(),
            other => other.to_string(),
        }
    };
    doc.trim().chars().map(escape).collect()
}

/// A doc comment in a cell of a table.
pub(super) fn cell(doc: &str) -> String {
    paragraphs(doc).replace('\n', " ").replace('|', "\\|")
}

/// The anchor of a heading, as the site makes it of a name.
pub(super) fn anchor(heading: &str) -> String {
    heading.to_ascii_lowercase().replace(['.', '_'], "-")
}

/// The anchors of all headings of a page. Of headings that differ only in case, the later ones end
/// in a number.
pub(super) fn anchors(headings: &[String]) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for heading in headings {
        let mut at = anchor(heading);
        while anchors.contains(&at) {
            at.push_str("-2");
        }
        anchors.push(at);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_outside_of_code_are_shown() {
        assert_eq!(paragraphs("a <b> and `Vec<T>`\n"), "a &lt;b> and `Vec<T>`");
        assert_eq!(cell("a | b\nc"), "a \\| b c");
        assert_eq!(anchor("ProcessGroup.all_reduce"), "processgroup-all-reduce");
        let headings = ["Tensor", "tensor", "alloc"].map(str::to_owned);
        assert_eq!(anchors(&headings), ["tensor", "tensor-2", "alloc"]);
    }
}
