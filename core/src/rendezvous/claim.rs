//! A rank's claim to its place in the default group, in a store that may have seen groups of the
//! same name before. Knows nothing of how the store was found.
//!
//! Groups of one name that meet in one store one after another are its generations. Everything
//! that the ranks of one write stands under `polyrank/world/<name>/<generation>`, a scope (see
//! [`crate::store::member`]) that goes with its last rank. Who comes takes its rank's place in the
//! present generation. Where that place was taken and its owner has left or is gone (a process that
//! was killed, a page that was reloaded), that generation cannot be completed any more: the
//! newcomer begins the next one, and tells those who wait in the last to come along.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Rendezvous, join};
use crate::blocking::sleep;
use crate::env::variable;
use crate::generated::error::{Error, Result};
use crate::store::member::member_key;
use crate::store::{Deadline, PrefixStore, Store};
use crate::{clock, random};

/// What stands in a place whose rank has left in order.
const LEFT: &[u8] = b"left";
/// How long the owner of a place that is claimed again is watched before it counts as another
/// process: the store may hear of the end of the one before a moment later.
const PATIENCE: Duration = Duration::from_millis(500);
/// Pause between two looks at the owner of a place.
const PAUSE: Duration = Duration::from_millis(5);
/// Most places that are looked at to find a rank of a generation that is still there.
const MAX_PLACES: u32 = 256;

/// A rank's place in one generation of a group. It is free again when this is released, or dropped
/// in a process that goes on, or when its process is gone.
pub(crate) struct RankClaim {
    store: Arc<dyn Store>,
    name: String,
    /// Begins the keys of all generations.
    base: String,
    /// Begins the keys of this one.
    scope: String,
    place: String,
    token: Token,
}

/// What came of an attempt to take a place.
enum Attempt {
    Taken(RankClaim),
    /// Another process has it, and is there.
    Occupied(RankClaim),
    /// The generation is over; there is another by now.
    Over,
}

impl RankClaim {
    /// Takes the place of the rank that `met` names, in the present generation of group `name` or
    /// the next one.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if another process is that rank, or the group is another run's.
    pub(crate) async fn take(met: &Rendezvous, name: &str) -> Result<RankClaim> {
        let token = Token::new()?;
        met.store.add_async(&member_key(&base_of(name), &token.0), 1).await?;
        if met.world_size == 1 {
            // Nobody else belongs to it, so it needs no agreed place.
            let claim = RankClaim::new(met, name, &format!("alone-{}", token.0), &token);
            met.store.add_async(&member_key(&claim.scope, &token.0), 1).await?;
            return Ok(claim);
        }
        let patience = Deadline::after(PATIENCE);
        loop {
            match attempt(met, name, &token).await? {
                Attempt::Over => {}
                Attempt::Taken(claim) => match claim.check_run(met).await? {
                    Run::Ours => return Ok(claim),
                    Run::Over => claim.supersede().await?,
                    Run::Others(why) => return Err(claim.withdraw(why).await),
                },
                Attempt::Occupied(claim) => match patience.slice(PAUSE) {
                    Ok(pause) => {
                        claim.abandon().await?;
                        sleep(pause).await?;
                    }
                    Err(_) => {
                        let why = claim.occupied(met).await?;
                        return Err(claim.withdraw(why).await);
                    }
                },
            }
        }
    }

    fn new(met: &Rendezvous, name: &str, generation: &str, token: &Token) -> RankClaim {
        let base = base_of(name);
        let scope = format!("{base}/{generation}");
        let place = place_of(&scope, met.rank);
        let (store, name, token) = (met.store.clone(), name.to_owned(), token.clone());
        RankClaim { store, name, base, scope, place, token }
    }

    /// The store for the keys of this generation.
    pub(crate) fn scoped_store(&self) -> Arc<dyn Store> {
        Arc::new(PrefixStore::new(self.scope.clone(), self.store.clone()))
    }

    /// The store in which the ranks of this generation join.
    fn group_store(&self) -> PrefixStore {
        PrefixStore::new(join::keys_of_group(&self.name), self.scoped_store())
    }

