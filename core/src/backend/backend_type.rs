//! The kinds of backends in c10d's terms. Knows no particular backend beyond its name.

/// The kinds of backends, with c10d's numbers; that of the TCP backend is c10d's `GLOO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BackendType {
    /// None.
    Undefined = 0,
    /// Sockets, host memory.
    Gloo = 1,
    /// NVIDIA's library, device memory.
    Nccl = 2,
    /// Unified Collective Communication.
    Ucc = 3,
    /// A Message Passing Interface library.
    Mpi = 4,
    /// Intel's library.
    Xccl = 5,
    /// Registered by the user.
    Custom = 6,
}

impl BackendType {
    /// The kind of the backend of this name: `CUSTOM` for those that c10d does not know.
    pub fn of(name: &str) -> BackendType {
        match name {
            "" | "undefined" => BackendType::Undefined,
            "tcp" | "gloo" => BackendType::Gloo,
            "nccl" => BackendType::Nccl,
            "ucc" => BackendType::Ucc,
            "mpi" => BackendType::Mpi,
            "xccl" => BackendType::Xccl,
            _ => BackendType::Custom,
        }
    }
}
