//! Which sockets are ready, and when something is due: one epoll descriptor, which includes a timer
//! where nobody asks for the time. Knows nothing of frames.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::Endings;

/// Most events that one call of [`Readiness::poll`] returns.
const EVENTS: usize = 64;

/// The key of the timer; no socket uses it.
pub(in crate::transport) const TIMER: u64 = u64::MAX;

/// The sockets of one transport.
pub(in crate::transport) struct Readiness {
    epoll: Arc<OwnedFd>,
    timer: Option<OwnedFd>,
    wakes_at: Option<Instant>,
    /// Those of the process that made it; none if it had no descriptor left.
    endings: Option<&'static Endings>,
}

/// A socket that is ready, and for what.
#[derive(Clone, Copy, Debug)]
pub(in crate::transport) struct ReadySocket {
    /// The key it was added with.
    pub(in crate::transport) key: u64,
    /// It can be read, or it has ended.
    pub(in crate::transport) readable: bool,
    /// It can be written, or it has ended.
    pub(in crate::transport) writable: bool,
}

impl Readiness {
    /// For a caller that waits no longer than until [`Readiness::deadline`].
    pub(in crate::transport) fn new() -> Result<Readiness, Errno> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let endings = Endings::of_this_process();
        Ok(Readiness { epoll, timer: None, wakes_at: None, endings })
    }

    /// For a caller that waits for the descriptor alone.
    pub(in crate::transport) fn with_timer() -> Result<Readiness, Errno> {
        let readiness = Readiness::new()?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&*readiness.epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        Ok(Readiness { timer: Some(timer), ..readiness })
    }

    /// The one descriptor that a thread may wait for.
    pub(in crate::transport) fn fd(&self) -> Arc<OwnedFd> {
        self.epoll.clone()
    }

    /// Starts to watch `socket`. It must be removed before it is closed: if a child process holds
    /// it, too, it would stay watched and could not be removed any more.
    pub(in crate::transport) fn add(
        &self,
        socket: impl AsFd,
        key: u64,
        writable: bool,
    ) -> Result<(), Errno> {
        epoll::add(&*self.epoll, socket, EventData::new_u64(key), flags(writable))
    }

    /// Changes the key of `socket`, and whether it is watched for room to write.
    pub(in crate::transport) fn modify(
        &self,
        socket: impl AsFd,
        key: u64,
        writable: bool,
    ) -> Result<(), Errno> {
        epoll::modify(&*self.epoll, socket, EventData::new_u64(key), flags(writable))
    }

    /// Tells a thread that waits for the ends of all connections of this process when that of
    /// `socket` ends. It must be removed as after [`Readiness::add`].
    pub(in crate::transport) fn watch_end(&self, socket: impl AsFd) {
        if let Some(endings) = &self.endings {
            endings.add(socket);
        }
    }

    /// Stops watching `socket`.
    pub(in crate::transport) fn remove(&self, socket: impl AsFd) {
        if let Some(endings) = &self.endings {
            endings.remove(&socket);
        }
        // An error means that it is not watched.
        let _ = epoll::delete(&*self.epoll, socket);
    }

    /// When something is due.
    pub(in crate::transport) fn deadline(&self) -> Option<Instant> {
        self.wakes_at
    }

    /// Notes when something is due. If there is a timer, [`Readiness::fd`] is readable from `when`
    /// on; never if there is no `when`.
    pub(in crate::transport) fn wake_at(&mut self, when: Option<Instant>) {
        if self.wakes_at == when {
            return;
        }
        self.wakes_at = when;
        let Some(timer) = &self.timer else { return };
        let value = match when {
            None => Timespec { tv_sec: 0, tv_nsec: 0 },
            Some(when) => {
                // Zero would disarm the timer.
                let wait = when.saturating_duration_since(Instant::now());
                let wait = wait.max(Duration::from_micros(1));
                let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
                Timespec { tv_sec: seconds, tv_nsec: wait.subsec_nanos().into() }
            }
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        if let Err(error) = timerfd_settime(timer, TimerfdTimerFlags::empty(), &spec) {
            tracing::warn!(%error, "cannot set the timer of a transport");
        }
    }

    /// Whether the time of [`Readiness::wake_at`] has come.
    pub(in crate::transport) fn is_due(&self) -> bool {
        self.wakes_at.is_some_and(|when| Instant::now() >= when)
    }

    /// Asks the system, without waiting, which sockets are ready.
    pub(in crate::transport) fn poll(&self, ready: &mut Vec<ReadySocket>) {
        ready.clear();
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let events = match epoll::wait(&*self.epoll, &mut events[..], Some(&zero)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot poll the sockets of a transport");
                return;
            }
        };
        for event in events {
            let (flags, key) = (event.flags, event.data.u64());
            let ended = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            ready.push(ReadySocket {
                key,
                readable: ended || flags.intersects(EventFlags::IN | EventFlags::RDHUP),
                writable: ended || flags.contains(EventFlags::OUT),
            });
        }
    }
}

fn flags(writable: bool) -> EventFlags {
    if writable { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
}
