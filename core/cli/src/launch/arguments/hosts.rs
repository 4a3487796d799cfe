//! The hosts of a job: `--hosts a,b:4`, `--hostfile`, and how many ranks each has.
//! Knows nothing of how they are reached.

use std::path::Path;

use super::parts::{MAX_RANKS_PER_NODE, Part};

/// One host of a job that is started over ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// What ssh is told: `name`, or `user@name`.
    pub(crate) target: String,
    /// How many ranks run there.
    pub(crate) rank_count: u32,
}

impl Host {
    /// The name or address without the user.
    pub(crate) fn name(&self) -> &str {
        self.target.rsplit_once('@').map_or(&self.target, |(_, name)| name)
    }

    /// Whether it is this host, under a name that needs nobody to be asked; as another user it is
    /// reached over ssh, too.
    pub(crate) fn is_here(&self) -> bool {
        let own = rustix::system::uname();
        let own = own.nodename().to_string_lossy();
        let short = own.split('.').next().unwrap_or_default();
        let names = ["localhost", "127.0.0.1", "::1", own.as_ref(), short];
        !self.target.is_empty() && names.iter().any(|name| name.eq_ignore_ascii_case(&self.target))
    }
}

/// A host as it was written: most ranks that it has room for, if that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    target: String,
    slots: Option<u32>,
}

/// The hosts of `a,user@b:4`.
pub(super) fn from_list(text: &str) -> Result<Vec<Listed>, String> {
    text.split(',').map(|entry| listed(entry.trim())).collect()
}

/// The hosts of a file, in the forms of Open MPI (`host slots=4`) and of MPICH (`host:4`), one a
/// line; "#" begins a comment.
pub(super) fn from_file(path: &Path) -> Result<Vec<Listed>, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("--hostfile {name}: cannot be read: {error}"))?;
    let mut hosts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { continue };
        let wrong = |why| format!("--hostfile {name}, line {}: {why}", index + 1);
        let mut host = listed(first).map_err(wrong)?;
        for word in words {
            match word.split_once('=') {
                Some(("slots", count)) => host.slots = Some(slots(count).map_err(wrong)?),
                Some(("max_slots" | "max-slots", _)) => {}
                _ => {
                    return Err(wrong(format!("'{word}': expected a host as in a slots=4 or a:4")));
                }
            }
        }
        hosts.push(host);
    }
    match hosts.is_empty() {
        true => Err(format!("--hostfile {name}: it names no host")),
        false => Ok(hosts),
    }
}

/// The hosts with their numbers of ranks: `total` of the whole job, dealt to one host after the
/// other as far as each has room; else each as many as it has room for, or `each`.
pub(super) fn with_counts(
    listed: Vec<Listed>,
    total: Option<u32>,
    each: u32,
) -> Result<Vec<Host>, String> {
    let Some(total) = total else {
        let host =
            |host: Listed| Host { target: host.target, rank_count: host.slots.unwrap_or(each) };
        return Ok(listed.into_iter().map(host).collect());
    };
    let room = |host: &Listed| host.slots.unwrap_or(MAX_RANKS_PER_NODE);
    let all: u64 = listed.iter().map(|host| u64::from(room(host))).sum();
    if u64::from(total) > all {
        return Err(format!(
            "-np {total}: the hosts have room for {all} ranks; give them more, as in --hosts a:4"
        ));
    }
    let mut counts = vec![0; listed.len()];
    let mut left = total;
    while left > 0 {
        for (count, host) in counts.iter_mut().zip(&listed) {
            if left > 0 && *count < room(host) {
                *count += 1;
                left -= 1;
            }
        }
    }
    let hosts = listed.into_iter().zip(counts);
    let hosts = hosts.map(|(host, rank_count)| Host { target: host.target, rank_count });
    // A host without a rank has nothing to do in the job.
    Ok(hosts.filter(|host| host.rank_count > 0).collect())
}

/// The programs of hosts that are all this one, as those of one host: each has its ranks of
/// `parts`.
pub(super) fn parts_here(hosts: &[Host], parts: Vec<Part>) -> Vec<Part> {
    match <[Part; 1]>::try_from(parts) {
        Ok([part]) => {
            let rank_count = hosts.iter().map(|host| host.rank_count).sum();
            vec![Part { rank_count, ..part }]
        }
        // They have the same ranks on every host.
        Err(several) => hosts.iter().flat_map(|_| several.clone()).collect(),
    }
}

fn listed(entry: &str) -> Result<Listed, String> {
    // An IPv6 address is in brackets, or has no number of ranks.
    let split = match entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => Some((address, None)),
        Some((address, rest)) => rest.strip_prefix(':').map(|count| (address, Some(count))),
        None if entry.matches(':').count() == 1 => {
            entry.split_once(':').map(|(name, count)| (name, Some(count)))
        }
        None => Some((entry, None)),
    };
    let wrong = || format!("'{entry}': expected a host as in a, user@b:4 or [fe80::1]:2");
    let (target, count) = split.ok_or_else(wrong)?;
    // ssh would take it as an option.
    if target.is_empty() || target.starts_with(['-', '[']) {
        return Err(wrong());
    }
    let slots = count.map(slots).transpose()?;
    Ok(Listed { target: target.to_owned(), slots })
}

fn slots(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| (1..=MAX_RANKS_PER_NODE).contains(count));
    count.ok_or_else(|| format!("'{text}': expected 1 to {MAX_RANKS_PER_NODE} ranks, as in a:4"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn counts(list: &str, total: Option<u32>, each: u32) -> Result<Vec<(String, u32)>, String> {
        let hosts = with_counts(from_list(list)?, total, each)?;
        Ok(hosts.into_iter().map(|host| (host.target, host.rank_count)).collect())
    }

    fn expected(hosts: &[(&str, u32)]) -> Vec<(String, u32)> {
        hosts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn hosts_have_as_many_ranks_as_they_say_or_else_as_all() {
        assert_eq!(counts("a,me@b:4", None, 2).unwrap(), expected(&[("a", 2), ("me@b", 4)]));
        assert_eq!(counts("::1,[::2]:3", None, 1).unwrap(), expected(&[("::1", 1), ("::2", 3)]));
    }

    #[test]
    fn a_total_is_dealt_out_as_far_as_there_is_room() {
        assert_eq!(counts("a,b", Some(5), 1).unwrap(), expected(&[("a", 3), ("b", 2)]));
        assert_eq!(counts("a:1,b", Some(5), 1).unwrap(), expected(&[("a", 1), ("b", 4)]));
        assert_eq!(counts("a,b,c", Some(2), 1).unwrap(), expected(&[("a", 1), ("b", 1)]));
        assert!(counts("a:1,b:2", Some(4), 1).unwrap_err().contains("room for 3 ranks"));
    }

    #[test]
    fn wrong_hosts_are_refused() {
        for wrong in ["", "a,,b", "a:0", "a:x", "a:5000", "-oProxyCommand=x", "[a"] {
            assert!(from_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_of_both_kinds_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# all\na slots=2 max_slots=4\n\n  b:3 # old\nc\n").unwrap();
        let hosts = with_counts(from_file(file.path()).unwrap(), None, 1).unwrap();
        let hosts: Vec<_> = hosts.into_iter().map(|host| (host.target, host.rank_count)).collect();
        assert_eq!(hosts, expected(&[("a", 2), ("b", 3), ("c", 1)]));
        std::fs::write(file.path(), "a\nb slot=2\n").unwrap();
        assert!(from_file(file.path()).unwrap_err().contains("line 2: 'slot=2'"));
    }
}
