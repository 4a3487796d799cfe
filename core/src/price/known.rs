//! What things cost as an earlier group measured it, by name, and the text in which that is kept.
//! Knows neither what the names mean, nor files.
//!
//! ```text
//! polyrank prices 1
//! polyrank 0.1.0, 2 ranks on 4 cores, Linux 6.1.0, Intel(R) Xeon(R) 6 143 8
//! message/1MiB 62 80 50
//! exchange/allgather/64KiB 90 120
//! end 58a3b0c1d2e4f607
//! ```
//!
//! The second line says whose prices these are: they mean nothing elsewhere. The numbers are
//! picoseconds for a byte, one for each way. The last line is a checksum of all before it.

use std::fmt::Write as _;

use super::Price;
use crate::fnv::Fnv;
use crate::sorted::SortedMap;

/// Begins a text of prices. The number rises when the same prices would be told otherwise.
const TITLE: &str = "polyrank prices 1";
/// Begins its last line.
const END: &str = "end ";
/// Most things of which prices are kept.
const MAX_NAMES: usize = 256;
/// Most bytes of a name.
const MAX_NAME_BYTES: usize = 64;
/// Most prices of one thing.
const MAX_PRICES: usize = 4;
/// Most bytes of the line that says whose prices these are.
const MAX_OWNER_BYTES: usize = 512;
/// Most bytes of a text of prices.
pub(crate) const MAX_TEXT_BYTES: usize = 32 << 10;
/// The highest price that makes sense: 10 KB/s.
const MAX_PRICE: u32 = 100_000_000;
/// A price has changed if it differs by this part.
const CHANGED_PART: u32 = 4;

/// Prices by name; of each thing one for each way.
#[derive(Clone, Debug, Default)]
pub struct KnownPrices {
    named: SortedMap<String, Vec<Price>>,
}

impl KnownPrices {
    /// The prices of `name`, if there are so many.
    pub fn get<const WAYS: usize>(&self, name: &str) -> Option<[Price; WAYS]> {
        if self.named.is_empty() {
            return None;
        }
        self.named.get(name)?.as_slice().try_into().ok()
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// Adds the prices of `name`, if they make sense and there is room.
    pub fn insert(&mut self, name: String, prices: &[Price]) {
        let has_room = self.named.contains_key(&name) || self.named.len() < MAX_NAMES;
        if has_room && is_name(&name) && are_prices(prices) {
            self.named.insert(name, prices.to_vec());
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Whether these say something else than `other`: prices of more things, another order of the
    /// ways, or a price that has changed by a part that matters.
    pub fn is_news_to(&self, other: &KnownPrices) -> bool {
        self.named.iter().any(|(name, prices)| match other.named.get(name) {
            None => true,
            Some(known) => known.len() != prices.len() || differ(prices, known),
        })
    }

    /// These, and those of `other` of which these say nothing.
    #[must_use]
    pub fn or(mut self, other: &KnownPrices) -> KnownPrices {
        for (name, prices) in other.named.iter() {
            if !self.named.contains_key(name) {
                self.insert(name.clone(), prices);
            }
        }
        self
    }

    /// The text of these prices, which are `owner`'s.
    pub fn encode(&self, owner: &str) -> String {
        let mut text = format!("{TITLE}\n{owner}\n");
        for (name, prices) in self.named.iter() {
            text.push_str(name);
            // Writing to a String cannot fail.
            for price in prices {
                let _ = write!(text, " {}", price.0);
            }
            text.push('\n');
        }
        let checksum = checksum(&text);
        let _ = writeln!(text, "{END}{checksum:016x}");
        text
    }

    /// Whose prices a text holds, and the prices.
    ///
    /// # Errors
    /// What is wrong with it, if [`KnownPrices::encode`] did not make it.
    pub fn decode(text: &str) -> Result<(&str, KnownPrices), &'static str> {
        if text.len() > MAX_TEXT_BYTES {
            return Err("it is too long");
        }
        let rest = text.strip_prefix(TITLE).and_then(|rest| rest.strip_prefix('\n'));
        let rest = rest.ok_or("it does not begin as prices do")?;
        let (owner, _) = rest.split_once('\n').ok_or("it ends in its second line")?;
        if owner.len() > MAX_OWNER_BYTES {
            return Err("its second line is too long");
        }
        let end = text.rfind(END).filter(|end| text[..*end].ends_with('\n'));
        let (told, end) = text.split_at(end.ok_or("its end is missing")?);
        if end != format!("{END}{:016x}\n", checksum(told)) {
            return Err("its checksum is another's");
        }
        let mut known = KnownPrices::default();
        for line in told.lines().skip(2) {
            let (name, prices) = price_line(line).ok_or("a line makes no sense")?;
            let before = known.named.len();
            known.insert(name.to_owned(), &prices);
            if known.named.len() == before {
                return Err("it names a thing twice, too many, or a price that cannot be");
            }
        }
        Ok((owner, known))
    }
}

/// `64KiB`, `1MiB`: a number of bytes, as names have it.
pub(crate) fn size_name(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}

/// The name and the prices that a line tells.
fn price_line(line: &str) -> Option<(&str, Vec<Price>)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let number = |word: &str| word.bytes().all(|it| it.is_ascii_digit()).then(|| word.parse().ok());
    let prices: Option<Vec<Price>> = words.map(|word| number(word)?.map(Price)).collect();
    Some((name, prices?))
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain)
}

fn are_prices(prices: &[Price]) -> bool {
    (1..=MAX_PRICES).contains(&prices.len())
        && prices.iter().all(|price| (1..=MAX_PRICE).contains(&price.0))
}

