//! Ranks as real processes: a test starts itself again, once for each rank.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use polyrank::ProcessGroup;
use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use socket2::{Domain, Socket, Type};

/// Which test a started process is to be a rank of.
const ROLE: &str = "POLYRANK_TEST_ROLE";

/// How a rank ended.
#[derive(Debug)]
pub struct ProcessEnd {
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it printed with [`report`].
    pub printed: Vec<String>,
    /// All that it printed, for messages.
    pub output: String,
    /// When it ended, after the start of the job.
    pub after: Duration,
}

/// What each rank but the victim has reported, by rank: one line. The victim was killed.
pub fn lines_of_survivors(all: &[ProcessEnd], victim: u32) -> Vec<(u32, &str)> {
    let size = all.len();
    let mut lines = Vec::new();
    for (rank, ended) in (0..).zip(all) {
        if rank == victim {
            assert_eq!(ended.signal, Some(9), "{}", outputs(all));
            continue;
        }
        let [line] = ended.printed.as_slice() else {
            panic!("rank {rank} of {size} printed {:?}\n{}", ended.printed, outputs(all))
        };
        lines.push((rank, line.as_str()));
    }
    lines
}

/// Prints a line that the starting test will find in [`ProcessEnd::printed`].
pub fn report(line: impl std::fmt::Display) {
    println!("\nREPORT {line}");
}

/// Ends this process as no process ends by itself: nothing is told, nothing is closed.
pub fn die() -> ! {
    let id = std::process::id().to_string();
    let _ = Command::new("kill").args(["-9", &id]).status();
    unreachable!("kill -9 ends the process")
}

/// The process of rank `victim` of `group` ends as by `kill -9`, once all its ranks are through
/// with what they did before: whoever still is in an operation with a rank that dies is told of it.
pub fn dies_between_operations(group: &ProcessGroup, victim: u32) {
    let store = group.get_group_store();
    let through: Vec<String> = (0..group.size()).map(|rank| format!("through/{rank}")).collect();
    store.set(&through[group.rank() as usize], b"").expect("the store answers");
    if group.rank() == victim {
        let through: Vec<&str> = through.iter().map(String::as_str).collect();
        store.wait(&through, None).expect("the others come, too");
        die();
    }
}

/// Runs `rank_main` on `size` processes with the default group; how each ended, by rank. `test` is
/// the full name of the calling test. In a started process this does not return.
pub fn processes(test: &str, size: u32, rank_main: impl FnOnce(ProcessGroup)) -> Vec<ProcessEnd> {
    bare_processes(test, size, || {
        let options = InitOptions::default().timeout(super::LIMIT);
        let group = init_process_group(options).expect("the group is made");
        rank_main(group);
        destroy_process_group(None).expect("the group is destroyed");
    })
}

/// As [`processes`], without a group.
pub fn bare_processes(test: &str, size: u32, rank_main: impl FnOnce()) -> Vec<ProcessEnd> {
    if std::env::var(ROLE).is_ok_and(|role| role == test) {
        rank_main();
        std::process::exit(0);
    }
    let port = ReservedPort::new();
    let start = Instant::now();
    let children: Vec<Child> =
        (0..size).map(|rank| start_rank(test, rank, size, port.number())).collect();
    let mut readers: Vec<_> = children.into_iter().map(|child| collect(child, start)).collect();
    readers.drain(..).map(|reader| reader.join().expect("the reader did not panic")).collect()
}

/// Whether this process is a rank that a test started, not the test itself.
pub fn is_rank() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// A port of this host that nobody is given by chance while this exists, and that rank 0 can take:
/// a socket is bound to it without listening, and both set `SO_REUSEADDR` (socket(7), ip(7)).
#[derive(Debug)]
pub struct ReservedPort(Socket);

impl ReservedPort {
    /// Reserves one.
    pub fn new() -> ReservedPort {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("there are sockets");
        socket.set_reuse_address(true).expect("a new socket has options");
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        socket.bind(&any.into()).expect("the host has free ports");
        ReservedPort(socket)
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        let address = self.0.local_addr().expect("the socket is bound");
        address.as_socket().expect("it has an address of IP").port()
    }
}

