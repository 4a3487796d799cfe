//! Hearing, in a wait for the others, that there is nothing to wait for: the group broke on
//! this rank, or, as the store tells, on another. Knows no library.

use std::cell::RefCell;

use crate::backend::bulletin::{Bulletin, Found};
use crate::clock::Instant;
use crate::wire::abort::Abort;
use crate::{Error, Result};

/// Until when something is waited for, and who hears that it is of no use.
#[derive(Clone, Copy)]
pub(super) struct Patience<'a> {
    pub(super) until: Instant,
    pub(super) ear: &'a Ear<'a>,
}

/// What was heard in one call. It is for the caller to break the group by it, without locks.
pub(super) struct Ear<'a> {
    bulletin: Option<&'a Bulletin>,
    heard: RefCell<Option<(Abort, Found)>>,
}

impl<'a> Ear<'a> {
    /// Listens to what the ranks of a group tell.
    pub(super) fn new(bulletin: &'a Bulletin) -> Ear<'a> {
        Ear { bulletin: Some(bulletin), heard: RefCell::default() }
    }

    /// Hears nothing.
    pub(super) fn deaf() -> Ear<'static> {
        Ear { bulletin: None, heard: RefCell::default() }
    }

    /// Listens; the store is asked now and then only.
    ///
    /// # Errors
    /// That the group broke. What the call ends with is the reason, which is known now.
    pub(super) fn listen(&self) -> Result<()> {
        let Some(bulletin) = self.bulletin else { return Ok(()) };
        let mut heard = self.heard.borrow_mut();
        if heard.is_none() && !bulletin.is_broken() && bulletin.is_due() {
            *heard = bulletin.look(0);
        }
        match heard.is_some() || bulletin.is_broken() {
            true => Err(Error::InvalidGroup { message: "the process group broke".to_owned() }),
            false => Ok(()),
        }
    }

    /// Hears why the library says that another rank failed, if one tells.
    pub(super) fn hear_of_failure(&self) {
        let Some(bulletin) = self.bulletin.filter(|bulletin| !bulletin.is_broken()) else { return };
        let mut heard = self.heard.borrow_mut();
        if heard.is_none() {
            *heard = bulletin.wait_for_reason();
        }
    }

    /// Why the group broke, if another rank told.
    pub(super) fn heard(&self) -> Option<(Abort, Found)> {
        self.heard.borrow_mut().take()
    }
}
