//! Groups in which nobody listens: every pipe goes through the server of a store. Knows nothing of
//! what is done with them.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Options, Relay, Route, WebSocketTransport};
use super::groups::{GENERATION, TOKEN, connect};
use crate::store::{TcpStore, TcpStoreOptions, WebSocketStore};
use crate::transport::suite::world::World;
use crate::transport::{Endpoints, LossReason, Rank, Transport};
use crate::wire::card::Card;

const PATIENCE: Duration = Duration::from_secs(60);

/// A store's server, and stores at it.
type Stores = (TcpStore, Vec<WebSocketStore>);

/// A store's server, and the stores of so many processes that reach it by WebSocket.
fn stores(count: u32) -> Stores {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).wait_for_workers(false);
    let server = TcpStore::new(options).unwrap();
    let url = format!("ws://127.0.0.1:{}", server.port());
    let connect = |_| WebSocketStore::connect(&url, PATIENCE).unwrap();
    let stores = (0..count).map(connect).collect();
    (server, stores)
}

fn relay(store: &WebSocketStore) -> Arc<dyn Relay> {
    store.client().relay()
}

/// The transports of ranks that reach each other through the server of a store alone.
fn group(size: u32) -> (Vec<Box<dyn Transport>>, Stores) {
    let (server, stores) = stores(size);
    let means =
        stores.iter().map(|store| Endpoints { relay: Some(relay(store)), ..Endpoints::default() });
    let means: Vec<_> = means.collect();
    let card = |(rank, means): (u32, &Endpoints)| Card { process_id: rank, ..means.card() };
    let cards = (0..).zip(&means).map(card).collect();
    (connect((means, cards), Options::default()), (server, stores))
}

pub(in crate::transport) fn world(size: u32) -> World {
    let (transports, stores) = group(size);
    let idle = move || {
        // The stores' threads and the server are to run.
        let _ = &stores;
        std::thread::sleep(Duration::from_millis(1));
    };
    World::new(transports, Box::new(idle))
}

#[test]
fn a_rank_whose_session_ends_is_dead_for_the_others() {
    let (transports, (_server, mut stores)) = group(3);
    let idle = || std::thread::sleep(Duration::from_millis(1));
    let mut world = World::new(transports, Box::new(idle));
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        world.send(from, to, 1, 100);
    }
    world.drive_until_all_arrived();
    // Its transport never says anything: the server finds out and tells.
    let gone: Vec<_> =
        world.transports[1].take().into_iter().map(std::mem::ManuallyDrop::new).collect();
    drop(stores.remove(1));
    world.drive_until("both hear", |world| {
        !world.lost(0, 1).is_empty() && !world.lost(2, 1).is_empty()
    });
    for lost in [world.lost(0, 1), world.lost(2, 1)] {
        assert!(matches!(&lost[..], [LossReason::Died(_)]), "{lost:?}");
    }
    assert!(world.lost(0, 2).is_empty());
    drop(gone);
}

#[test]
fn groups_of_the_same_ranks_do_not_mix() {
    let (_server, stores) = stores(2);
    let numbers: Vec<_> = stores.iter().map(|store| relay(store).number()).collect();
    let group = |name: u64| {
        let transport = |rank: Rank| {
            let own = relay(&stores[rank as usize]);
            let route = Route::Relayed(own.open(numbers[1 - rank as usize], name));
            let routes = if rank == 0 {
                vec![Route::Elsewhere, route]
            } else {
                vec![route, Route::Elsewhere]
            };
            let options = Options::default();
            WebSocketTransport::new(rank, routes, None, TOKEN, GENERATION, options)
        };
        let idle = || std::thread::sleep(Duration::from_millis(1));
        World::new(vec![transport(0), transport(1)], Box::new(idle))
    };
    let mut worlds = [group(7), group(8), group(u64::MAX)];
    for (number, world) in (1..).zip(&mut worlds) {
        world.send(0, 1, number, 100_000 * number as usize);
        world.send(1, 0, number, 3);
    }
    for world in &mut worlds {
        world.drive_until_all_arrived();
        world.check_order_and_contents();
    }
    worlds[0].close(0, true);
    let [first, second, _] = &mut worlds;
    first.drive_until("a goodbye", |world| !world.lost(1, 0).is_empty());
    assert_eq!(first.lost(1, 0), [LossReason::Goodbye]);
    second.send(1, 0, 10, 1000);
    second.drive_until_all_arrived();
    assert!(second.lost(1, 0).is_empty() && second.lost(0, 1).is_empty());
}
