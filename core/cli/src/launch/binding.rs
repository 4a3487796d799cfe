//! Which cores each rank of a host may use (`--bind-to`): its own core, or the socket or the NUMA
//! node that it shares with its neighbours. What there is, is read from /sys.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::arguments::options::Binding;

/// Where Linux describes the processors.
const SYSTEM: &str = "/sys/devices/system";

/// The logical processors of each of `ranks` ranks; empty lists if they are not bound.
///
/// # Errors
/// In words: the system does not say, or there are fewer cores than ranks.
pub(super) fn of_ranks(binding: Binding, ranks: u32) -> Result<Vec<Vec<usize>>, String> {
    if binding == Binding::None {
        return Ok(vec![Vec::new(); ranks as usize]);
    }
    dealt(binding, ranks as usize, Path::new(SYSTEM), &usable()?)
}

/// As [`of_ranks`], with what the system says in the folder `system`, and the processors that this
/// process may use.
fn dealt(
    binding: Binding,
    ranks: usize,
    system: &Path,
    usable: &[usize],
) -> Result<Vec<Vec<usize>>, String> {
    let places = match binding {
        Binding::None => vec![usable.to_vec()],
        Binding::Core => by_topology(system, usable, |folder| {
            // The hardware threads of a core share it.
            read(&folder.join("core_cpus_list"))
                .or_else(|_| read(&folder.join("thread_siblings_list")))
        })?,
        Binding::Socket => {
            by_topology(system, usable, |folder| read(&folder.join("physical_package_id")))?
        }
        Binding::Numa => by_node(system, usable)?,
    };
    if binding == Binding::Core && places.len() < ranks {
        return Err(format!(
            "--bind-to core: {ranks} ranks and {} cores that may be used; start fewer ranks, or \
             let them share, as with --bind-to socket",
            places.len()
        ));
    }
    // Neighbours are together: the ranks are cut into as many blocks as there are places.
    let block = |rank: usize| match binding {
        Binding::Core => rank,
        _ => rank * places.len() / ranks,
    };
    Ok((0..ranks).map(|rank| places[block(rank)].clone()).collect())
}

/// The processors by what `of` says about each, in their order.
fn by_topology(
    system: &Path,
    usable: &[usize],
    of: impl Fn(&Path) -> Result<String, String>,
) -> Result<Vec<Vec<usize>>, String> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for &processor in usable {
        let name = of(&system.join(format!("cpu/cpu{processor}/topology")))?;
        groups.entry(name).or_default().push(processor);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort();
    Ok(groups)
}

fn by_node(system: &Path, usable: &[usize]) -> Result<Vec<Vec<usize>>, String> {
    let folder = system.join("node");
    let entries = fs::read_dir(&folder)
        .map_err(|error| format!("--bind-to numa: {}: {error}", folder.display()))?;
    let mut groups = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        if number.is_none_or(|number| number.parse::<u32>().is_err()) {
            continue;
        }
        let listed = processors(&read(&entry.path().join("cpulist"))?);
        let own: Vec<usize> = usable.iter().copied().filter(|cpu| listed.contains(cpu)).collect();
        // A node may be memory alone.
        groups.extend((!own.is_empty()).then_some(own));
    }
    groups.sort();
    match groups.is_empty() {
        true => Err("--bind-to numa: this system names no NUMA nodes; use socket".to_owned()),
        false => Ok(groups),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| format!("--bind-to: {}: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// The numbers of a list as in `0-3,8`.
fn processors(list: &str) -> Vec<usize> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    });
    ranges.flatten().collect()
}

/// The processors that this process may use.
#[cfg(target_os = "linux")]
fn usable() -> Result<Vec<usize>, String> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(None).map_err(|error| format!("--bind-to: {error}"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

#[cfg(not(target_os = "linux"))]
fn usable() -> Result<Vec<usize>, String> {
    Err("--bind-to: this system binds no process to cores; only Linux does".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Two sockets of two cores with two hardware threads each, numbered as Linux does: the second
    /// threads come after all first ones. One NUMA node per socket, and one without processors.
    fn machine() -> tempfile::TempDir {
        let system = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = system.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        for cpu in 0..8 {
            let core = cpu % 4;
            let folder = format!("cpu/cpu{cpu}/topology");
            write(format!("{folder}/core_cpus_list"), &format!("{core},{}", core + 4));
            write(format!("{folder}/physical_package_id"), if core < 2 { "0" } else { "1" });
        }
        write("node/node0/cpulist".into(), "0-1,4-5");
        write("node/node1/cpulist".into(), "2-3,6-7");
        write("node/node2/cpulist".into(), "");
        write("node/online".into(), "0-2");
        system
    }

    #[test]
    fn ranks_have_their_core_or_share_a_socket_with_their_neighbours() {
        let system = machine();
        let all: Vec<usize> = (0..8).collect();
        let on = |binding, ranks, usable: &[usize]| dealt(binding, ranks, system.path(), usable);
        let cores = on(Binding::Core, 3, &all).unwrap();
        assert_eq!(cores, [vec![0, 4], vec![1, 5], vec![2, 6]]);
        let halves = [vec![0, 1, 4, 5], vec![2, 3, 6, 7]];
        assert_eq!(on(Binding::Socket, 2, &all).unwrap(), halves);
        assert_eq!(on(Binding::Numa, 2, &all).unwrap(), halves);
        let [first, second] = &halves;
        let expected = [first, first, second, second, second].map(Clone::clone);
        let five = on(Binding::Numa, 5, &all).unwrap();
        assert_eq!(five[..2], expected[..2]);
        assert_eq!(five[3..], expected[3..]);
        assert_eq!(on(Binding::Core, 2, &[1, 2, 5]).unwrap(), [vec![1, 5], vec![2]]);
        let refused = on(Binding::Core, 3, &[1, 2, 5]).unwrap_err();
        assert!(refused.contains("3 ranks and 2 cores"), "{refused}");
    }
}
