//! How the ranks of a replica group find one another: rank 0 starts the manager of the group, and
//! puts where it is into the group's store.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use polyrank::distributed::create_store_client;
use polyrank::env::variable;
use polyrank::rendezvous::rendezvous;
use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{Error, GroupOptions, ProcessGroup};
use polyrank_quorum::host::{authority, bare, is_loopback};
use polyrank_quorum::{ClientOptions, ManagerClient, ManagerServer};

use crate::error::ManagerError;
use crate::options::ManagerOptions;
use crate::rpc::Rpc;

/// torchft's keys.
const ADDRESS: &str = "manager_addr";
const REPLICA_ID: &str = "replica_id";

/// The replica group, as one of its ranks knows it once all have met.
pub(crate) struct ReplicaGroup {
    pub(crate) replica_id: String,
    pub(crate) client: ManagerClient,
    /// Where that manager is.
    pub(crate) address: String,
    pub(crate) group: ProcessGroup,
    pub(crate) servers: Servers,
}

/// What serves others as long as the manager is there.
pub(crate) struct Servers {
    /// Of rank 0. It goes first: what it says of the store is right until it ends.
    pub(crate) manager: Option<ManagerServer>,
    _store: Arc<dyn Store>,
}

/// Meets the other ranks.
pub(crate) fn meet(options: &ManagerOptions, rpc: &Rpc) -> Result<ReplicaGroup, ManagerError> {
    let (store, address) = store(options)?;
    let of_store = |cause| no_store(&address, cause);
    let server = match options.rank() {
        0 => Some(serve(options, rpc, &*store, &address)?),
        _ => None,
    };
    store.wait(&[ADDRESS, REPLICA_ID], Some(options.connect_timeout)).map_err(of_store)?;
    let text = |key| {
        let bytes = store.get(key).map_err(of_store)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (manager, replica_id) = (text(ADDRESS)?, text(REPLICA_ID)?);
    let connect =
        ClientOptions { connect_timeout: options.connect_timeout, token: options.token.clone() };
    let failed = |cause| ManagerError::Connect { replica: replica_id.clone(), cause };
    let client = rpc.connect(&manager, connect);
    let closed = || ManagerError::Closed { replica: replica_id.clone() };
    let client = client.ok_or_else(closed)?.map_err(failed)?;
    let group = match &options.group {
        Some(group) => group.clone(),
        None => {
            // Where other hosts are, they reach this one as the store does.
            let near = (!is_loopback(&options.hostname)).then_some(&*store);
            let group = GroupOptions::default().timeout(options.timeout);
            let made = ProcessGroup::without_members(near, "replicas", group);
            made.map_err(|cause| ManagerError::Call(Box::new(cause)))?
        }
    };
    let servers = Servers { manager: server, _store: store };
    Ok(ReplicaGroup { replica_id, client, address: manager, group, servers })
}

/// The store of the replica group, and where others find it.
fn store(options: &ManagerOptions) -> Result<(Arc<dyn Store>, String), ManagerError> {
    if let (true, Some(address)) = (options.has_store_of_environment, &options.store_address) {
        // As all ranks of a launcher meet: who hosts it, and what of it a restart has for itself.
        let (rank, size) = (Some(options.rank()), Some(options.world_size()));
        let met = rendezvous("env://", rank, size, options.connect_timeout);
        return Ok((met.map_err(|cause| no_store(address, cause))?.store, address.clone()));
    }
    if let Some(address) = &options.store_address {
        let store = create_store_client(address, options.connect_timeout);
        return Ok((store.map_err(|cause| no_store(address, cause))?, address.clone()));
    }
    let host = bare(&options.hostname);
    let serve = TcpStoreOptions::new(host, 0).is_master(true).wait_for_workers(false);
    let store = TcpStore::new(serve.timeout(options.connect_timeout));
    let store = store.map_err(|cause| no_store(host, cause))?;
    let address = authority(host, store.port());
    Ok((Arc::new(store), address))
}

/// Starts the manager of the group, and says where it is.
fn serve(
    options: &ManagerOptions,
    rpc: &Rpc,
    store: &dyn Store,
    address: &str,
) -> Result<ManagerServer, ManagerError> {
    let replica_id = unique(&options.replica_id)?;
    let is_local = is_loopback(&options.hostname);
    let ip = match bare(&options.hostname).parse::<IpAddr>() {
        Ok(ip) if is_local => ip,
        _ if is_local => Ipv4Addr::LOCALHOST.into(),
        Ok(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => any_address(),
    };
    if is_local && options.lighthouse.as_deref().is_some_and(is_elsewhere) {
        tracing::warn!(
            "the lighthouse is not at a loopback address, and this replica says that it is at {}: \
             replicas of other hosts do not find it there; set hostname to the name or address of \
             this host",
            options.hostname
        );
    }
    let server = polyrank_quorum::ManagerOptions {
        bind: SocketAddr::new(ip, options.port.unwrap_or(0)),
        hostname: options.hostname.clone(),
        store_address: address.to_owned(),
        world_size: options.world_size() as usize,
        data: options.data.clone(),
        heartbeat_interval: options.heartbeat_interval,
        connect_timeout: options.connect_timeout,
        token: options.token.clone(),
        allows_strangers: variable::POLYRANK_INSECURE.text().is_some_and(|text| text == "1"),
        on_kill: options.on_kill.clone(),
        // `resolve` has seen that there is one.
        ..polyrank_quorum::ManagerOptions::new(
            &replica_id,
            options.lighthouse.as_deref().unwrap_or_default(),
        )
    };
    let failed =
        |cause| ManagerError::Start { replica: replica_id.clone(), cause: Arc::new(cause) };
    // It waits for the lighthouse, and whoever waits here may be wanted elsewhere.
    let started = rpc.run_blocking(move || ManagerServer::start(server));
    let closed = || ManagerError::Closed { replica: replica_id.clone() };
    let server = started.ok_or_else(closed)?.map_err(failed)?;
    let (keys, values) = ([ADDRESS, REPLICA_ID], [server.address(), replica_id.as_str()]);
    for (key, value) in keys.into_iter().zip(values) {
        store.set(key, value.as_bytes()).map_err(|cause| no_store(address, cause))?;
    }
    Ok(server)
}

fn no_store(address: &str, cause: Error) -> ManagerError {
    ManagerError::Store { address: address.to_owned(), cause: Box::new(cause) }
}

/// All addresses of this host at which those come that know an address of IPv4, or its name.
fn any_address() -> IpAddr {
    // There those of IPv6 are others, and in some places there are none.
    let serves_both =
        !cfg!(windows) && UdpSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))).is_ok();
    match serves_both {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// Whether a URL names another address than a loopback one. A name may be that of this host.
fn is_elsewhere(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    !host.is_empty() && !is_loopback(host)
}

/// What the replica is called, and what no other start has: a random UUID, as torchft appends it.
fn unique(replica_id: &str) -> Result<String, ManagerError> {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).map_err(|why| {
        ManagerError::Option(format!("the system has no random numbers for replica_id: {why}"))
    })?;
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    let uuid = parts.join("-");
    Ok(if replica_id.is_empty() { uuid } else { format!("{replica_id}:{uuid}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_this_host_is_told_from_what_is_elsewhere() {
        for here in ["http://127.0.0.1:29510", "localhost:1", "http://[::1]:29510/", "127.0.0.9"] {
            assert!(!is_elsewhere(here), "{here}");
        }
        for there in ["http://10.0.0.1:29510", "http://head:29510", "[fd00::1]:1", "head"] {
            assert!(is_elsewhere(there), "{there}");
        }
    }
}
