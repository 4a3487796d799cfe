//! Who started this process, as far as the environment tells, and whether an MPI library fits to
//! that. A library that does not fit takes itself for a job of one rank, or ends the process.
//! Knows no library's functions.

use crate::env::variable::{self, Variable};

/// Whose library it is, which says by what launcher its ranks are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    /// Open MPI, whose ranks speak PMIx.
    OpenMpi,
    /// MPICH and its relatives (Intel MPI, MVAPICH, Cray MPICH), whose ranks speak PMI.
    Mpich,
}

/// What launched this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Open MPI's `mpirun`, or PRRTE's.
    OpenMpi,
    /// A launcher that speaks PMIx, as `srun --mpi=pmix`.
    Pmix,
    /// MPICH's `mpiexec` (Hydra), or another that speaks PMI.
    Pmi,
    /// `srun` without any interface for MPI.
    BareSlurm,
    /// None that is known.
    Nobody,
}

/// The launcher of this process and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launcher {
    kind: Kind,
    /// The number of ranks, if it says so.
    pub(super) size: Option<u32>,
    /// This process's rank, if it says so.
    pub(super) rank: Option<u32>,
    /// The number of ranks on this host, if it says so.
    pub(super) local_size: Option<u32>,
    /// What all ranks of one job have in common.
    pub(super) job: String,
    slurm: bool,
}

impl Launcher {
    /// Reads the process's environment.
    pub(super) fn read() -> Launcher {
        Self::from_lookup(Variable::text)
    }

    /// As [`Launcher::read`], from `lookup` in place of the environment.
    pub(super) fn from_lookup(lookup: impl Fn(Variable) -> Option<String>) -> Launcher {
        let number = |of: Variable| lookup(of).and_then(|text| text.trim().parse::<u32>().ok());
        let job = [variable::PMIX_NAMESPACE, variable::PMI_JOBID, variable::SLURM_JOB_ID];
        let slurm =
            lookup(variable::SLURM_STEP_ID).is_some() && number(variable::SLURM_PROCID).is_some();
        let tasks = number(variable::SLURM_STEP_NUM_TASKS).filter(|_| slurm);
        let kind = if number(variable::OMPI_COMM_WORLD_SIZE).is_some() {
            Kind::OpenMpi
        } else if number(variable::PMIX_RANK).is_some() {
            Kind::Pmix
        } else if number(variable::PMI_RANK).is_some() || lookup(variable::PMI_FD).is_some() {
            Kind::Pmi
        } else if tasks.is_some_and(|tasks| tasks > 1) {
            Kind::BareSlurm
        } else {
            Kind::Nobody
        };
        let (size, rank) = match kind {
            Kind::OpenMpi => {
                (number(variable::OMPI_COMM_WORLD_SIZE), number(variable::OMPI_COMM_WORLD_RANK))
            }
            Kind::Pmix => (tasks, number(variable::PMIX_RANK)),
            Kind::Pmi => (number(variable::PMI_SIZE).or(tasks), number(variable::PMI_RANK)),
            Kind::BareSlurm => (tasks, number(variable::SLURM_PROCID)),
            Kind::Nobody => (None, None),
        };
        let job = job.into_iter().find_map(&lookup).unwrap_or_default();
        let local_sizes = [variable::OMPI_COMM_WORLD_LOCAL_SIZE, variable::MPI_LOCALNRANKS];
        let local_size = local_sizes.into_iter().find_map(number).or_else(|| {
            let nodes = [variable::SLURM_STEP_TASKS_PER_NODE, variable::SLURM_TASKS_PER_NODE];
            let nodes = nodes.into_iter().find_map(&lookup).filter(|_| slurm)?;
            tasks_of_node(&nodes, number(variable::SLURM_NODEID)?)
        });
        Launcher { kind, size, rank, local_size, job, slurm }
    }

    /// Whose library is looked for first: the one that the launcher is made for, or that is known
    /// to speak its interface. Where Slurm is the launcher, another may speak it as well.
    pub(super) fn prefers(&self) -> Option<Maker> {
        match self.kind {
            Kind::OpenMpi | Kind::Pmix => Some(Maker::OpenMpi),
            Kind::Pmi => Some(Maker::Mpich),
            Kind::BareSlurm | Kind::Nobody => None,
        }
    }

