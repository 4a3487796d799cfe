//! What a replica is made of besides its code: what the program registers, and as which bytes that
//! travels. Knows nothing of how.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::ManagerError;
use crate::shared::ManagerState;

/// Most bytes of what is said of the parts.
const MAX_HEADER: usize = 1 << 20;
/// What the header is, so that another version says so.
const VERSION: u32 = 2;

/// Why a state cannot be made, or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StateError(String);

impl StateError {
    /// For this reason.
    pub fn new(why: impl Into<String>) -> StateError {
        StateError(why.into())
    }
}

/// What replicas have alike: parameters, the optimizer's memory. Its functions may ask the manager
/// how far it is, and nothing else of it.
///
/// A lock that they take must not be held while the program waits for the manager: in
/// `start_quorum`, `wait_quorum`, operations, and `should_commit`. The `Mutex<Vec<_>>` of numbers
/// here gives up at the deadline; one of the program's own would wait for ever.
pub trait Model: Send + Sync {
    /// Its bytes. Called on the manager's thread between `start_quorum` and the end of the quorum,
    /// and only if another replica is behind.
    ///
    /// # Errors
    /// What prevents it; the step is not committed then.
    fn save(&self) -> Result<Vec<u8>, StateError>;

    /// Becomes what `save` of another replica gave. Called by `should_commit`, or by `start_quorum`
    /// if that waits for the quorum, on their thread.
    ///
    /// # Errors
    /// What is wrong with the bytes; the next quorum has others. As after a panic, the replica
    /// commits nothing, and gives nothing to others, before it has loaded a state.
    fn load(&self, bytes: &[u8]) -> Result<(), StateError>;

    /// As [`Model::save`], which it calls, with a time at which it may give up.
    ///
    /// # Errors
    /// As [`Model::save`].
    fn save_until(&self, deadline: Instant) -> Result<Vec<u8>, StateError> {
        let _ = deadline;
        self.save()
    }

    /// As [`Model::load`], which it calls, with a time at which it may give up.
    ///
    /// # Errors
    /// As [`Model::load`].
    fn load_until(&self, bytes: &[u8], deadline: Instant) -> Result<(), StateError> {
        let _ = deadline;
        self.load(bytes)
    }
}

/// Between two looks at a lock.
const LOOK: Duration = Duration::from_millis(1);

/// Locks it if that is possible until then.
fn lock_until<T>(mutex: &Mutex<T>, deadline: Instant) -> Result<MutexGuard<'_, T>, StateError> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOOK);
            }
            Err(TryLockError::WouldBlock) => {
                let message = "its mutex stays locked: release it before the program waits for the \
                               manager, as in allreduce and should_commit";
                return Err(StateError::new(message));
            }
        }
    }
}

fn to_bytes<T: Copy, const N: usize>(elements: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    let mut all = vec![0; elements.len() * N];
    let (chunks, _) = all.as_chunks_mut();
    chunks.iter_mut().zip(elements).for_each(|(chunk, element)| *chunk = bytes(*element));
    all
}

macro_rules! models {
    ($($element:ty)+) => {$(
        impl Model for Mutex<Vec<$element>> {
            fn save(&self) -> Result<Vec<u8>, StateError> {
                let elements = self.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(to_bytes(&elements, <$element>::to_le_bytes))
            }

            fn save_until(&self, deadline: Instant) -> Result<Vec<u8>, StateError> {
                let elements = lock_until(self, deadline)?;
                Ok(to_bytes(&elements, <$element>::to_le_bytes))
            }

            fn load_until(&self, bytes: &[u8], deadline: Instant) -> Result<(), StateError> {
                // Nobody else trains with it, so that it is free when `load` comes.
                drop(lock_until(self, deadline)?);
                self.load(bytes)
            }

            fn load(&self, bytes: &[u8]) -> Result<(), StateError> {
                let (elements, rest) = bytes.as_chunks();
                if !rest.is_empty() {
                    let (bytes, name) = (bytes.len(), stringify!($element));
                    return Err(StateError(format!("{bytes} bytes are not {name} elements")));
                }
                let elements = elements.iter().map(|bytes| <$element>::from_le_bytes(*bytes));
                *self.lock().unwrap_or_else(PoisonError::into_inner) = elements.collect();
                Ok(())
            }
        }
    )+};
}
models! { f32 f64 i32 i64 u8 u32 u64 }

