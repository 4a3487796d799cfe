//! What the environment says, as the rest of the code takes it; `variable` is the table of all
//! variables. Knows nothing of what is done with them.

mod command_table;
#[cfg(not(target_family = "wasm"))]
mod launcher;
mod table;
pub mod variable;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use self::variable::Variable;
use crate::generated::error::{Error, Result};
use crate::wire::origin::AllowedOrigins;

/// What a launcher says to a process: `polyrank run` and torchrun in variables of their own; where
/// these are not set, `srun`, Open MPI's `mpirun` and Kubernetes in theirs. Every field is `None`
/// or false where nobody says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// `RANK`: this process's rank, from 0.
    pub rank: Option<u32>,
    /// `WORLD_SIZE`: the number of ranks.
    pub world_size: Option<u32>,
    /// `MASTER_ADDR`: name or address of the host of rank 0.
    pub master_addr: Option<String>,
    /// `MASTER_PORT`: the port of the store on that host.
    pub master_port: Option<u16>,
    /// `TORCHELASTIC_USE_AGENT_STORE`: whether the launcher itself hosts the store.
    pub use_agent_store: bool,
    /// Whether an MPI launcher started the process: `OMPI_COMM_WORLD_RANK`, `PMIX_RANK` or
    /// `PMI_RANK` is set.
    pub has_mpi_launcher: bool,
    /// `TORCHELASTIC_RESTART_COUNT`: how often the launcher started the ranks again.
    pub restart_count: Option<u32>,
}

impl Environment {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] naming the variable whose value cannot be read.
    pub fn read() -> Result<Self> {
        Self::from_lookup(Variable::text)
    }

    /// As [`Environment::read`], from `lookup` in place of the process's environment.
    pub fn from_lookup(lookup: impl Fn(Variable) -> Option<String>) -> Result<Self> {
        let said = Self::of_c10d(&lookup)?;
        #[cfg(not(target_family = "wasm"))]
        let other = launcher::launched(&lookup)?;
        #[cfg(target_family = "wasm")]
        let other = Self::default();
        Ok(Self {
            rank: said.rank.or(other.rank),
            world_size: said.world_size.or(other.world_size),
            master_addr: said.master_addr.or(other.master_addr),
            master_port: said.master_port.or(other.master_port),
            ..said
        })
    }

    /// As [`Environment::from_lookup`], of the variables made for c10d alone: for who has rank and
    /// size from elsewhere.
    ///
    /// # Errors
    /// As [`Environment::read`].
    pub(crate) fn of_c10d(lookup: impl Fn(Variable) -> Option<String>) -> Result<Self> {
        let use_agent_store = lookup(variable::TORCHELASTIC_USE_AGENT_STORE);
        let launchers = [variable::OMPI_COMM_WORLD_RANK, variable::PMIX_RANK, variable::PMI_RANK];
        Ok(Self {
            rank: number(variable::RANK, &lookup)?,
            world_size: number(variable::WORLD_SIZE, &lookup)?,
            master_addr: lookup(variable::MASTER_ADDR),
            master_port: number(variable::MASTER_PORT, &lookup)?,
            use_agent_store: use_agent_store.as_deref() == Some("True"),
            has_mpi_launcher: launchers.into_iter().any(|rank| lookup(rank).is_some()),
            restart_count: number(variable::TORCHELASTIC_RESTART_COUNT, &lookup)?,
        })
    }
}

/// The name of the run that this process belongs to, if anything names it: the ranks of two runs
/// that come to one store are kept apart by it.
pub fn run_id() -> Option<String> {
    run_id_from(Variable::text)
}

/// How often the launcher had started its ranks again when it started this process, if it says so.
pub(crate) fn restart_count() -> Option<u32> {
    variable::TORCHELASTIC_RESTART_COUNT.text()?.parse().ok()
}

