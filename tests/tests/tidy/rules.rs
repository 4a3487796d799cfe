//! DESIGN in two tables: who may import whom, and who may say `unsafe`. The tests beside this file
//! know how to look; this file alone knows what is allowed.

use crate::files::File;

/// Modules in which `unsafe` may stand: files, or folders with everything in them.
pub(crate) const UNSAFE_ALLOWED: [&str; 14] = [
    "core/src/fork",
    "core/src/process_end",
    "core/src/tensor",
    "core/src/kernels",
    "core/cli/src/launch",
    "core/src/transport/shm",
    "core/src/backend/nccl",
    "core/src/backend/mpi",
    "core/src/process_group/memberships",
    "bindings-python/src/convert",
    "bindings-node/src/convert",
    "tests/nccl/double",
    "tests/src/fork",
    "tests/src/heap",
];

/// What every room that reads the environment may import: the table of its variables, and what
/// several of them say together.
pub(crate) const ENVIRONMENT: &str = "polyrank::env";

/// What one room may not know.
pub(crate) struct Room {
    /// A module, by the path of its file or folder without ".rs".
    pub(crate) place: &'static str,
    /// Paths that it may not import, with everything below them.
    pub(crate) forbidden: &'static [&'static str],
    /// The sentence that is broken.
    pub(crate) why: &'static str,
}

/// Rooms that are pure: no I/O, no clock, no thread, no async crate, nothing that has them.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "std::os",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::net::ToSocketAddrs",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::sync::mpsc",
    "std::sync::Condvar",
    "futures",
    "rustix",
    "socket2",
    "tokio",
    "crate::clock",
    "crate::spin",
    "crate::random",
    "crate::blocking",
    "crate::transport",
    "crate::executor",
    "crate::backend",
    "crate::process_group",
    "crate::distributed",
    "crate::rendezvous",
    "crate::store",
    "crate::work",
];

