//! What a group's copies cost, kept for the next group on such a machine: one small file for each
//! kind of processor, release of the system, version of polyrank, and number of ranks. Knows files;
//! not what the prices are of.
//!
//! Nobody relies on it. What cannot be read, was cut off, or is another machine's, is measured
//! again; what cannot be written is not kept; neither is an error. Several jobs may read and write
//! at once: a file appears as a whole, and the last one counts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::price::KnownPrices;
use crate::{env, random};

/// Most files in the folder: each kernel and each version leaves some behind.
const MAX_FILES: usize = 64;
/// Begins their names.
const PREFIX: &str = "prices-";
/// How much of the system's word about its processors is read: the first one's.
const PROCESSOR_BYTES: usize = 4096;
/// What of that tells kinds apart.
const PROCESSOR_FIELDS: [&str; 10] = [
    "vendor_id",
    "model name",
    "cpu family",
    "model",
    "stepping",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
];
/// Most bytes of a processor's description.
const MAX_PROCESSOR_BYTES: usize = 256;

/// Where the prices of groups like this one are kept, and what was there.
#[derive(Debug)]
pub(super) struct KeptPrices {
    folder: PathBuf,
    /// Whose prices they are.
    owner: String,
    /// What the file said when the group began.
    known: KnownPrices,
}

impl KeptPrices {
    /// Those of groups of so many ranks on this host, if they are to be kept.
    pub(super) fn open(ranks: u32) -> Option<KeptPrices> {
        Some(KeptPrices::of(env::prices_folder()?, owner(ranks)))
    }

    fn of(folder: PathBuf, owner: String) -> KeptPrices {
        let mut kept = KeptPrices { folder, owner, known: KnownPrices::default() };
        kept.known = kept.read();
        kept
    }

    /// What is known, as a text; empty if nothing is.
    pub(super) fn text(&self) -> String {
        if self.known.is_empty() { String::new() } else { self.known.encode(&self.owner) }
    }

    /// Keeps what a group has `learned`, if that is news.
    pub(super) fn keep(&self, learned: KnownPrices) {
        if !learned.is_news_to(&self.known) {
            return;
        }
        // Another job may have learned something else meanwhile.
        let text = learned.or(&self.read()).encode(&self.owner);
        match self.write(&text) {
            Ok(()) => tracing::debug!(path = %self.path().display(), "kept what copies cost"),
            Err(error) => tracing::debug!(%error, "cannot keep what copies cost"),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{PREFIX}{:016x}", crate::price::checksum(&self.owner)))
    }

    fn read(&self) -> KnownPrices {
        let path = self.path();
        let text = match read_short(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return KnownPrices::default(),
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "cannot read what copies cost");
                return KnownPrices::default();
            }
        };
        let why = match KnownPrices::decode(&text) {
            Ok((owner, known)) if owner == self.owner => {
                tracing::debug!(path = %path.display(), "begins with what copies cost before");
                return known;
            }
            Ok(_) => "they are another machine's",
            Err(why) => why,
        };
        tracing::debug!(path = %path.display(), why, "the kept prices do not count");
        KnownPrices::default()
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let path = self.path();
        let is_new = !path.exists();
        replace_file(&path, text)?;
        if is_new {
            remove_oldest(&self.folder)?;
        }
        Ok(())
    }
}

/// Puts a file with this text in the place of another, or where there is none, in a folder that may
/// not be there yet. Who reads it meanwhile has all of the one or all of the other.
///
/// # Errors
/// The system's; then nothing has changed.
pub fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let number = u64::from_le_bytes(random::bytes::<8>().map_err(io::Error::other)?);
    let temporary = path.with_extension(format!("{number:016x}"));
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&temporary, path)
    };
    written().inspect_err(|_| {
        // It may not have come to be.
        let _ = fs::remove_file(&temporary);
    })
}

