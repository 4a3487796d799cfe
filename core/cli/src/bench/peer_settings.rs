//! How the ranks of other libraries are started: the options of their launchers, the best that are
//! public, and what the results say of them. Knows nothing of where their programs are.

use std::ffi::OsString;

use super::library::Peer;

/// How many ranks there are, and what they run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) ranks: u32,
    /// Cores that ranks may use.
    pub(super) cores: usize,
    /// Whether each rank takes its core itself.
    pub(super) is_pinned: bool,
}

impl Placement {
    /// Whether some ranks have to share a core.
    pub(super) fn is_crowded(self) -> bool {
        self.ranks as usize > self.cores
    }
}

/// The options of the launcher of an MPI up to the program; none for peers without a launcher.
pub(super) fn launcher_options(peer: Peer, placement: Placement) -> Vec<OsString> {
    if !peer.is_mpi() {
        return Vec::new();
    }
    let mut words = match peer {
        Peer::Mpich => mpich(placement),
        _ => open_mpi(peer, placement),
    };
    let ranks = placement.ranks.to_string();
    words.extend(["-n", ranks.as_str()].map(str::to_owned));
    words.into_iter().map(OsString::from).collect()
}

/// What the results say of how a peer is started, besides versions.
pub(super) fn settings(peer: Peer, placement: Placement, names: &str) -> Vec<String> {
    let said: &[&str] = match peer {
        Peer::Gloo => return vec![names.to_owned()],
        Peer::Memcpy => return Vec::new(),
        Peer::OpenMpi => &["one copy by cross-memory attach (smsc cma)"],
        Peer::OpenMpiTcp => &["TCP over loopback, no shared memory"],
        Peer::Mpich => &["shared memory and cross-memory attach as UCX chooses (UCX_TLS=all)"],
    };
    let options: Vec<String> = launcher_options(peer, placement)
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let command = format!("mpiexec {}", options.join(" "));
    std::iter::once(command).chain(said.iter().map(|text| (*text).to_owned())).collect()
}

fn open_mpi(peer: Peer, placement: Placement) -> Vec<String> {
    let mut words = vec!["--oversubscribe"];
    match (placement.is_pinned, placement.is_crowded()) {
        (false, false) => words.extend(["--map-by", "core", "--bind-to", "core"]),
        _ => words.extend(["--bind-to", "none"]),
    }
    if placement.is_crowded() {
        words.extend(["--mca", "mpi_yield_when_idle", "1"]);
    }
    if peer == Peer::OpenMpiTcp {
        words.extend(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
        words.extend(["--mca", "btl_tcp_if_include", "lo"]);
    }
    words.into_iter().map(str::to_owned).collect()
}

fn mpich(placement: Placement) -> Vec<String> {
    let binding = match (placement.is_pinned, placement.is_crowded()) {
        (false, false) => "core",
        _ => "none",
    };
    vec!["-bind-to".to_owned(), binding.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(peer: Peer, ranks: u32, is_pinned: bool) -> String {
        let placement = Placement { ranks, cores: 2, is_pinned };
        let words = launcher_options(peer, placement);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ranks_are_bound_to_cores_where_each_has_one() {
        let bound = "--oversubscribe --map-by core --bind-to core -n 2";
        assert_eq!(words(Peer::OpenMpi, 2, false), bound);
        assert!(words(Peer::OpenMpi, 4, false).contains("--bind-to none"));
        assert!(words(Peer::OpenMpi, 4, false).contains("mpi_yield_when_idle 1 -n 4"));
        assert_eq!(words(Peer::Mpich, 2, false), "-bind-to core -n 2");
        assert_eq!(words(Peer::Mpich, 4, false), "-bind-to none -n 4");
        // They take their cores themselves.
        assert!(words(Peer::OpenMpi, 2, true).contains("--bind-to none"));
        assert_eq!(words(Peer::Mpich, 2, true), "-bind-to none -n 2");
        assert!(words(Peer::OpenMpiTcp, 2, false).contains("--mca btl tcp,self"));
        assert_eq!(words(Peer::Gloo, 2, false), "");
    }

    #[test]
    fn what_is_said_names_the_launcher_and_its_options() {
        let placement = Placement { ranks: 2, cores: 2, is_pinned: false };
        let said = settings(Peer::Mpich, placement, "");
        assert_eq!(said[0], "mpiexec -bind-to core -n 2");
        assert_eq!(settings(Peer::Gloo, placement, "names"), ["names"]);
        assert!(settings(Peer::Memcpy, placement, "").is_empty());
    }
}
