//! Ranks that a program starts of itself. The program is this test: with the name of a scenario it
//! is a program that a user could have written, without one it runs each and looks at what it did.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use polyrank::distributed::{
    InitOptions, destroy_process_group, get_world_size, init_process_group,
};
use polyrank::{ReduceOp, SpawnError, spawn};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

/// The word before the name of a scenario.
const SCENARIO: &str = "--scenario";

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let Some(at) = words.iter().position(|word| word == SCENARIO) {
        let number = words.get(at + 2).map_or(0, |word| word.parse().unwrap());
        return scenario(&words[at + 1], number);
    }
    // As the harness of the other tests: a list of them, which has none.
    if words.iter().any(|word| word == "--list") {
        return;
    }
    for size in [1, 2, 3, 5] {
        ranks_meet_without_settings(size);
    }
    the_failure_of_one_ends_all_and_is_told();
    the_cause_is_told_and_not_what_followed();
    calls_may_follow_one_another();
    what_cannot_be_done_is_refused();
    a_program_that_does_not_come_to_the_call_is_told();
    ranks_end_with_who_started_them();
    a_rank_whose_parent_is_gone_starts_nothing();
}

/// What a user's program does. What it prints is the program's alone, not its ranks'.
fn scenario(name: &str, number: u32) {
    match name {
        "sums" => told(spawn(number, sums)),
        "error" | "panic" | "exit" | "kill" | "obeys" => told(spawn(3, |rank| fails(rank, name))),
        "alone" => told(spawn(3, alone)),
        "twice" => {
            let first = spawn(2, sums);
            assert!(first.is_ok(), "{first:?}");
            for size in 1..=2 {
                spawn(size, |rank| {
                    println!("\nloop {size} {rank} {}", std::env::var("WORLD_SIZE").unwrap());
                    sums(rank)
                })
                .unwrap();
            }
            told(spawn(2, |rank| fails(rank, "error")));
        }
        "none" => told(spawn(0, sums)),
        "nested" => told(spawn(1, |_| spawn(2, sums))),
        "apart" => {
            // As a program whose arguments are others the second time.
            if std::env::var_os("POLYRANK_SPAWN").is_none() {
                told(spawn(2, sums));
            }
        }
        "stays" => told(spawn(2, |_| -> polyrank::Result<()> {
            println!("\nPID {}", std::process::id());
            loop {
                std::thread::park();
            }
        })),
        other => panic!("no scenario {other}"),
    }
}

fn told(ended: Result<(), SpawnError>) {
    match ended {
        Ok(()) => println!("\nTOLD ok"),
        Err(error) => println!("\nTOLD {error}"),
    }
}

fn sums(rank: u32) -> polyrank::Result<()> {
    let group = init_process_group(InitOptions::default())?;
    assert_eq!(group.rank(), rank);
    let mut tensor = [f64::from(rank + 1); 3];
    group.allreduce(&mut tensor, ReduceOp::Sum)?;
    println!("\nSUM {} of {}", tensor[2], get_world_size()?);
    destroy_process_group(None)
}

/// Rank 1 fails, for which the others wait.
fn fails(rank: u32, how: &str) -> Result<(), Box<dyn std::error::Error>> {
    let group = init_process_group(InitOptions::default())?;
    if how == "obeys" && rank == 0 {
        // Its end, as it is asked for, is not the cause.
        let mut asked = Signals::new([SIGTERM])?;
        group.barrier(())?;
        asked.forever().next();
        std::process::exit(143);
    }
    match how {
        "obeys" if rank == 1 => {
            group.barrier(())?;
            return Err("no such weights".into());
        }
        "obeys" => {}
        _ if rank != 1 => {}
        "error" => return Err("no such weights".into()),
        "panic" => panic!("no such {}", "weights"),
        "exit" => std::process::exit(3),
        _ => kill_process(rustix::process::getpid(), Signal::KILL)?,
    }
    Ok(group.barrier(())?)
}

/// All but the last wait for a rank that is gone.
fn alone(rank: u32) -> polyrank::Result<()> {
    let group = init_process_group(InitOptions::default())?;
    if rank == 2 {
        return Err(polyrank::Error::InvalidArgument { message: "the cause".into() });
    }
    group.barrier(())
}

