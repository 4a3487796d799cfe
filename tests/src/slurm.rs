//! A cluster of Slurm's on this machine: one controller and two nodes, with a key, ports and files
//! of their own, for as long as tests need it. Knows nothing of what its jobs do.

use std::fmt::Write as _;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::languages::{Language, Program, say_skipped};

/// Names of nodes must be addresses that ranks find, and this machine has no other names.
pub const NODES: &str = "127.0.0.[1-2]";
/// A job that is not over by then hangs; s.
const LIMIT_S: &str = "60";
/// How long the daemons may take to start, on a busy machine.
const START: Duration = Duration::from_secs(30);
/// Starts what the words say, and ends it when nobody holds the other end of standard input any
/// more, however that came. Jobs end first: their processes would outlive the daemons.
const KEEPER: &str = r#"
cd "$1"
head -c 128 /dev/urandom > key
chmod 600 key
munged --foreground --force --key-file="$1/key" --socket="$1/munge" --pid-file="$1/munged.pid" \
    --log-file="$1/munged.log" --seed-file="$1/seed" > munged.out 2>&1 &
daemons=$!
"$2" -D > controller.out 2>&1 &
daemons="$daemons $!"
for node in 127.0.0.1 127.0.0.2; do
    "$3" -D -N $node -d "$4" > $node.out 2>&1 &
    daemons="$daemons $!"
done
cat > keeper.out
scancel --full --signal=KILL --user="$(id -un)" > keeper.out 2>&1
for try in 1 2 3 4 5 6 7 8 9 10; do
    test -z "$(squeue --noheader 2> keeper.out)" && break
    sleep 0.2
done
kill $daemons
wait
"#;

/// A cluster; it ends, with its jobs, when it is dropped, or the test's process ends.
#[derive(Debug)]
pub struct Slurm {
    /// Where the programs are; the file system's root if they are installed.
    root: PathBuf,
    folder: Folder,
    keeper: Child,
}

impl Slurm {
    /// The cluster that tests at the same time share. None, after saying so, without Slurm.
    pub fn shared() -> Option<Arc<Slurm>> {
        static SHARED: Mutex<Weak<Slurm>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slurm) = shared.upgrade() {
            return Some(slurm);
        }
        let Some(root) = root() else {
            say_skipped("Slurm is not installed; run cargo xtask setup");
            return None;
        };
        let slurm = Arc::new(Slurm::start(root));
        *shared = Arc::downgrade(&slurm);
        Some(slurm)
    }

    fn start(root: PathBuf) -> Slurm {
        let folder = Folder::new();
        std::fs::write(folder.path().join("slurm.conf"), settings(&root, folder.path()))
            .expect("the folder can be written");
        for node in ["state", "127.0.0.1", "127.0.0.2"] {
            std::fs::create_dir(folder.path().join(node)).expect("the folder can be written");
        }
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).arg(folder.path());
        for daemon in ["slurmctld", "slurmd", "slurmstepd"] {
            command.arg(daemon_of(&root, daemon).expect("it was looked for"));
        }
        surround(&mut command, &root, folder.path());
        let keeper = command.stdin(Stdio::piped()).spawn().expect("there is a shell");
        let mut slurm = Slurm { root, folder, keeper };
        slurm.wait_until_it_works();
        slurm
    }

    fn wait_until_it_works(&mut self) {
        let began = Instant::now();
        while !self.run(&["srun", "-N2", "-n2", "true"]).status.success() {
            assert!(began.elapsed() < START, "Slurm does not start:\n{}", self.logs());
        }
    }

    /// Runs a command of Slurm's, such as `srun`, to its end.
    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).stdin(Stdio::null()).output().expect("there is a `timeout`")
    }

    /// A command of Slurm's, which is ended if it hangs.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", LIMIT_S]).args(words);
        surround(&mut command, &self.root, self.folder.path());
        command
    }

    /// A file for a job.
    pub fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.folder.path().join(name), text).expect("the folder can be written");
        self.folder.text_of(name)
    }

    /// The path of what is not there yet.
    pub fn path(&self, name: &str) -> String {
        self.folder.text_of(name)
    }

    /// A file for `srun --multi-prog`: so many ranks of each language, and the words that each of
    /// them is given. None, after saying so, where a language is missing.
    pub fn programs(
        &self,
        name: &str,
        program: Program,
        parts: &[(Language, u32)],
        words: &str,
    ) -> Option<String> {
        let (mut text, mut first) = (String::new(), 0);
        for (language, count) in parts {
            let command = match language.command(program) {
                Ok(command) => command,
                Err(missing) => {
                    say_skipped(&format!("{language:?}: {missing}"));
                    return None;
                }
            };
            let last = first + count - 1;
            let command: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
            writeln!(text, "{first}-{last} {} {words}", command.join(" ")).expect("it is a text");
            first += count;
        }
        Some(self.file(name, &text))
    }

    /// What the daemons said, for messages.
    pub fn logs(&self) -> String {
        let mut logs = String::new();
        for entry in std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|ending| ending == "out") {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                logs.push_str(&format!("--- {}\n{text}", path.display()));
            }
        }
        logs
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Reads lines until one begins as wanted; the rest of that one.
pub fn rest_of_line(from: &mut impl Read, begins: &str) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).expect("it can be read") == 1 {
        if byte != *b"\n" {
            line.push(byte[0]);
            continue;
        }
        let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
        if let Some(rest) = text.strip_prefix(begins) {
            return rest.to_owned();
        }
    }
    panic!("no line begins with {begins:?}")
}

