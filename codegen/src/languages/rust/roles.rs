//! The view of the enums that the generator and the core share.

use askama::Template;

use crate::languages::stamp;
use crate::model::{Order, Role};

#[derive(Template)]
#[template(path = "rust/roles.rs.jinja", escape = "none")]
pub(super) struct Roles {
    stamp: String,
    roles: &'static [(&'static str, &'static str)],
    orders: &'static [(&'static str, &'static str)],
}

pub(super) fn roles() -> Roles {
    Roles { stamp: stamp("the generator's model"), roles: Role::VARIANTS, orders: Order::VARIANTS }
}
