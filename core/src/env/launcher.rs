//! What launchers say that are not made for c10d: Slurm's `srun`, MPI's, and Kubernetes. Knows
//! nothing of how ranks meet.

use super::number;
use super::variable::{self, Variable};
use crate::fnv::Fnv;
use crate::generated::error::Result;

/// What a launcher says to a process, as far as it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Launched {
    pub(super) rank: Option<u32>,
    pub(super) world_size: Option<u32>,
    /// The host of rank 0.
    pub(super) master_addr: Option<String>,
    /// A port that all ranks of the job, and few of others, come to think of.
    pub(super) master_port: Option<u16>,
}

/// The ports that jobs are dealt out to: below those that systems hand out to whoever asks for any.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// The port of a job that has its hosts for itself, as torchrun's.
const USUAL_PORT: u16 = 29_500;
/// Where ranks meet that share a host.
const THIS_HOST: &str = "127.0.0.1";

/// What the launcher says that started this process; nothing if none is known.
///
/// # Errors
/// As [`number`].
pub(super) fn launched(lookup: &impl Fn(Variable) -> Option<String>) -> Result<Launched> {
    // The launchers of MPI may run in a step of Slurm's, and start their ranks by others: what
    // these steps say of themselves reaches the ranks, and is not about them.
    if lookup(variable::OMPI_COMM_WORLD_RANK).is_some() {
        return of_open_mpi(lookup);
    }
    // `srun` says so within a step only: a batch script is not a rank.
    if lookup(variable::SLURM_STEP_ID).is_some() && lookup(variable::SLURM_STEP_NUM_TASKS).is_some()
    {
        let launched = of_slurm(lookup)?;
        let (rank, size) =
            (number(variable::PMI_RANK, lookup)?, number(variable::PMI_SIZE, lookup)?);
        let differs = |said: Option<u32>, inner: Option<u32>| inner.is_some() && said != inner;
        let is_of_another = differs(launched.rank, rank) || differs(launched.world_size, size);
        return Ok(if is_of_another { Launched::default() } else { launched });
    }
    if lookup(variable::JOB_COMPLETION_INDEX).is_some() {
        let rank = number(variable::JOB_COMPLETION_INDEX, lookup)?;
        return Ok(Launched { rank, master_port: Some(USUAL_PORT), ..Launched::default() });
    }
    Ok(Launched::default())
}

/// A step of a job: its first host has rank 0, unless the user has dealt out the ranks otherwise.
fn of_slurm(lookup: &impl Fn(Variable) -> Option<String>) -> Result<Launched> {
    let lists = [variable::SLURM_STEP_NODELIST, variable::SLURM_JOB_NODELIST];
    let first = lists.into_iter().find_map(lookup).and_then(|list| first_host(&list));
    let is_one_host = number::<u32>(variable::SLURM_STEP_NUM_NODES, lookup)? == Some(1);
    let job = [variable::SLURM_JOB_ID, variable::SLURM_STEP_ID].map(lookup);
    Ok(Launched {
        rank: number(variable::SLURM_PROCID, lookup)?,
        world_size: number(variable::SLURM_STEP_NUM_TASKS, lookup)?,
        master_addr: if is_one_host { Some(THIS_HOST.to_owned()) } else { first },
        master_port: Some(port_of(&job.map(Option::unwrap_or_default).join("."))),
    })
}

/// Open MPI's launcher does not say which host has rank 0; where there is one, it needs not.
fn of_open_mpi(lookup: &impl Fn(Variable) -> Option<String>) -> Result<Launched> {
    let world_size = number(variable::OMPI_COMM_WORLD_SIZE, lookup)?;
    let is_one_host = number(variable::OMPI_COMM_WORLD_LOCAL_SIZE, lookup)? == world_size;
    let job = lookup(variable::PMIX_NAMESPACE).filter(|_| is_one_host);
    Ok(Launched {
        rank: number(variable::OMPI_COMM_WORLD_RANK, lookup)?,
        world_size,
        master_addr: job.is_some().then(|| THIS_HOST.to_owned()),
        master_port: job.map_or(Some(USUAL_PORT), |job| Some(port_of(&job))),
    })
}

