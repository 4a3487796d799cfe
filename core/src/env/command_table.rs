//! The rows of the environment variables that only the command `polyrank` reads or sets, and what
//! serves under it. Asks for none.

#[cfg(not(target_family = "wasm"))]
use super::variable::{Row, Topic};
use super::variable::{Variable, variables};

variables! { TOPICS_OF_THE_COMMAND
    "The command `polyrank`" {
        /// The interpreter that runs scripts of Python.
        POLYRANK_PYTHON {
            values: "a path, or a name on the path",
            unset: "`python3`; the command that comes with the Python package takes its own",
            reader: "`polyrank run`, `polyrank bench`"
        }
        /// The program that runs scripts of JavaScript.
        POLYRANK_NODE {
            values: "a path, or a name on the path",
            unset: "`node`; the command that comes with the Node package takes its own",
            reader: "`polyrank run`, `polyrank bench`"
        }
        /// MPI's launcher for `polyrank run --with-mpi`.
        POLYRANK_MPIEXEC {
            values: "a path, or a name on the path",
            unset: "the `mpiexec` of the program's environment, or the first on the path",
            reader: "`polyrank run`"
        }
        /// What reaches the hosts of `polyrank run --hosts`; it is called as `ssh` is.
        POLYRANK_SSH {
            values: "a path, or a name on the path",
            unset: "`ssh`",
            reader: "`polyrank run`"
        }
        /// What replicas must know to ask a lighthouse.
        POLYRANK_TOKEN {
            values: "8 to 1024 visible characters",
            unset: "it has none",
            reader: "`polyrank lighthouse`, `Manager` of `polyrank-replicas`"
        }
        /// `1`: a lighthouse, or a manager, without a token may be reached from other hosts.
        POLYRANK_INSECURE {
            values: "`1`",
            unset: "no",
            reader: "`polyrank lighthouse`, `Manager` of `polyrank-replicas`"
        }
        /// The number of the replica that a rank is of, as torchft has it.
        REPLICA_GROUP_ID {
            values: "a whole number from 0",
            unset: "`polyrank run --replicas` sets it for the ranks",
            reader: "programs"
        }
        /// The number of replicas of the job, as far as it is known at the start.
        NUM_REPLICA_GROUPS {
            values: "a whole number from 1",
            unset: "`polyrank run --replicas` sets it for the ranks",
            reader: "programs"
        }
        /// The name or address under which managers of other hosts reach those of this one.
        POLYRANK_MANAGER_HOST {
            values: "a host name, an IPv4 or an IPv6 address",
            unset: "the option `hostname`; `polyrank run --replicas` over several nodes sets it",
            reader: "`Manager` of `polyrank-replicas`"
        }
        /// The devices that this process may use: `-n gpu` counts them.
        CUDA_VISIBLE_DEVICES {
            values: "a list of numbers or names; empty or `-1`: none",
            unset: "all devices of the host",
            reader: "`polyrank run`; the CUDA driver itself"
        }
        /// No colours.
        NO_COLOR {
            values: "anything",
            unset: "colours where the output is a terminal",
            reader: "`polyrank run`"
        }
        /// Whether Python writes its output immediately. A rank that is killed would lose its last
        /// lines.
        PYTHONUNBUFFERED {
            values: "as Python says",
            unset: "`polyrank run` sets it to 1 for the ranks",
            reader: "`polyrank run`, `polyrank bench`"
        }
        /// The number of threads of numerical libraries in each rank.
        OMP_NUM_THREADS {
            values: "a whole number from 1",
            unset: "`polyrank run` sets it to 1 if a host has several ranks",
            reader: "`polyrank run`, `polyrank bench`"
        }
        /// Whether Open MPI 4 starts more ranks than there are cores.
        OMPI_MCA_rmaps_base_oversubscribe {
            values: "`0` or `1`",
            unset: "`polyrank run --with-mpi` sets it to 1",
            reader: "`polyrank run`"
        }
        /// Whether Open MPI 5 starts more ranks than there are cores.
        PRTE_MCA_rmaps_default_mapping_policy {
            values: "as PRRTE says",
            unset: "`polyrank run --with-mpi` sets it to `:oversubscribe`",
            reader: "`polyrank run`"
        }
        /// The algorithm of Open MPI's allreduce that does not block.
        OMPI_MCA_coll_libnbc_iallreduce_algorithm {
            values: "as Open MPI says",
            unset: "`polyrank run --with-mpi` sets it to `ring` for up to 3 ranks, where Open \
                    MPI's own choice takes twice as long",
            reader: "`polyrank run`"
        }
        /// Whether Open MPI's launcher serves the superuser, as in a container.
        OMPI_ALLOW_RUN_AS_ROOT {
            values: "`1`",
            unset: "`polyrank bench` sets it to 1",
            reader: "`polyrank bench`"
        }
        /// As `OMPI_ALLOW_RUN_AS_ROOT`: it wants to hear it twice.
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM {
            values: "`1`",
            unset: "`polyrank bench` sets it to 1",
            reader: "`polyrank bench`"
        }
        /// The Python whose PyTorch `polyrank bench` compares with.
        POLYRANK_BENCH_GLOO {
            values: "a path",
            unset: "the option `--python gloo=…`, or else `python3`",
            reader: "`polyrank bench`"
        }
        /// The Python whose mpi4py, over Open MPI, `polyrank bench` compares with.
        POLYRANK_BENCH_OPENMPI {
            values: "a path",
            unset: "the option `--python openmpi=…`, or else `python3`",
            reader: "`polyrank bench`"
        }
        /// The Python whose mpi4py, over MPICH, `polyrank bench` compares with.
        POLYRANK_BENCH_MPICH {
            values: "a path",
            unset: "the option `--python mpich=…`, or else `python3`",
            reader: "`polyrank bench`"
        }
        /// What a rank of a benchmark has to do, as JSON: the benchmark's own word to it.
        POLYRANK_BENCH {
            values: "not for users",
            unset: "the process is not a rank of a benchmark",
            reader: "ranks of `polyrank bench`"
        }
        /// The commit that the command is built from, for the results of `polyrank bench`. Read
        /// when it is compiled.
        POLYRANK_COMMIT {
            values: "a commit's hash",
            unset: "git is asked, in a release build",
            reader: "`cargo build`"
        }
    }
}
