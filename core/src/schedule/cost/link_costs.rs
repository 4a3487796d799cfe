//! What links and local work cost on some machine. Knows no algorithm.

/// What a link between two ranks costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds from the end of sending to the end of receiving (α).
    pub latency_s: f64,
    /// Seconds for which a message occupies each end, besides its bytes.
    pub overhead_s: f64,
    /// Seconds for which a byte occupies each end (β).
    pub byte_s: f64,
}

/// The kinds of links that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkClass {
    /// Two ranks in one process.
    Process,
    /// Two processes of one host with a segment of shared memory.
    SharedMemory,
    /// Two processes of one host with a socket.
    Loopback,
    /// Two hosts.
    Network,
}

/// What a group of ranks costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCosts {
    /// A link between ranks of one host.
    pub within: Link,
    /// A link between ranks of different hosts.
    pub between: Link,
    /// Seconds for which a byte occupies the wire that all ranks of a host share.
    pub wire_byte_s: f64,
    /// Seconds to reduce or copy a byte (γ).
    pub local_byte_s: f64,
    /// Seconds that each further message in flight at one rank adds to a message: many senders to
    /// one receiver get in each other's way.
    pub crowd_s: f64,
    /// The size at which messages are cut.
    pub segment_bytes: f64,
    /// Seconds that it occupies cores to wake a rank that sleeps: about what a message by a socket
    /// costs either end, system calls that they are.
    pub wake_s: f64,
    /// Seconds that a rank waits before it sleeps, where ranks share cores.
    pub awake_s: f64,
    /// The cores that the ranks of a host share; infinite if each has its own, or nobody knows.
    pub cores: f64,
}

impl LinkClass {
    /// All of them, the nearest first.
    pub const ALL: [LinkClass; 4] =
        [LinkClass::Process, LinkClass::SharedMemory, LinkClass::Loopback, LinkClass::Network];

    /// Its name in a file of link costs.
    pub const fn name(self) -> &'static str {
        match self {
            LinkClass::Process => "process",
            LinkClass::SharedMemory => "shared-memory",
            LinkClass::Loopback => "loopback",
            LinkClass::Network => "network",
        }
    }

    /// What such a link costs where nobody has measured it, the executor's share included.
    ///
    /// All but the last are of a two-core virtual machine. Loopback: 64-byte round trips of the
    /// bare
    /// transport took 4.7 µs, of which a write took 1.3 to 4.3 µs, and 256 KiB segments went at
    /// 3 GB/s. Shared memory: a bare exchange of 64 bytes took 0.4 µs, and 256 KiB slots went at
    /// 4 to 7 GB/s. A network is taken to be of 25 Gbit/s.
    pub const fn link(self) -> Link {
        match self {
            LinkClass::Process => Link { latency_s: 0.5e-6, overhead_s: 0.4e-6, byte_s: 0.1e-9 },
            LinkClass::SharedMemory => {
                Link { latency_s: 0.6e-6, overhead_s: 0.5e-6, byte_s: 0.15e-9 }
            }
            LinkClass::Loopback => Link { latency_s: 6e-6, overhead_s: 3e-6, byte_s: 0.33e-9 },
            LinkClass::Network => Link { latency_s: 20e-6, overhead_s: 3e-6, byte_s: 0.4e-9 },
        }
    }
}

impl LinkCosts {
    /// Ranks of one host over TCP, on a machine that nobody has measured.
    pub const LOOPBACK: LinkCosts = LinkCosts::of(LinkClass::Loopback);

    /// Hosts whose ranks reach each other by `within`, on machines that nobody has measured. f32
    /// sums in the cache went at 10 to 20 GB/s where the links were measured; the crowd is an
    /// estimate.
    pub const fn of(within: LinkClass) -> LinkCosts {
        LinkCosts {
            within: within.link(),
            between: LinkClass::Network.link(),
            wire_byte_s: 0.32e-9,
            local_byte_s: 0.08e-9,
            crowd_s: 0.05e-6,
            segment_bytes: 262_144.0,
            wake_s: LinkClass::Loopback.link().overhead_s,
            awake_s: 50e-6,
            cores: f64::INFINITY,
        }
    }

    /// A link between hosts when this many ranks of one host send at the same time.
    pub fn between_hosts(&self, senders: u32) -> Link {
        let wire_byte_s = self.wire_byte_s * f64::from(senders);
        Link { byte_s: self.between.byte_s.max(wire_byte_s), ..self.between }
    }
}
