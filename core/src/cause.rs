//! What code of the program threw, on its way through an error to whoever asks for that. Knows no
//! language, and no kind of error.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What code of the program threw, in the form of its language. It lives as long as a clone of the
/// error that it became. Errors are compared without it.
#[derive(Clone, Default)]
pub struct Cause(Option<Arc<dyn Any + Send + Sync>>);

impl Cause {
    /// An object of the language.
    #[doc(hidden)]
    pub fn of(thrown: impl Any + Send + Sync) -> Cause {
        Cause(Some(Arc::new(thrown)))
    }

    /// The object, if it is a `T`.
    #[doc(hidden)]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_ref()?.downcast_ref()
    }
}

impl PartialEq for Cause {
    fn eq(&self, _: &Cause) -> bool {
        true
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Cause(..)" } else { "Cause" })
    }
}
