//! What users may choose about communicators: whether it can be had. Knows no library.

use super::config::needed;
use super::version::Version;
use super::{NcclConfig, NcclOptions};
use crate::generated::error::{Error, Result};

/// The most thread blocks in a cluster.
const LARGEST_CLUSTER: u32 = 8;
/// The most that anybody can mean, as of thread blocks; the library has its own limits.
const LARGEST: u32 = i32::MAX as u32;
/// The last of the policies for thread blocks: none, where it can be.
const LAST_POLICY: u32 = 2;
/// The most channels of a communicator.
const MAX_CHANNELS: u32 = 64;

/// Refuses what NCCL would refuse, or take for something else: before ranks meet over it.
///
/// # Errors
/// [`Error::InvalidArgument`] with the member, what was expected and what came;
/// [`Error::Unsupported`] for communicators that block, and for what the library of this
/// `version` is too old for, if there is one.
pub(super) fn check(options: &NcclOptions, version: Option<Version>) -> Result<()> {
    let config = &options.config;
    if config.blocking == Some(1) {
        let operation = "NcclConfig.blocking = 1: communicators never block, so that every wait \
                         has a deadline (expected 0 or none)";
        return Err(Error::Unsupported {
            who: "the nccl backend".into(),
            operation: operation.into(),
        });
    }
    within("blocking", config.blocking, (0, 1))?;
    within("split_share", config.split_share, (0, 1))?;
    within("cga_cluster_size", config.cga_cluster_size, (0, LARGEST_CLUSTER))?;
    within("min_ctas", config.min_ctas, (1, LARGEST))?;
    within("max_ctas", config.max_ctas, (1, LARGEST))?;
    within("traffic_class", config.traffic_class, (0, LARGEST))?;
    within("collnet_enable", config.collnet_enable, (0, 1))?;
    within("cta_policy", config.cta_policy, (0, LAST_POLICY))?;
    within("shrink_share", config.shrink_share, (0, 1))?;
    within("nvls_ctas", config.nvls_ctas, (1, LARGEST))?;
    within("n_channels_per_net_peer", config.n_channels_per_net_peer, (1, MAX_CHANNELS))?;
    within("nvlink_centric_sched", config.nvlink_centric_sched, (0, 1))?;
    let NcclConfig { min_ctas, max_ctas, net_name, comm_name, .. } = config;
    if let (Some(min), Some(max)) = (min_ctas, max_ctas)
        && min > max
    {
        return invalid(format!("max_ctas must be at least min_ctas, {min}, not {max}"));
    }
    if net_name.as_deref() == Some("") {
        return invalid("net_name must be a name as 'Socket' or 'IB', not empty".to_owned());
    }
    for (member, name) in [("net_name", net_name), ("comm_name", comm_name)] {
        if name.as_deref().is_some_and(|name| name.contains('\0')) {
            return invalid(format!("{member} must be a name without zero bytes"));
        }
    }
    version.map_or(Ok(()), |version| knows(version, config))
}

/// Refuses what a library of this version does not know.
fn knows(version: Version, config: &NcclConfig) -> Result<()> {
    let (needed, member) = needed(config);
    if version >= needed {
        return Ok(());
    }
    let operation = format!("NcclConfig.{member}, which needs NCCL {needed} or newer");
    Err(Error::Unsupported { who: format!("NCCL {version}"), operation })
}

fn within(member: &str, number: Option<u32>, (least, most): (u32, u32)) -> Result<()> {
    match number {
        Some(number) if !(least..=most).contains(&number) => {
            invalid(format!("{member} must be from {least} to {most}, not {number}"))
        }
        _ => Ok(()),
    }
}

fn invalid(what: String) -> Result<()> {
    Err(Error::InvalidArgument { message: format!("NcclConfig: {what}") })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const OLD: Version = Version(2_18_01);

    #[test]
    fn what_the_library_is_too_old_for_is_refused() {
        let config = NcclConfig::default;
        for (config, needs) in [
            (config().traffic_class(0), "NcclConfig.traffic_class, which needs NCCL 2.26.0"),
            (config().comm_name("x"), "NcclConfig.comm_name, which needs NCCL 2.27.0"),
            (config().comm_name("x").nvlink_centric_sched(0), "which needs NCCL 2.28.0"),
            (config().cta_policy(1), "NcclConfig.cta_policy, which needs NCCL 2.27.0"),
            (config().cta_policy(2), "NcclConfig.cta_policy = 2, which needs NCCL 2.28.0"),
        ] {
            let options = NcclOptions::default().config(config);
            let error = check(&options, Some(OLD)).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains("NCCL 2.18.1"), "{error}");
            assert!(error.to_string().contains(needs), "{error}");
            assert!(check(&options, Some(Version(2_28_00))).is_ok());
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let config = NcclConfig::default;
        for (config, says) in [
            (config().blocking(2), "blocking must be from 0 to 1, not 2"),
            (config().split_share(7), "split_share must be from 0 to 1, not 7"),
            (config().cga_cluster_size(9), "cga_cluster_size must be from 0 to 8, not 9"),
            (config().min_ctas(0), "min_ctas must be from 1 to"),
            (config().max_ctas(u32::MAX), "max_ctas must be from 1 to"),
            (config().min_ctas(5).max_ctas(4), "max_ctas must be at least min_ctas, 5, not 4"),
            (config().net_name(""), "net_name must be a name as 'Socket'"),
            (config().net_name("a\0b"), "net_name must be a name without zero bytes"),
            (config().comm_name("\0"), "comm_name must be a name without zero bytes"),
            (config().collnet_enable(2), "collnet_enable must be from 0 to 1, not 2"),
            (config().cta_policy(3), "cta_policy must be from 0 to 2, not 3"),
            (config().shrink_share(2), "shrink_share must be from 0 to 1, not 2"),
            (config().nvls_ctas(0), "nvls_ctas must be from 1 to"),
            (config().n_channels_per_net_peer(65), "must be from 1 to 64, not 65"),
            (config().nvlink_centric_sched(2), "nvlink_centric_sched must be from 0 to 1, not 2"),
        ] {
            let error = check(&NcclOptions::default().config(config), None).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        let blocking = NcclOptions::default().config(config().blocking(1));
        assert!(matches!(check(&blocking, None), Err(Error::Unsupported { .. })));
        let all = config().blocking(0).cga_cluster_size(8).min_ctas(4).max_ctas(4).net_name("IB");
        assert!(check(&NcclOptions::default().config(all.split_share(1)), Some(OLD)).is_ok());
    }
}
