//! Ranks whose process has no descriptors, or no address space, left: they report it, and the
//! others get that reason, instead of blaming another rank.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::store::{TcpStore, TcpStoreOptions};
use polyrank::{Collective, DType, Request, Tensor};
use polyrank_tests::LIMIT;
use polyrank_tests::processes::{ProcessEnd, bare_processes, report, with_variable};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Applies `limit` once the group exists, runs an alltoall on it, and reports the error.
fn run_short(limit: impl FnOnce()) -> ! {
    let group = init_process_group(InitOptions::default().timeout(LIMIT)).unwrap();
    limit();
    let tensors =
        || (0..group.size()).map(|_| Tensor::zeros(DType::F32, &[1 << 18]).unwrap()).collect();
    let mut alltoall = Request::new(Collective::Alltoall);
    (alltoall.inputs, alltoall.outputs) = (vec![tensors()], vec![tensors()]);
    match group.run(alltoall).err() {
        Some(error) => report(format!("{}: {error}", error.kind())),
        None => report("nothing was wrong"),
    }
    // Rank 0 hosts the store, in which others may be on the last steps of their joining. Whether
    // all can take leave is not what is tried here.
    let _ = destroy_process_group(None);
    std::process::exit(0);
}

fn rank() -> u32 {
    std::env::var("RANK").unwrap().parse().unwrap()
}

/// Leaves this process `count` descriptors that it may open.
fn leave_descriptors(count: u64) {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let last = open.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max();
    // Those between that are free are taken, so that just `count` are left.
    let end = last.unwrap() + 1;
    let last = loop {
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = std::os::fd::IntoRawFd::into_raw_fd(file) as u64;
        if fd >= end {
            break fd;
        }
    };
    let most = Some(last + 1 + count);
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
}

/// What each rank said.
fn said(ended: &[ProcessEnd]) -> Vec<&str> {
    ended
        .iter()
        .map(|ended| match ended.printed.as_slice() {
            [line] => line.as_str(),
            _ => panic!("printed {:?}\n{}", ended.printed, ended.output),
        })
        .collect()
}

#[test]
fn a_rank_without_descriptors_says_so_and_nobody_is_blamed() {
    let test = "a_rank_without_descriptors_says_so_and_nobody_is_blamed";
    for (world, left) in [(2, 0), (3, 0), (3, 1), (5, 2)] {
        let ranks = || {
            bare_processes(test, world, || {
                let left = std::env::var("LEFT").unwrap().parse().unwrap();
                run_short(|| {
                    if rank() == 1 {
                        leave_descriptors(left)
                    }
                })
            })
        };
        // Ranks that read one another's memory need no descriptor for it: whether they do is
        // measured, and they may well end without an error then.
        let ended = with_variable("POLYRANK_COPY", "slots", || {
            with_variable("LEFT", &left.to_string(), ranks)
        });
        let said = said(&ended);
        let case = format!("{world} ranks, {left} left: {said:#?}");
        assert!(said[1].contains("Too many open files"), "{case}");
        for line in said {
            assert!(line.starts_with("RankFailed: rank 1 of"), "{case}");
        }
    }
}

/// Joins with `LEFT` free descriptors on rank 1; reports the error.
fn join_with_few_descriptors(url: &str) -> ! {
    let world = std::env::var("WORLD_SIZE").unwrap();
    let url = match url {
        "env://" => url.to_owned(),
        url => format!("{url}?rank={}&world_size={world}", rank()),
    };
    if rank() == 1 {
        leave_descriptors(std::env::var("LEFT").unwrap().parse().unwrap());
    }
    // The others wait only briefly for a rank that cannot even reach the store.
    let timeout = std::time::Duration::from_secs(if rank() == 1 { 60 } else { 3 });
    let options = InitOptions::default().init_method(url).timeout(timeout);
    match init_process_group(options) {
        Err(error) => report(format!("{}: {error}", error.kind())),
        Ok(group) => {
            report("has joined");
            // Rank 0 hosts the store, and stays until the other is done with it or gone.
            let _ = group.allreduce(&mut [0u32][..], ());
        }
    }
    std::process::exit(0);
}

#[test]
fn a_rank_without_descriptors_to_join_says_so_and_nobody_is_blamed() {
    let test = "a_rank_without_descriptors_to_join_says_so_and_nobody_is_blamed";
    for has_websocket_store in [false, true] {
        let mut refusals = 0;
        for left in 0.. {
            let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true);
            let store = TcpStore::new(options.wait_for_workers(false)).unwrap();
            let url = match has_websocket_store {
                true => format!("ws://127.0.0.1:{}", store.port()),
                false => "env://".to_owned(),
            };
            let ended = with_variable("LEFT", &left.to_string(), || {
                with_variable("URL", &url, || {
                    bare_processes(test, 2, || {
                        join_with_few_descriptors(&std::env::var("URL").unwrap())
                    })
                })
            });
            let said = said(&ended);
            let case = format!("{url}, {left} left: {said:#?}");
            if said[1] == "has joined" {
                break;
            }
            refusals += 1;
            assert!(said[1].contains("Too many open files"), "{case}");
            assert!(said[1].contains("files open at a time (ulimit -n)"), "{case}");
            for blame in ["rank 0", "lost the store", "ended or gave up"] {
                assert!(!said[1].contains(blame), "{case}");
            }
            // The other may never see rank 1 in the store.
            let reason = "rank 1 does not join group 'default_pg': ";
            let is_told = said[0].contains(reason) && said[0].contains("Too many open files");
            let alone = ["rank 1 of 2 did not join", "joined group 'default_pg', but"];
            assert!(is_told || alone.iter().any(|says| said[0].contains(says)), "{case}");
        }
        assert!(refusals > 2, "{refusals}");
    }
}

#[test]
fn a_rank_without_address_space_says_so_and_the_others_learn_it() {
    let test = "a_rank_without_address_space_says_so_and_the_others_learn_it";
    for world in [2, 3] {
        // Else the system would copy out of the others' memory, for which a rank needs no room.
        let ended = with_variable("POLYRANK_COPY", "lent", || {
            bare_processes(test, world, || {
                let statm = std::fs::read_to_string("/proc/self/statm");
                run_short(|| {
                    if rank() == 1 {
                        let pages = statm.unwrap().split(' ').next().unwrap().parse::<u64>();
                        // Enough for what a rank has for itself; the others have more.
                        let most = Some(pages.unwrap() * 4096 + (96 << 20));
                        setrlimit(Resource::As, Rlimit { current: most, maximum: most }).unwrap();
                    }
                })
            })
        });
        for line in said(&ended) {
            assert!(line.contains("Cannot allocate memory"), "{line}");
            assert!(!line.contains("broke the protocol"), "{line}");
        }
    }
}