fn differ(prices: &[Price], known: &[Price]) -> bool {
    let is_changed = |(price, known): (&Price, &Price)| {
        price.0.abs_diff(known.0) > price.0.min(known.0) / CHANGED_PART
    };
    prices.iter().zip(known).any(is_changed)
        || prices.is_sorted_by_key(|price| price.0) != known.is_sorted_by_key(|price| price.0)
}

/// Finds out a file that was cut off or edited, not one that was made to deceive.
pub(crate) fn checksum(text: &str) -> u64 {
    Fnv::of(text.bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const OWNER: &str = "polyrank 0.1.0, 2 ranks on 2 cores, Linux 6.1";

    fn some() -> KnownPrices {
        let mut known = KnownPrices::default();
        known.insert("message/1MiB".to_owned(), &[62, 80, 50].map(Price));
        known.insert("exchange/allgather/64KiB".to_owned(), &[90, 120].map(Price));
        known
    }

    /// A text with a checksum that fits.
    fn signed(told: &str) -> String {
        format!("{told}{END}{:016x}\n", checksum(told))
    }

    #[test]
    fn prices_survive_the_journey() {
        let text = some().encode(OWNER);
        let (owner, known) = KnownPrices::decode(&text).unwrap();
        assert_eq!((owner, known.named.len()), (OWNER, 2));
        assert_eq!(known.get("message/1MiB"), Some([62, 80, 50].map(Price)));
        assert_eq!(known.get("exchange/allgather/64KiB"), Some([90, 120].map(Price)));
        assert_eq!(known.get::<2>("message/1MiB"), None, "there are three");
        assert_eq!(known.get::<2>("message/2MiB"), None);
        assert!(!known.is_news_to(&some()));
    }

    #[test]
    fn a_text_that_was_cut_off_is_none() {
        let text = some().encode(OWNER);
        for end in 0..text.len() {
            assert!(KnownPrices::decode(&text[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_text_that_was_edited_is_none() {
        let text = some().encode(OWNER);
        for at in 0..text.len() {
            let mut edited = text.clone().into_bytes();
            edited[at] ^= 1;
            let edited = String::from_utf8(edited).unwrap();
            assert!(KnownPrices::decode(&edited).is_err(), "{edited}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_none_whatever_its_checksum() {
        let told = |lines: &str| signed(&format!("{TITLE}\n{OWNER}\n{lines}"));
        assert!(KnownPrices::decode(&told("a 1 2\n")).is_ok());
        for lines in [
            "a\n",
            "a 0\n",
            "a 1 100000001\n",
            "a 1 2 3 4 5\n",
            "a 1  2\n",
            "a -1\n",
            "a 1e3\n",
            "a 99999999999999999999\n",
            " 1 2\n",
            "\n",
            "a 1\na 1\n",
            "ä 1\n",
            &format!("{} 1\n", "a".repeat(MAX_NAME_BYTES + 1)),
            &(0..=MAX_NAMES).map(|name| format!("{name} 1\n")).collect::<String>(),
        ] {
            assert!(KnownPrices::decode(&told(lines)).is_err(), "{lines:?}");
        }
        let older = signed(&format!("polyrank prices 0\n{OWNER}\na 1 2\n"));
        assert!(KnownPrices::decode(&older).is_err());
        let owner = "o".repeat(MAX_OWNER_BYTES + 1);
        assert!(KnownPrices::decode(&signed(&format!("{TITLE}\n{owner}\n"))).is_err());
        let long = told(&"a 1 2\n".repeat(MAX_TEXT_BYTES / 6));
        assert_eq!(KnownPrices::decode(&long).err(), Some("it is too long"));
    }

    #[test]
    fn as_many_prices_as_there_may_be_fit_their_text() {
        let mut known = KnownPrices::default();
        for number in 0..2 * MAX_NAMES {
            let name = format!("stores/schedule/reduce_scatter/{number}MiB");
            known.insert(name, &[Price(MAX_PRICE); 2]);
        }
        assert_eq!(known.named.len(), MAX_NAMES);
        let text = known.encode(&"o".repeat(MAX_OWNER_BYTES));
        assert_eq!(KnownPrices::decode(&text).unwrap().1.named.len(), MAX_NAMES);
    }

    #[test]
    fn small_changes_are_no_news() {
        let changed = |prices: [u32; 3]| {
            let mut known = some();
            known.insert("message/1MiB".to_owned(), &prices.map(Price));
            known.is_news_to(&some())
        };
        assert!(!changed([62, 80, 50]) && !changed([65, 75, 55]));
        assert!(changed([62, 101, 50]) && changed([62, 80, 39]));
        let mut more = some();
        more.insert("message/2MiB".to_owned(), &[Price(1); 3]);
        assert!(more.is_news_to(&some()) && !some().is_news_to(&more));
        let all = some().or(&more);
        assert!(!all.is_news_to(&more) && !more.is_news_to(&all));
    }

    #[test]
    fn prices_are_found_after_something_else() {
        let text = format!("polyrank link costs\ncores 2\n{}", some().encode(OWNER));
        let at = crate::price::kept_text_in(&text).unwrap();
        assert!(KnownPrices::decode(&text[at..]).is_ok());
        assert_eq!(crate::price::kept_text_in("polyrank link costs\n"), None);
    }

    #[test]
    fn lengths_have_names() {
        let names = [0, 1 << 10, 256 << 10, 3 << 20, (1 << 20) + 1].map(size_name);
        assert_eq!(names, ["0B", "1KiB", "256KiB", "3MiB", "1048577B"]);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,200}", lines in "[a-z0-9 \n]{0,200}") {
            let _ = KnownPrices::decode(&text);
            let _ = KnownPrices::decode(&signed(&format!("{TITLE}\n{OWNER}\n{lines}")));
        }
    }
}
