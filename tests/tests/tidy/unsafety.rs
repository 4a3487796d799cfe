//! Where `unsafe` may stand.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::files::{File, Language};
use crate::rules::{UNSAFE_ALLOWED, parse, starts_with_path};

pub(crate) fn misplaced(file: &File) -> Vec<String> {
    let is_allowed = UNSAFE_ALLOWED.iter().any(|place| starts_with_path(&file.path, place));
    if file.language() != Language::Rust || is_allowed {
        return Vec::new();
    }
    let mut found = UnsafeLines(Vec::new());
    found.visit_file(&parse(file));
    let places = found.0.into_iter();
    places.map(|line| format!("{}:{line}: unsafe is not allowed here", file.path)).collect()
}

/// The lines with an `unsafe`.
struct UnsafeLines(Vec<usize>);

impl UnsafeLines {
    fn add(&mut self, word: Option<&syn::token::Unsafe>) {
        self.0.extend(word.map(|word| word.span().start().line));
    }
}

impl<'tree> Visit<'tree> for UnsafeLines {
    fn visit_expr_unsafe(&mut self, item: &'tree syn::ExprUnsafe) {
        self.add(Some(&item.unsafe_token));
        visit::visit_expr_unsafe(self, item);
    }

    fn visit_signature(&mut self, item: &'tree syn::Signature) {
        self.add(item.unsafety.as_ref());
        visit::visit_signature(self, item);
    }

    fn visit_item_impl(&mut self, item: &'tree syn::ItemImpl) {
        self.add(item.unsafety.as_ref());
        visit::visit_item_impl(self, item);
    }

    fn visit_item_trait(&mut self, item: &'tree syn::ItemTrait) {
        self.add(item.unsafety.as_ref());
        visit::visit_item_trait(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_seen_and_the_allowed_places_are_free() {
        let text = "//! A.\nunsafe fn a() {}\nfn b() {\n    unsafe { a() }\n}\n\
                    unsafe impl Send for X {}\nunsafe trait T {}\nfn c() { \"unsafe\"; }\n";
        let lines: Vec<String> = misplaced(&File::new("core/src/work.rs", text));
        let expected =
            [2, 4, 6, 7].map(|line| format!("core/src/work.rs:{line}: unsafe is not allowed here"));
        assert_eq!(lines, expected);
        for place in ["core/src/tensor/region.rs", "core/src/tensor.rs", "core/src/fork.rs"] {
            assert!(misplaced(&File::new(place, text)).is_empty(), "{place}");
        }
        assert!(!misplaced(&File::new("core/src/tensors.rs", text)).is_empty());
    }
}