/// Two functions.
struct Functions<S, L>(S, L);

impl<S, L> Model for Functions<S, L>
where
    S: Fn() -> Result<Vec<u8>, StateError> + Send + Sync,
    L: Fn(&[u8]) -> Result<(), StateError> + Send + Sync,
{
    fn save(&self) -> Result<Vec<u8>, StateError> {
        self.0()
    }

    fn load(&self, bytes: &[u8]) -> Result<(), StateError> {
        self.1(bytes)
    }
}

/// A model of two functions.
pub(crate) fn of_functions(
    save: impl Fn() -> Result<Vec<u8>, StateError> + Send + Sync + 'static,
    load: impl Fn(&[u8]) -> Result<(), StateError> + Send + Sync + 'static,
) -> Arc<dyn Model> {
    Arc::new(Functions(save, load))
}

/// What stands behind the parts, and behind it, in 8 bytes, how long it is: so the bytes of a large
/// part need not be moved to make room for it.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    step: i64,
    batches_committed: i64,
    /// The quorum in which the last step was committed; 0 if that is not known.
    #[serde(default)]
    committed_in: i64,
    /// Their names, and how many bytes each has, in their order.
    parts: Vec<(String, u64)>,
}

/// What the program registered, by name.
#[derive(Default)]
pub(crate) struct Registered(Mutex<BTreeMap<String, Arc<dyn Model>>>);

impl Registered {
    pub(crate) fn add(&self, key: &str, model: Arc<dyn Model>) -> Result<(), ManagerError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contains_key(key) {
            return Err(ManagerError::Order(format!("a state {key:?} is registered already")));
        }
        all.insert(key.to_owned(), model);
        Ok(())
    }

    fn all(&self) -> BTreeMap<String, Arc<dyn Model>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The bytes of all, and of the manager's own state.
    pub(crate) fn save(
        &self,
        own: ManagerState,
        committed_in: i64,
        deadline: Instant,
    ) -> Result<Vec<u8>, StateError> {
        let (mut parts, mut bytes) = (Vec::new(), Vec::new());
        for (key, model) in self.all() {
            let of_key = |StateError(why)| StateError(format!("saving {key:?}: {why}"));
            let mut body = model.save_until(deadline).map_err(of_key)?;
            let part = (key, body.len() as u64);
            // What is longer stays where it is, so that a state is in memory once, and not twice.
            if body.len() > bytes.len() {
                body.append(&mut bytes);
                bytes = body;
                parts.insert(0, part);
            } else {
                bytes.append(&mut body);
                parts.push(part);
            }
        }
        let ManagerState { step, batches_committed } = own;
        let header = Header { version: VERSION, step, batches_committed, committed_in, parts };
        let header = serde_json::to_vec(&header).map_err(|why| StateError(why.to_string()))?;
        if header.len() > MAX_HEADER {
            let (names, most) = (header.len(), MAX_HEADER);
            let message = format!("the names of its parts have {names} bytes, of at most {most}");
            return Err(StateError(message));
        }
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
        Ok(bytes)
    }

    /// Loads all from what `save` of another gave.
    pub(crate) fn load(&self, received: &Received, deadline: Instant) -> Result<(), StateError> {
        let all = self.all();
        let (ours, theirs): (Vec<&str>, Vec<&str>) = (
            all.keys().map(String::as_str).collect(),
            received.parts.keys().map(String::as_str).collect(),
        );
        if ours != theirs {
            return Err(StateError(format!(
                "the other replica has the states {theirs:?}, and this one {ours:?}: register the \
                 same in all"
            )));
        }
        for (key, model) in all {
            let of_key = |StateError(why)| StateError(format!("loading {key:?}: {why}"));
            model.load_until(received.part(&key), deadline).map_err(of_key)?;
        }
        Ok(())
    }
}