/// This program, as a user starts it.
fn program(name: &str, number: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([SCENARIO, name, &number.to_string()]);
    command
}

fn ran(name: &str, number: u32) -> (Vec<String>, String) {
    let Output { status, stdout, stderr } = program(name, number).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{name}: {status}\n{stdout}{stderr}");
    let mut lines: Vec<String> =
        stdout.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    lines.sort();
    let told: Vec<&String> = lines.iter().filter(|line| line.starts_with("TOLD ")).collect();
    let [told] = told.as_slice() else { panic!("{name}: {lines:?}\n{stderr}") };
    let told = told["TOLD ".len()..].to_owned();
    lines.retain(|line| !line.starts_with("TOLD "));
    (lines, told)
}

fn ranks_meet_without_settings(size: u32) {
    let (lines, told) = ran("sums", size);
    assert_eq!(told, "ok");
    let sum = size * (size + 1) / 2;
    assert_eq!(lines, vec![format!("SUM {sum} of {size}"); size as usize]);
}

/// The text without the process id, which is a number.
fn without_pid(text: &str) -> String {
    let (start, rest) = text.split_once("(process ").expect("it names a process");
    let (pid, rest) = rest.split_once(')').unwrap();
    assert!(pid.parse::<u32>().is_ok(), "{text}");
    format!("{start}{}", rest.trim_start())
}

fn the_failure_of_one_ends_all_and_is_told() {
    for (how, expected) in [
        ("error", "rank 1 failed: no such weights"),
        ("obeys", "rank 1 failed: no such weights"),
        ("panic", "rank 1 panicked: no such weights"),
        ("exit", "rank 1 ended with exit code 3"),
        ("kill", "rank 1 was ended by SIGKILL"),
    ] {
        let (lines, told) = ran(how, 0);
        assert_eq!((without_pid(&told).as_str(), lines.len()), (expected, 0), "{how}");
    }
}

fn the_cause_is_told_and_not_what_followed() {
    let (_, told) = ran("alone", 0);
    assert!(without_pid(&told).starts_with("rank 2 failed: "), "{told}");
    assert!(told.ends_with("the cause"), "{told}");
}

fn calls_may_follow_one_another() {
    let (lines, told) = ran("twice", 0);
    assert_eq!(without_pid(&told), "rank 1 failed: no such weights");
    let expected = [
        "SUM 1 of 1",
        "SUM 3 of 2",
        "SUM 3 of 2",
        "SUM 3 of 2",
        "SUM 3 of 2",
        "loop 1 0 1",
        "loop 2 0 2",
        "loop 2 1 2",
    ];
    assert_eq!(lines, expected);
}

fn what_cannot_be_done_is_refused() {
    assert_eq!(ran("none", 0).1, "nprocs is 0: at least one process is expected");
    let (_, told) = ran("nested", 0);
    let expected = "rank 0 failed: spawn() is called in a rank that spawn() started";
    assert_eq!(without_pid(&told), expected);
}

fn a_program_that_does_not_come_to_the_call_is_told() {
    let (_, told) = ran("apart", 0);
    let expected = "ended before it came to the call of spawn(): a rank runs the program from its \
                    beginning, with the same arguments";
    assert!(told.ends_with(expected), "{told}");
}

fn ranks_end_with_who_started_them() {
    for signal in [Signal::KILL, Signal::TERM] {
        let mut parent = program("stays", 0).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(parent.stdout.take().unwrap());
        let mut ranks = Vec::new();
        while ranks.len() < 2 {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended");
            ranks.extend(line.strip_prefix("PID ").map(|pid| pid.trim().to_owned()));
        }
        kill_process(Pid::from_child(&parent), signal).unwrap();
        parent.wait().unwrap();
        // They hold its standard output open until they end.
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest.trim(), "");
    }
}

fn a_rank_whose_parent_is_gone_starts_nothing() {
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let mut orphan = program("sums", 2);
    orphan.env("POLYRANK_SPAWN", format!("{} 0 1 core/tests/spawn.rs:1:1#1", gone.id()));
    let Output { status, stdout, .. } = orphan.output().unwrap();
    assert_eq!((status.code(), stdout.len()), (Some(1), 0));
}
