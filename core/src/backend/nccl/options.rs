//! What users may choose about communicators: whether it can be had. Knows no library.

use super::{NcclConfig, NcclOptions};
use crate::{Error, Result};

/// The most thread blocks in a cluster.
const LARGEST_CLUSTER: u32 = 8;
/// The most thread blocks of a kernel that anybody can mean; the library has its own limit.
const MOST_BLOCKS: u32 = i32::MAX as u32;

/// Refuses what NCCL would refuse, or take for something else: before ranks meet over it.
///
/// # Errors
/// [`Error::InvalidArgument`] with the member, what was expected and what came;
/// [`Error::Unsupported`] for communicators that block.
pub(crate) fn check(options: &NcclOptions) -> Result<()> {
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
    within("min_ctas", config.min_ctas, (1, MOST_BLOCKS))?;
    within("max_ctas", config.max_ctas, (1, MOST_BLOCKS))?;
    let NcclConfig { min_ctas, max_ctas, net_name, .. } = config;
    if let (Some(min), Some(max)) = (min_ctas, max_ctas)
        && min > max
    {
        return invalid(format!("max_ctas must be at least min_ctas, {min}, not {max}"));
    }
    match net_name.as_deref() {
        Some("") => invalid("net_name must be a name as 'Socket' or 'IB', not empty".to_owned()),
        Some(name) if name.contains('\0') => {
            invalid("net_name must be a name without zero bytes".to_owned())
        }
        _ => Ok(()),
    }
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
            (config().net_name("a\0b"), "without zero bytes"),
        ] {
            let error = check(&NcclOptions::default().config(config)).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        let blocking = NcclOptions::default().config(config().blocking(1));
        assert!(matches!(check(&blocking), Err(Error::Unsupported { .. })));
        let all = config().blocking(0).cga_cluster_size(8).min_ctas(4).max_ctas(4).net_name("IB");
        assert!(check(&NcclOptions::default().config(all.split_share(1))).is_ok());
    }
}
