//! Which processor measured: what tells one kind from another where the model's name does not, and
//! the name by which results of one kind are kept together. Knows nothing of what was measured.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::system_files::{field, read};

/// Where the system describes the caches of the first core.
const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

/// The kind of a processor. `None` where the system does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Processor {
    /// Made of everything below, and of the number of cores: figures of different names are not
    /// compared.
    pub(super) name: String,
    /// `AuthenticAMD`; of ARM the number of the implementer.
    pub(super) vendor: Option<String>,
    /// As the processor numbers them; of ARM: architecture, part, revision.
    pub(super) family: Option<String>,
    pub(super) model: Option<String>,
    pub(super) stepping: Option<String>,
    /// Data caches of the first core.
    pub(super) l1_bytes: Option<u64>,
    pub(super) l2_bytes: Option<u64>,
    pub(super) l3_bytes: Option<u64>,
}

impl Processor {
    /// This machine's, with so many cores in use.
    pub(super) fn here(cores: usize) -> Processor {
        let facts = read("/proc/cpuinfo");
        let caches = caches(Path::new(CACHES));
        Processor::of(&facts, cores, caches)
    }

    fn of(
        facts: &str,
        cores: usize,
        [l1_bytes, l2_bytes, l3_bytes]: [Option<u64>; 3],
    ) -> Processor {
        let one_of = |names: [&str; 2]| names.into_iter().find_map(|name| field(facts, name));
        let mut processor = Processor {
            name: String::new(),
            vendor: one_of(["vendor_id", "CPU implementer"]),
            family: one_of(["cpu family", "CPU architecture"]),
            model: one_of(["model", "CPU part"]),
            stepping: one_of(["stepping", "CPU revision"]),
            l1_bytes,
            l2_bytes,
            l3_bytes,
        };
        processor.name =
            processor.file_name(&field(facts, "model name").unwrap_or_default(), cores);
        processor
    }

    /// `amd-epyc-25-17-1-l2-1m-l3-32m-2-cores`: fit for a file, without what is not known.
    fn file_name(&self, model_name: &str, cores: usize) -> String {
        let numbers = [&self.family, &self.model, &self.stepping].map(Clone::clone);
        let caches = [("l2", self.l2_bytes), ("l3", self.l3_bytes)];
        let caches =
            caches.map(|(level, bytes)| bytes.map(|bytes| format!("{level}-{}", short(bytes))));
        // ARM's have no name but their numbers.
        let model_name = Some(match model_name {
            "" => self.vendor.clone().unwrap_or_else(|| "unknown".to_owned()),
            name => name.to_owned(),
        });
        let cores = Some(format!("{cores} cores"));
        let parts = [model_name].into_iter().chain(numbers).chain(caches).chain([cores]);
        let text: Vec<String> = parts.flatten().collect();
        let words = text.join(" ").to_lowercase();
        let words = words.split(|letter: char| !letter.is_ascii_alphanumeric());
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
    }

    /// `AuthenticAMD family 25 model 17 stepping 1, L2 1 MiB, L3 32 MiB`: what is known.
    pub(super) fn in_words(&self) -> String {
        let numbered = |name: &str, number: &Option<String>| {
            number.as_ref().map(|number| format!("{name} {number}"))
        };
        let kind = [
            self.vendor.clone(),
            numbered("family", &self.family),
            numbered("model", &self.model),
            numbered("stepping", &self.stepping),
        ];
        let kind = kind.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let caches = [("L1d", self.l1_bytes), ("L2", self.l2_bytes), ("L3", self.l3_bytes)];
        let cache = |(level, bytes): (&str, Option<u64>)| {
            bytes.map(|bytes| format!("{level} {}", crate::sizes::show(bytes)))
        };
        let caches = caches.into_iter().filter_map(cache);
        std::iter::once(kind)
            .chain(caches)
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The model's name; empty where the system does not say.
pub(super) fn model_name() -> String {
    field(&read("/proc/cpuinfo"), "model name").unwrap_or_default()
}

/// Bytes of the data caches of the first three levels.
fn caches(folder: &Path) -> [Option<u64>; 3] {
    let mut bytes = [None; 3];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let fact = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let Some((kind, level)) = fact("type").zip(fact("level")) else { continue };
        let level = level.trim().parse::<usize>().ok().filter(|level| (1..=3).contains(level));
        if let (false, Some(level)) = (kind.trim() == "Instruction", level) {
            bytes[level - 1] = fact("size").and_then(|size| crate::sizes::parse(&size).ok());
        }
    }
    bytes
}

/// `32m`, `1m`, `512k`.
fn short(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        _ => format!("{}k", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const FACTS: &str = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
                         model name\t: Intel(R) Xeon(R) CPU @ 2.0GHz\nstepping\t: 8\n";

    #[test]
    fn a_name_tells_apart_what_the_model_does_not() {
        let caches = [Some(48 << 10), Some(2 << 20), Some(480 << 20)];
        let processor = Processor::of(FACTS, 2, caches);
        let name = "intel-r-xeon-r-cpu-2-0ghz-6-143-8-l2-2m-l3-480m-2-cores";
        assert_eq!(processor.name, name);
        let words = "GenuineIntel family 6 model 143 stepping 8, L1d 48 KiB, L2 2 MiB, L3 480 MiB";
        assert_eq!(processor.in_words(), words);
        let smaller = Processor::of(FACTS, 2, [caches[0], caches[1], Some(96 << 20)]);
        assert_ne!(smaller.name, processor.name);
        assert_ne!(Processor::of(FACTS, 4, caches).name, processor.name);
        assert_eq!(Processor::of("", 2, [None; 3]).name, "unknown-2-cores");
        let arm = "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40\n";
        assert_eq!(Processor::of(arm, 8, [None; 3]).name, "0x41-8-0xd40-8-cores");
    }

    #[test]
    fn caches_are_read_by_level_and_instructions_do_not_count() {
        let made = tempfile::tempdir().unwrap();
        let files = [("0", "Data", "1", "32K"), ("1", "Instruction", "1", "64K")];
        for (index, kind, level, size) in files.into_iter().chain([("2", "Unified", "3", "32M")]) {
            let folder = made.path().join(format!("index{index}"));
            fs::create_dir(&folder).unwrap();
            for (name, text) in [("type", kind), ("level", level), ("size", size)] {
                fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(caches(made.path()), [Some(32 << 10), None, Some(32 << 20)]);
        assert_eq!(caches(&made.path().join("none")), [None; 3]);
    }
}
