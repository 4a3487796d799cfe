//! What users may choose about communicators. Knows no library.

/// How the communicators of a group over NCCL are made: c10d's `ProcessGroupNCCL.Options`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NcclOptions {
    /// Whether the group's kernels come before those of other streams.
    pub is_high_priority_stream: bool,
    /// Whether `wait()` blocks the thread until the operation is done on the device, instead of
    /// ordering the caller's stream after it.
    pub blocking_wait: bool,
    /// What NCCL itself is told.
    pub config: NcclConfig,
}

/// What NCCL is told when it makes a communicator: c10d's `NCCLConfig`. What is not set is NCCL's
/// choice. Communicators never block here, so that every wait has a deadline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NcclConfig {
    /// Thread blocks that form a cluster, 0 to 8.
    pub cga_cluster_size: Option<u32>,
    /// Least number of thread blocks for a kernel.
    pub min_ctas: Option<u32>,
    /// Greatest number of thread blocks for a kernel.
    pub max_ctas: Option<u32>,
    /// Name of the network module, as `Socket` or `IB`.
    pub net_name: Option<String>,
    /// Whether a communicator that is split off shares resources with the one it comes from.
    pub split_share: Option<bool>,
}

impl NcclOptions {
    /// Sets [`NcclOptions::is_high_priority_stream`].
    pub fn is_high_priority_stream(mut self, is_high: bool) -> Self {
        self.is_high_priority_stream = is_high;
        self
    }
    /// Sets [`NcclOptions::blocking_wait`].
    pub fn blocking_wait(mut self, blocks: bool) -> Self {
        self.blocking_wait = blocks;
        self
    }
    /// Sets [`NcclOptions::config`].
    pub fn config(mut self, config: NcclConfig) -> Self {
        self.config = config;
        self
    }
}

impl NcclConfig {
    /// Sets [`NcclConfig::cga_cluster_size`].
    pub fn cga_cluster_size(mut self, blocks: u32) -> Self {
        self.cga_cluster_size = Some(blocks);
        self
    }
    /// Sets [`NcclConfig::min_ctas`].
    pub fn min_ctas(mut self, blocks: u32) -> Self {
        self.min_ctas = Some(blocks);
        self
    }
    /// Sets [`NcclConfig::max_ctas`].
    pub fn max_ctas(mut self, blocks: u32) -> Self {
        self.max_ctas = Some(blocks);
        self
    }
    /// Sets [`NcclConfig::net_name`].
    pub fn net_name(mut self, name: impl Into<String>) -> Self {
        self.net_name = Some(name.into());
        self
    }
    /// Sets [`NcclConfig::split_share`].
    pub fn split_share(mut self, shares: bool) -> Self {
        self.split_share = Some(shares);
        self
    }
}
