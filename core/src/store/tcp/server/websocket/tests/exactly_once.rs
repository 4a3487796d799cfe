//! Sockets break anywhere: no request is lost or run twice, no relayed chunk either.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::transport::websocket::Pipe;

const CLIENTS: usize = 3;

#[derive(Clone, Debug)]
enum Event {
    Add(usize),
    Push(usize),
    Pop(usize),
    Chunk { from: usize, bytes: usize },
    Speak(usize, usize),
    Hear(usize, usize),
    Serve(usize, usize),
    Listen(usize, usize),
    Connect(usize),
    Disconnect(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let many = || (0..CLIENTS, 1..8usize);
    prop_oneof![
        3 => (0..CLIENTS).prop_map(Event::Add),
        2 => (0..CLIENTS).prop_map(Event::Push),
        2 => (0..CLIENTS).prop_map(Event::Pop),
        3 => (0..2usize, prop_oneof![8..64usize, 30_000..65_000usize])
            .prop_map(|(from, bytes)| Event::Chunk { from, bytes }),
        5 => many().prop_map(|(at, times)| Event::Speak(at, times)),
        5 => many().prop_map(|(at, times)| Event::Hear(at, times)),
        5 => many().prop_map(|(at, times)| Event::Serve(at, times)),
        5 => many().prop_map(|(at, times)| Event::Listen(at, times)),
        2 => (0..CLIENTS).prop_map(Event::Connect),
        1 => (0..CLIENTS).prop_map(Event::Disconnect),
    ]
}

/// What was asked, and what was sent from each end of a pipe between clients 0 and 1.
struct Asked {
    world: World,
    adds: Vec<Asking>,
    pops: Vec<Asking>,
    others: Vec<Asking>,
    pushed: u32,
    pipes: [Box<dyn Pipe>; 2],
    sent: [Vec<Vec<u8>>; 2],
}

impl Asked {
    fn new() -> Asked {
        let mut world = World::new(CLIENTS);
        let (one, other) = (world.clients[0].number, world.clients[1].number);
        let pipes = [(0, other), (1, one)]
            .map(|(at, peer)| world.clients[at].client.relay().open(peer, 77));
        world.settle();
        let (adds, pops, others) = Default::default();
        Asked { world, adds, pops, others, pushed: 0, pipes, sent: Default::default() }
    }

    fn run(&mut self, event: Event) {
        let world = &mut self.world;
        match event {
            Event::Add(at) => {
                let add = StoreRequest::Add { key: "n", amount: 1 };
                self.adds.push(world.ask(at, add));
            }
            Event::Push(at) => {
                let value: &'static [u8] = Box::leak(Box::new(self.pushed.to_le_bytes()));
                self.pushed += 1;
                self.others.push(world.ask(at, StoreRequest::QueuePush { key: "q", value }));
            }
            Event::Pop(at) => {
                let pop = StoreRequest::QueuePop { key: "q", block: true };
                self.pops.push(world.ask(at, pop));
            }
            Event::Chunk { from, bytes } => {
                if self.pipes[from].room() >= bytes {
                    let mut chunk = vec![from as u8; bytes];
                    chunk[..8].copy_from_slice(&self.sent[from].len().to_le_bytes());
                    self.pipes[from].send(&[&chunk[..5], &chunk[5..]]);
                    self.sent[from].push(chunk);
                }
            }
            Event::Speak(at, times) => {
                for _ in 0..times {
                    world.speak(at);
                }
            }
            Event::Hear(at, times) => {
                for _ in 0..times {
                    world.hear(at).unwrap();
                }
            }
            Event::Serve(at, times) => {
                for _ in 0..times {
                    world.serve(at);
                }
            }
            Event::Listen(at, times) => {
                for _ in 0..times {
                    world.listen(at);
                }
            }
            Event::Connect(at) => world.connect(at),
            Event::Disconnect(at) => world.disconnect(at),
        }
    }

    /// Connects those that are not, and lets everything arrive.
    fn finish(&mut self) {
        for _ in self.pushed as usize..self.pops.len() {
            self.run(Event::Push(0));
        }
        for at in 0..CLIENTS {
            if self.world.clients[at].socket.is_none() {
                self.world.connect(at);
            }
        }
        self.world.settle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn whatever_breaks(events in proptest::collection::vec(event(), 0..150)) {
        let mut asked = Asked::new();
        events.into_iter().for_each(|event| asked.run(event));
        asked.finish();

        let mut sums = BTreeSet::new();
        for add in &mut asked.adds {
            let reply = poll(add).expect("it was answered").unwrap();
            sums.insert(reply.number().unwrap());
        }
        let expected: BTreeSet<i64> = (1..=asked.adds.len() as i64).collect();
        prop_assert_eq!(sums, expected, "each counted once");

        let mut popped = BTreeSet::new();
        for pop in &mut asked.pops {
            let value = poll(pop).expect("it was answered").unwrap().value().unwrap();
            prop_assert!(popped.insert(value), "an element went to two");
        }
        asked.others.iter_mut().for_each(|other| {
            poll(other).expect("it was answered").unwrap();
        });
        let mut left = asked.world.ask(2, StoreRequest::QueueLen { key: "q" });
        asked.world.settle();
        let left = poll(&mut left).unwrap().unwrap().number().unwrap();
        prop_assert_eq!(left + popped.len() as i64, i64::from(asked.pushed));

        for (from, to) in [(0, 1), (1, 0)] {
            let mut received = Vec::new();
            while let Some(chunk) = asked.pipes[to].receive() {
                received.push(chunk.to_vec());
                asked.world.settle();
            }
            prop_assert!(received == asked.sent[from], "chunks are lost, doubled or out of order");
        }
        prop_assert_eq!(asked.world.service.take_woken().len(), 0);
    }
}
