//! A rank's claim to its place in the default group, in a store that may have seen groups of the
//! same name before. Knows nothing of how the store was found.
//!
//! Groups of one name that meet in one store one after another are its generations. Everything
//! that the ranks of one write stands under `polyrank/world/<name>/<generation>`, a scope (see
//! [`crate::store::member`]) that goes with its last rank. A rank that comes takes its place in the
//! present generation, unless that cannot be completed any more: its place was taken, and the owner
//! has left or is gone (a process that was killed, a page that was reloaded); the generation is one
//! of another world size, of another run or of an earlier restart, of which nobody is there; or the
//! last rank to come finds that another is gone. Then the newcomer begins the next generation, and
//! tells those that wait in the last to come along.
//!
//! A generation that a rank refused is one attempt of every rank: it stays until all have heard of
//! it, and each rank that comes for the first time comes there, and hears it. A rank that has been
//! there passes it, and goes on to the one after it, so that the next call of one rank never meets
//! the last call of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::generation::Generation;
use super::verdict::not_of_ranks;
use super::{Rendezvous, join, present, refusal};
use crate::blocking::sleep;
use crate::generated::error::{Error, Result};
use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};
use crate::store::member::{TOKEN_BYTES, member_key};
use crate::store::{Deadline, PrefixStore, Store};
use crate::{clock, random};

/// The value of a place whose rank has left cleanly.
const LEFT: &[u8] = b"left";
/// How long the owner of a place that is claimed again is watched before it counts as another
/// process: the store may learn of the end of the one before a moment later.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a rank that hosts the store and does not join stays for the others to learn why.
const STAY: Duration = Duration::from_secs(2);
/// Pause between two looks at the owner of a place, or at who is still in the store.
const PAUSE: Duration = Duration::from_millis(5);
/// Most places that are looked at to find a rank of a generation that is still there.
const MAX_PLACES: u32 = 256;
/// Places that are looked at in one request.
const PLACES_AT_ONCE: usize = 256;

/// A rank's place in one generation of a group. It is free again when this is released, or dropped
/// in a process that continues, or when its process is gone.
pub(crate) struct RankClaim {
    store: Arc<dyn Store>,
    name: String,
    /// Begins the keys of all generations.
    base: String,
    generation: Generation,
    /// Begins the keys of this one.
    scope: String,
    place: String,
    token: Token,
    /// The generations before it that were refused, which this rank has been in.
    passed: Vec<Generation>,
}

