//! What the library is told about a new communicator: `ncclConfig_t`, which grows from version to
//! version. Knows no communicator.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::mem::offset_of;
use std::ptr;

use super::NcclConfig;
use super::version::Version;
use crate::generated::error::{Error, Result};

/// How a communicator is made: `ncclConfig_t` of 2.28. An older one is its beginning: the library
/// reads as many bytes as `size` says, and of those what is of `version`.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
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

/// Texts that a [`Config`] points to.
pub(super) type Names = [Option<CString>; 2];

/// What every [`Config`] has in its second field.
const MAGIC: c_uint = 0xcafe_beef;
/// The value of a field of [`Config`] that the library is to choose.
const UNDEFINED: c_int = c_int::MIN;

/// The version that all libraries know which are taken.
const FIRST: Version = Version(2_18_01);
const WITH_TRAFFIC_CLASS: Version = Version(2_26_00);
const WITH_NAMES: Version = Version(2_27_00);
const WITH_CHANNELS: Version = Version(2_28_00);

/// The oldest version of the library that knows all that is chosen, and a member for which no older
/// one will do.
pub(super) fn needed(chosen: &NcclConfig) -> (Version, &'static str) {
    let later = [
        (WITH_TRAFFIC_CLASS, "traffic_class", chosen.traffic_class.is_some()),
        (WITH_NAMES, "comm_name", chosen.comm_name.is_some()),
        (WITH_NAMES, "collnet_enable", chosen.collnet_enable.is_some()),
        (WITH_NAMES, "cta_policy", chosen.cta_policy.is_some()),
        (WITH_NAMES, "shrink_share", chosen.shrink_share.is_some()),
        (WITH_NAMES, "nvls_ctas", chosen.nvls_ctas.is_some()),
        (WITH_CHANNELS, "cta_policy = 2", chosen.cta_policy == Some(2)),
        (WITH_CHANNELS, "n_channels_per_net_peer", chosen.n_channels_per_net_peer.is_some()),
        (WITH_CHANNELS, "nvlink_centric_sched", chosen.nvlink_centric_sched.is_some()),
    ];
    let newest = later.into_iter().rev().find(|(_, _, is_chosen)| *is_chosen);
    newest.map_or((FIRST, "blocking"), |(version, member, _)| (version, member))
}

/// What the library is told, and the texts that it points to. Numbers were checked before, and that
/// the library is new enough. It is told nothing newer than what is chosen.
///
/// # Errors
/// [`Error::InvalidArgument`] for a text with zero bytes.
pub(super) fn config(chosen: &NcclConfig) -> Result<(Config, Names)> {
    let number = |number: Option<u32>| number.map_or(UNDEFINED, |number| number as c_int);
    let net_name = text("net_name", chosen.net_name.as_deref())?;
    let comm_name = text("comm_name", chosen.comm_name.as_deref())?;
    let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    let version = needed(chosen).0;
    let config = Config {
        size: size_of_version(version),
        magic: MAGIC,
        version: version.0.unsigned_abs(),
        blocking: 0,
        cga_cluster_size: number(chosen.cga_cluster_size),
        min_ctas: number(chosen.min_ctas),
        max_ctas: number(chosen.max_ctas),
        net_name: pointer(&net_name),
        split_share: number(chosen.split_share),
        traffic_class: number(chosen.traffic_class),
        comm_name: pointer(&comm_name),
        collnet_enable: number(chosen.collnet_enable),
        cta_policy: number(chosen.cta_policy),
        shrink_share: number(chosen.shrink_share),
        nvls_ctas: number(chosen.nvls_ctas),
        n_channels_per_net_peer: number(chosen.n_channels_per_net_peer),
        nvlink_centric_sched: number(chosen.nvlink_centric_sched),
    };
    Ok((config, [net_name, comm_name]))
}

/// Bytes of `ncclConfig_t` in this version.
fn size_of_version(version: Version) -> usize {
    match version {
        // The traffic class stands where older ones have padding.
        _ if version < WITH_NAMES => offset_of!(Config, comm_name),
        _ if version < WITH_CHANNELS => offset_of!(Config, n_channels_per_net_peer),
        _ => size_of::<Config>(),
    }
}

fn text(member: &str, text: Option<&str>) -> Result<Option<CString>> {
    text.map(CString::new).transpose().map_err(|_| Error::InvalidArgument {
        message: format!("NcclConfig: {member} must be a name without zero bytes"),
    })
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_oldest_structure_that_has_all_that_is_chosen_is_given() {
        let none = NcclConfig::default;
        for (chosen, version, size) in [
            (none(), 21801, 48),
            (none().min_ctas(2).net_name("IB").split_share(1), 21801, 48),
            (none().traffic_class(3), 22600, 48),
            (none().comm_name("x").traffic_class(3), 22700, 72),
            (none().nvls_ctas(4), 22700, 72),
            (none().collnet_enable(1).nvlink_centric_sched(1), 22800, 80),
        ] {
            let (config, _names) = config(&chosen).unwrap();
            assert_eq!((config.version, config.size), (version, size), "{chosen:?}");
        }
    }

    #[test]
    fn each_field_is_where_the_header_has_it() {
        let places = [
            (offset_of!(Config, net_name), 32),
            (offset_of!(Config, split_share), 40),
            (offset_of!(Config, traffic_class), 44),
            (offset_of!(Config, comm_name), 48),
            (offset_of!(Config, collnet_enable), 56),
            (offset_of!(Config, cta_policy), 60),
            (offset_of!(Config, shrink_share), 64),
            (offset_of!(Config, nvls_ctas), 68),
            (offset_of!(Config, n_channels_per_net_peer), 72),
            (offset_of!(Config, nvlink_centric_sched), 76),
        ];
        for (place, expected) in places {
            assert_eq!(place, expected);
        }
    }
}
