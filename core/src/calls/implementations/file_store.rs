//! `FileStore`, where there are files.

use crate::calls::answer::Answer;
use crate::calls::invocation::Invocation;
use crate::generated::error::Result;

#[cfg(not(target_family = "wasm"))]
pub(crate) use here::{new, path};

#[cfg(not(target_family = "wasm"))]
mod here {
    use super::{Answer, Invocation, Result};
    use crate::calls::answer::IntoAnswer;
    use crate::calls::object::StoreObject;
    use crate::calls::parameters::file_store::*;
    use crate::generated::error::Error;
    use crate::store::FileStore;

    /// Opens a file, or makes it.
    pub(crate) async fn new(mut call: Invocation) -> Result<Answer> {
        let file_name: String = call.take(new::FILE_NAME)?;
        let world_size: i32 = call.take(new::WORLD_SIZE)?;
        // A negative number of users, as in c10d, is an unknown one.
        let world_size = u32::try_from(world_size).ok();
        StoreObject::from(FileStore::new(file_name, world_size)?).into_answer()
    }

    /// The file.
    pub(crate) fn path(call: Invocation) -> Result<Answer> {
        let store = call.this_store()?;
        let path = store.file().ok_or_else(|| Error::InvalidType {
            message: "the store is not a FileStore".to_owned(),
        })?;
        path.to_string_lossy().into_owned().into_answer()
    }
}

/// There are no files here.
#[cfg(target_family = "wasm")]
pub(crate) async fn new(call: Invocation) -> Result<Answer> {
    path(call)
}

/// There is no such store here.
#[cfg(target_family = "wasm")]
pub(crate) fn path(_: Invocation) -> Result<Answer> {
    let (who, operation) = ("a browser".to_owned(), "FileStore".to_owned());
    Err(crate::generated::error::Error::Unsupported { who, operation })
}