/// The folder in which Slurm was unpacked, or the file system's root: what `POLYRANK_SLURM` names,
/// what `cargo xtask setup` made, or what is installed.
fn root() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(".slurm");
    let named = std::env::var_os("POLYRANK_SLURM").map(PathBuf::from);
    let all = named.into_iter().chain([own, PathBuf::from("/")]);
    all.into_iter().find(|root| {
        let is_there = |name: &str| root.join(name).exists();
        daemon_of(root, "slurmctld").is_some()
            && daemon_of(root, "slurmd").is_some()
            && ["usr/bin/srun", "usr/sbin/munged"].into_iter().all(is_there)
    })
}

/// The path of a daemon, which Debian's package for one of several flavours names after it.
fn daemon_of(root: &Path, name: &str) -> Option<PathBuf> {
    let path = root.join("usr/sbin");
    let names = [format!("{name}-wlm"), name.to_owned()];
    names.into_iter().map(|name| path.join(name)).find(|path| path.exists())
}

/// The folders with its libraries, that with its plugins last.
fn libraries(root: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(root.join("usr/lib")).into_iter().flatten().flatten();
    let has_plugins = |folder: &PathBuf| folder.join("slurm-wlm").is_dir();
    let folder = folders.map(|entry| entry.path()).find(has_plugins);
    folder.into_iter().flat_map(|folder| [folder.clone(), folder.join("slurm-wlm")]).collect()
}

/// Lets a command find Slurm, the right one, and nothing of launchers around the tests.
fn surround(command: &mut Command, root: &Path, folder: &Path) {
    let before = std::env::var_os("PATH").unwrap_or_default();
    let own = [root.join("usr/bin"), root.join("usr/sbin")];
    let all = own.into_iter().chain(std::env::split_paths(&before));
    command.env("PATH", std::env::join_paths(all).expect("no colon is in a name"));
    if root != Path::new("/") {
        let libraries = std::env::join_paths(libraries(root)).expect("no colon is in a name");
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let of_launchers = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"];
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("SLURM_") || of_launchers.contains(&&*text) {
            command.env_remove(&name);
        }
    }
    command.env("SLURM_CONF", folder.join("slurm.conf"));
}

/// `slurm.conf` of a cluster in this folder.
fn settings(root: &Path, folder: &Path) -> String {
    let said = |program: &str, word: &str| {
        let output = Command::new(program).arg(word).output().expect("every system has it");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let (user, host) = (said("id", "-un"), said("uname", "-n"));
    let host = host.split('.').next().unwrap_or_default();
    let [controller, first, second] = ports();
    // Ranks of a step meet at a port that follows from the job's number: other clusters on this
    // machine are to have other ones.
    let first_job = 1000 + std::process::id() % 600_000 * 100;
    let plugins = libraries(root).pop().unwrap_or_default();
    let (plugins, folder) = (plugins.display(), folder.display());
    format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\n\
         SlurmUser={user}\nSlurmdUser={user}\nFirstJobId={first_job}\nPluginDir={plugins}\n\
         AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket={folder}/munge\n\
         PlugStackConfig={folder}/none\nStateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/%n\nSlurmctldPidFile={folder}/controller.pid\n\
         SlurmdPidFile={folder}/%n.pid\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
         SwitchType=switch/none\nMpiDefault=none\nJobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\nSchedulerType=sched/builtin\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\nKillWait=1\n\
         SlurmdParameters=config_overrides\n\
         NodeName=127.0.0.1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=16\n\
         NodeName=127.0.0.2 NodeHostname={host} NodeAddr=127.0.0.2 Port={second} CPUs=16\n\
         PartitionName=all Nodes={NODES} Default=YES State=UP\n"
    )
}

/// Ports that are free, below those at which jobs meet, and those that the system hands out to
/// whoever asks for any: nobody takes them before the daemons do.
fn ports() -> [u16; 3] {
    let first = 10_000 + std::process::id() % 9_000;
    let ports = (first..20_000).filter_map(|port| u16::try_from(port).ok());
    let mut free = ports.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    [(); 3].map(|()| free.next().expect("a port is free"))
}
