//! In whose order of calls a call stands: what is called without awaiting what was called before
//! it continues in that order, in every language.
//!
//! Knows nothing of how a language keeps an order.

use super::api::Method;
use super::listed::listed;
use super::types::Type;

listed! {
    /// The order in which a call has its place.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Order {
        /// No order.
        Free,
        /// That of the group that it is called on, or is given, or of the default group.
        Group,
        /// Those of all the groups that it leaves.
        Left,
        /// That of its store, until it is over.
        Store,
        /// That of its store, until it has to wait: perhaps for what those after it do.
        StoreUntilBegun,
    }
}

impl Order {
    /// Whether it is an order of groups.
    pub fn is_of_groups(self) -> bool {
        matches!(self, Order::Group | Order::Left)
    }
}

impl Method {
    /// In whose order of calls it stands.
    pub fn order(&self) -> Order {
        let common = &self.common;
        let leaves = common.leaves.as_deref();
        if !common.waits || common.unordered || leaves == Some("immediately") {
            Order::Free
        } else if self.owner == Type::GROUP {
            Order::Group
        } else if leaves.is_some() {
            Order::Left
        } else if self.concerns_groups() {
            Order::Group
        } else if self.owner == Type::STORE && !self.makes_object() {
            if common.blocks { Order::StoreUntilBegun } else { Order::Store }
        } else {
            // Another handle on a store, and a store that is opened, have no call before them.
            Order::Free
        }
    }

    /// Whether it takes a group, or makes one of the ranks of another, which need not be this one,
    /// or a mesh of groups.
    fn concerns_groups(&self) -> bool {
        let makes_part = |ty: &Type| match ty {
            Type::Nullable(inner) => inner.is_group(),
            ty => matches!(ty, Type::Interface(name) if name == Type::MESH),
        };
        self.owner == Type::MESH
            || self.overloads.iter().any(|overload| {
                let mut types = overload.parameters.iter().map(|parameter| &parameter.ty);
                makes_part(&overload.returns) || types.any(|ty| ty.non_null().is_group())
            })
    }

    fn makes_object(&self) -> bool {
        self.overloads.iter().any(|overload| matches!(overload.returns, Type::Interface(_)))
    }
}