/// As [`run_id`], from `lookup` in place of the process's environment. The first of
/// `POLYRANK_RUN_ID` (also `polyrank run --run-id`), `TORCHELASTIC_RUN_ID`, Slurm's job with its
/// step, and the name that launchers have for a job that speak PMIx. In Kubernetes nothing names a
/// job: its author sets `POLYRANK_RUN_ID`.
fn run_id_from(lookup: impl Fn(Variable) -> Option<String>) -> Option<String> {
    // What torchrun says if nobody named its run.
    let torch = || lookup(variable::TORCHELASTIC_RUN_ID).filter(|name| name != "none");
    let slurm = || {
        // The components of a heterogeneous job have numbers of their own beside the job's.
        let job = lookup(variable::SLURM_HET_JOB_ID).or_else(|| lookup(variable::SLURM_JOB_ID))?;
        let step = lookup(variable::SLURM_STEP_ID).map(|step| format!(".{step}"));
        let step = step.unwrap_or_default();
        Some(format!("slurm-{job}{step}"))
    };
    let pmix = || lookup(variable::PMIX_NAMESPACE).map(|job| format!("pmix-{job}"));
    lookup(variable::POLYRANK_RUN_ID).or_else(torch).or_else(slurm).or_else(pmix)
}

/// What the environment says about ranks that are reached by WebSocket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebSocketEnvironment {
    /// `POLYRANK_ALLOWED_ORIGINS`: the pages that may connect, beside those of this host.
    pub allowed_origins: AllowedOrigins,
    /// `POLYRANK_RECONNECT_GRACE_MS`: how long to wait for a rank whose WebSocket was lost and not
    /// closed, ms. A server takes it for ranks that ask for nothing else, 1500 where it is not set;
    /// a rank that sets it asks the server for as much.
    pub reconnect_grace_ms: Option<u32>,
}

impl WebSocketEnvironment {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] naming the variable whose value cannot be read.
    pub fn read() -> Result<Self> {
        Self::from_lookup(Variable::text)
    }

    /// As [`WebSocketEnvironment::read`], from `lookup` in place of the process's environment.
    pub fn from_lookup(lookup: impl Fn(Variable) -> Option<String>) -> Result<Self> {
        const ORIGINS: Variable = variable::POLYRANK_ALLOWED_ORIGINS;
        let origins = lookup(ORIGINS).unwrap_or_default();
        Ok(Self {
            allowed_origins: AllowedOrigins::parse(&origins).map_err(|why| Error::Rendezvous {
                message: format!("environment variable {ORIGINS}: {why}"),
            })?,
            reconnect_grace_ms: number(variable::POLYRANK_RECONNECT_GRACE_MS, &lookup)?,
        })
    }
}

/// `POLYRANK_LINK_COSTS`: the file in which `polyrank bench --calibrate` left what links cost, as
/// rank 0 sees it; the others learn it from rank 0.
pub fn link_costs_file() -> Option<PathBuf> {
    variable::POLYRANK_LINK_COSTS.value().map(PathBuf::from)
}

/// Most bytes of a file of link costs, which holds a line for each class of links.
const MAX_LINK_COSTS_BYTES: u64 = 64 << 10;

/// The text of a file of link costs. It is somebody's argument, and could be anything.
///
/// # Errors
/// The file cannot be read, or is too long for one.
#[doc(hidden)]
pub fn read_link_costs(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_LINK_COSTS_BYTES + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_LINK_COSTS_BYTES {
        true => Err(io::Error::other("it is too long for a file of `polyrank bench --calibrate`")),
        false => Ok(text),
    }
}

/// The folder in which what copies cost is kept, if it is. Where the user has chosen how to copy,
/// it is not: what is measured then says little of a free choice.
#[doc(hidden)]
pub fn prices_folder() -> Option<PathBuf> {
    prices_folder_from(Variable::value)
}

