//! `user::User` and `user::Group`: accounts of a host, managed with its own tools.

mod group;
mod user;

use std::sync::Arc;

use orrery_model::ResourceType;

use crate::registry::Registry;

pub(crate) fn register(registry: &mut Registry) {
    let fields = ["group", "groups", "homedir", "purged", "shell", "system"];
    let declaration = ResourceType::new("user::User", "host.name", "name", &fields);
    registry.register(declaration, Arc::new(user::UserHandler));
    let declaration = ResourceType::new("user::Group", "host.name", "name", &["purged", "system"]);
    registry.register(declaration, Arc::new(group::GroupHandler));
}