    /// Whether ranks that this launcher started find one another with a library of `maker`.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(super) fn fits(&self, maker: Maker) -> Result<(), String> {
        let ranks = self.size.map_or(String::new(), |size| format!(" ({size} ranks)"));
        match (self.kind, maker) {
            (Kind::OpenMpi, Maker::Mpich) => Err(format!(
                "this process was started by Open MPI's mpirun{ranks}, which MPICH's library \
                 cannot speak to; start it with MPICH's mpiexec, or choose Open MPI's library"
            )),
            (Kind::Pmi, Maker::OpenMpi) if !self.slurm => Err(format!(
                "this process was started by MPICH's mpiexec{ranks}, under which Open MPI's \
                 library makes a job of one rank in every process; start it with Open MPI's \
                 mpirun, or choose MPICH's library"
            )),
            (Kind::BareSlurm, _) => Err(format!(
                "srun started this process{ranks} without an interface for MPI, so that every \
                 process would be a job of one rank; use srun --mpi=pmix or --mpi=pmi2"
            )),
            _ => Ok(()),
        }
    }

    /// Whether the job that the library made is the one that the launcher started.
    ///
    /// # Errors
    /// What each of them says.
    pub(super) fn agrees(&self, rank: u32, size: u32) -> Result<(), String> {
        let differs = |said: Option<u32>, is: u32| said.is_some_and(|said| said != is);
        if !differs(self.size, size) && !differs(self.rank, rank) {
            return Ok(());
        }
        let text = |number: Option<u32>| number.map_or("?".into(), |number| number.to_string());
        Err(format!(
            "the launcher started rank {} of {}, but MPI made this rank {rank} of {size}: the \
             library does not fit to the launcher",
            text(self.rank),
            text(self.size)
        ))
    }
}

/// The number of ranks on a node, in Slurm's way of writing that of each: `4(x2),3`.
fn tasks_of_node(nodes: &str, node: u32) -> Option<u32> {
    let mut end = 0_u32;
    nodes.split(',').find_map(|part| {
        let (tasks, times) = match part.trim().split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (part.trim(), 1),
        };
        end = end.saturating_add(times);
        (node < end).then(|| tasks.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn launcher(variables: &[(&str, &str)]) -> Launcher {
        Launcher::from_lookup(|variable| {
            let found = variables.iter().find(|(name, _)| *name == variable.name());
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    const OPEN_MPI: &[(&str, &str)] = &[
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_RANK", "3"),
        ("PMIX_RANK", "3"),
        ("PMIX_NAMESPACE", "prterun-1@1"),
    ];
    const HYDRA: &[(&str, &str)] = &[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_FD", "6")];

    #[test]
    fn each_library_fits_to_its_own_launcher_and_to_none() {
        for (variables, good, bad, name) in [
            (OPEN_MPI, Maker::OpenMpi, Maker::Mpich, "MPICH"),
            (HYDRA, Maker::Mpich, Maker::OpenMpi, "Open MPI"),
        ] {
            let launcher = launcher(variables);
            assert_eq!(launcher.prefers(), Some(good));
            assert_eq!(launcher.fits(good), Ok(()));
            let why = launcher.fits(bad).unwrap_err();
            assert!(why.contains("was started by"), "{why}");
            assert!(why.contains(name), "{why}");
        }
        let alone = launcher(&[]);
        assert_eq!((alone.fits(Maker::Mpich), alone.fits(Maker::OpenMpi)), (Ok(()), Ok(())));
        assert_eq!(alone.agrees(0, 1), Ok(()));
    }

    #[test]
    fn a_job_of_another_size_than_the_launchers_is_found() {
        let launcher = launcher(HYDRA);
        assert_eq!(launcher.agrees(1, 2), Ok(()));
        let why = launcher.agrees(0, 1).unwrap_err();
        assert!(why.contains("rank 1 of 2") && why.contains("rank 0 of 1"), "{why}");
    }

    #[test]
    fn slurm_says_how_many_ranks_share_a_node() {
        let of = |node| tasks_of_node("4(x2),3", node);
        assert_eq!([of(0), of(1), of(2), of(3)], [Some(4), Some(4), Some(3), None]);
        assert_eq!((tasks_of_node("2", 0), tasks_of_node("many", 0)), (Some(2), None));
        let step = [
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "7"),
            ("SLURM_STEP_TASKS_PER_NODE", "4,3"),
            ("SLURM_NODEID", "1"),
            ("PMIX_RANK", "5"),
        ];
        assert_eq!(launcher(&step).local_size, Some(3));
        // Those of the whole allocation say nothing of a process that mpirun started.
        assert_eq!(launcher(&step[3..]).local_size, None);
    }

    #[test]
    fn slurm_is_told_by_its_variables() {
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        let bare = launcher(&step);
        assert!(bare.fits(Maker::OpenMpi).unwrap_err().contains("--mpi=pmix"));
        assert!(bare.fits(Maker::Mpich).is_err());
        let pmix = launcher(&[&step[..], &[("PMIX_RANK", "1")]].concat());
        assert_eq!(pmix.fits(Maker::OpenMpi), Ok(()));
        assert_eq!(pmix.prefers(), Some(Maker::OpenMpi));
        assert_eq!((pmix.size, pmix.rank), (Some(2), Some(1)));
        let pmi2 = launcher(&[&step[..], &[("PMI_FD", "3"), ("PMI_RANK", "1")]].concat());
        assert_eq!((pmi2.fits(Maker::OpenMpi), pmi2.fits(Maker::Mpich)), (Ok(()), Ok(())));
        assert_eq!((pmi2.size, pmi2.prefers()), (Some(2), Some(Maker::Mpich)));
    }
}
