//! The options of one backend, passed to it by modules that know none. Knows no particular
//! backend.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Options that one backend takes, and no other.
pub trait SpecificOptions: Any + fmt::Debug + PartialEq + Send + Sync {
    /// The name that the user knows them by: `NcclOptions`.
    const NAME: &'static str;
    /// The backend that takes them, lower case: `nccl`.
    const BACKEND: &'static str;
}

/// The options of some backend, which alone takes them apart.
#[derive(Clone)]
pub struct BackendOptions {
    name: &'static str,
    backend: &'static str,
    chosen: Arc<dyn AnyOptions>,
    given: Option<GivenOptions>,
}

/// What the caller of another language gave as options of a group, as that language has it: the
/// factory of a backend that the program registered is given it, whatever else it means.
#[derive(Clone)]
pub struct GivenOptions(Arc<dyn Any + Send + Sync>);

impl GivenOptions {
    /// Keeps what was given.
    pub fn new<T: Any + Send + Sync>(given: T) -> GivenOptions {
        GivenOptions(Arc::new(given))
    }

    /// What was given, if it is a `T`.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for GivenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenOptions")
    }
}

/// Options that say nothing to a backend of polyrank's own.
#[derive(Debug, PartialEq)]
pub(crate) struct ProgramOptions {
    /// How a message goes on, that they must be `BackendOptions`, if they are something else, which
    /// only a backend knows that the program registered.
    pub(crate) why_foreign: Option<String>,
}

impl SpecificOptions for ProgramOptions {
    const NAME: &'static str = "BackendOptions";
    // No backend has this name.
    const BACKEND: &'static str = "";
}

impl BackendOptions {
    /// The name that the user knows them by: `NcclOptions`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The backend that takes them, lower case: `nccl`.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// The options, if they are a `T`.
    pub fn get<T: SpecificOptions>(&self) -> Option<&T> {
        self.chosen.as_any().downcast_ref()
    }

    /// These, with what was given in another language.
    #[must_use]
    pub(crate) fn with_given(self, given: Option<GivenOptions>) -> BackendOptions {
        BackendOptions { given, ..self }
    }

    /// What was given in another language.
    pub(crate) fn given(&self) -> Option<&GivenOptions> {
        self.given.as_ref()
    }
}

impl<T: SpecificOptions> From<T> for BackendOptions {
    fn from(chosen: T) -> BackendOptions {
        BackendOptions { name: T::NAME, backend: T::BACKEND, chosen: Arc::new(chosen), given: None }
    }
}

impl fmt::Debug for BackendOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chosen.fmt(f)
    }
}

impl PartialEq for BackendOptions {
    fn eq(&self, other: &BackendOptions) -> bool {
        self.chosen.is_like(other.chosen.as_any())
    }
}

/// As [`SpecificOptions`], where the type is not known.
trait AnyOptions: fmt::Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn is_like(&self, other: &dyn Any) -> bool;
}

impl<T: SpecificOptions> AnyOptions for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_like(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct OfPigeons(u32);

    impl SpecificOptions for OfPigeons {
        const NAME: &'static str = "PigeonOptions";
        const BACKEND: &'static str = "pigeons";
    }

    #[derive(Debug, PartialEq)]
    struct OfBottles(u32);

    impl SpecificOptions for OfBottles {
        const NAME: &'static str = "BottleOptions";
        const BACKEND: &'static str = "bottles";
    }

    #[test]
    fn options_are_taken_apart_by_their_backend_alone() {
        let chosen = BackendOptions::from(OfPigeons(3));
        assert_eq!((chosen.name(), chosen.backend()), ("PigeonOptions", "pigeons"));
        assert_eq!(chosen.get::<OfPigeons>(), Some(&OfPigeons(3)));
        assert_eq!(chosen.get::<OfBottles>(), None);
        assert_eq!(chosen, OfPigeons(3).into());
        assert_ne!(chosen, OfPigeons(4).into());
        assert_ne!(chosen, OfBottles(3).into());
        assert_eq!(format!("{chosen:?}"), "OfPigeons(3)");
    }
}
