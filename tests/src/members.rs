//! Ranks that are threads, and do what they are told: for groups whose members change.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use polyrank::process_group::ReconfigureOptions;
use polyrank::store::{HashStore, Store};
use polyrank::{Error, GroupOptions, ProcessGroup, ReduceOp};

use crate::LIMIT;

type Job = Box<dyn FnOnce(&ProcessGroup) + Send>;

/// A rank that is a thread, and does what it is told.
#[derive(Debug)]
pub struct Member {
    jobs: Sender<Job>,
    thread: Option<JoinHandle<()>>,
}

impl Member {
    pub fn of(make: impl FnOnce() -> ProcessGroup + Send + 'static) -> Member {
        let (jobs, todo) = channel::<Job>();
        let thread = std::thread::spawn(move || {
            let group = make();
            for job in todo {
                job(&group);
            }
        });
        Member { jobs, thread: Some(thread) }
    }

    /// A process that is in no group yet.
    pub fn newcomer() -> Member {
        Member::of(|| ProcessGroup::without_members(None, "group", options()).unwrap())
    }

    /// Does `job`; what it gives comes later.
    pub fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&ProcessGroup) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (answer, answered) = channel();
        self.jobs.send(Box::new(move |group| drop(answer.send(job(group))))).unwrap();
        answered
    }

    pub fn handle(&self) -> String {
        self.ask(|group| group.get_reconfigure_handle().unwrap()).recv().unwrap()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(std::mem::replace(&mut self.jobs, channel().0));
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

pub fn options() -> GroupOptions {
    GroupOptions::default().timeout(LIMIT)
}

/// The members of a group of `size`.
pub fn world(size: u32) -> Vec<Member> {
    world_in(Arc::new(HashStore::new()), size)
}

/// As [`world`], made in this store.
pub fn world_in(store: Arc<dyn Store>, size: u32) -> Vec<Member> {
    let member = |rank| {
        let store = store.clone();
        Member::of(move || ProcessGroup::new(store, rank, size, "group", options()).unwrap())
    };
    (0..size).map(member).collect()
}

pub fn handles(members: &[&Member]) -> Vec<String> {
    members.iter().map(|member| member.handle()).collect()
}

/// Makes `members` the members, of ranks in that order, and checks that they reduce.
pub fn reconfigure(uuid: i64, members: &[&Member]) {
    let handles = handles(members);
    let options = ReconfigureOptions::new(uuid, handles);
    for result in call(&options, members) {
        result.unwrap();
    }
    check(members);
}

pub fn call(options: &ReconfigureOptions, members: &[&Member]) -> Vec<Result<(), Error>> {
    let asked: Vec<_> = members
        .iter()
        .map(|member| {
            let options = options.clone();
            member.ask(move |group| group.reconfigure(options)?.wait(None))
        })
        .collect();
    asked.into_iter().map(|answer| answer.recv().unwrap()).collect()
}

/// Checks rank, size and the sum of what all have, of the members in the order of their ranks.
pub fn check(members: &[&Member]) {
    let size = members.len() as u32;
    let asked: Vec<_> = members
        .iter()
        .map(|member| {
            member.ask(|group| {
                let mut tensor = [f64::from(group.rank()) + 1.0, 1.0];
                group.allreduce(&mut tensor, ReduceOp::Sum).unwrap();
                let mut long = vec![group.rank() as i64; 100_000];
                group.allreduce(&mut long, ReduceOp::Max).unwrap();
                (group.rank(), group.size(), tensor, long[99_999])
            })
        })
        .collect();
    let sum = f64::from(size * (size + 1) / 2);
    for (rank, answer) in asked.into_iter().enumerate() {
        let expected = (rank as u32, size, [sum, f64::from(size)], i64::from(size) - 1);
        assert_eq!(answer.recv().unwrap(), expected);
    }
}

/// The errors of a call that every member makes.
pub fn failures(options: &ReconfigureOptions, members: &[&Member]) -> Vec<Error> {
    call(options, members).into_iter().map(Result::unwrap_err).collect()
}
