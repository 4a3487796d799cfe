//! Sizes as people write them ("4", "64K", "1.5M", "16MiB") and the ladder from one size to
//! another. Knows nothing of what the sizes are for, nor of who measures or predicts them.

/// Bytes of the largest tensor: more than any machine holds, and few enough not to overflow.
const MAX_BYTES: u64 = 1 << 44;
/// Most sizes in one run: more are a typing error.
const MAX_SIZES: usize = 10_000;

/// Reads a size in bytes. K, M, G and T are powers of 1024, as in nccl-tests; "KiB" and "KB" are
/// the same as "K".
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: f64 = digits
        .trim()
        .parse()
        .map_err(|_| format!("'{text}' is not a size; write 4, 64K, 1.5M or 1G"))?;
    let shift = match &lower[digits.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        unit => return Err(format!("'{unit}' is not a unit; expected one of K, M, G and T")),
    };
    let bytes = number * (1u64 << shift) as f64;
    match (0.0..=MAX_BYTES as f64).contains(&bytes) {
        true => Ok(bytes as u64),
        false => Err(format!("{text} is not between 0 and 16T")),
    }
}

/// The size in the largest unit that divides it.
pub(crate) fn show(bytes: u64) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        _ if bytes.is_multiple_of(1 << 40) => format!("{} TiB", bytes >> 40),
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// A number of ranks, in words.
pub(crate) fn ranks(number: u32) -> String {
    format!("{number} rank{}", if number == 1 { "" } else { "s" })
}

/// How sizes follow one another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Each is the last one times this.
    Factor(f64),
    /// Each is the last one plus this many bytes.
    Bytes(u64),
}

/// The sizes from `first` to `last`, both included if the steps meet it.
pub(crate) fn ladder(first: u64, last: u64, step: Step) -> Result<Vec<u64>, String> {
    if first > last {
        return Err(format!("the smallest size, {first}, is larger than the largest, {last}"));
    }
    let mut sizes = vec![first];
    let mut size = first;
    loop {
        let next = match step {
            Step::Factor(factor) if factor > 1.0 => (size as f64 * factor).round() as u64,
            Step::Factor(factor) => return Err(format!("a factor of {factor} leads nowhere")),
            Step::Bytes(0) => return Err("steps of 0 bytes lead nowhere".to_owned()),
            Step::Bytes(bytes) => size + bytes,
        };
        // A small factor may round to the same size.
        let next = next.max(size + 1);
        if next > last {
            return Ok(sizes);
        }
        if sizes.len() == MAX_SIZES {
            return Err(format!("more than {MAX_SIZES} sizes; take larger steps"));
        }
        sizes.push(next);
        size = next;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        let cases = [("4", 4), ("64K", 65536), ("1.5M", 1_572_864), ("16 MiB", 16 << 20)];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!([parse("1g"), parse("2TiB")], [Ok(1 << 30), Ok(2 << 40)]);
        for wrong in ["", "K", "4X", "-1", "nan", "1e30", "17T"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!([show(4), show(65536), show(3 << 20)], ["4 B", "64 KiB", "3 MiB"]);
        assert_eq!([show(5 << 30), show(2 << 40)], ["5 GiB", "2 TiB"]);
        assert_eq!([ranks(1), ranks(2)], ["1 rank", "2 ranks"]);
    }

    #[test]
    fn ladders_end_where_they_are_told() {
        assert_eq!(ladder(4, 64, Step::Factor(4.0)), Ok(vec![4, 16, 64]));
        assert_eq!(ladder(4, 63, Step::Factor(4.0)), Ok(vec![4, 16]));
        assert_eq!(ladder(1, 4, Step::Factor(1.1)), Ok(vec![1, 2, 3, 4]));
        assert_eq!(ladder(10, 30, Step::Bytes(10)), Ok(vec![10, 20, 30]));
        assert_eq!(ladder(8, 8, Step::Factor(2.0)), Ok(vec![8]));
        assert!(ladder(8, 4, Step::Factor(2.0)).is_err());
        assert!(ladder(4, 8, Step::Factor(1.0)).is_err());
        assert!(ladder(0, 1 << 40, Step::Bytes(1)).is_err());
    }
}
