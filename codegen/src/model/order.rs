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
        /// That of the calls that make a group out of the same one: they begin in it, and are under
        /// way at the same time. Where all ranks split a communicator, it is that of the group.
        NewGroup,
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
        matches!(self, Order::Group | Order::NewGroup | Order::Left)
    }
}

impl Method {
    /// In whose order of calls it stands.
    pub fn order(&self) -> Order {
        let common = &self.common;
        let leaves = common.leaves.as_deref();
        if !common.waits || common.unordered || leaves == Some("immediately") {
            Order::Free
        } else if self.makes_group_of_some() {
            Order::NewGroup
        } else if self.owner == Type::GROUP && self.name == "new" {
            // Its ranks meet in a store, not in another group.
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

    /// Whether it makes a group of some of the ranks of another, which need not be this one.
    fn makes_group_of_some(&self) -> bool {
        let makes = |ty: &Type| matches!(ty, Type::Nullable(inner) if inner.is_group());
        self.overloads.iter().any(|overload| makes(&overload.returns))
    }

    /// Whether it takes a group, or makes a mesh of groups.
    fn concerns_groups(&self) -> bool {
        let makes_mesh = |ty: &Type| matches!(ty, Type::Interface(name) if name == Type::MESH);
        self.owner == Type::MESH
            || self.overloads.iter().any(|overload| {
                let mut types = overload.parameters.iter().map(|parameter| &parameter.ty);
                makes_mesh(&overload.returns) || types.any(|ty| ty.non_null().is_group())
            })
    }

    fn makes_object(&self) -> bool {
        self.overloads.iter().any(|overload| matches!(overload.returns, Type::Interface(_)))
    }
}