impl Default for ReservedPort {
    fn default() -> ReservedPort {
        ReservedPort::new()
    }
}

thread_local! {
    /// Variables that started ranks get besides their own.
    static VARIABLES: RefCell<Vec<(String, String)>> = const { RefCell::new(Vec::new()) };
}

/// Runs `run`, whose ranks get the variable `name`. `{rank}` in its value is the rank's number;
/// `{by rank}a,b` is `a` for rank 0, `b` for rank 1, `a` for rank 2, and so on.
pub fn with_variable<R>(name: &str, value: &str, run: impl FnOnce() -> R) -> R {
    VARIABLES.with_borrow_mut(|variables| variables.push((name.into(), value.into())));
    let result = run();
    VARIABLES.with_borrow_mut(Vec::pop);
    result
}

/// The variables that ranks get which are started now.
pub fn variables() -> Vec<(String, String)> {
    VARIABLES.with_borrow(Clone::clone)
}

/// A rank that runs while the test continues. It is killed when this is dropped.
#[derive(Debug)]
pub struct RunningRank {
    child: Child,
    reports: Receiver<String>,
}

impl RunningRank {
    /// Starts the calling test `test` again, as rank `rank` of `size`; there, [`is_rank`] holds.
    pub fn start(test: &str, (rank, size): (u32, u32), port: u16) -> RunningRank {
        let mut child = start_rank(test, rank, size, port);
        let (sender, reports) = channel();
        let output = child.stdout.take().expect("the output is a pipe");
        let errors = child.stderr.take().expect("the errors are a pipe");
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines.filter_map(|line| line.strip_prefix("REPORT ").map(str::to_owned)) {
                // The test may be over.
                let _ = sender.send(line);
            }
        });
        std::thread::spawn(move || std::io::copy(&mut { errors }, &mut std::io::stderr()));
        RunningRank { child, reports }
    }

    /// What it reports next; nothing, if it ended.
    pub fn next_report(&self) -> Option<String> {
        self.reports.recv().ok()
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for RunningRank {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start_rank(test: &str, rank: u32, size: u32, port: u16) -> Child {
    let number = rank.to_string();
    Command::new(std::env::current_exe().expect("the test has a path"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, test)
        .envs(variables().into_iter().map(|(name, value)| (name, value_for(&value, rank))))
        .env("RANK", &number)
        .env("LOCAL_RANK", &number)
        .env("WORLD_SIZE", size.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test starts itself")
}

/// What a rank gets of the value of a variable.
fn value_for(value: &str, rank: u32) -> String {
    match value.strip_prefix("{by rank}") {
        Some(list) => list.split(',').cycle().nth(rank as usize).unwrap_or_default().to_owned(),
        None => value.replace("{rank}", &rank.to_string()),
    }
}

fn collect(mut child: Child, start: Instant) -> std::thread::JoinHandle<ProcessEnd> {
    std::thread::spawn(move || {
        let mut error_pipe = child.stderr.take();
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(pipe) = &mut error_pipe {
                let _ = pipe.read_to_string(&mut text);
            }
            text
        });
        let mut output = String::new();
        if let Some(pipe) = &mut child.stdout {
            let _ = pipe.read_to_string(&mut output);
        }
        let status = child.wait().expect("the rank can be waited for");
        let after = start.elapsed();
        let printed = output
            .lines()
            .filter_map(|line| line.strip_prefix("REPORT "))
            .map(str::to_owned)
            .collect();
        output.push_str(&errors.join().unwrap_or_default());
        use std::os::unix::process::ExitStatusExt;
        ProcessEnd { code: status.code(), signal: status.signal(), printed, output, after }
    })
}

/// Every process ended well.
pub fn all_went_well(ended: &[ProcessEnd]) {
    for (rank, end) in ended.iter().enumerate() {
        assert_eq!(end.code, Some(0), "rank {rank}:\n{}", outputs(ended));
    }
}

/// What all ranks printed: the one that went wrong first may be another than the one whose check
/// failed.
pub fn outputs(ended: &[ProcessEnd]) -> String {
    let of = |(rank, end): (usize, &ProcessEnd)| format!("rank {rank}:\n{}\n", end.output);
    ended.iter().enumerate().map(of).collect()
}
