//! The table of environment variables: every one that polyrank reads, or sets for the ranks that it
//! starts. Those of the command are in `command_table.rs`; the site's page is made from both. Asks
//! for none.
//!
//! A new variable is a row here and `variable::ITS_NAME.text()` where it is needed;
//! `tests/tests/environment.rs` finds what the table lacks and what nobody uses.

#[cfg(not(target_family = "wasm"))]
use super::variable::{Row, Topic};
use super::variable::{Variable, variables};

variables! { TOPICS_OF_RANKS
    "Joining a group" {
        /// This process's rank. `polyrank run` and torchrun set it; `env://`, the default of
        /// `init_process_group`, reads it.
        RANK {
            values: "a whole number from 0",
            unset: "the argument `rank`, or what Slurm, Open MPI or Kubernetes says, or an error",
            reader: "`init_process_group`"
        }
        /// The number of ranks of the job.
        WORLD_SIZE {
            values: "a whole number from 1",
            unset: "the argument `world_size`, or what Slurm or Open MPI says, or an error",
            reader: "`init_process_group`"
        }
        /// Name or address of the host of rank 0, which serves the store.
        MASTER_ADDR {
            values: "a host name, an IPv4 or an IPv6 address",
            unset: "the first host of Slurm's step, or the one of Open MPI's job, or an error",
            reader: "`init_process_group`"
        }
        /// The port of the store on that host.
        MASTER_PORT {
            values: "a port, 0 to 65535",
            unset: "a port made of the job's name, under Slurm and Open MPI, or an error",
            reader: "`init_process_group`"
        }
        /// This process's number among those of its host.
        LOCAL_RANK {
            values: "a whole number from 0",
            unset: "the argument `fallback_rank`, or else an error",
            reader: "`get_node_local_rank`; set by `polyrank run` and torchrun"
        }
        /// The number of ranks on this host, for programs that ask for it.
        LOCAL_WORLD_SIZE {
            values: "a whole number from 1",
            unset: "nothing changes: ranks find out themselves who is on their host",
            reader: "programs; set by `polyrank run` and torchrun"
        }
        /// The number of this host among those of the job, for programs that ask for it.
        GROUP_RANK {
            values: "a whole number from 0",
            unset: "nothing changes",
            reader: "programs; set by `polyrank run` and torchrun"
        }
        /// The number of hosts of the job, for programs that ask for it.
        GROUP_WORLD_SIZE {
            values: "a whole number from 1",
            unset: "nothing changes",
            reader: "programs; set by `polyrank run` and torchrun"
        }
        /// The name of the run. Ranks of runs with different names do not join one group, though
        /// they come to one store. `polyrank run` sets it (`--run-id` chooses it); in Kubernetes
        /// nothing else names a job.
        POLYRANK_RUN_ID {
            values: "any text",
            unset: "`TORCHELASTIC_RUN_ID`, or else Slurm's job and step, or else no name",
            reader: "`init_process_group`, `is_torchelastic_launched`"
        }
        /// Which call of `spawn` in a program of Rust has started this process, and as which rank:
        /// `spawn` sets it, for itself.
        POLYRANK_SPAWN {
            values: "what `spawn` sets it to",
            unset: "`spawn` starts ranks",
            reader: "`spawn` in Rust"
        }
        /// After how many seconds it is said who is missing, where an operation is waited for that
        /// does not end.
        POLYRANK_STALL_REPORT {
            values: "seconds; `0` for never",
            unset: "10",
            reader: "every group"
        }
        /// The folder in which each rank writes what its flight recorder remembers, when an
        /// operation fails, and on SIGUSR1.
        POLYRANK_TRACE_DIR {
            values: "a folder, which is made if it is not there",
            unset: "nothing is written, but by `ProcessGroup.dump`",
            reader: "every group"
        }
        /// How much is logged: `info`, or `warn,polyrank::transport=debug` for one part more.
        POLYRANK_LOG {
            values: "`off`, `error`, `warn`, `info`, `debug`, `trace`; for parts as in `RUST_LOG`",
            unset: "what `RUST_LOG` (in the command) or `TORCH_CPP_LOG_LEVEL` says, or else `warn`",
            reader: "the packages for Python and Node, and the command"
        }
        /// As `POLYRANK_LOG`, for programs written in Rust. It may name parts of other packages,
        /// too: `warn,tokio=debug`.
        RUST_LOG {
            values: "as for `POLYRANK_LOG`, which goes before it",
            unset: "as for `POLYRANK_LOG`",
            reader: "the command `polyrank`, where a package for Python or Node does not run it"
        }
        /// In which form lines of the log go to standard error: as text for people, or each as an
        /// object of JSON.
        POLYRANK_LOG_FORMAT {
            values: "`text` or `json`",
            unset: "`text`",
            reader: "the packages for Python and Node, and the command"
        }
        /// As `POLYRANK_LOG`, as PyTorch reads it: with `INFO`, `TORCH_DISTRIBUTED_DEBUG` decides
        /// whether more is logged.
        TORCH_CPP_LOG_LEVEL {
            values: "`ERROR`, `WARNING` or `INFO`",
            unset: "`WARNING`",
            reader: "the packages for Python and Node, and the command"
        }
        /// The folder in which each process writes once a second what its groups have called,
        /// counted, for who serves that: `polyrank run --metrics-port` sets it for its ranks.
        POLYRANK_METRICS_DIR {
            values: "a folder that is there",
            unset: "nothing is written; `metrics()` tells it",
            reader: "every process with a group"
        }
        /// As `POLYRANK_TRACE_DIR`, which goes before it, but on SIGUSR1 alone: `polyrank run` sets
        /// it for its ranks.
        POLYRANK_SIGNAL_DIR {
            values: "a folder, which is made if it is not there",
            unset: "without `POLYRANK_TRACE_DIR` either, SIGUSR1 does what it does to the program",
            reader: "every group"
        }
        /// The folder in which each process writes what it has said of operations and rendezvous
        /// that wait long, for a launcher that says it once for all: `polyrank run` sets it for its
        /// ranks.
        POLYRANK_STALL_DIR {
            values: "a folder that is there",
            unset: "nothing is written; each rank says it on its own log",
            reader: "every process that waits for others"
        }
        /// As `POLYRANK_RUN_ID`, under torchrun.
        TORCHELASTIC_RUN_ID {
            values: "any text; `none` is not a name",
            unset: "as for `POLYRANK_RUN_ID`",
            reader: "`init_process_group`, `is_torchelastic_launched`"
        }
        /// How often the launcher has started the ranks again. Names an earlier start left in the
        /// store are not mistaken for those of this one, and ranks of an earlier one are refused.
        TORCHELASTIC_RESTART_COUNT {
            values: "a whole number from 0",
            unset: "the first start",
            reader: "`init_process_group`"
        }
        /// How often the launcher starts the ranks again at most, for programs that ask for it.
        TORCHELASTIC_MAX_RESTARTS {
            values: "a whole number from 0",
            unset: "nothing changes",
            reader: "programs; set by `polyrank run` and torchrun"
        }
        /// The file in which a rank that fails says why, as JSON: `@record` of PyTorch writes it.
        TORCHELASTIC_ERROR_FILE {
            values: "a path",
            unset: "the launcher shows the rank's last lines alone",
            reader: "programs; set by `polyrank run` and torchrun"
        }
        /// Whether torchrun itself serves the store, so that rank 0 does not.
        TORCHELASTIC_USE_AGENT_STORE {
            values: "`True`, or anything else for no",
            unset: "rank 0 serves the store",
            reader: "`init_process_group`"
        }
    }
    "How ranks reach each other" {
        /// What ranks of one host use.
        POLYRANK_TRANSPORT {
            values: "`auto`; `tcp`: never shared memory, nor that of windows; `shm`: shared \
                     memory, or else an error",
            unset: "`auto`: shared memory where all ranks of the host can have it, else TCP",
            reader: "backends `tcp` and `websocket`"
        }
        /// How ranks of one host that share memory copy messages of more than 4 KiB. See
        /// [How bytes travel](../concepts/transports).
        POLYRANK_COPY {
            values: "`auto`; `slots`: through slots of the shared memory; `attach`: the system \
                     copies out of the sender's memory (cross-memory attach) where it allows \
                     that, else as `slots`; `lent`: the receiver reads memory that polyrank \
                     allocated where it lies, the rest as `slots`",
            unset: "`auto`: memory that polyrank allocated is lent from 256 KiB on; messages, \
                    broadcasts, gathers and scatters of 256 KiB and more take what was measured \
                    to cost less, slots or `attach`; the rest goes through slots",
            reader: "backends `tcp` and `websocket`"
        }
        /// The network interfaces over which ranks are reached, and on which they listen. See
        /// [How bytes travel](../concepts/transports).
        POLYRANK_IFNAME {
            values: "a list of beginnings of interfaces' names, `=` before a whole name, or \
                     addresses; `^` before the list: all but these",
            unset: "`GLOO_SOCKET_IFNAME`, or else the interface towards the store's host",
            reader: "backends `tcp` and `websocket`, the store's server"
        }
        /// As `POLYRANK_IFNAME`, with whole names only, as PyTorch's backend Gloo reads it.
        GLOO_SOCKET_IFNAME {
            values: "a list of interfaces' names",
            unset: "the interface towards the store's host",
            reader: "backends `tcp` and `websocket`, the store's server"
        }
        /// The web pages that may connect, beside those of this host; `polyrank store
        /// --allow-origin` takes the place of this variable.
        POLYRANK_ALLOWED_ORIGINS {
            values: "a list of origins, as in `https://example.org`; `*`: every page",
            unset: "pages of this host only",
            reader: "the store's server, ranks that browsers connect to"
        }
        /// How long to wait for a rank whose WebSocket was lost and not closed, before it is
        /// declared dead. A server takes it for ranks that ask for nothing else; a rank that sets
        /// it asks the server for as much.
        POLYRANK_RECONNECT_GRACE_MS {
            values: "milliseconds",
            unset: "1500",
            reader: "the store's server, ranks that connect by WebSocket"
        }
        /// The root certificates that a rank trusts which is given a `wss://` URL.
        SSL_CERT_FILE {
            values: "the path of a file of certificates, as PEM",
            unset: "those of `SSL_CERT_DIR`, or else the system's",
            reader: "ranks that connect by `wss://`"
        }
        /// As `SSL_CERT_FILE`, each certificate in a file of its own.
        SSL_CERT_DIR {
            values: "paths of folders with `:` between them, as `openssl rehash` leaves them",
            unset: "those of `SSL_CERT_FILE`, or else the system's",
            reader: "ranks that connect by `wss://`"
        }
        /// What this host is called by NCCL: ranks with different names count as on different
        /// hosts, for polyrank as for NCCL.
        NCCL_HOSTID {
            values: "text",
            unset: "hosts are told apart by their boots and namespaces",
            reader: "backend `nccl`"
        }
    }
    "How collectives run" {
        /// The algorithm of a collective, instead of the one that is estimated to be the fastest.
        /// All ranks must say the same. `polyrank predict` lists the names.
        POLYRANK_ALGORITHM {
            values: "a list as in `allreduce=ring,broadcast=binomial`",
            unset: "the fastest by the links' costs",
            reader: "backends `tcp` and `websocket`"
        }
        /// The file in which `polyrank bench --calibrate` left what links cost on these hosts. What
        /// rank 0 reads counts for all ranks.
        POLYRANK_LINK_COSTS {
            values: "a path",
            unset: "the costs that polyrank assumes",
            reader: "backends `tcp` and `websocket`"
        }
        /// The folder in which ranks of one host keep what its ways to copy cost, so that the next
        /// job need not try all of them again. See [How bytes travel](../concepts/transports).
        POLYRANK_COPY_PRICES {
            values: "a path; `off`: nothing is kept",
            unset: "the folder `polyrank` in `XDG_CACHE_HOME`",
            reader: "backends `tcp` and `websocket`"
        }
        /// The folder of what programs keep for later.
        XDG_CACHE_HOME {
            values: "an absolute path",
            unset: "the folder `.cache` in `HOME`",
            reader: "backends `tcp` and `websocket`, as for `POLYRANK_COPY_PRICES`"
        }
        /// The user's own folder.
        HOME {
            values: "an absolute path",
            unset: "nothing is kept",
            reader: "backends `tcp` and `websocket`, as for `POLYRANK_COPY_PRICES`"
        }
        /// Faults on purpose, for tests of programs: before operations of a rank it is late, killed
        /// or stopped, or loses a connection. See [Debugging](../concepts/debugging).
        POLYRANK_CHAOS {
            values: "entries as `delay=5ms@2`, `delay=1ms-5ms@*`, `kill=1#40`, `stop=1#40`, \
                     `drop=0-1#40` and `seed=7`, with commas between them",
            unset: "no faults",
            reader: "whatever makes a group"
        }
        /// How much is compared before operations are issued. With `DETAIL`, ranks of the backends
        /// `mpi` and `nccl` compare through the store what they run; ranks of the others always do.
        /// All note where they call it, and say so where they disagree on an operation on tensors
        /// in the memory of the host: what is in flight on a device does not.
        POLYRANK_DEBUG {
            values: "`OFF`, `INFO` or `DETAIL`",
            unset: "`TORCH_DISTRIBUTED_DEBUG`, or else `OFF`",
            reader: "whatever makes a group"
        }
        /// As `POLYRANK_DEBUG`, as PyTorch reads it.
        TORCH_DISTRIBUTED_DEBUG {
            values: "`OFF`, `INFO` or `DETAIL`",
            unset: "`OFF`",
            reader: "whatever makes a group"
        }
    }
    "Replicas that come and go" {
        /// Where the lighthouse is that replicas ask.
        TORCHFT_LIGHTHOUSE {
            values: "`http://host:port`",
            unset: "the option `lighthouse`, or an error",
            reader: "`Manager` of `polyrank-replicas`"
        }
        /// The port at which the manager of a replica group listens, at its rank 0.
        TORCHFT_MANAGER_PORT {
            values: "a port, 0 to 65535",
            unset: "the option `port`, or any that is free",
            reader: "`Manager` of `polyrank-replicas`"
        }
        /// How long operations, votes, and the transfer of a state may take.
        TORCHFT_TIMEOUT_SEC {
            values: "seconds",
            unset: "the option `timeout`, or 60",
            reader: "`Manager` of `polyrank-replicas`"
        }
        /// How long a quorum is waited for.
        TORCHFT_QUORUM_TIMEOUT_SEC {
            values: "seconds",
            unset: "the option `quorum_timeout`, or 60",
            reader: "`Manager` of `polyrank-replicas`"
        }
        /// How long the lighthouse, the manager and the store are waited for at the start.
        TORCHFT_CONNECT_TIMEOUT_SEC {
            values: "seconds",
            unset: "the option `connect_timeout`, or 60",
            reader: "`Manager` of `polyrank-replicas`"
        }
        /// How often a quorum that failed is asked for again.
        TORCHFT_QUORUM_RETRIES {
            values: "a whole number from 0",
            unset: "the option `quorum_retries`, or 0",
            reader: "`Manager` of `polyrank-replicas`"
        }
    }
    "Where libraries are found" {
        /// The MPI library to load, whichever launcher started the process.
        POLYRANK_MPI_LIBRARY {
            values: "a path, or a name that the system's loader finds",
            unset: "the one that is loaded, or fits the launcher, or is found first",
            reader: "backend `mpi`"
        }
        /// The NCCL library to load.
        POLYRANK_NCCL_LIBRARY {
            values: "a path, or a name that the system's loader finds",
            unset: "the one that is loaded, or that the system or Python's packages have",
            reader: "backend `nccl`"
        }
        /// Folder of an Open MPI that was moved: its `lib` is looked into.
        OPAL_PREFIX {
            values: "a path",
            unset: "it is not looked into",
            reader: "backend `mpi`"
        }
        /// Folder of an active virtual environment of Python: its libraries are looked into.
        VIRTUAL_ENV {
            values: "a path",
            unset: "it is not looked into",
            reader: "backends `mpi` and `nccl`"
        }
        /// Folder of an active environment of conda: its libraries are looked into.
        CONDA_PREFIX {
            values: "a path",
            unset: "it is not looked into",
            reader: "backends `mpi` and `nccl`"
        }
        /// The library beside the first `mpiexec` on the path is looked for.
        PATH {
            values: "a list of folders",
            unset: "it is not looked into",
            reader: "backend `mpi`"
        }
        /// Whether UCX, which some MPI libraries bring, watches the process's memory. polyrank sets
        /// it to `n` before it loads such a library into a process whose heap cannot grow, where
        /// UCX crashes; a value that is there is left alone.
        UCX_MEM_EVENTS {
            values: "`y` or `n`",
            unset: "UCX's own default, or `n` where that would crash",
            reader: "backend `mpi`"
        }
    }
    "What MPI's launchers, Slurm and Kubernetes say" {
        /// This process's rank in a job of Open MPI's `mpirun`.
        OMPI_COMM_WORLD_RANK {
            values: "a whole number from 0",
            unset: "the process was not started by that launcher",
            reader: "backend `mpi`, `polyrank bench`, and `init_process_group` without `RANK`"
        }
        /// The number of ranks of a job of Open MPI's `mpirun`.
        OMPI_COMM_WORLD_SIZE {
            values: "a whole number from 1",
            unset: "the process was not started by that launcher",
            reader: "backend `mpi`, and `init_process_group` without `RANK`"
        }
        /// The number of ranks of such a job on this host.
        OMPI_COMM_WORLD_LOCAL_SIZE {
            values: "a whole number from 1",
            unset: "`MPI_LOCALNRANKS`, or else what Slurm says",
            reader: "backend `mpi`, and `init_process_group` without `RANK`"
        }
        /// The number of ranks on this host, as MPICH's `mpiexec` says.
        MPI_LOCALNRANKS {
            values: "a whole number from 1",
            unset: "what Slurm says",
            reader: "backend `mpi`"
        }
        /// This process's rank, where the launcher speaks PMIx.
        PMIX_RANK {
            values: "a whole number from 0",
            unset: "the launcher does not speak PMIx",
            reader: "backend `mpi`, `polyrank bench`, and `init_process_group` for its advice"
        }
        /// The name of the job, where the launcher speaks PMIx.
        PMIX_NAMESPACE {
            values: "any text",
            unset: "`PMI_JOBID`, or else `SLURM_JOB_ID`",
            reader: "backend `mpi`, and `init_process_group` without `RANK`"
        }
        /// This process's rank, where the launcher speaks PMI, as MPICH's does.
        PMI_RANK {
            values: "a whole number from 0",
            unset: "the launcher does not speak PMI",
            reader: "backend `mpi`, `polyrank bench`, and `init_process_group` for its advice"
        }
        /// The number of ranks, where the launcher speaks PMI.
        PMI_SIZE {
            values: "a whole number from 1",
            unset: "`SLURM_STEP_NUM_TASKS`",
            reader: "backend `mpi`"
        }
        /// The connection to a launcher that speaks PMI.
        PMI_FD {
            values: "a file descriptor",
            unset: "`PMI_RANK` tells whether there is one",
            reader: "backend `mpi`"
        }
        /// The name of the job, where the launcher speaks PMI.
        PMI_JOBID {
            values: "any text",
            unset: "`SLURM_JOB_ID`",
            reader: "backend `mpi`"
        }
        /// The number of the job in Slurm: with the step, the name of the run where nothing else
        /// names it.
        SLURM_JOB_ID {
            values: "a whole number",
            unset: "the process does not run under Slurm",
            reader: "`init_process_group`, backend `mpi`"
        }
        /// As `SLURM_JOB_ID`, the same for all components of a heterogeneous job.
        SLURM_HET_JOB_ID {
            values: "a whole number",
            unset: "`SLURM_JOB_ID`",
            reader: "`init_process_group`"
        }
        /// The number of the job's step: one call of `srun`.
        SLURM_STEP_ID {
            values: "a whole number",
            unset: "the process was not started by `srun`",
            reader: "`init_process_group`, backend `mpi`"
        }
        /// This process's number in its step.
        SLURM_PROCID {
            values: "a whole number from 0",
            unset: "the process was not started by `srun`",
            reader: "backend `mpi`, and `init_process_group` without `RANK`"
        }
        /// The number of processes of the step.
        SLURM_STEP_NUM_TASKS {
            values: "a whole number from 1",
            unset: "the process was not started by `srun`",
            reader: "backend `mpi`, and `init_process_group` without `RANK`"
        }
        /// The hosts of the step: rank 0 is taken to be on the first.
        SLURM_STEP_NODELIST {
            values: "a list as in `node[01-03,7],login`",
            unset: "`SLURM_JOB_NODELIST`",
            reader: "`init_process_group` without `MASTER_ADDR`"
        }
        /// The hosts of the job.
        SLURM_JOB_NODELIST {
            values: "a list as in `node[01-03,7],login`",
            unset: "`MASTER_ADDR` has to be set",
            reader: "`init_process_group` without `MASTER_ADDR`"
        }
        /// The number of hosts of the step.
        SLURM_STEP_NUM_NODES {
            values: "a whole number from 1",
            unset: "ranks meet on the first host of the list",
            reader: "`init_process_group` without `MASTER_ADDR`"
        }
        /// The number of processes of the step on each host.
        SLURM_STEP_TASKS_PER_NODE {
            values: "a list as in `4(x2),3`",
            unset: "`SLURM_TASKS_PER_NODE`",
            reader: "backend `mpi`"
        }
        /// The number of processes of the job on each host.
        SLURM_TASKS_PER_NODE {
            values: "a list as in `4(x2),3`",
            unset: "the library is asked",
            reader: "backend `mpi`"
        }
        /// This process's number in an indexed job of Kubernetes. `WORLD_SIZE` and `MASTER_ADDR`
        /// are the author's to set.
        JOB_COMPLETION_INDEX {
            values: "a whole number from 0",
            unset: "the process is not of an indexed job",
            reader: "`init_process_group` without `RANK`"
        }
        /// This host's number in the job.
        SLURM_NODEID {
            values: "a whole number from 0",
            unset: "the library is asked",
            reader: "backend `mpi`"
        }
    }
}
