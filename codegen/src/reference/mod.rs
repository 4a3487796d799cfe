//! The reference pages of the site: what the IDL offers, a page for each of its topics, with the
//! forms of each call in all languages side by side. Knows how each language writes a call by
//! asking it, and nothing of how a page is shown.

mod declared;
mod further;
mod page;
mod prose;

use std::collections::BTreeMap;

use crate::files::Files;
use crate::languages::stamp;
use crate::model::{Api, Source, Type};
pub use declared::Declarations;
use declared::Declared;
use page::Page;

/// Where the pages lie.
const FOLDER: &str = "site/reference";

/// Topics in the order in which a reader needs them: IDL file without ending, title.
const TOPICS: [(&str, &str); 13] = [
    ("distributed", "The default group and its functions"),
    ("distributed_collectives", "Collectives as functions"),
    ("point_to_point", "Messages"),
    ("object_collectives", "Collectives of objects"),
    ("process_group", "ProcessGroup"),
    ("collectives", "Collectives as methods"),
    ("prepared", "Prepared operations"),
    ("work", "Work and Future"),
    ("store", "Stores"),
    ("backend", "Backends"),
    ("options", "Options"),
    ("types", "Types"),
    ("errors", "Errors"),
];

/// The pages, one for each topic that holds something that is built, one for what languages have
/// beside the IDL, and their list.
pub fn files(api: &Api, declarations: &Declarations) -> Files {
    let declared = Declared::read(declarations);
    let pages = pages(api, &declared);
    let mut files = Files::new();
    let mut list = Vec::new();
    for (topic, page) in pages.into_iter().filter(|(_, page)| !page.is_empty()) {
        let (position, title) = title_of(topic);
        let name = topic.replace('_', "-");
        list.push((position, title.clone(), name.clone(), page.names()));
        let text = page.text(&stamp(&format!("idl/{topic}.webidl")), &title);
        let text = prose::with_classes(api, &text);
        files.insert(format!("{FOLDER}/{name}.md"), text);
    }
    let values = page::values(api, &stamp("idl/*.webidl"));
    list.push((TOPICS.len(), VALUES.1.to_owned(), VALUES.0.to_owned(), Vec::new()));
    files.insert(format!("{FOLDER}/{}.md", VALUES.0), values);
    let known = names(api, list.iter().flat_map(|(_, _, _, names)| names));
    let (text, names) =
        further::page(&declared, &known, &stamp("the declarations of all languages"));
    list.push((TOPICS.len() + 1, FURTHER.1.to_owned(), FURTHER.0.to_owned(), names));
    files.insert(format!("{FOLDER}/{}.md", FURTHER.0), text);
    list.push((TOPICS.len() + 2, FEATURES.1.to_owned(), FEATURES.0.to_owned(), Vec::new()));
    list.sort();
    files.insert(format!("{FOLDER}/index.md"), index(&list));
    files
}

/// The names of things that have an entry, in all languages.
fn names<'a>(api: &Api, headings: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = headings.filter(|name| !name.contains('.')).cloned().collect();
    names.extend(["DType", "ReduceOp"].map(str::to_owned));
    let functions = api.namespaces.iter().flat_map(|known| &known.functions);
    let functions = functions.map(|known| (&known.name, &known.common));
    let classes = api.interfaces.iter().map(|known| (&known.name, &known.common));
    let (mut shown, mut others) = (functions.chain(classes).collect::<Vec<_>>(), Vec::new());
    shown.retain(|(name, _)| names.contains(name));
    for (_, common) in shown {
        others.extend(common.aliases.iter().cloned());
        let spelt = [&common.python, &common.rust, &common.javascript];
        let spelt = spelt.into_iter().flatten();
        others.extend(spelt.map(|name| name.rsplit("::").next().unwrap_or(name).to_owned()));
    }
    names.append(&mut others);
    names
}

