//! Doc comments of the IDL as TSDoc: parameters, results and errors as tags, names in camelCase.

use super::LANGUAGE;
use super::calls::is_exact;
use super::spelling::{camel, error_class};
use crate::model::{Api, Method, Parameter, Role, Type};

/// What becomes of integers that a number of JavaScript cannot be.
const EXACT: &str = "For a BigInt the result is a BigInt. For a number it is a number; where that \
    would not be exact, beyond `Number.MAX_SAFE_INTEGER`, the call rejects with \
    {@link InvalidArgumentError}, which says the result: it took effect all the same.";

/// A doc comment in its parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Doc {
    /// What is said of the whole.
    lines: Vec<String>,
    /// What is said of a parameter, by its IDL name.
    parameters: Vec<(String, String)>,
    returns: Option<String>,
    throws: Vec<String>,
}

impl Doc {
    /// The parts of the doc comment of a method.
    pub(super) fn of(api: &Api, method: &Method) -> Doc {
        let mut doc = Doc::default();
        for paragraph in paragraphs(&method.doc) {
            if let Some(returns) = paragraph.strip_prefix("Returns ") {
                doc.returns = Some(text(api, &capital(returns)));
            } else if paragraph.starts_with("- `") {
                doc.bullet(api, &paragraph);
            } else {
                doc.lines.push(text(api, &paragraph));
            }
        }
        if is_exact(method) {
            doc.lines.push(EXACT.to_owned());
        }
        if method.common.unbuilt {
            doc.lines.push("Not implemented in this version.".to_owned());
            doc.throws.push("UnsupportedError".to_owned());
        } else {
            doc.throws = method.common.throws.iter().map(|kind| error_class(api, kind)).collect();
        }
        doc
    }

    /// `` - `world_size`, `rank`: needed with `store` ``
    fn bullet(&mut self, api: &Api, paragraph: &str) {
        for part in paragraph.trim_start_matches("- ").split("; `") {
            let Some((names, said)) = part.split_once(": ") else {
                // A semicolon inside of what is said of the last one.
                if let Some((_, last)) = self.parameters.last_mut() {
                    last.push_str(&text(api, &format!("; `{part}")));
                }
                continue;
            };
            let said = text(api, &capital(said.trim_end_matches('.')));
            for name in names.split(',') {
                let name = name.trim().trim_matches('`').to_owned();
                self.parameters.push((name, format!("{said}.")));
            }
        }
    }

    /// What is said of a parameter: in the doc comment, or by what it means.
    pub(super) fn parameter(&self, parameter: &Parameter) -> String {
        let said = self.parameters.iter().find(|(name, _)| *name == parameter.name);
        let said = said.map_or_else(|| meaning(parameter), |(_, said)| said.clone());
        match parameter.ty.non_null() {
            Type::Duration if !said.contains("ms") => format!("{} In ms.", said.trim_end()),
            _ => said,
        }
    }

    /// The comment, with a line for each of `parameters` that something is said of.
    pub(super) fn comment(&self, indent: &str, parameters: &[(String, String)]) -> String {
        let mut lines: Vec<String> = Vec::new();
        for (index, paragraph) in self.lines.iter().enumerate() {
            if index > 0 {
                lines.push(String::new());
            }
            lines.extend(paragraph.lines().map(str::to_owned));
        }
        lines.push(String::new());
        for (name, said) in parameters.iter().filter(|(_, said)| !said.is_empty()) {
            lines.push(format!("@param {name} - {said}"));
        }
        lines.extend(self.returns.iter().map(|returns| format!("@returns {returns}")));
        lines.extend(self.throws.iter().map(|class| format!("@throws {{@link {class}}}")));
        comment(&lines, indent)
    }
}

/// A doc comment of an item that takes nothing.
pub(super) fn plain(api: &Api, doc: &str, indent: &str) -> String {
    let mut lines = Vec::new();
    for (index, paragraph) in paragraphs(doc).iter().enumerate() {
        if index > 0 && !paragraph.starts_with("- ") {
            lines.push(String::new());
        }
        lines.push(text(api, paragraph));
    }
    comment(&lines, indent)
}