/// The rooms of the core that lie above the named one.
pub(crate) const ROOMS: &[Room] = &[
    Room {
        place: "codegen",
        forbidden: &["polyrank"],
        why: "the generator turns text into text and never sees core",
    },
    Room { place: "core/src/schedule", forbidden: IMPURE, why: "a schedule is pure data" },
    Room {
        place: "core/src/schedule",
        forbidden: &["crate::wire", "crate::tensor"],
        why: "a schedule speaks in chunks, never in bytes",
    },
    Room { place: "core/src/wire", forbidden: IMPURE, why: "the wire format is pure" },
    Room {
        place: "core/src/wire",
        forbidden: &["crate::schedule", "crate::tensor"],
        why: "a frame knows bytes, not what they mean",
    },
    Room { place: "core/src/kernels", forbidden: IMPURE, why: "a kernel turns bytes into bytes" },
    Room {
        place: "core/src/kernels",
        forbidden: &["crate::schedule", "crate::wire", "crate::tensor"],
        why: "a kernel turns bytes into bytes",
    },
    Room {
        place: "core/src/spin",
        forbidden: &[
            "crate::wire",
            "crate::tensor",
            "crate::completion",
            "crate::transport",
            "crate::store",
            "crate::executor",
            "crate::backend",
            "rustix",
            "tokio",
        ],
        why: "how a thread waits depends neither on what it waits for nor on who it is",
    },
    Room {
        place: "core/src/transport",
        forbidden: &[
            "crate::schedule",
            "crate::completion",
            "crate::request",
            "crate::store",
            "crate::rendezvous",
            "crate::executor",
            "crate::backend",
            "crate::work",
            "crate::process_group",
            "crate::objects",
            "crate::distributed",
            "crate::calls",
        ],
        why: "a transport moves frames to a peer; it knows no store, no schedule and no group",
    },
    Room {
        place: "core/src/transport/peers",
        forbidden: &["crate::transport::tcp", "crate::transport::shm"],
        why: "what transports have alike knows none of them",
    },
    Room {
        place: "core/src/transport/router",
        forbidden: &[
            "crate::transport::tcp",
            "crate::transport::shm",
            "crate::transport::websocket",
        ],
        why: "the room that composes transports names them",
    },
    Room {
        place: "core/src/executor",
        forbidden: &[
            "crate::transport::tcp",
            "crate::transport::shm",
            "crate::transport::websocket",
            "crate::transport::inproc",
            "crate::transport::sim",
        ],
        why: "the executor knows the transport trait, no concrete transport",
    },
    Room {
        place: "core/src/executor",
        forbidden: &[
            "crate::backend",
            "crate::process_group",
            "crate::distributed",
            "crate::store",
            "crate::work",
        ],
        why: "data goes one way; the executor answers through its completion only",
    },
    Room {
        place: "core/src/backend",
        forbidden: &[
            "crate::work",
            "crate::process_group",
            "crate::objects",
            "crate::distributed",
            "crate::calls",
        ],
        why: "a backend runs what it is asked to; it knows neither the group nor the handle",
    },
    Room {
        place: "core/src/backend/scheduled",
        forbidden: &["crate::backend::nccl", "crate::backend::mpi"],
        why: "backends do not know each other",
    },
    Room {
        place: "core/src/backend/nccl",
        forbidden: &["crate::backend::scheduled", "crate::backend::mpi"],
        why: "backends do not know each other",
    },
    Room {
        place: "core/src/backend/mpi",
        forbidden: &["crate::backend::scheduled", "crate::backend::nccl"],
        why: "backends do not know each other",
    },
    Room {
        place: "core/src/backend/custom",
        forbidden: &["crate::backend::scheduled", "crate::backend::mpi", "crate::backend::nccl"],
        why: "backends do not know each other",
    },
    Room {
        place: "core/src/backend/nccl",
        forbidden: &["crate::executor", "crate::schedule"],
        why: "NCCL runs its own operations; their end is told by a completion",
    },
    Room {
        place: "core/src/backend/mpi",
        forbidden: &["crate::executor", "crate::schedule"],
        why: "MPI runs its own operations; their end is told by a completion",
    },
    Room {
        place: "core/src/process_group",
        forbidden: &["crate::schedule", "crate::transport", "crate::executor"],
        why: "the process group knows neither schedules nor transports, nor who runs them",
    },
    Room {
        place: "core/src/process_group",
        forbidden: &["crate::backend::mpi", "crate::backend::nccl", "crate::backend::scheduled"],
        why: "a backend is connected through its row of the registry",
    },
    Room {
        place: "core/src/distributed",
        forbidden: &[
            "crate::schedule",
            "crate::transport",
            "crate::executor",
            "crate::backend::mpi",
            "crate::backend::nccl",
            "crate::backend::scheduled",
        ],
        why: "free functions know groups and the registry of backends",
    },
    Room {
        place: "core/src/calls",
        forbidden: &["crate::schedule", "crate::transport", "crate::executor"],
        why: "a call from another language becomes a request, or a call of a free function",
    },
    Room {
        place: "core/src/objects",
        forbidden: &["crate::schedule", "crate::transport", "crate::executor", "crate::backend"],
        why: "objects travel as the tensors of ordinary operations",
    },
    Room {
        place: "core/src/tensor",
        forbidden: &["crate::schedule", "crate::wire", "crate::kernels"],
        why: "a tensor is memory with a shape; it does not know who moves it",
    },
    Room {
        place: "core/src/completion",
        forbidden: &[
            "crate::blocking",
            "crate::request",
            "crate::schedule",
            "crate::transport",
            "crate::store",
            "crate::rendezvous",
            "crate::executor",
            "crate::backend",
            "crate::work",
            "crate::process_group",
            "crate::objects",
            "crate::distributed",
            "crate::calls",
        ],
        why: "what runs operations tells their end; this room imports none of it",
    },
    Room {
        place: "core/src/request",
        forbidden: &[
            "crate::schedule",
            "crate::transport",
            "crate::store",
            "crate::rendezvous",
            "crate::executor",
            "crate::backend",
            "crate::work",
            "crate::process_group",
            "crate::objects",
            "crate::distributed",
            "crate::calls",
        ],
        why: "what is asked does not depend on who asks, nor on how it is done",
    },
    Room {
        place: "core/src/rendezvous",
        forbidden: &[
            "crate::schedule",
            "crate::executor",
            "crate::backend",
            "crate::process_group",
        ],
        why: "ranks meet before there is a group",
    },
    Room {
        place: "core/src/store",
        forbidden: &["crate::schedule", "crate::executor", "crate::backend"],
        why: "a store is where ranks meet before there is a group",
    },
    Room {
        place: "core/src",
        forbidden: &["polyrank_cli", "clap", "indicatif"],
        why: "the library has no command line",
    },
    Room {
        place: "core/cli/src/launch",
        forbidden: &["polyrank"],
        why: "the launcher knows processes; the ranks meet by themselves",
    },
    Room {
        place: "core/cli/src/launch",
        forbidden: &["crate::bench", "crate::predict", "crate::serve", "crate::arguments"],
        why: "the benchmark starts ranks as the launcher does, and not the other way round",
    },
    Room {
        place: "core/cli/src/predict",
        forbidden: &["crate::bench", "crate::launch", "crate::serve", "crate::arguments"],
        why: "what both need is neither's",
    },
    Room {
        place: "core/cli/src/bench",
        forbidden: &["crate::predict", "crate::serve", "crate::arguments"],
        why: "what both need is neither's",
    },
    Room { place: "core/quorum/src/rules", forbidden: IMPURE, why: "rules are pure" },
    Room {
        place: "core/quorum/src/rules",
        forbidden: &["crate::lighthouse", "crate::client", "tonic", "axum", "hyper_util"],
        why: "rules know neither who asks nor how",
    },
    Room {
        place: "core/quorum/src",
        forbidden: &["polyrank", "polyrank_cli", "clap"],
        why: "who trains together does not depend on what they send",
    },
    Room {
        place: "core/replicas/src",
        forbidden: &["polyrank_cli", "clap", "tonic", "axum", "polyrank::transport"],
        why: "a manager knows a group and the clients of a quorum, not what is beneath them",
    },
    Room { place: "core/trace/src", forbidden: IMPURE, why: "what reads a trace is pure" },
    Room {
        place: "core/trace/src",
        forbidden: &["polyrank", "polyrank_cli", "clap"],
        why: "files of a recorder are read without what recorded them",
    },
    Room {
        place: "site/trace",
        forbidden: &["polyrank", "polyrank_cli"],
        why: "the page that opens traces loads nothing else",
    },
    Room {
        place: "core/cli/src/trace",
        forbidden: &[
            "polyrank",
            "crate::bench",
            "crate::launch",
            "crate::predict",
            "crate::serve",
            "crate::arguments",
        ],
        why: "a trace is read where nothing runs",
    },
    Room {
        place: "core/cli/src/chart",
        forbidden: &["polyrank", "crate::bench", "crate::predict", "crate::launch"],
        why: "a chart knows lines and axes, not what they show",
    },
    Room {
        place: "bindings-python/src",
        forbidden: &["polyrank_codegen", "rustix", "socket2", "tokio"],
        why: "bindings use only what polyrank and its command export",
    },
    Room {
        place: "bindings-node/src",
        forbidden: &["polyrank_codegen", "rustix", "socket2", "tokio"],
        why: "bindings use only what polyrank and its command export",
    },
    Room {
        place: "bindings-wasm/src",
        forbidden: &["polyrank_codegen", "polyrank_cli", "rustix", "socket2", "tokio"],
        why: "bindings use only what polyrank exports",
    },
];

/// Whether `path` is the module `place`: the file, or a file in its folder.
pub(crate) fn starts_with_path(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.starts_with(['/', '.']))
}

/// The syntax tree of a Rust file.
pub(crate) fn parse(file: &File) -> syn::File {
    match syn::parse_file(&file.text) {
        Ok(tree) => tree,
        Err(error) => panic!("{}:{}: {error}", file.path, error.span().start().line),
    }
}
