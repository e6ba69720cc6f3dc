//! Capabilities of the available handlers, and their knowledge of machines.

/// Capabilities of the available handlers.
pub trait HandlerSupport {
    /// Returns true if the entity has a handler.
    fn handles(&self, entity: &str) -> bool;
    /// Returns true if purging a resource of this entity has an effect.
    fn removes(&self, entity: &str) -> bool;
    /// Returns true if resources of an entity can exist before they are managed.
    fn can_preexist(&self, _entity: &str) -> bool {
        true
    }
    /// Returns true if two agents are known to be one machine.
    fn is_one_machine(&self, agent: &str, other: &str) -> bool {
        agent == other
    }
    /// Returns the canonical spelling of a path on the machine of an agent, as far as known.
    fn resolve_path(&self, agent: &str, path: &str) -> String;
}