/// One sentence or several, as a comment of JavaScript in one line.
pub(super) fn summary(api: &Api, doc: &str) -> String {
    let first = paragraphs(doc).into_iter().next().unwrap_or_default();
    text(api, &first)
}

/// Lines as a TSDoc comment, broken where they are too long.
pub(super) fn comment(lines: &[String], indent: &str) -> String {
    let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    let lines: Vec<String> = lines[..end].iter().flat_map(|line| broken(line)).collect();
    match lines.as_slice() {
        [] => String::new(),
        [only] if only.len() < MAX_COLUMNS => format!("{indent}/** {only} */"),
        all => {
            let line = |line: &String| format!("{indent} * {line}").trim_end().to_owned() + "\n";
            let body: String = all.iter().map(line).collect();
            format!("{indent}/**\n{body}{indent} */")
        }
    }
}

/// How long the lines of a comment are, without what stands before them.
const MAX_COLUMNS: usize = 92;

fn broken(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let columns = lines.last().map_or(0, |last| last.chars().count());
        if columns > 0 && columns + word.chars().count() >= MAX_COLUMNS {
            lines.push(String::new());
        }
        if let Some(last) = lines.last_mut() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// Paragraphs and bullets, each in one line.
fn paragraphs(doc: &str) -> Vec<String> {
    let mut paragraphs: Vec<String> = Vec::new();
    let mut is_new = true;
    for line in doc.lines().map(str::trim) {
        if line.is_empty() {
            is_new = true;
            continue;
        }
        match paragraphs.last_mut() {
            Some(last) if !is_new && !line.starts_with("- ") => {
                last.push(' ');
                last.push_str(line);
            }
            _ => paragraphs.push(line.to_owned()),
        }
        is_new = false;
    }
    paragraphs
}

/// A text with the names of the API as JavaScript spells them.
pub(super) fn text(api: &Api, text: &str) -> String {
    let mut spelt = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 0 {
            spelt.push_str(part);
        } else if api.errors.iter().any(|error| error.name == part) {
            spelt.push_str(&format!("{{@link {}}}", error_class(api, part)));
        } else {
            spelt.push_str(&format!("`{}`", code(api, part)));
        }
    }
    spelt.replace("*/", "*\\/")
}

/// A sentence that is shown as it is, with the names of the API as JavaScript spells them.
pub(super) fn sentence(api: &Api, text: &str) -> String {
    let mut spelt = String::new();
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    for part in text.split_inclusive(|letter: char| !is_letter(letter)) {
        let word = part.trim_end_matches(|letter: char| !is_letter(letter));
        let is_name = word.contains('_') && is_known(api, word);
        spelt.push_str(&if is_name { camel(word) } else { word.to_owned() });
        spelt.push_str(&part[word.len()..]);
    }
    spelt
}

/// A name between back quotes: in camelCase if the API has it.
fn code(api: &Api, part: &str) -> String {
    let (owner, name) = part.rsplit_once('.').map_or(("", part), |(owner, name)| (owner, name));
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    if !is_name || !name.contains('_') || !is_known(api, name) {
        return part.to_owned();
    }
    if owner.is_empty() { camel(name) } else { format!("{owner}.{}", camel(name)) }
}