fn pages<'api>(api: &'api Api, declared: &Declared) -> BTreeMap<&'api str, Page> {
    let mut pages: BTreeMap<&str, Page> = BTreeMap::new();
    for known in &api.namespaces {
        for function in known.functions.iter().filter(|it| !it.common.unbuilt) {
            page_of(&mut pages, &function.source).function(api, declared, function);
        }
    }
    for known in api.interfaces.iter().filter(|it| !it.common.unbuilt) {
        page_of(&mut pages, &known.source).class(api, declared, known);
        for method in known.methods.iter().filter(|it| !it.common.unbuilt) {
            page_of(&mut pages, &method.source).method(api, declared, (known, method));
        }
    }
    let told: Vec<&str> = api.callback_arguments().map(|known| known.name.as_str()).collect();
    let is_shown = |name: &str| is_used(api, name) || told.contains(&name);
    for known in api.dictionaries.iter().filter(|it| !it.common.unbuilt && is_shown(&it.name)) {
        page_of(&mut pages, &known.source).dictionary(known);
    }
    for known in api.enums.iter().filter(|it| !it.common.unbuilt) {
        page_of(&mut pages, &known.source).enumeration(known);
    }
    for known in &api.errors {
        page_of(&mut pages, &known.source).error(api, known);
    }
    pages
}

/// Whether something that is built takes or returns a value of this type.
fn is_used(api: &Api, name: &str) -> bool {
    let functions = api.namespaces.iter().flat_map(|known| &known.functions);
    let methods =
        api.interfaces.iter().flat_map(|known| known.methods.iter().chain(&known.constructor));
    let built = functions.chain(methods).filter(|method| !method.common.unbuilt);
    let base_of = |ty: &Type| {
        let known = api.dictionaries.iter().find(|known| Some(known.name.as_str()) == ty.named());
        known.is_some_and(|known| api.extensions(&known.name).any(|it| it.name == name))
    };
    let is_meant = |ty: &Type| ty.named() == Some(name) || base_of(ty);
    let mut overloads = built.flat_map(|method| &method.overloads);
    overloads.any(|it| {
        is_meant(&it.returns) || it.parameters.iter().any(|parameter| is_meant(&parameter.ty))
    })
}

/// The page of what languages have beside the IDL: file, title.
const FURTHER: (&str, &str) = ("further", "Further names of each language");

/// The page of `DType` and `ReduceOp`, which are namespaces of numbers: file, title.
const VALUES: (&str, &str) = ("values", "Element types and reduction operators");

/// The page of all definitions and their tests, which is made elsewhere: file, title.
const FEATURES: (&str, &str) = ("features", "Features in every language, and their tests");

fn page_of<'a, 'api>(
    pages: &'a mut BTreeMap<&'api str, Page>,
    source: &'api Source,
) -> &'a mut Page {
    pages.entry(topic_of(source)).or_default()
}

/// The name of the page on what is defined there, without ending.
fn name_of_page(source: &Source) -> String {
    topic_of(source).replace('_', "-")
}

/// The name of the IDL file, without ending.
fn topic_of(source: &Source) -> &str {
    let file = source.file.rsplit('/').next().unwrap_or(&source.file);
    file.trim_end_matches(".webidl")
}

/// Where a topic is in the list, and its title; a topic that is new stands last, under the
/// name of its file.
fn title_of(topic: &str) -> (usize, String) {
    let found = TOPICS.iter().position(|(known, _)| *known == topic);
    let title = found.map_or_else(|| topic.replace('_', " "), |at| TOPICS[at].1.to_owned());
    (found.unwrap_or(TOPICS.len()), title)
}

/// The list of all pages, with the names that each holds.
fn index(list: &[(usize, String, String, Vec<String>)]) -> String {
    let mut text = format!("<!-- {} -->\n\n# Reference\n\n", stamp("idl/*.webidl"));
    text.push_str(
        "Everything that polyrank offers, in all languages side by side. Names are those of c10d;\n\
         JavaScript spells them in camelCase. Where Rust shows no names of parameters, they\n\
         stand in the documentation of the crate.\n",
    );
    for (_, title, name, names) in list {
        text.push_str(&format!("\n- [{title}](./{name})"));
        if !names.is_empty() {
            let links = names.iter().zip(prose::anchors(names));
            let links: Vec<String> =
                links.map(|(it, anchor)| format!("[`{it}`](./{name}#{anchor})")).collect();
            text.push_str(&format!(": {}", links.join(", ")));
        }
    }
    text.push('\n');
    text
}