/// The text of a file, if it may be one of prices. Anything could lie there.
fn read_short(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    File::open(path)?.take(crate::price::MAX_TEXT_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Removes the oldest files of prices, if there are too many, and what killed processes left.
fn remove_oldest(folder: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let changed = entry.metadata().and_then(|it| it.modified());
        if let (true, Ok(changed)) = (is_ours, changed) {
            files.push((changed, entry.path()));
        }
    }
    files.sort_unstable();
    for (_, path) in files.iter().rev().skip(MAX_FILES) {
        // Another job may have removed it.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Whose prices those of a group of so many ranks on this host are: everybody's to whom a copy
/// should cost as much.
fn owner(ranks: u32) -> String {
    static MACHINE: OnceLock<String> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| {
        let system = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let system = format!("{} {}", std::env::consts::OS, system.trim());
        let mut beginning = [0; PROCESSOR_BYTES];
        let read = File::open("/proc/cpuinfo").and_then(|mut file| file.read(&mut beginning));
        let beginning = String::from_utf8_lossy(&beginning[..read.unwrap_or(0)]);
        format!("{system}, {}", processor(&beginning))
    });
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let version = env!("CARGO_PKG_VERSION");
    format!("polyrank {version}, {ranks} ranks on {cores} cores, {machine}")
}

/// The kind of the first processor that the system tells of.
fn processor(facts: &str) -> String {
    let first = |name: &&str| {
        let mut fields = facts.lines().filter_map(|line| line.split_once(':'));
        fields.find_map(|(field, value)| (field.trim() == *name).then(|| value.trim().to_owned()))
    };
    let words: Vec<String> = PROCESSOR_FIELDS.iter().filter_map(first).collect();
    let words = words.join(" ");
    let words = words.chars().filter(|letter| !letter.is_control());
    let mut words: String = words.take(MAX_PROCESSOR_BYTES).collect();
    while words.len() > MAX_PROCESSOR_BYTES {
        words.pop();
    }
    words
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::thread;

    use super::*;
    use crate::price::Price;

    const OWNER: &str = "polyrank 0.1.0, 2 ranks on 2 cores, linux 6.1";

    fn known(name: &str, prices: [u32; 2]) -> KnownPrices {
        let mut known = KnownPrices::default();
        known.insert(name.to_owned(), &prices.map(Price));
        known
    }

    fn kept(folder: &Path) -> KeptPrices {
        KeptPrices::of(folder.to_owned(), OWNER.to_owned())
    }

    fn prices(kept: &KeptPrices, name: &str) -> Option<[u32; 2]> {
        Some(kept.known.get(name)?.map(|price: Price| price.0))
    }

    #[test]
    fn what_one_group_has_learned_the_next_one_knows() {
        let made = tempfile::tempdir().unwrap();
        let folder = made.path().join("not/there/yet");
        assert!(kept(&folder).text().is_empty());
        kept(&folder).keep(known("a", [1, 2]));
        kept(&folder).keep(known("b", [3, 4]));
        let third = kept(&folder);
        assert_eq!([prices(&third, "a"), prices(&third, "b")], [Some([1, 2]), Some([3, 4])]);
        assert!(KnownPrices::decode(&third.text()).is_ok());
        let elsewhere = KeptPrices::of(folder.clone(), OWNER.replace("6.1", "6.2"));
        assert!(elsewhere.text().is_empty());
        third.keep(known("a", [2, 1]));
        assert_eq!(prices(&kept(&folder), "a"), Some([2, 1]), "what has changed is corrected");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn whatever_lies_there_is_no_error_and_is_replaced() {
        let made = tempfile::tempdir().unwrap();
        let path = kept(made.path()).path();
        let other = known("a", [1, 2]).encode("somebody else");
        let cut_off = &known("a", [1, 2]).encode(OWNER)[..40];
        let long = "x".repeat(2 * crate::price::MAX_TEXT_BYTES);
        for content in ["", "\0\u{FFFD}", &other, cut_off, &long].map(str::as_bytes) {
            fs::write(&path, content).unwrap();
            let kept_here = kept(made.path());
            assert!(kept_here.text().is_empty(), "{:?}", String::from_utf8_lossy(content));
            kept_here.keep(known("a", [3, 4]));
            assert_eq!(prices(&kept(made.path()), "a"), Some([3, 4]));
        }
        fs::write(&path, [0xFF; 10]).unwrap();
        assert!(kept(made.path()).text().is_empty(), "it is not text");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(kept(made.path()).text().is_empty(), "it is a folder");
        kept(made.path()).keep(known("a", [3, 4]));
        assert_eq!(fs::read_dir(made.path()).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn where_nothing_can_be_written_nothing_is_kept() {
        let made = tempfile::tempdir().unwrap();
        let file = made.path().join("file");
        fs::write(&file, "").unwrap();
        for folder in [file.join("below"), PathBuf::from("/proc/none"), PathBuf::from("/dev/null")]
        {
            let kept_here = kept(&folder);
            kept_here.keep(known("a", [1, 2]));
            assert!(kept(&folder).text().is_empty());
        }
    }

    #[test]
    fn several_jobs_at_once_leave_a_whole_file() {
        let made = tempfile::tempdir().unwrap();
        let folder = made.path();
        thread::scope(|scope| {
            for job in 0..4_u32 {
                scope.spawn(move || {
                    for round in 1..50 {
                        kept(folder).keep(known(&format!("job{job}"), [round, 2 * round]));
                        assert!(!kept(folder).text().is_empty(), "a file is never half there");
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    }

    #[test]
    fn the_folder_does_not_grow_for_ever() {
        let made = tempfile::tempdir().unwrap();
        fs::write(made.path().join("somebody-elses"), "").unwrap();
        for kernel in 0..MAX_FILES + 5 {
            let kept = KeptPrices::of(made.path().to_owned(), format!("kernel {kernel}"));
            kept.keep(known("a", [1, 2]));
        }
        assert_eq!(fs::read_dir(made.path()).unwrap().count(), MAX_FILES + 1);
        assert!(made.path().join("somebody-elses").exists());
        let last = KeptPrices::of(made.path().to_owned(), format!("kernel {}", MAX_FILES + 4));
        assert_eq!(prices(&last, "a"), Some([1, 2]));
    }

    #[test]
    fn an_owner_is_one_line_of_what_tells_machines_apart() {
        let facts = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
                     model name\t: Xeon\u{7}\ncpu MHz\t\t: 2000.1\nstepping\t: 8\n\n\
                     processor\t: 1\nstepping\t: 9\n";
        assert_eq!(processor(facts), "GenuineIntel Xeon 6 143 8");
        assert_eq!(processor(""), "");
        let long = format!("model name : {}", "ü".repeat(1000));
        assert_eq!(processor(&long).len(), MAX_PROCESSOR_BYTES);
        let owners = [1, 2].map(owner);
        assert!(owners[0] != owners[1] && !owners[0].contains('\n'), "{owners:?}");
    }
}