fn is_known(api: &Api, name: &str) -> bool {
    let methods = || {
        let classes = api.interfaces.iter();
        let of_classes = classes.flat_map(|it| it.constructor.iter().chain(&it.methods));
        of_classes.chain(api.namespaces.iter().flat_map(|namespace| &namespace.functions))
    };
    let parameters = || methods().flat_map(|method| &method.overloads).flat_map(|o| &o.parameters);
    let members = || api.dictionaries.iter().flat_map(|dictionary| &dictionary.members);
    let attributes = || api.interfaces.iter().flat_map(|interface| &interface.attributes);
    methods().any(|method| method.name == name)
        || parameters().any(|parameter| parameter.name == name)
        || members().any(|member| member.name == name)
        || attributes().any(|attribute| attribute.name == name)
        || api.errors.iter().flat_map(|error| &error.fields).any(|field| field.name == name)
        || name == LANGUAGE
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// What a parameter is, where nothing else is said of it.
fn meaning(parameter: &Parameter) -> String {
    let is_list = matches!(parameter.ty.non_null(), Type::Sequence(_));
    let said = match parameter.role {
        Role::In if is_list => "The inputs of this rank. Read only.",
        Role::In => "The input of this rank. Read only.",
        Role::Out if is_list => "What the results are written to.",
        Role::Out => "What the result is written to.",
        Role::InOut => "Read, and overwritten by the result.",
        Role::FlatIn => "One part for each rank, along dimension 0. Read only.",
        Role::FlatOut => "One part for each rank, along dimension 0. Overwritten by the result.",
        Role::InSplits => "Rows of the input that go to each rank; none: equal parts.",
        Role::OutSplits => "Rows of the output that come from each rank; none: equal parts.",
        Role::Op => "How elements are reduced.",
        Role::Root if parameter.name == "root" => "The root: a rank in this group.",
        Role::Root => "The root as a rank in the group, instead of a global rank.",
        Role::GlobalRoot => "The root's global rank.",
        Role::Peer if parameter.name.starts_with("group_") => named(&parameter.name),
        Role::Peer => "The other rank, in this group.",
        Role::GlobalPeer => named(&parameter.name),
        Role::AsyncOp => {
            "As in c10d. Here a call returns a {@link Work} either way, which can be awaited."
        }
        Role::Compression => "How elements travel: `bf16`, `f16` or `int8`; none: as they are.",
        Role::Tag => "Messages match if their tags are equal.",
        Role::Group => "The process group; none: the default group.",
        Role::Timeout if !parameter.optional => "The limit.",
        Role::Timeout => "Limit of this call; none: the group's.",
        Role::Options if !parameter.ty.non_null().is_options_of_groups() => {
            "The options of this call."
        }
        _ => named(&parameter.name),
    };
    said.to_owned()
}

/// What a parameter of this name is, wherever it stands.
fn named(name: &str) -> &'static str {
    match name {
        "group" => "The process group; none: the default group.",
        "dst" => "The receiver's global rank.",
        "src" => "The sender's global rank.",
        "group_dst" => "The receiver as a rank in the group, instead of `dst`.",
        "group_src" => "The sender as a rank in the group, instead of `src`.",
        "global_rank" => "A rank of the default group.",
        "group_rank" => "A rank in the group.",
        "rank" => "A rank.",
        "size" | "world_size" => "The number of ranks.",
        "group_name" => "The new group's name.",
        "group_desc" => "A description for logs.",
        "backend" => "The backend's name.",
        "pg_options" | "opts" => {
            "Options of the group: `NcclOptions` where NCCL serves a device, the backend's own \
             where the program registered it."
        }
        "device" | "device_id" => "The device.",
        "device_types" => "The kinds of devices that are used.",
        "device_ids" => "Devices whose work is waited for.",
        "store" => "The store.",
        "key" => "The key.",
        "keys" => "The keys.",
        "value" | "desired_value" => "The new value.",
        "expected_value" => "The value that is there, or an empty one.",
        "values" => "One value for each key.",
        "amount" => "What is added; it may be negative.",
        "prefix" => "What every key begins with, without the slash.",
        "obj" => "This rank's object.",
        "object_list" => "The objects; changed in place where this rank receives.",
        "object_gather_list" => "At `dst`: a place for each rank's object.",
        "scatter_object_output_list" => "Its place 0 gets this rank's object.",
        "scatter_object_input_list" => "At `src`: an object for each rank.",
        "block" => "Whether to wait for an element.",
        "wait_all_ranks" => "Whether the error names all missing ranks, not the first one.",
        "hook_id" => "Its number; hooks run in the order of numbers.",
        "hook" | "func" | "handler" => "The function.",
        "url" => "The address.",
        "name" => "Its name.",
        "file_name" => "The file.",
        "parent_pg" => "The group to split; none: the default group.",
        "split_ranks" => "Lists of ranks in the parent group; none: all ranks in one.",
        _ => "",
    }
}
