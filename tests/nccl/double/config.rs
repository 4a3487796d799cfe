//! What a caller tells about a new communicator, read as the library does: as many bytes as the
//! caller has, and of those what the caller's version has. Knows no communicator.

use std::ffi::{CStr, c_char, c_int};

const VERSION: c_int = 2_23_04;
const MAGIC: u32 = 0xcafe_beef;
const UNDEFINED: c_int = c_int::MIN;

/// The versions in which the structure grew, and its bytes since then.
const SIZES: [(u32, usize); 3] = [(2_28_00, 80), (2_27_00, 72), (0, 48)];

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    comm_name: *const c_char,
    collnet_enable: c_int,
    cta_policy: c_int,
    shrink_share: c_int,
    nvls_ctas: c_int,
    n_channels_per_net_peer: c_int,
    nvlink_centric_sched: c_int,
}

/// The version that the library says it has.
pub(crate) fn version() -> c_int {
    let other = std::env::var("NCCL_DOUBLE_VERSION").ok().and_then(|text| text.parse().ok());
    other.unwrap_or(VERSION)
}

/// What is chosen, for the log; none if it is not as it should be.
pub(crate) unsafe fn chosen(config: *const Config) -> Option<String> {
    let config = unsafe { read(config) }?;
    let numbers = [
        ("cga_cluster_size", config.cga_cluster_size),
        ("min_ctas", config.min_ctas),
        ("max_ctas", config.max_ctas),
        ("split_share", config.split_share),
        ("traffic_class", config.traffic_class),
        ("collnet_enable", config.collnet_enable),
        ("cta_policy", config.cta_policy),
        ("shrink_share", config.shrink_share),
        ("nvls_ctas", config.nvls_ctas),
        ("n_channels_per_net_peer", config.n_channels_per_net_peer),
        ("nvlink_centric_sched", config.nvlink_centric_sched),
    ];
    let numbers = numbers.iter().filter(|(_, number)| *number != UNDEFINED);
    let mut text: String = numbers.map(|(name, number)| format!(" {name}={number}")).collect();
    for (name, value) in [("net_name", config.net_name), ("comm_name", config.comm_name)] {
        if !value.is_null() {
            let value = unsafe { CStr::from_ptr(value) };
            text += &format!(" {name}={}", value.to_string_lossy());
        }
    }
    Some(text)
}

unsafe fn read(config: *const Config) -> Option<Config> {
    if config.is_null() {
        return None;
    }
    let size = unsafe { config.cast::<usize>().read() };
    let mut known = Config {
        size: 0,
        magic: 0,
        version: 0,
        blocking: UNDEFINED,
        cga_cluster_size: UNDEFINED,
        min_ctas: UNDEFINED,
        max_ctas: UNDEFINED,
        net_name: std::ptr::null(),
        split_share: UNDEFINED,
        traffic_class: UNDEFINED,
        comm_name: std::ptr::null(),
        collnet_enable: UNDEFINED,
        cta_policy: UNDEFINED,
        shrink_share: UNDEFINED,
        nvls_ctas: UNDEFINED,
        n_channels_per_net_peer: UNDEFINED,
        nvlink_centric_sched: UNDEFINED,
    };
    let bytes = size.min(size_of::<Config>());
    let into = (&raw mut known).cast::<u8>();
    unsafe { config.cast::<u8>().copy_to_nonoverlapping(into, bytes) };
    let (_, expected) = SIZES.into_iter().find(|(since, _)| known.version >= *since)?;
    if known.version < 2_25_00 {
        known.traffic_class = UNDEFINED;
    }
    // The library takes what is newer than itself, and leaves out what it does not know. Nobody is
    // to rely on that.
    let is_known = known.version <= version().unsigned_abs();
    let is_good = size == expected && known.magic == MAGIC && known.blocking == 0 && is_known;
    is_good.then_some(known)
}
