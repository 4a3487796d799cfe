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
}

impl<T: SpecificOptions> From<T> for BackendOptions {
    fn from(chosen: T) -> BackendOptions {
        BackendOptions { name: T::NAME, backend: T::BACKEND, chosen: Arc::new(chosen) }
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
