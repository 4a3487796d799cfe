//! A backend that is written outside of polyrank: its ranks exchange everything through the store
//! of their group. Slow, short, and right. It uses what polyrank shows to users, and nothing else;
//! the site's page shows it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use polyrank::backend::{
    Backend, BackendContext, Call, Capabilities, IssueOptions, IssuedOperation, Leaving, Transfer,
};
use polyrank::store::Store;
use polyrank::{Collective, Error, Region, Result};

/// One rank of a group.
pub struct OverStore {
    store: Arc<dyn Store>,
    rank: u32,
    size: u32,
    collectives: AtomicU64,
    /// How many messages with a tag went to another rank, and came from it.
    messages: Mutex<HashMap<(bool, u32, u32), u64>>,
}

impl OverStore {
    /// Makes this rank's part for a new group: `register_backend("store", &[], OverStore::make)`.
    ///
    /// # Errors
    /// None.
    pub fn make(context: BackendContext) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(OverStore {
            store: context.store,
            rank: context.rank,
            size: context.size,
            collectives: AtomicU64::new(0),
            messages: Mutex::default(),
        }))
    }

    /// The bytes of all blocks of all ranks.
    fn exchange(&self, blocks: &[Region]) -> Result<Vec<Vec<Vec<u8>>>> {
        let number = self.collectives.fetch_add(1, Ordering::Relaxed);
        let key = |rank: u32, block: &str| format!("{number}/{rank}/{block}");
        for (index, block) in blocks.iter().enumerate() {
            let bytes = block.read(<[u8]>::to_vec);
            self.store.set(&key(self.rank, &index.to_string()), &bytes)?;
        }
        self.store.set(&key(self.rank, "blocks"), blocks.len().to_string().as_bytes())?;
        let blocks_of = |rank| {
            let count =
                String::from_utf8_lossy(&self.store.get(&key(rank, "blocks"))?).into_owned();
            let count: usize = count.parse().unwrap_or(0);
            (0..count).map(|block| self.store.get(&key(rank, &block.to_string()))).collect()
        };
        (0..self.size).map(blocks_of).collect()
    }

    fn run(&self, call: &Call) -> Result<()> {
        let Call { input, output, .. } = call;
        // What works in place has its input in its output.
        let all = self.exchange(if input.is_empty() { output } else { input })?;
        let (own, root) = (self.rank as usize, call.root as usize);
        let put = |block: &Region, bytes: &[u8]| block.write(|to| to.copy_from_slice(bytes));
        let reduced = |block: usize| {
            let mut sum = all[0][block].clone();
            all[1..].iter().for_each(|blocks| call.reduce(&mut sum, &blocks[block]));
            sum
        };
        let prefix = |ranks: usize| {
            let mut sum = all[0][0].clone();
            all[1..ranks].iter().for_each(|blocks| call.reduce(&mut sum, &blocks[0]));
            sum
        };
        match call.collective {
            Collective::Barrier => {}
            Collective::Scan => put(&output[0], &prefix(own + 1)),
            Collective::Exscan => put(&output[0], &prefix(own.max(1))),
            Collective::Allreduce | Collective::Reduce => {
                output.iter().for_each(|block| put(block, &reduced(0)));
            }
            Collective::ReduceScatter => put(&output[0], &reduced(own)),
            Collective::Broadcast => put(&output[0], &all[root][0]),
            Collective::Scatter => put(&output[0], &all[root][own]),
            Collective::Allgather | Collective::Gather => {
                output.iter().zip(&all).for_each(|(block, blocks)| put(block, &blocks[0]));
            }
            Collective::Alltoall => {
                output.iter().zip(&all).for_each(|(block, blocks)| put(block, &blocks[own]));
            }
        }
        Ok(())
    }

    /// The key of the next message to `peer` with this tag, or from it.
    fn message_key(&self, is_sent: bool, peer: u32, tag: u32) -> String {
        let mut messages = self.messages.lock().expect("nobody panics with it");
        let number = messages.entry((is_sent, peer, tag)).or_insert(0);
        *number += 1;
        let (from, to) = if is_sent { (self.rank, peer) } else { (peer, self.rank) };
        format!("message/{from}/{to}/{tag}/{number}")
    }
}

impl Backend for OverStore {
    fn name(&self) -> &str {
        "store"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::complete()
    }

    fn collective(&self, call: Call, _: IssueOptions) -> Result<IssuedOperation> {
        Ok(IssuedOperation::ended(self.run(&call)))
    }

    fn send(&self, transfer: Transfer, _: IssueOptions) -> Result<IssuedOperation> {
        let Some(peer) = transfer.peer else { return self.unsupported("send to any rank") };
        let bytes = transfer.memory.read(<[u8]>::to_vec);
        let key = self.message_key(true, peer, transfer.tag);
        Ok(IssuedOperation::ended(self.store.set(&key, &bytes)))
    }

    fn recv(&self, transfer: Transfer, _: IssueOptions) -> Result<IssuedOperation> {
        let Some(peer) = transfer.peer else { return self.unsupported("recv from any rank") };
        let key = self.message_key(false, peer, transfer.tag);
        // Others may wait for what this rank does next, so that this must not.
        let (issued, store) = (IssuedOperation::open(), self.store.clone_store()?);
        let completion = issued.completion.clone();
        std::thread::spawn(move || {
            let received = store.get(&key);
            completion.complete(received.map(|bytes| {
                transfer.memory.write(|to| to.copy_from_slice(&bytes));
            }));
        });
        Ok(issued)
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn abort(&self, _: &str) {}

    fn shutdown(&self, _: Leaving) -> Result<()> {
        Ok(())
    }
}

impl OverStore {
    fn unsupported<T>(&self, operation: &str) -> Result<T> {
        Err(Error::Unsupported { who: self.name().to_owned(), operation: operation.to_owned() })
    }
}
