//! The store in which the ranks of a running job meet, and the groups that it knows. Knows nothing
//! of what is asked of the ranks.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use polyrank::distributed::create_store_client;
use polyrank::recorder::report::JobGroup;
use polyrank::store::Store;

/// How long the store may take to answer.
const STORE_LIMIT: Duration = Duration::from_secs(5);
const SCHEMES: [&str; 2] = ["tcp://", "ws://"];

/// Where the ranks of a job meet.
pub(crate) struct JobStore {
    store: Arc<dyn Store>,
    url: String,
}

impl JobStore {
    /// The store at `url`: `HOST:PORT`, `tcp://HOST:PORT` or `ws://HOST:PORT`.
    ///
    /// # Errors
    /// There is no store, in words.
    pub(crate) fn open(url: &str) -> Result<JobStore, String> {
        let address = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme));
        if address.is_none() && url.contains("://") {
            return Err(format!("{url}: expected HOST:PORT, tcp://HOST:PORT or ws://HOST:PORT"));
        }
        let address = address.unwrap_or(url).split(['?', '/']).next().unwrap_or_default();
        let store = create_store_client(address, STORE_LIMIT).map_err(|error| error.to_string())?;
        Ok(JobStore { store, url: url.to_owned() })
    }

    /// What it is called.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The groups whose ranks meet there, that were not made out of others.
    ///
    /// # Errors
    /// The store cannot be asked, or nobody meets in it, in words.
    pub(crate) fn groups(&self) -> Result<Vec<JobGroup>, String> {
        let groups = JobGroup::all(&self.store).map_err(|error| error.to_string())?;
        match groups.is_empty() {
            true => Err(format!("no ranks meet in the store at {}", self.url)),
            false => Ok(groups),
        }
    }

    /// The same, the one first that has most ranks, which know of all others that were made out of
    /// it; of those of one size, the one that was made last: a job that was started again, or has
    /// made its group again, has left those before in the store.
    ///
    /// # Errors
    /// As [`JobStore::groups`].
    pub(crate) fn groups_by_size(&self) -> Result<Vec<JobGroup>, String> {
        let mut groups = self.groups()?;
        groups.sort_by_key(|group| Reverse((group.ranks.len(), generation(&group.place))));
        Ok(groups)
    }
}

/// The number at the end of a group's place: of groups in one place, later ones have greater ones.
pub(crate) fn generation(place: &str) -> u64 {
    let digits = place.len() - place.trim_end_matches(|it: char| it.is_ascii_digit()).len();
    place[place.len() - digits..].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_count_as_numbers() {
        let places = ["world/g", "attempt_2", "world/g/9", "world/g/10"];
        assert_eq!(places.map(generation), [0, 2, 9, 10]);
    }
}
