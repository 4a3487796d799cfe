//! The command line of `polyrank run`, read into a [`Job`]: which programs run as which ranks.
//! Knows nothing of processes.

pub(crate) mod elsewhere;
pub(crate) mod hosts;
pub(crate) mod job;
pub(crate) mod options;
pub(crate) mod parts;
mod rendezvous;
mod replicas;
pub(crate) mod spelling;
pub(crate) mod streams;

pub(crate) const EXAMPLES: &str = "\
Examples:
  polyrank run -n 4 python train.py --epochs 3
      Four ranks of one program. A program that ends in .py runs under python by itself, one in
      .js, .mjs or .cjs under node.
  polyrank run -n cpu ./target/release/train
      One rank per core.
  polyrank run -n 2 python train.py : -n 2 ./target/release/train
      One job of two programs, as mpirun has it: ranks 0 and 1 are Python, 2 and 3 are Rust.
  polyrank run --external 1 -n 2 python train.py : -n 1 node train.mjs
      A job of four: ranks 0 to 2 start here, rank 3 joins from elsewhere, as a page in a browser
      does. Its URL is shown at the start.
  polyrank run --with-mpi -n 4 python train.py
      Four ranks of one MPI job, as the mpi backend needs them. MPI's mpiexec starts them: that of
      the program's Python environment, or the first on the path; POLYRANK_MPIEXEC may name another.
  polyrank run -np 6 --hosts a,b:4 -x DATA python train.py
      Six ranks on two hosts, at most four of them on b. ssh starts this command there, in the same
      folder; POLYRANK_SSH may name another program for that.
  polyrank run --nnodes 2 --node-rank 0 --master-addr host-a -n 8 python train.py
      The first of two nodes; start the same with --node-rank 1 on the other one.
  polyrank run --nnodes 2 -n 8 --rdzv-backend c10d --rdzv-endpoint host-a:29400 \\
      --max-restarts 3 --log-dir logs python train.py
      The same command on both nodes, as with torchrun. If a rank fails, all are started again.
      With --nnodes 1:4 nodes may come and go, and all ranks are started again each time, which
      uses up none of --max-restarts.
  polyrank run --replicas 3 --min-replicas 2 -n 2 --max-restarts 5 python train.py
      Three replicas of two ranks that train by Manager, with a lighthouse. One that fails is
      started again alone, at most five times; without it the others go on while two are left.
  polyrank run --nnodes 1:4 --replicas 1 -n 8 --rdzv-backend c10d --rdzv-endpoint host-a:29400 \\
      python train.py
      The same command on each host, at any time: it adds a replica of eight ranks to the job, and
      takes it away when it ends. No other rank is started again.

Every rank finds in its environment what torchrun sets: RANK, LOCAL_RANK, WORLD_SIZE,
LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, ROLE_NAME, ROLE_RANK, ROLE_WORLD_SIZE, MASTER_ADDR,
MASTER_PORT, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_MAX_RESTARTS,
TORCHELASTIC_ERROR_FILE, and POLYRANK_RUN_ID. PYTHONUNBUFFERED=1 is set, and with more than one rank
OMP_NUM_THREADS=1, unless they are set already. Rank 0 reads the launcher's standard input unless
that is a terminal or the ranks are on --hosts; the others read nothing. With --replicas
nobody does, each replica has these variables for itself, and REPLICA_GROUP_ID, NUM_REPLICA_GROUPS
and TORCHFT_LIGHTHOUSE. Where there are devices for all ranks, each replica finds its own in
CUDA_VISIBLE_DEVICES. What -x sets goes before that.

SIGINT, SIGTERM and SIGHUP end the job; with --nnodes MIN:MAX, this node leaves it, unless it serves
the others. SIGUSR1 and SIGUSR2 are passed on to the ranks that have
handlers for them; on SIGUSR1 those in a group write what they have called, and it is said where:
below --log-dir or in a temporary folder, or in that of POLYRANK_TRACE_DIR.