/// As [`prices_folder`], from `lookup` in place of the process's environment:
/// `POLYRANK_COPY_PRICES`, or else `polyrank` in the folder in which the user's programs keep what
/// they can make again.
fn prices_folder_from(lookup: impl Fn(Variable) -> Option<OsString>) -> Option<PathBuf> {
    let is_auto = |value: OsString| value.to_string_lossy().trim().eq_ignore_ascii_case("auto");
    let is_free = |variable| lookup(variable).is_none_or(is_auto);
    let chosen = [variable::POLYRANK_COPY, variable::POLYRANK_TRANSPORT];
    if !chosen.into_iter().all(is_free) || lookup(variable::POLYRANK_ALGORITHM).is_some() {
        return None;
    }
    // A relative path would depend on where the program was started.
    let absolute = |variable| lookup(variable).map(PathBuf::from).filter(|it| it.is_absolute());
    match lookup(variable::POLYRANK_COPY_PRICES) {
        Some(off) if off.eq_ignore_ascii_case("off") => None,
        Some(folder) => Some(PathBuf::from(folder)),
        None => {
            let home = || Some(absolute(variable::HOME)?.join(".cache"));
            Some(absolute(variable::XDG_CACHE_HOME).or_else(home)?.join("polyrank"))
        }
    }
}

/// What the environment says about how ranks reach each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportEnvironment {
    /// `POLYRANK_TRANSPORT`: what ranks of one host use.
    pub transport: TransportChoice,
    /// `POLYRANK_COPY`: how ranks of one host that share memory copy long messages.
    pub copy: CopyChoice,
    /// `POLYRANK_IFNAME`, or `GLOO_SOCKET_IFNAME` where that is not set: the network interfaces
    /// over which ranks are reached, as the variable and its value.
    pub interfaces: Option<(Variable, String)>,
}

/// What ranks of one host use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The best that there is.
    #[default]
    Auto,
    /// TCP, as between hosts.
    Tcp,
    /// Shared memory; a group for which that is not possible is an error.
    Shm,
}

/// How ranks of one host that share memory copy long messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyChoice {
    /// Whatever is fastest.
    #[default]
    Auto,
    /// Through slots of the shared memory: the sender writes, the receiver reads.
    Slots,
    /// The system copies out of the sender's memory (cross-memory attach), where it allows that.
    Attach,
    /// The receiver reads memory that polyrank has allocated where it lies; the rest goes through
    /// slots.
    Lent,
}

impl TransportEnvironment {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] naming the variable whose value is none of those expected.
    pub fn read() -> Result<Self> {
        Self::from_lookup(Variable::text)
    }

    /// As [`TransportEnvironment::read`], from `lookup` in place of the process's environment.
    pub fn from_lookup(lookup: impl Fn(Variable) -> Option<String>) -> Result<Self> {
        let text = lookup(variable::POLYRANK_TRANSPORT).unwrap_or_default();
        let transport = match text.trim().to_ascii_lowercase().as_str() {
            "" | "auto" => TransportChoice::Auto,
            "tcp" => TransportChoice::Tcp,
            "shm" => TransportChoice::Shm,
            _ => {
                let expected = "auto, tcp or shm is expected";
                return Err(unexpected(variable::POLYRANK_TRANSPORT, &text, expected));
            }
        };
        let text = lookup(variable::POLYRANK_COPY).unwrap_or_default();
        let copy = match text.trim().to_ascii_lowercase().as_str() {
            "" | "auto" => CopyChoice::Auto,
            "slots" => CopyChoice::Slots,
            "attach" => CopyChoice::Attach,
            "lent" => CopyChoice::Lent,
            _ => {
                let expected = "auto, slots, attach or lent is expected";
                return Err(unexpected(variable::POLYRANK_COPY, &text, expected));
            }
        };
        let lists = [variable::POLYRANK_IFNAME, variable::GLOO_SOCKET_IFNAME];
        let interfaces = lists.into_iter().find_map(|variable| {
            let list = lookup(variable).filter(|list| !list.trim().is_empty())?;
            Some((variable, list))
        });
        Ok(Self { transport, copy, interfaces })
    }
}