/// The port of a job, by its name.
fn port_of(job: &str) -> u16 {
    let ports = u64::from(PORTS.end - PORTS.start);
    // Less than the number of ports.
    PORTS.start + (Fnv::of(job.bytes()) % ports) as u16
}

/// The first host of a list of Slurm's: `node01` of `node[01-03,7],login`, and `rack1node2` of
/// `rack[1-4]node[2,3]`.
fn first_host(list: &str) -> Option<String> {
    let (mut host, mut rest) = (String::new(), list.trim());
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        let Some(inside) = rest[end..].strip_prefix('[') else { break };
        let (numbers, after) = inside.split_once(']')?;
        host.push_str(numbers.split([',', '-']).next().unwrap_or_default());
        rest = after;
    }
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn says(variables: &[(&str, &str)]) -> Launched {
        let lookup = |variable: Variable| {
            let found = variables.iter().find(|(name, _)| *name == variable.name());
            found.map(|(_, value)| (*value).to_owned())
        };
        launched(&lookup).unwrap()
    }

    #[test]
    fn the_first_host_of_a_list_of_slurms_is_found() {
        for (list, first) in [
            ("node7", "node7"),
            ("node7,node9", "node7"),
            ("node[01-03,7],login", "node01"),
            ("gpu[007]", "gpu007"),
            ("login,node[01-03]", "login"),
            ("rack[1-4]node[2,3]-ib", "rack1node2-ib"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
        for wrong in ["", "node[01-03"] {
            assert_eq!(first_host(wrong), None);
        }
    }

    #[test]
    fn steps_of_slurm_meet_on_their_first_host_and_batch_scripts_nowhere() {
        let step = [
            ("SLURM_JOB_ID", "812"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_NODELIST", "node[03-04]"),
        ];
        let met = says(&step);
        assert_eq!((met.rank, met.world_size), (Some(5), Some(8)));
        assert_eq!(met.master_addr.as_deref(), Some("node03"));
        assert!(PORTS.contains(&met.master_port.unwrap()));
        let next = says(&[&[("SLURM_STEP_ID", "1")], &step[..1], &step[2..]].concat());
        assert_ne!(met.master_port, next.master_port);
        let one_host = says(&[&[("SLURM_STEP_NUM_NODES", "1")], &step[..]].concat());
        assert_eq!(one_host.master_addr.as_deref(), Some("127.0.0.1"));
        let batch = [("SLURM_JOB_ID", "812"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        assert_eq!(says(&batch), Launched::default());
    }

    #[test]
    fn a_launcher_of_mpi_within_a_step_says_what_the_step_does_not() {
        let step = [
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "1"),
            ("SLURM_STEP_NUM_NODES", "1"),
        ];
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let inner = says(&[&step[..], &open_mpi].concat());
        assert_eq!((inner.rank, inner.world_size), (Some(2), Some(4)));
        // MPICH's says which rank this is to the library only.
        let mpich = [("PMI_RANK", "0"), ("PMI_SIZE", "4")];
        assert_eq!(says(&[&step[..], &mpich].concat()), Launched::default());
        // As `srun --mpi=pmi2` does.
        let same = says(&[&step[..], &[("PMI_RANK", "0"), ("PMI_SIZE", "1")]].concat());
        assert_eq!((same.rank, same.world_size), (Some(0), Some(1)));
    }

    #[test]
    fn ranks_of_open_mpi_meet_where_they_share_a_host() {
        let rank = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
            ("PMIX_NAMESPACE", "prterun-host-77@1"),
        ];
        let met = says(&rank);
        assert_eq!((met.rank, met.world_size), (Some(1), Some(3)));
        assert_eq!(met.master_addr.as_deref(), Some("127.0.0.1"));
        assert!(PORTS.contains(&met.master_port.unwrap()));
        let apart = says(&[&[("OMPI_COMM_WORLD_LOCAL_SIZE", "2")], &rank[..]].concat());
        assert_eq!(
            (apart.rank, apart.master_addr, apart.master_port),
            (Some(1), None, Some(29500))
        );
    }

    #[test]
    fn an_indexed_job_of_kubernetes_says_the_rank_only() {
        let met = says(&[("JOB_COMPLETION_INDEX", "4")]);
        assert_eq!((met.rank, met.world_size, met.master_addr), (Some(4), None, None));
        assert_eq!(met.master_port, Some(29500));
    }
}