/// The state of another replica, taken apart.
pub(crate) struct Received {
    pub(crate) own: ManagerState,
    pub(crate) committed_in: i64,
    parts: BTreeMap<String, std::ops::Range<usize>>,
    bytes: Vec<u8>,
}

impl Received {
    /// Takes apart what came. Every length in it is checked.
    pub(crate) fn new(bytes: Vec<u8>) -> Result<Received, StateError> {
        let wrong = |what: &str| StateError(format!("what came is not a state: {what}"));
        let (rest, length) = bytes.split_last_chunk().ok_or_else(|| wrong("it is too short"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_HEADER {
            return Err(wrong("its header is too long"));
        }
        let all = rest.len().checked_sub(length);
        let all = all.ok_or_else(|| wrong("its header is cut off"))?;
        let header = &rest[all..];
        let header: Header =
            serde_json::from_slice(header).map_err(|why| wrong(&why.to_string()))?;
        if header.version != VERSION {
            return Err(wrong(&format!("it has version {}, not {VERSION}", header.version)));
        }
        let (mut at, mut parts) = (0_usize, BTreeMap::new());
        for (key, length) in header.parts {
            let end = usize::try_from(length).ok().and_then(|length| at.checked_add(length));
            let end = end.filter(|end| *end <= all).ok_or_else(|| wrong("it is cut off"))?;
            if parts.insert(key, at..end).is_some() {
                return Err(wrong("a part comes twice"));
            }
            at = end;
        }
        if at != all {
            return Err(wrong("it is longer than its parts"));
        }
        let Header { step, batches_committed, committed_in, .. } = header;
        let own = ManagerState { step, batches_committed };
        Ok(Received { own, committed_in, parts, bytes })
    }

    fn part(&self, key: &str) -> &[u8] {
        self.parts.get(key).map_or(&[], |range| &self.bytes[range.clone()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn registered(weights: &[f32], names: &[i64]) -> (Registered, Arc<Mutex<Vec<f32>>>) {
        let weights = Arc::new(Mutex::new(weights.to_vec()));
        let registered = Registered::default();
        registered.add("weights", weights.clone()).unwrap();
        registered.add("names", Arc::new(Mutex::new(names.to_vec()))).unwrap();
        (registered, weights)
    }

    #[test]
    fn what_is_saved_is_loaded_bit_by_bit_and_nothing_that_is_cut_off() {
        let odd = [1.5, -0.0, f32::from_bits(0x7fc0_1234), f32::MIN_POSITIVE / 2.0];
        let (source, _) = registered(&odd, &[]);
        let own = ManagerState { step: 7, batches_committed: 20 };
        let now = Instant::now();
        let bytes = source.save(own, 9, now).unwrap();
        let (taker, weights) = registered(&[], &[1, 2]);
        let received = Received::new(bytes.clone()).unwrap();
        assert_eq!((received.own, received.committed_in), (own, 9));
        taker.load(&received, now).unwrap();
        let bits = |all: &[f32]| all.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&weights.lock().unwrap()), bits(&odd));
        for end in 0..bytes.len() {
            assert!(Received::new(bytes[..end].to_vec()).is_err(), "{end}");
        }
        assert!(Received::new([bytes, vec![0]].concat()).is_err());
        assert!(Received::new(vec![255; 100]).is_err());
        let long = Registered::default();
        long.add(&"x".repeat(MAX_HEADER), Arc::new(Mutex::new(vec![0_u8]))).unwrap();
        assert!(long.save(own, 9, now).unwrap_err().to_string().contains("names of its parts"));
    }

    #[test]
    fn states_of_other_names_are_not_loaded() {
        let (source, _) = registered(&[1.0], &[]);
        let now = Instant::now();
        let bytes = source.save(ManagerState::default(), 9, now).unwrap();
        let other = Registered::default();
        other.add("weights", Arc::new(Mutex::new(vec![0_u8]))).unwrap();
        let error = other.load(&Received::new(bytes).unwrap(), now).unwrap_err();
        assert!(error.to_string().contains(r#"has the states ["names", "weights"]"#), "{error}");
        let twice = other.add("weights", Arc::new(Mutex::new(vec![0_u8])));
        assert!(twice.unwrap_err().to_string().contains("registered already"));
    }
}