fn unexpected(variable: Variable, text: &str, expected: &str) -> Error {
    let message = format!("environment variable {variable} is '{text}'; {expected}");
    Error::Rendezvous { message }
}

fn number<T: TryFrom<u64>>(
    variable: Variable,
    lookup: impl Fn(Variable) -> Option<String>,
) -> Result<Option<T>> {
    let Some(text) = lookup(variable) else { return Ok(None) };
    let number = text.trim().parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(Error::Rendezvous {
            message: format!(
                "environment variable {variable} is '{text}'; a whole number from 0 to {} is \
                 expected",
                (1u64 << (8 * size_of::<T>())) - 1
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::collections::HashMap;

    use super::*;

    /// An environment that has these variables.
    fn having(variables: &[(&str, &str)]) -> impl Fn(Variable) -> Option<String> {
        let variables: HashMap<String, String> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        move |variable| variables.get(variable.name()).cloned()
    }

    fn read(variables: &[(&str, &str)]) -> Result<Environment> {
        Environment::from_lookup(having(variables))
    }

    #[test]
    fn what_is_set_is_read() {
        assert_eq!(read(&[]).unwrap(), Environment::default());
        let environment = read(&[
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("MASTER_ADDR", "::1"),
            ("MASTER_PORT", "65535"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
        ]);
        let expected = Environment {
            rank: Some(3),
            world_size: Some(4),
            master_addr: Some("::1".into()),
            master_port: Some(65535),
            use_agent_store: true,
            restart_count: Some(2),
            ..Environment::default()
        };
        assert_eq!(environment.unwrap(), expected);
    }

    #[test]
    fn what_is_set_for_c10d_goes_before_what_other_launchers_say() {
        let step = [
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_NODES", "1"),
        ];
        let of_srun = read(&step).unwrap();
        assert_eq!((of_srun.rank, of_srun.world_size), (Some(1), Some(2)));
        assert_eq!(of_srun.master_addr.as_deref(), Some("127.0.0.1"));
        let told =
            [("RANK", "7"), ("WORLD_SIZE", "16"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "5")];
        let environment = read(&[&step[..], &told].concat()).unwrap();
        assert_eq!((environment.rank, environment.world_size), (Some(7), Some(16)));
        assert_eq!(environment.master_addr.as_deref(), Some("a"));
        assert_eq!(environment.master_port, Some(5));
        assert!(read(&[&step[..2], &[("SLURM_PROCID", "x")]].concat()).is_err());
    }

    #[test]
    fn a_run_has_the_name_that_the_nearest_launcher_gave_it() {
        let slurm = [("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "3")];
        let torch = ("TORCHELASTIC_RUN_ID", "torch");
        let ours = ("POLYRANK_RUN_ID", "ours");
        for (variables, expected) in [
            (vec![], None),
            (vec![("TORCHELASTIC_RUN_ID", "none")], None),
            (slurm[..1].to_vec(), Some("slurm-12")),
            (slurm.to_vec(), Some("slurm-12.3")),
            (vec![slurm[0], slurm[1], ("SLURM_HET_JOB_ID", "11")], Some("slurm-11.3")),
            (vec![("PMIX_NAMESPACE", "prterun-a-7@1")], Some("pmix-prterun-a-7@1")),
            (vec![slurm[0], torch], Some("torch")),
            (vec![slurm[0], torch, ours], Some("ours")),
        ] {
            assert_eq!(run_id_from(having(&variables)).as_deref(), expected, "{variables:?}");
        }
    }

    #[test]
    fn settings_of_websockets_have_defaults() {
        let read =
            |variables: &[(&str, &str)]| WebSocketEnvironment::from_lookup(having(variables));
        assert_eq!(read(&[]).unwrap(), WebSocketEnvironment::default());
        let variables =
            [("POLYRANK_ALLOWED_ORIGINS", "*"), ("POLYRANK_RECONNECT_GRACE_MS", "60000")];
        let settings = read(&variables).unwrap();
        assert_eq!(settings.reconnect_grace_ms, Some(60_000));
        assert!(settings.allowed_origins.allow(Some("https://any.example"), None));
        let error = read(&[("POLYRANK_RECONNECT_GRACE_MS", "soon")]).unwrap_err().to_string();
        assert!(error.contains("POLYRANK_RECONNECT_GRACE_MS"), "{error}");
        let error = read(&[("POLYRANK_ALLOWED_ORIGINS", "example.org")]).unwrap_err().to_string();
        assert!(
            error.contains("POLYRANK_ALLOWED_ORIGINS: 'example.org' is not an origin"),
            "{error}"
        );
    }

    #[test]
    fn prices_are_kept_in_the_users_cache_unless_something_is_chosen() {
        let home = ("HOME", "/ada");
        for (variables, expected) in [
            (vec![], None),
            (vec![home], Some("/ada/.cache/polyrank")),
            (vec![("HOME", "ada")], None),
            (vec![home, ("XDG_CACHE_HOME", "/cache")], Some("/cache/polyrank")),
            (vec![home, ("XDG_CACHE_HOME", "cache")], Some("/ada/.cache/polyrank")),
            (vec![home, ("POLYRANK_COPY_PRICES", "prices")], Some("prices")),
            (vec![home, ("POLYRANK_COPY_PRICES", "OFF")], None),
            (vec![home, ("POLYRANK_COPY", "slots")], None),
            (vec![home, ("POLYRANK_COPY", " Auto")], Some("/ada/.cache/polyrank")),
            (vec![home, ("POLYRANK_TRANSPORT", "tcp")], None),
            (vec![home, ("POLYRANK_ALGORITHM", "allreduce=ring")], None),
        ] {
            let lookup = |variable| having(&variables)(variable).map(OsString::from);
            let expected = expected.map(PathBuf::from);
            assert_eq!(prices_folder_from(lookup), expected, "{variables:?}");
        }
    }

    #[test]
    fn transports_have_names() {
        let read = |value: &'static str| {
            let lookup = |name| (name == variable::POLYRANK_TRANSPORT).then(|| value.to_owned());
            TransportEnvironment::from_lookup(lookup).map(|it| it.transport)
        };
        assert_eq!(read("").unwrap(), TransportChoice::Auto);
        assert_eq!(read("TCP").unwrap(), TransportChoice::Tcp);
        assert_eq!(read("shm").unwrap(), TransportChoice::Shm);
        let error = read("pigeon").unwrap_err().to_string();
        assert!(error.contains("POLYRANK_TRANSPORT is 'pigeon'"), "{error}");
    }

    #[test]
    fn ways_to_copy_have_names() {
        let read = |value: &'static str| {
            let lookup = |name| (name == variable::POLYRANK_COPY).then(|| value.to_owned());
            TransportEnvironment::from_lookup(lookup).map(|it| it.copy)
        };
        for (name, choice) in [
            ("", CopyChoice::Auto),
            ("auto", CopyChoice::Auto),
            ("Slots", CopyChoice::Slots),
            (" attach ", CopyChoice::Attach),
            ("lent", CopyChoice::Lent),
        ] {
            assert_eq!(read(name).unwrap(), choice, "{name:?}");
        }
        let error = read("xerox").unwrap_err().to_string();
        assert!(error.contains("POLYRANK_COPY is 'xerox'; auto, slots, attach or lent"), "{error}");
    }

    #[test]
    fn a_value_that_is_no_number_is_named() {
        for (name, value, range) in [
            ("RANK", "-1", "0 to 4294967295"),
            ("WORLD_SIZE", "two", "0 to 4294967295"),
            ("MASTER_PORT", "65536", "0 to 65535"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            for part in [name, value, range] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}