    /// Key that rank 0 sets when it has come to this generation.
    pub(super) fn opened(&self) -> String {
        format!("{}/open", self.scope)
    }

    /// Whether the generation ended before it was complete: a rank of it was gone, and has come
    /// anew.
    pub(crate) async fn is_superseded(&self) -> bool {
        join::is_superseded(&self.group_store(), &self.name).await.unwrap_or(false)
    }

    /// Leaves the place to whoever comes next.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn release(&self) -> Result<()> {
        self.release_in(&*self.store).await
    }

    /// As [`RankClaim::release`], through another handle on the store.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn release_in(&self, store: &dyn Store) -> Result<()> {
        store.compare_set_async(&self.place, self.token.0.as_bytes(), LEFT).await?;
        store.delete_key_async(&member_key(&self.scope, &self.token.0)).await?;
        store.delete_key_async(&member_key(&self.base, &self.token.0)).await?;
        Ok(())
    }

    /// Ceases to be a member of this generation.
    async fn abandon(&self) -> Result<()> {
        self.store.delete_key_async(&member_key(&self.scope, &self.token.0)).await.map(drop)
    }

    /// Begins the next generation, and tells those who wait for this one to be complete.
    async fn supersede(&self) -> Result<()> {
        let present = self.scope[self.base.len() + 1..].to_owned();
        let next = present.parse::<u64>().map_or(1, |number| number + 1).to_string();
        let generation = generation_key(&self.base);
        self.store.compare_set_async(&generation, present.as_bytes(), next.as_bytes()).await?;
        join::supersede(&self.group_store(), &self.name).await?;
        // Some may wait for rank 0 first.
        self.store.set_async(&self.opened(), b"0").await?;
        self.abandon().await
    }

    /// Tells those who wait for this generation to be complete why that will not be, and leaves it:
    /// the error to return.
    async fn withdraw(&self, why: String) -> Error {
        let told = async {
            join::end_join(&self.group_store(), &self.name, &why).await?;
            self.release().await
        };
        if let Err(error) = told.await {
            // The host may end the store as soon as it was told; the reason is known here.
            tracing::debug!(%error, "the store ended while a rank left it");
        }
        Error::Rendezvous { message: why }
    }

    /// Whose run this generation is of; ours if nobody has said so, or if this rank does not know
    /// of which run it is.
    async fn check_run(&self, met: &Rendezvous) -> Result<Run> {
        let Some(ours) = &met.run_id else { return Ok(Run::Ours) };
        let key = format!("{}/run", self.scope);
        let theirs = met.store.compare_set_async(&key, b"", ours.as_bytes()).await?;
        if theirs == ours.as_bytes() {
            return Ok(Run::Ours);
        }
        if !self.has_others(met).await? {
            return Ok(Run::Over);
        }
        let theirs = String::from_utf8_lossy(&theirs);
        Ok(Run::Others(format!(
            "rank {} of run '{ours}' came to group '{}' of run '{theirs}'. If these are two jobs, \
             give each its own port or store; if they are one, give all its ranks the same run id \
             (--run-id, POLYRANK_RUN_ID, or run_id= in the URL)",
            met.rank, self.name
        )))
    }

    /// Whether any other rank of this generation is there.
    async fn has_others(&self, met: &Rendezvous) -> Result<bool> {
        for rank in (0..met.world_size.min(MAX_PLACES)).filter(|rank| *rank != met.rank) {
            let place = place_of(&self.scope, rank);
            if met.store.check_async(&[&place]).await? {
                let owner = met.store.get_async(&place).await?;
                if is_there(&*met.store, &self.scope, &owner).await? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Why this rank's place is not to be had.
    async fn occupied(&self, met: &Rendezvous) -> Result<String> {
        if let Run::Others(why) = self.check_run(met).await? {
            return Ok(why);
        }
        Ok(format!(
            "rank {} joined twice: another process is this rank of group '{}', and is still \
             connected to the store. Two jobs that use the store at the same time need names of \
             their own (group_name, or room= in the URL), or ports of their own",
            met.rank, self.name
        ))
    }
}

/// Of which run a generation is.
enum Run {
    Ours,
    /// Of another, which is over.
    Over,
    /// Of another, for the reason given.
    Others(String),
}

/// Tries to take the place in the present generation.
async fn attempt(met: &Rendezvous, name: &str, token: &Token) -> Result<Attempt> {
    let store = &*met.store;
    let generation = generation_key(&base_of(name));
    let present = store.compare_set_async(&generation, b"", b"0").await?;
    let claim = RankClaim::new(met, name, &String::from_utf8_lossy(&present), token);
    store.add_async(&member_key(&claim.scope, &token.0), 1).await?;
    let ours = token.0.as_bytes();
    let owner = store.compare_set_async(&claim.place, b"", ours).await?;
    if owner == ours {
        // The place may have been free because the generation had gone in the meantime.
        if store.compare_set_async(&generation, b"", b"0").await? == present {
            return Ok(Attempt::Taken(claim));
        }
        claim.abandon().await?;
        return Ok(Attempt::Over);
    }
    if is_there(store, &claim.scope, &owner).await? {
        return Ok(Attempt::Occupied(claim));
    }
    claim.supersede().await?;
    Ok(Attempt::Over)
}

/// Whether the `owner` of a place is there still.
async fn is_there(store: &dyn Store, scope: &str, owner: &[u8]) -> Result<bool> {
    if owner == LEFT {
        return Ok(false);
    }
    let owner = String::from_utf8_lossy(owner);
    match token_state(&owner) {
        TokenState::Held => Ok(true),
        TokenState::Released => Ok(false),
        TokenState::Foreign => store.check_async(&[&format!("{scope}/\u{1}member/{owner}")]).await,
    }
}

/// What begins the keys of all generations of group `name`: no other group's keys begin with it.
fn base_of(name: &str) -> String {
    let restarts = variable::TORCHELASTIC_RESTART_COUNT.text().unwrap_or_default();
    let name = name.replace('%', "%25").replace('/', "%2F");
    format!("polyrank/world{restarts}/{name}")
}

fn generation_key(base: &str) -> String {
    format!("{base}/generation")
}

fn place_of(scope: &str, rank: u32) -> String {
    format!("{scope}/place/{rank}")
}

/// Names one claim among all that there are. Half of it names the process, so that a process knows
/// those that it made itself.
#[derive(Clone, Debug)]
struct Token(Arc<str>);

/// The tokens of this process.
#[derive(Debug)]
struct OwnTokens {
    process_id: u32,
    prefix: String,
    held: Vec<Arc<str>>,
}

static OWN: Mutex<Option<OwnTokens>> = Mutex::new(None);
static LAST: AtomicU64 = AtomicU64::new(0);

impl Token {
    fn new() -> Result<Token> {
        let mut own = lock();
        let process_id = clock::process_id();
        if own.as_ref().is_none_or(|own| own.process_id != process_id) {
            let prefix = format!("{:016x}", u64::from_le_bytes(random::bytes()?));
            *own = Some(OwnTokens { process_id, prefix, held: Vec::new() });
        }
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let prefix = own.as_ref().map(|own| own.prefix.as_str()).unwrap_or_default();
        let token: Arc<str> = format!("{prefix}{number:016x}").into();
        if let Some(own) = own.as_mut() {
            own.held.push(token.clone());
        }
        Ok(Token(token))
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let mut own = lock();
        if let Some(own) = own.as_mut() {
            // One more is in the list.
            let is_last = Arc::strong_count(&self.0) <= 2;
            own.held.retain(|held| !is_last || *held != self.0);
        }
    }
}

/// What this process knows of a token.
enum TokenState {
    /// It was made here, and somebody here holds it.
    Held,
    /// It was made here, and nobody holds it any more.
    Released,
    /// It was not made by this process.
    Foreign,
}

fn token_state(token: &str) -> TokenState {
    let own = lock();
    let own = own.as_ref().filter(|own| own.process_id == clock::process_id());
    match own.filter(|own| token.starts_with(&own.prefix)) {
        None => TokenState::Foreign,
        Some(own) if own.held.iter().any(|held| **held == *token) => TokenState::Held,
        Some(_) => TokenState::Released,
    }
}

fn lock() -> MutexGuard<'static, Option<OwnTokens>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}
