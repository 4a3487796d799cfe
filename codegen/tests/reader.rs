//! The reader on text that nobody meant: it never panics, and it finds every mistake in one run.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;

use polyrank_codegen::idl::Rule;
use polyrank_codegen::read;
use proptest::prelude::*;

/// Pieces of IDL that, put together at random, reach further into the parser than random letters.
const PIECES: &[&str] = &[
    "interface",
    "partial",
    "namespace",
    "dictionary",
    "enum",
    "callback",
    "typedef",
    "constructor",
    "static",
    "readonly",
    "attribute",
    "const",
    "optional",
    "required",
    "sequence",
    "<",
    ">",
    "?",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ";",
    ",",
    "=",
    ":",
    "...",
    "\"SUM\"",
    "\"",
    "0",
    "-1",
    "0.5",
    "0x",
    "1e999",
    "Tensor",
    "Rank",
    "any",
    "undefined",
    "unsigned",
    "long",
    "DOMString",
    "null",
    "true",
    "/// doc\n",
    "// comment\n",
    "/* comment */",
    "/*",
    "\n",
    "Collective=allreduce",
    "Number=0",
    "Error",
    "Message=\"{x}\"",
    "DTypes",
    "ReduceOps",
    "In",
    "Out",
    "Flat",
    "Splits=a",
    "a",
    "B",
    "é",
    "\u{2028}",
    "\t",
    "\r\n",
    "\0",
];

fn reads_or_explains(text: String) {
    if let Err(mistakes) = read(vec![("a.webidl".to_owned(), text)]) {
        assert!(!mistakes.diagnostics().is_empty());
        let rendered = mistakes.render(false);
        assert!(rendered.contains("a.webidl:"), "no place in {rendered}");
    }
}

proptest! {
    // The whole IDL is read for some cases, and all of it need not take long.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_text(text in "\\PC*") {
        reads_or_explains(text);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        reads_or_explains(String::from_utf8_lossy(&bytes).into_owned());
    }

    #[test]
    fn any_pieces(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        reads_or_explains(pieces.join(" "));
    }

    /// The real files with a piece cut out, or put in, somewhere.
    #[test]
    fn the_idl_with_an_edit(
        file in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        length in 0usize..40,
        piece in prop::sample::select(PIECES),
    ) {
        let mut files = idl();
        let (_, text) = &mut files[file.index(idl().len())];
        let letters: Vec<char> = text.chars().collect();
        let from = from.index(letters.len() + 1);
        let rest = letters.len().min(from + length);
        *text = letters[..from].iter().chain(&piece.chars().collect::<Vec<_>>())
            .chain(&letters[rest..]).collect();
        if let Err(mistakes) = read(files) {
            prop_assert!(mistakes.render(true).contains(".webidl:"));
        }
    }
}

#[test]
fn every_mistake_of_a_file_in_one_run() {
    let text = "\
/// A store.
interface Store {
  /// Sets a key.
  undefined set(DOMString key DOMString value);
  long long num_keys();
  /// Waits.
  undefined wait(sequence<DOMString> keys, optional double seconds = \"5\");
  /// Gets.
  Bites get(DOMString key)
};

mixin Other { long x(); };

/// An error.
[Error, Message=\"{kee}\"]
dictionary StoreTimeout {
  /// The key.
  required DOMString key;
  /// The key again.
  required DOMString key;
};

/// Another store.
interface FileStore : Stroe {
  /// Gets.
  [Throws=StoreTimeout, Sinse=0.1] DOMString get(optional boolean block, DOMString key);
};
";
    let mistakes = read(vec![("store.webidl".to_owned(), text.to_owned())]).unwrap_err();
    let found: Vec<Rule> = mistakes.diagnostics().iter().map(|it| it.rule).collect();
    let expected = [
        Rule::Syntax,
        Rule::MissingDoc,
        Rule::Syntax,
        Rule::UnknownDefinition,
        Rule::DuplicateMember,
        Rule::UnknownAttribute,
        Rule::OptionalBeforeRequired,
    ];
    assert_eq!(found, expected, "{}", mistakes.render(false));
    // What may only look wrong because a definition could not be read waits until it can.
    let fixed = text
        .replace("key DOMString value", "key, DOMString value")
        .replace("get(DOMString key)\n", "get(DOMString key);\n")
        .replace("mixin Other { long x(); };\n", "");
    let mistakes = read(vec![("store.webidl".to_owned(), fixed)]).unwrap_err();
    let found: Vec<Rule> = mistakes.diagnostics().iter().map(|it| it.rule).collect();
    let expected = [
        Rule::MissingDoc,
        Rule::DefaultType,
        Rule::UnknownType,
        Rule::MessageField,
        Rule::DuplicateMember,
        Rule::UnknownBase,
        Rule::UnknownAttribute,
        Rule::OptionalBeforeRequired,
    ];
    assert_eq!(found, expected, "{}", mistakes.render(false));
}

#[test]
fn the_idl_has_no_mistake() {
    if let Err(mistakes) = read(idl()) {
        panic!("{}", mistakes.render(false));
    }
}

fn idl() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../idl");
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "webidl") {
            let name = path.file_name().unwrap().to_str().unwrap();
            files.push((format!("idl/{name}"), fs::read_to_string(&path).unwrap()));
        }
    }
    files.sort();
    files
}