Options may be spelled with _ in place of -, and those of mpirun with one dash: --nproc_per_node,
-np, -hostfile. The exit code is 0 if all ranks ended with 0, else that of the rank that failed
first (128 and the signal's number if a signal ended it), 124 after --timeout, 2 for a wrong command
line, 127 and 126 for a program that was not found or cannot be started. If a signal ended the job,
it is 128 and that one's number, also if the ranks then ended with 0: the job was not done. With
--replicas, it is 0 if all replicas ended well, after however many restarts, or left early with 0;
else that of the first which was lost.";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::ffi::OsString;

    use clap::FromArgMatches;

    use polyrank::env::variable::{self, Variable};

    use super::job::{DEFAULT_PORT, Job};
    use super::parts::Part;
    use super::streams::Stream;
    use crate::arguments::{Command, CommandLine, command, normalised};
    use crate::nodes::Serving;

    fn job(line: &str) -> Result<Job, String> {
        let words = ["polyrank", "run"].into_iter().chain(line.split_whitespace());
        let words = normalised(words.map(OsString::from).collect(), &command());
        let found = command().try_get_matches_from(words);
        let line = found.and_then(|found| CommandLine::from_arg_matches(&found));
        match line.map_err(|error| error.to_string())?.command {
            Command::Run(arguments) => arguments.job(),
            _ => Err("not a job".to_owned()),
        }
    }

    /// The program that a variable names, or the usual one.
    fn named(variable: Variable, usual: &str) -> String {
        variable.text().unwrap_or_else(|| usual.to_owned())
    }

    fn shape(job: &Job) -> Vec<(String, u32)> {
        let words = |part: &Part| {
            let mut all = vec![part.program.to_string_lossy().into_owned()];
            all.extend(part.arguments.iter().map(|word| word.to_string_lossy().into_owned()));
            all.join(" ")
        };
        job.parts.iter().map(|part| (words(part), part.rank_count)).collect()
    }

    #[test]
    fn options_of_the_program_stay_with_the_program() {
        let job = job("-n 3 ./train --nnodes 9 -n 8 -- x").unwrap();
        assert_eq!(shape(&job), [("./train --nnodes 9 -n 8 -- x".to_owned(), 3)]);
        assert_eq!((job.node_count, job.local_world_size()), (1, 3));
    }

    #[test]
    fn several_programs_have_their_own_counts() {
        let job = job("-n 2 prog a : -n 3 -- ./other -x : last").unwrap();
        let expected = [("prog a", 2), ("./other -x", 3), ("last", 1)];
        assert_eq!(shape(&job), expected.map(|(words, count)| (words.to_owned(), count)));
        assert_eq!(job.local_world_size(), 6);
    }

    #[test]
    fn scripts_run_under_their_interpreters() {
        for script in ["train.py", "train.mjs", "train.js", "train.cjs"] {
            let job = job(&format!("{script} --lr 1")).unwrap();
            let interpreter = match script.ends_with(".py") {
                true => named(variable::POLYRANK_PYTHON, "python3"),
                false => named(variable::POLYRANK_NODE, "node"),
            };
            assert_eq!(shape(&job), [(format!("{interpreter} {script} --lr 1"), 1)]);
        }
        let as_it_is = job("--no_python train.py x : --no-python run.js").unwrap();
        assert_eq!(shape(&as_it_is), [("train.py x".to_owned(), 1), ("run.js".to_owned(), 1)]);
    }

    #[test]
    fn the_words_of_torchrun_are_understood() {
        let python = named(variable::POLYRANK_PYTHON, "python3");
        let one = job("--standalone --nnodes=1 --nproc_per_node 2 -m train.loop --lr 1").unwrap();
        assert_eq!(shape(&one), [(format!("{python} -m train.loop --lr 1"), 2)]);
        let line = "--nnodes=2:2 --rdzv_id=7 --rdzv_backend=c10d --rdzv_endpoint=a:1 --rdzv_conf \
                    timeout=9,is_host=1 --max_restarts=3 --monitor_interval 1 --role w x";
        let several = job(line).unwrap();
        let meeting = several.meeting.unwrap();
        assert_eq!((meeting.host.as_str(), meeting.port, meeting.node_count), ("a", 1, 2));
        assert_eq!((meeting.serving, meeting.join_timeout.as_secs()), (Serving::Always, 9));
        assert_eq!((several.run_id.as_deref(), several.max_restarts), (Some("7"), 3));
        assert_eq!(several.role, "w");
        let fixed = job("--nnodes 2 --rdzv-endpoint [::1]:5 --rdzv-conf rank=1 x").unwrap();
        assert_eq!((fixed.node_rank, fixed.master_addr.as_str(), fixed.master_port), (1, "::1", 5));
        let alone = job("--rdzv-backend c10d --rdzv-endpoint localhost:0 x").unwrap();
        assert!(alone.meeting.is_none());
    }

    #[test]
    fn what_torchrun_has_and_this_has_not_is_refused_in_words() {
        for (line, expected) in [
            ("--standalone --nnodes 2 x", "cannot be used with"),
            ("--nnodes 1:2 x", "launchers that come and go must meet"),
            ("--nnodes 2:1 x", "expected MIN:MAX"),
            ("--nnodes 2 --replicas 2 --master-addr a x", "cannot be used with"),
            ("--nnodes 2 --replicas 2 --node-rank 0 x", "--rdzv-backend c10d"),
            (
                "--nnodes 3 --replicas 2 --rdzv-backend c10d --rdzv-endpoint a x",
                "a replica at least",
            ),
            ("--start-method fork x", "leave the option out"),
            ("--nnodes 2 --rdzv-backend etcd x", "\"c10d\""),
            ("--nnodes 2 --rdzv-backend c10d x", "--rdzv-endpoint host-a:29400"),
            ("--rdzv-conf bogus=1 x", "bogus=1"),
            ("--nnodes 2 --master-addr a --max-restarts 1 x", "--rdzv-backend c10d"),
            ("--max-restarts 1 --keep-going x", "cannot be used with"),
            ("-r 4 x", "0:3,1:1"),
        ] {
            let said = job(line).unwrap_err();
            assert!(said.contains(expected), "{line}: {said}");
        }
    }

    #[test]
    fn the_words_of_mpirun_are_understood() {
        let two = job("-np 2 ./train -np 3 : -np 1 -m other").unwrap();
        let python = named(variable::POLYRANK_PYTHON, "python3");
        let expected = [("./train -np 3".to_owned(), 2), (format!("{python} -m other"), 1)];
        assert_eq!(shape(&two), expected);
        let hosts = |line: &str| {
            let hosts = job(line).map(|job| job.hosts.unwrap())?;
            Ok::<_, String>(
                hosts.into_iter().map(|it| (it.target, it.rank_count)).collect::<Vec<_>>(),
            )
        };
        let expected = [("a".to_owned(), 2), ("b".to_owned(), 4)];
        assert_eq!(
            hosts("-np 6 --hosts a,b:4 x").unwrap(),
            [("a".to_owned(), 3), ("b".to_owned(), 3)]
        );
        assert_eq!(hosts("-n 2 -H a,b:4 x").unwrap(), expected);
        assert_eq!(hosts("-n 2 -host a,b:4 x").unwrap(), expected);
        assert!(hosts("-n 1 --hosts a,b:4 x : -n 1 y").unwrap_err().contains("same ranks"));
        assert!(job("-np 2 --nnodes 2 --master-addr a x").unwrap_err().contains("give -n"));
        let set = job("-x A=b=c -x D= -bind-to core --timeout 9 x").unwrap();
        let pairs = [("A", "b=c"), ("D", "")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!((set.variables, set.timeout.unwrap().as_secs()), (pairs.to_vec(), 9));
        assert!(job("-x POLYRANK_NOT_THERE x").unwrap_err().contains("not set here"));
        assert!(job("-x =1 x").unwrap_err().contains("NAME=VALUE"));
    }

    #[test]
    fn logs_are_kept_and_shown_as_redirects_and_tee_say() {
        let of = |line: &str, rank| {
            let output = job(line).unwrap().output;
            [Stream::Stdout, Stream::Stderr]
                .map(|it| (output.is_kept(rank, it), output.is_shown(rank, it)))
        };
        let (shown, kept, both, none) =
            ((false, true), (true, false), (true, true), (false, false));
        assert_eq!(of("x", 0), [shown, shown]);
        assert_eq!(of("--log-dir d x", 0), [both, both]);
        assert_eq!(of("--log-dir d -r 3 x", 0), [kept, kept]);
        assert_eq!(of("--log_dir d -r 1 -t 2 x", 0), [kept, both]);
        assert_eq!(of("-r 3 -t 0:1 x", 0), [both, kept]);
        assert_eq!(of("-r 1:2 x", 0), [shown, shown]);
        assert_eq!(of("-r 1:2 --local-ranks-filter 0,2 x", 1), [none, kept]);
    }

    #[test]
    fn external_ranks_count_and_are_not_started() {
        let job = job("--external 2 -n 3 ./train").unwrap();
        assert_eq!((job.local_world_size(), job.external_count), (3, 2));
    }

    #[test]
    fn several_nodes_need_an_address_and_a_fixed_port() {
        assert!(job("--nnodes 2 x").unwrap_err().contains("--master-addr"));
        let with_address = "--nnodes 2 --master-addr a";
        assert!(job(&format!("{with_address} --master-port 0 x")).unwrap_err().contains("port"));
        assert!(job(&format!("{with_address} --node-rank 2 x")).unwrap_err().contains("0 to 1"));
        let job = job(&format!("{with_address} --node-rank 1 -n 4 x")).unwrap();
        assert_eq!((job.master_port, job.local_world_size()), (DEFAULT_PORT, 4));
    }

    #[test]
    fn wrong_lines_are_refused_with_advice() {
        assert!(job("-n 0 x").unwrap_err().contains("at least one"));
        assert!(job("-n -1 x").unwrap_err().contains("ranks \"-1\": expected a number"));
        assert!(job("x : -n -1 y").unwrap_err().contains("ranks \"-1\": expected a number"));
        assert!(job("--nnodes -1 x").unwrap_err().contains("-1 is not in 1..=65536"));
        assert!(job("-n many x").unwrap_err().contains("\"cpu\""));
        assert!(job("-n 5000 x").unwrap_err().contains("at most 4096"));
        assert!(job("-n 4000 x : -n 4000 y").unwrap_err().contains("more than 4096"));
        assert!(job("x :").unwrap_err().contains("program 2"));
        assert!(job("x : --bogus y").unwrap_err().contains("--bogus"));
        assert!(job("--bogus y").unwrap_err().contains("--bogus"));
        assert!(job("--grace -1 x").is_err());
        assert!(job("").unwrap_err().contains("PROGRAM"));
    }
}
