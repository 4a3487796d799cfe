//! Places that this process hosts and needs no more itself, while others that met there still do:
//! whoever lets one go does not wait for them, and the process ends when they are done, or after a
//! limit. Knows nothing of what they do there.

use std::sync::Arc;
use std::time::Duration;

use super::meeting_place::HostedPlace;
use crate::clock::Instant;
use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};
use crate::{fork, process_end};

/// How long others may take until they have what they need.
const LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether anybody is left: at first, and in the end.
const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

static KEPT: ProcessMutex<KeptPlaces> =
    ProcessMutex::new(KeptPlaces { forks: 0, places: Vec::new(), is_tended: false });

struct KeptPlaces {
    /// The number of forks before the places were kept.
    forks: u32,
    places: Vec<KeptPlace>,
    /// Whether a thread lets them go.
    is_tended: bool,
}

struct KeptPlace {
    place: Arc<HostedPlace>,
    until: Instant,
    /// Whether those that come are told that it is gone.
    is_closed: bool,
}

impl KeptPlace {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.place.store.has_no_clients()
    }
}

/// Lets `place` go as soon as nobody else is connected to it. Those that are find what is there;
/// for those that come it is gone.
pub(crate) fn let_go(place: Arc<HostedPlace>) {
    if place.store.has_no_clients() {
        return;
    }
    process_end::wait_for(await_all);
    let mut kept = lock();
    kept.places.push(KeptPlace { place, until: Instant::now() + LIMIT, is_closed: false });
    if kept.is_tended {
        return;
    }
    let thread = std::thread::Builder::new().name("polyrank-places".to_owned());
    kept.is_tended = thread.spawn(tend).is_ok();
    if !kept.is_tended {
        // Nobody can be waited for without a thread.
        let places = std::mem::take(&mut kept.places);
        drop(kept);
        drop(places);
    }
}

fn lock() -> ProcessMutexGuard<'static, KeptPlaces> {
    let mut kept = KEPT.lock();
    let forks = fork::forks();
    if kept.forks != forks {
        // They are the parent's, and so is the thread.
        std::mem::forget(std::mem::take(&mut kept.places));
        kept.is_tended = false;
        kept.forks = forks;
    }
    kept
}

/// Lets go what nobody needs, until nothing is kept.
fn tend() {
    let [mut pause, longest] = LOOKS;
    loop {
        let mut kept = lock();
        let over: Vec<KeptPlace> = kept.places.extract_if(.., |it| it.is_over()).collect();
        let open = kept.places.iter_mut().filter(|it| !it.is_closed);
        let open: Vec<Arc<HostedPlace>> = open
            .map(|it| {
                it.is_closed = true;
                it.place.clone()
            })
            .collect();
        drop(kept);
        // The last one who has a place ends a server, which may take a moment.
        drop(over);
        open.iter().for_each(|place| place.close_to_newcomers());
        drop(open);
        let mut kept = lock();
        if kept.places.is_empty() {
            kept.is_tended = false;
            return;
        }
        drop(kept);
        std::thread::sleep(pause);
        pause = longest.min(2 * pause);
    }
}

/// Waits until nothing is kept any more. It looks again and again, since no thread may hold the
/// lock while another forks, as one does that waits to be notified.
fn await_all() {
    let until = Instant::now() + LIMIT;
    let [mut pause, longest] = LOOKS;
    while lock().is_tended && Instant::now() < until {
        std::thread::sleep(pause);
        pause = longest.min(2 * pause);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::meeting_place::{host, open};
    use super::*;
    use crate::blocking::block_on;
    use crate::store::Store;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn come(url: &str) -> Option<Arc<dyn Store>> {
        block_on(open(url, TIMEOUT)).ok()
    }

    /// Comes until nobody is let in any more; `false` if that lasts.
    fn is_closed_in_time(url: &str) -> bool {
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            if come(url).is_none() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn a_place_that_nobody_needs_is_gone() {
        let place = Arc::new(host(None).unwrap());
        let url = place.url.clone();
        assert!(come(&url).is_some());
        let_go(place);
        assert!(is_closed_in_time(&url));
    }

    #[test]
    fn who_is_there_finds_what_is_there_and_who_comes_finds_nothing() {
        let place = Arc::new(host(None).unwrap());
        let url = place.url.clone();
        place.store.set("key", b"value").unwrap();
        let weak = Arc::downgrade(&place);
        let guest = come(&url).unwrap();
        // It is counted from its first request on.
        assert_eq!(guest.get("key").unwrap(), b"value");
        assert!(!place.store.has_no_clients());
        let_go(place);
        assert!(is_closed_in_time(&url));
        assert_eq!(guest.get("key").unwrap(), b"value");
        guest.set("later", b"").unwrap();
        assert!(weak.upgrade().is_some());
        drop(guest);
        // The end of a process waits for no longer than this.
        await_all();
        assert!(weak.upgrade().is_none());
    }
}
