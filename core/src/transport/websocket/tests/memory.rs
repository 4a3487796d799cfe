//! Pipes in memory, between transports of one thread. Knows nothing of frames.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::super::{MAX_CHUNK_BYTES, Options, Pipe, PipeState, Route, WebSocketTransport};
use crate::clock::Instant;
use crate::transport::suite::world::World;
use crate::transport::{Bell, Interest, LossReason, Rank};
use crate::wire::handshake::Token;

/// Bytes that wait in a pipe.
const WINDOW_BYTES: usize = 300_000;

#[derive(Default)]
struct Direction {
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
    end: Option<LossReason>,
}

/// One end of a pipe.
pub(in crate::transport) struct MemoryPipe {
    directions: Arc<Mutex<[Direction; 2]>>,
    /// Wake those who wait for the pipe, by side: another thread may move the other one.
    bells: [Bell; 2],
    side: usize,
    closed: bool,
}

/// Both ends of a new pipe.
pub(in crate::transport) fn pair() -> [MemoryPipe; 2] {
    let directions = Arc::new(Mutex::new(<[Direction; 2]>::default()));
    let bells = [0, 1].map(|_| Bell::new().unwrap());
    [0, 1].map(|side| MemoryPipe {
        directions: directions.clone(),
        bells: bells.clone(),
        side,
        closed: false,
    })
}

impl MemoryPipe {
    fn wake_other(&self) {
        self.bells[1 - self.side].ring();
    }

    fn end(&mut self, how: LossReason) {
        let direction = &mut self.directions.lock().unwrap()[self.side];
        direction.end.get_or_insert(how);
        self.closed = true;
        self.wake_other();
    }
}

impl Pipe for MemoryPipe {
    fn advance(&mut self, _now: Instant) -> bool {
        self.bells[self.side].heard()
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        interests.extend(self.bells[self.side].interest());
    }

    fn state(&self) -> PipeState {
        let end = self.directions.lock().unwrap()[1 - self.side].end.clone();
        end.map_or(PipeState::Open, PipeState::Lost)
    }

    fn room(&self) -> usize {
        WINDOW_BYTES.saturating_sub(self.directions.lock().unwrap()[self.side].bytes)
    }

    fn send(&mut self, parts: &[&[u8]]) {
        let chunk = parts.concat();
        assert!(chunk.len() <= MAX_CHUNK_BYTES.min(self.room()) && !chunk.is_empty());
        let direction = &mut self.directions.lock().unwrap()[self.side];
        direction.bytes += chunk.len();
        direction.chunks.push_back(chunk);
        self.wake_other();
    }

    fn receive(&mut self) -> Option<Bytes> {
        let direction = &mut self.directions.lock().unwrap()[1 - self.side];
        let chunk = direction.chunks.pop_front()?;
        direction.bytes -= chunk.len();
        // There is room again.
        self.wake_other();
        Some(chunk.into())
    }

    fn close(&mut self, orderly: bool) {
        let died = || LossReason::Died("it was closed".to_owned());
        self.end(if orderly { LossReason::Goodbye } else { died() });
    }

    fn is_flushed(&self) -> bool {
        true
    }
}

impl Drop for MemoryPipe {
    fn drop(&mut self) {
        self.end(LossReason::Died("it was dropped".to_owned()));
    }
}

/// Transports of a group in which everybody reaches everybody through a pipe in memory.
pub(in crate::transport) fn group(size: u32, options: Options) -> Vec<WebSocketTransport> {
    let mut routes: Vec<Vec<Route>> =
        (0..size).map(|_| (0..size).map(|_| Route::Elsewhere).collect()).collect();
    for (low, high) in pairs(size) {
        let [first, second] = pair();
        routes[low][high] = Route::Relayed(Box::new(first));
        routes[high][low] = Route::Relayed(Box::new(second));
    }
    let transport = |(rank, routes)| {
        WebSocketTransport::new(rank as Rank, routes, None, Token([9; 16]), 5, options)
    };
    routes.into_iter().enumerate().map(transport).collect()
}

pub(in crate::transport) fn world(size: u32) -> World {
    World::new(group(size, Options::default()), Box::new(|| {}))
}

fn pairs(size: u32) -> impl Iterator<Item = (usize, usize)> {
    let size = size as usize;
    (0..size).flat_map(move |low| (low + 1..size).map(move |high| (low, high)))
}