/// Whether a rank may be one of the generation that it came to.
enum Fit {
    /// It is one, and has its place.
    Joined,
    /// The generation is over; there is another by now.
    Ended,
    /// Nobody can complete it any more.
    Abandoned,
    /// It was refused, and this rank has been there before.
    Passed,
    /// Its ranks are in the way for the reason given, and may be about to leave.
    Occupied(String),
    /// The rank and those that wait there do not belong together, for the reason given.
    Refused(String),
    /// The rank is one of those that the launcher has started anew since, or its program is of
    /// another version, as said; another one may come in its place.
    TurnedAway(String),
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
            let scope = format!("{}/alone-{}", base_of(name), token.0);
            let first = Generation::first(None);
            let claim = RankClaim::new(met, name, (first, Vec::new()), scope, &token);
            met.store.add_async(&member_key(&claim.scope, &token.0), 1).await?;
            return Ok(claim);
        }
        let patience = Deadline::after(PATIENCE);
        let mut passed = Vec::new();
        loop {
            let claim = RankClaim::of_present(met, name, &token, &passed).await?;
            let fit = claim.enter(met).await;
            if let Err(why) = &fit {
                claim.fail(met.rank, why).await;
            }
            match fit? {
                Fit::Joined => return Ok(claim),
                Fit::Ended => claim.abandon().await?,
                Fit::Abandoned => claim.supersede(met.restart_count).await?,
                // Those that come later find it as long as this rank is there.
                Fit::Passed => passed.push(claim.generation),
                Fit::Occupied(why) => match patience.slice(PAUSE) {
                    Ok(pause) => {
                        claim.abandon().await?;
                        sleep(pause).await?;
                    }
                    Err(_) => return Err(claim.withdraw(met, why).await),
                },
                Fit::Refused(why) => return Err(claim.withdraw(met, why).await),
                // The others lose their store with its host, and are told why.
                Fit::TurnedAway(why) if met.hosting => return Err(claim.withdraw(met, why).await),
                Fit::TurnedAway(message) => {
                    claim.release().await?;
                    return Err(Error::Rendezvous { message });
                }
            }
        }
    }

    fn new(
        met: &Rendezvous,
        name: &str,
        (generation, passed): (Generation, Vec<Generation>),
        scope: String,
        token: &Token,
    ) -> RankClaim {
        let (base, place) = (base_of(name), place_of(&scope, met.rank));
        let (store, name, token) = (met.store.clone(), name.to_owned(), token.clone());
        RankClaim { store, name, base, generation, scope, place, token, passed }
    }

    /// A member of the present generation, without a place in it: the first one that is not among
    /// `passed`.
    async fn of_present(
        met: &Rendezvous,
        name: &str,
        token: &Token,
        passed: &[Generation],
    ) -> Result<RankClaim> {
        let base = base_of(name);
        let present = present::first_beside(&*met.store, &base, met.restart_count, passed).await?;
        let of_generation = (present, passed.to_vec());
        let claim = RankClaim::new(met, name, of_generation, scope_of(&base, present), token);
        met.store.add_async(&member_key(&claim.scope, &token.0), 1).await?;
        Ok(claim)
    }

    /// Takes the place of this rank, if it may be one of this generation.
    async fn enter(&self, met: &Rendezvous) -> Result<Fit> {
        if let Some(fit) = self.compare_restarts(met).await? {
            return Ok(fit);
        }
        if let Some(fit) = self.compare_sizes(met).await? {
            return Ok(fit);
        }
        let ours = self.token.0.as_bytes();
        let owner = met.store.compare_set_async(&self.place, b"", ours).await?;
        if owner != ours {
            return match is_there(&*met.store, &self.scope, &owner).await? {
                true => self.occupied(met).await,
                false if self.is_refused().await? => Ok(Fit::Passed),
                false => Ok(Fit::Abandoned),
            };
        }
        // The place may have been free because the generation had gone in the meantime.
        if !present::has(&*met.store, &self.base, self.generation).await? {
            return Ok(Fit::Ended);
        }
        let (run, version) = (self.compare_runs(met).await?, self.compare_versions(met).await?);
        if let Some(fit) = run.or(version) {
            return Ok(fit);
        }
        let came = met.store.add_async(&format!("{}/came", self.scope), 1).await?;
        let is_last = came == i64::from(met.world_size);
        match is_last && !self.are_all_there(met).await? && !self.is_refused().await? {
            true => Ok(Fit::Abandoned),
            false => Ok(Fit::Joined),
        }
    }

    /// The store for the keys of this generation.
    pub(crate) fn scoped_store(&self) -> Arc<dyn Store> {
        self.scoped(self.store.clone())
    }

    /// As [`RankClaim::scoped_store`], through `store`, another handle on [`RankClaim::store`].
    pub(crate) fn scoped(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(PrefixStore::new(self.scope.clone(), store))
    }

    /// The store in which the place is.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The store in which the ranks of this generation join.
    fn group_store(&self) -> PrefixStore {
        PrefixStore::new(join::keys_of_group(&self.name), self.scoped_store())
    }

    /// Key that rank 0 sets when it has reached this generation.
    pub(super) fn opened(&self) -> String {
        format!("{}/open", self.scope)
    }

    /// Whether the generation ended before it was complete: a rank of it was gone, and has come
    /// anew.
    pub(crate) async fn is_superseded(&self) -> bool {
        join::is_superseded(&self.group_store(), &self.name).await.unwrap_or(false)
    }

    /// Tells those that wait for this generation to be complete why this rank does not join it,
    /// unless they have been told, or are done waiting.
    pub(crate) async fn refuse(&self, ranks: (u32, u32), why: &Error, timeout: Duration) {
        refusal::refuse(&self.group_store(), &self.name, ranks, why, timeout).await;
    }

    /// Whether all ranks of this generation have come, or it is known that they do not.
    pub(crate) async fn is_decided(&self) -> bool {
        join::is_decided(&self.group_store(), &self.name).await.unwrap_or(true)
    }

    /// Whether a rank of this generation refused it.
    async fn is_refused(&self) -> Result<bool> {
        refusal::is_refused(&self.group_store(), &self.name).await
    }

    /// Leaves the place. A refusal that not all `world_size` ranks have heard stays for those that
    /// come later, as long as what this returns is there.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn leave(self, world_size: u32) -> Result<Option<RankClaim>> {
        if world_size == 1 || !self.is_refused().await? {
            return self.release().await.map(|()| None);
        }
        self.store.compare_set_async(&self.place, self.token.0.as_bytes(), LEFT).await?;
        self.end_if_heard(world_size).await.map(|has_ended| (!has_ended).then_some(self))
    }

    /// Ends a generation that was refused and releases this, if all `world_size` ranks have heard
    /// of it; whether that is so.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn end_if_heard(&self, world_size: u32) -> Result<bool> {
        let has_ended =
            refusal::have_all_heard(&self.group_store(), &self.name, world_size).await?;
        if has_ended {
            present::remove(&*self.store, &self.base, self.generation, None).await?;
            self.release().await?;
        }
        Ok(has_ended)
    }

    /// The group whose generation this is.
    pub(crate) fn group_name(&self) -> &str {
        &self.name
    }

    /// Tells the others of this generation that the store failed this rank while it came, if that
    /// is `why`.
    pub(crate) async fn fail(&self, rank: u32, why: &Error) {
        join::fail_joining(&self.group_store(), &self.name, rank, why).await;
    }

    /// Leaves the place to the rank that comes next.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn release(&self) -> Result<()> {
        self.release_in(&*self.store).await
    }

    /// As [`RankClaim::release`], through another handle on [`RankClaim::store`].
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn release_in(&self, store: &dyn Store) -> Result<()> {
        store.compare_set_async(&self.place, self.token.0.as_bytes(), LEFT).await?;
        store.delete_key_async(&member_key(&self.scope, &self.token.0)).await?;
        for passed in &self.passed {
            let scope = scope_of(&self.base, *passed);
            store.delete_key_async(&member_key(&scope, &self.token.0)).await?;
        }
        store.delete_key_async(&member_key(&self.base, &self.token.0)).await?;
        Ok(())
    }

    /// Ceases to be a member of this generation.
    async fn abandon(&self) -> Result<()> {
        self.store.delete_key_async(&member_key(&self.scope, &self.token.0)).await.map(drop)
    }

    /// Begins the next generation, and tells those who wait for this one to be complete.
    async fn supersede(&self, restart_count: Option<u32>) -> Result<()> {
        present::remove(&*self.store, &self.base, self.generation, restart_count).await?;
        join::supersede(&self.group_store(), &self.name).await?;
        // Some may wait for rank 0 first.
        self.store.set_async(&self.opened(), b"0").await?;
        self.abandon().await
    }

    /// Tells those who wait for this generation to be complete why that will not be, and leaves it:
    /// the error to return. A rank that hosts the store stays a moment for the others to learn it.
    async fn withdraw(&self, met: &Rendezvous, why: String) -> Error {
        let told = async {
            join::end_join(&self.group_store(), &self.name, &why).await?;
            self.release().await?;
            let stay = Deadline::after(STAY);
            while met.hosting && !self.store.has_no_clients() {
                let Ok(pause) = stay.slice(PAUSE) else { break };
                sleep(pause).await?;
            }
            Ok::<(), Error>(())
        };
        if let Err(error) = told.await {
            // The host may end the store as soon as it was told; the reason is known here.
            tracing::debug!(%error, "the store ended while a rank left it");
        }
        Error::Rendezvous { message: why }
    }

    /// What is wrong with the generation if it is of another restart than this rank. Each restart
    /// of a launcher ends the ranks of those before, which have nothing to say to it.
    async fn compare_restarts(&self, met: &Rendezvous) -> Result<Option<Fit>> {
        let (Some(ours), Some(theirs)) = (met.restart_count, self.generation.restart_count) else {
            return Ok(None);
        };
        if ours == theirs {
            return Ok(None);
        }
        if ours > theirs || !self.has_others(met, met.world_size).await? {
            return Ok(Some(Fit::Abandoned));
        }
        Ok(Some(Fit::TurnedAway(format!(
            "rank {} of restart {ours} (TORCHELASTIC_RESTART_COUNT) came to group '{}', whose \
             ranks are of restart {theirs} by now: the launcher started them anew, and this one \
             has to be started anew, too",
            met.rank, self.name
        ))))
    }

    /// What is wrong with the generation if it is of another world size.
    async fn compare_sizes(&self, met: &Rendezvous) -> Result<Option<Fit>> {
        let (key, ours) = (format!("{}/world_size", self.scope), met.world_size.to_string());
        let theirs = met.store.compare_set_async(&key, b"", ours.as_bytes()).await?;
        if theirs == ours.as_bytes() {
            return Ok(None);
        }
        let theirs = String::from_utf8_lossy(&theirs).into_owned();
        let places = theirs.parse().unwrap_or(MAX_PLACES);
        if !self.has_others(met, places).await? {
            return Ok(Some(Fit::Abandoned));
        }
        let why = join::sizes_differ(&self.name, met.rank, met.world_size, &theirs);
        let is_complete = join::is_complete(&self.group_store(), &self.name).await?;
        Ok(Some(if is_complete { Fit::Occupied(why) } else { Fit::Refused(why) }))
    }

    /// What is wrong with the generation if it is of another run.
    async fn compare_runs(&self, met: &Rendezvous) -> Result<Option<Fit>> {
        let refused = |ours: &str, theirs: &str| {
            Fit::Refused(format!(
                "rank {} of run '{ours}' came to group '{}' of run '{theirs}'. If these are two \
                 jobs, give each its own port or store; if they are one, give all its ranks the \
                 same run id (--run-id, POLYRANK_RUN_ID, or run_id= in the URL)",
                met.rank, self.name
            ))
        };
        self.compare(met, "run", met.run_id.as_deref(), refused).await
    }

    /// What is wrong with the generation if its programs are of another version.
    async fn compare_versions(&self, met: &Rendezvous) -> Result<Option<Fit>> {
        let turned_away = |ours: &str, theirs: &str| match met.hosting {
            // The group is that of the host of the store: those of another version that came
            // before it come along, and are turned away.
            true => Fit::Abandoned,
            // Another program of the right version may come: those that wait go on.
            false => Fit::TurnedAway(format!(
                "rank {} of version '{ours}' came to group '{}', whose ranks are of version \
                 '{theirs}'. Run programs of one version, or give each version a group of its own \
                 name",
                met.rank, self.name
            )),
        };
        self.compare(met, "version", met.version.as_deref(), turned_away).await
    }

    /// What is wrong with the generation if it is of another `what`: what `differs` makes of ours
    /// and theirs, if anybody of it is there. It is ours if nobody has said what it is of, or if
    /// this rank does not know.
    async fn compare(
        &self,
        met: &Rendezvous,
        what: &str,
        ours: Option<&str>,
        differs: impl FnOnce(&str, &str) -> Fit,
    ) -> Result<Option<Fit>> {
        let Some(ours) = ours else { return Ok(None) };
        let key = format!("{}/{what}", self.scope);
        let theirs = met.store.compare_set_async(&key, b"", ours.as_bytes()).await?;
        if theirs == ours.as_bytes() {
            return Ok(None);
        }
        Ok(Some(match self.has_others(met, met.world_size).await? {
            true => differs(ours, &String::from_utf8_lossy(&theirs)),
            false => Fit::Abandoned,
        }))
    }

    /// Whether any other rank of this generation, which has so many places, is there.
    async fn has_others(&self, met: &Rendezvous, places: u32) -> Result<bool> {
        for rank in 0..places.min(MAX_PLACES) {
            let place = place_of(&self.scope, rank);
            if met.store.check_async(&[&place]).await? {
                let owner = met.store.get_async(&place).await?;
                let is_other = owner != self.token.0.as_bytes();
                if is_other && is_there(&*met.store, &self.scope, &owner).await? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether all ranks of this generation are there, now that each has had its place.
    async fn are_all_there(&self, met: &Rendezvous) -> Result<bool> {
        let places: Vec<String> =
            (0..met.world_size).map(|rank| place_of(&self.scope, rank)).collect();
        for places in places.chunks(PLACES_AT_ONCE) {
            let places: Vec<&str> = places.iter().map(String::as_str).collect();
            let mut foreign = Vec::new();
            for owner in met.store.multi_get_async(&places).await? {
                let owner = String::from_utf8_lossy(&owner).into_owned();
                match token_state(&owner) {
                    TokenState::Held => {}
                    TokenState::Foreign if owner.as_bytes() != LEFT => {
                        foreign.push(key_of_owner(&self.scope, &owner)?);
                    }
                    TokenState::Foreign | TokenState::Released => return Ok(false),
                }
            }
            let foreign: Vec<&str> = foreign.iter().map(String::as_str).collect();
            if !foreign.is_empty() && !met.store.check_async(&foreign).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Why this rank's place is not to be had.
    async fn occupied(&self, met: &Rendezvous) -> Result<Fit> {
        if let Some(Fit::Refused(why)) = self.compare_runs(met).await? {
            return Ok(Fit::Occupied(why));
        }
        Ok(Fit::Occupied(format!(
            "rank {} joined twice: another process is this rank of group '{}', and is still \
             connected to the store. Two jobs that use the store at the same time need names of \
             their own (group_name, or room= in the URL), or ports of their own",
            met.rank, self.name
        )))
    }
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
        TokenState::Foreign => store.check_async(&[&key_of_owner(scope, &owner)?]).await,
    }
}

/// The member key of the `owner` of a place, as the store says.
///
/// # Errors
/// [`Error::Rendezvous`] if that is not the token of a rank.
fn key_of_owner(scope: &str, owner: &str) -> Result<String> {
    if owner.len() == TOKEN_BYTES {
        return Ok(member_key(scope, owner));
    }
    Err(not_of_ranks(&format!("{scope}/"), "the token of a rank", owner.as_bytes()))
}

/// What begins the keys of all generations of group `name`: no other group's keys begin with it.
fn base_of(name: &str) -> String {
    let name = name.replace('%', "%25").replace('/', "%2F");
    format!("polyrank/world/{name}")
}

/// What begins the keys of one generation.
fn scope_of(base: &str, generation: Generation) -> String {
    format!("{base}/{generation}")
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

static OWN: ProcessMutex<Option<OwnTokens>> = ProcessMutex::new(None);
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

fn lock() -> ProcessMutexGuard<'static, Option<OwnTokens>> {
    OWN.lock()
}
