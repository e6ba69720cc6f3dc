//! Questions to the handlers at hand, and to what they know of machines.

/// Abilities of the handlers at hand.
pub trait Handles {
    /// Whether there is a handler for an entity.
    fn handles(&self, entity: &str) -> bool;
    /// Whether purging a resource of this entity has an effect.
    fn removes(&self, entity: &str) -> bool;
    /// Whether resources of an entity exist apart from being managed, so that a deploy can find one in place.
    fn can_preexist(&self, _entity: &str) -> bool {
        true
    }
    /// Whether two agents are known to be one machine.
    fn is_one_machine(&self, agent: &str, other: &str) -> bool {
        agent == other
    }
    /// The spelling that all spellings of a path on the machine of an agent have in common, as far as that is known.
    fn resolve_path(&self, agent: &str, path: &str) -> String;
}
