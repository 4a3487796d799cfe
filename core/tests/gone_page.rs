//! A rank that reaches the others by WebSocket alone, as a page does, and is gone before it
//! connects to any: what the rank says that waits for it.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use polyrank::store::{PrefixStore, Store, TcpStore, TcpStoreOptions, WebSocketStore};
use polyrank::wire::card::Card;
use polyrank::{Error, GroupOptions, ProcessGroup, rendezvous};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_page_that_is_closed_before_it_connects_is_named_by_who_waits_for_it() {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).timeout(LIMIT);
    let server = TcpStore::new(options).unwrap();
    let url = format!("ws://127.0.0.1:{}", server.port());
    let server: Arc<dyn Store> = Arc::new(server);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = WebSocketStore::connect(&url, LIMIT).unwrap();
            let number = socket.client().relay().number();
            let store = PrefixStore::new("polyrank/pages", Arc::new(socket));
            rendezvous::join(&store, "pages", 1, 2, LIMIT).unwrap();
            let card = Card { relay: Some(number), ..Card::new("a page", 1, Vec::new()) };
            store.set("rank/1", &card.encode()).unwrap();
            store.wait(&["rank/0", "token"], Some(LIMIT)).unwrap();
            // The page is closed: its session is over.
        });
        let options = GroupOptions::default().timeout(LIMIT);
        let group = ProcessGroup::new(server.clone(), 0, 2, "pages", options).unwrap();
        // Without the store's word it would be the time that a connection may take.
        let error = group.barrier(LIMIT).unwrap_err();
        assert!(matches!(error, Error::RankFailed { rank: 1, .. }), "{error:?}");
        assert!(error.to_string().contains("its connection to the store's server"), "{error}");
    });
}
