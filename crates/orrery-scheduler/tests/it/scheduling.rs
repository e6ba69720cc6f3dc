//! Order, waiting, priorities and the books.

use orrery_model::{Blocked, Compliance, Status};
use orrery_scheduler::{Event, Filter, Priority, Reason, TaskKind, TaskResult};

use crate::world::{World, calm, id, r};

// Statement 1.
#[test]
fn dependents_are_deployed_after_what_they_require_and_each_runs_once() {
    let mut world = World::new(calm());
    world.version(1, &[r("b").requires(&["a"]), r("a")]);
    assert_eq!(world.running_names(), ["a"]);
    assert_eq!(world.run_all(), ["b"]);
    assert_eq!(world.started, ["a", "b"]);
    assert_eq!(world.status("a"), Status::Deployed);
    assert_eq!(world.status("b"), Status::Deployed);
    world.assert_at_rest();
}
