//! Names: their spellings, and which of several is nearest to a misspelt one.

/// `reduce_scatter`, `PREMUL_SUM`, `f32` -> `ReduceScatter`, `PremulSum`, `F32`.
pub fn camel_case(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        let rest = letters.as_str().to_ascii_lowercase();
        first.into_iter().chain(rest.chars()).collect::<String>()
    };
    name.split(['_', '-']).map(word).collect()
}

/// `TCPStore`, `ProcessGroup`, `P2POp` -> `tcp_store`, `process_group`, `p2p_op`.
pub fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (index, &letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| letters.get(before));
        let after_small = before.is_some_and(char::is_ascii_lowercase);
        let after_capital = before.is_some_and(char::is_ascii_uppercase);
        let before_small = letters.get(index + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && (after_small || (after_capital && before_small)) {
            snake.push('_');
        }
        snake.push(if letter == '-' { '_' } else { letter.to_ascii_lowercase() });
    }
    snake
}

/// The candidate that differs least from `name`, if one is near enough to have been meant.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + name.chars().count() / 3;
    candidates
        .into_iter()
        .map(|candidate| (edits(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|&(edits, _)| edits <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many insertions, deletions and replacements of a character make `left` into `right`.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for column in 1..row.len() {
            let replaced = diagonal + usize::from(right[column - 1] != letter);
            diagonal = row[column];
            row[column] = replaced.min(diagonal + 1).min(row[column - 1] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        assert_eq!(camel_case("reduce_scatter"), "ReduceScatter");
        assert_eq!(camel_case("PREMUL_SUM"), "PremulSum");
        assert_eq!(camel_case("bf16"), "Bf16");
        assert_eq!(snake_case("TCPStore"), "tcp_store");
        assert_eq!(snake_case("ProcessGroup"), "process_group");
        assert_eq!(snake_case("P2POp"), "p2p_op");
        assert_eq!(snake_case("AllToAllOptions"), "all_to_all_options");
    }

    #[test]
    fn nearest_names() {
        assert_eq!(nearest("Tenser", ["Tensor", "Work"]), Some("Tensor"));
        assert_eq!(nearest("x", ["Tensor", "Work"]), None);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
