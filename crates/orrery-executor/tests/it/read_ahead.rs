//! Machines with slow access: the next resources of an agent are read with the current one.

use std::fs;
use std::sync::Arc;

use orrery_executor::{ExecutionSite, NoTarget, TargetResolver};
use orrery_handlers::Target;
use orrery_handlers::target::{LocalShell, ShellTarget, Transport};
use orrery_model::Resource;

use crate::world::{World, file};

/// Resolves every agent to this machine behind a shell.
struct Shells(Arc<dyn Target>);

impl TargetResolver for Shells {
    fn resolve(&self, _agent: &str) -> Result<ExecutionSite, NoTarget> {
        Ok(ExecutionSite::Local(Arc::clone(&self.0)))
    }

    fn sync(&self) {}
}

#[test]
fn unchanged_files_of_an_agent_need_a_handful_of_round_trips() {
    let directory = tempfile::tempdir().unwrap();
    let path = |number: usize| directory.path().join(format!("f{number}")).display().to_string();
    let files: Vec<Resource> = (0..100).map(|number| file(&path(number), "same")).collect();
    let transport = Arc::new(LocalShell::default());
    let target = ShellTarget::new(Arc::clone(&transport) as Arc<dyn Transport>);
    let world = World { targets: Arc::new(Shells(Arc::new(target))), ..World::new() };
    // All are new: reading ahead is given up at once.
    let ran = world.deploy(&files);
    assert_eq!(ran.tally.created, 100);
    let cold = transport.round_trips();
    assert!(cold <= 2 * 100 + 20, "{cold}");
    let ran = world.deploy(&files);
    assert_eq!((ran.tally.deployed, ran.tally.created, ran.tally.updated), (100, 0, 0));
    // The window grows again.
    let grown = transport.round_trips() - cold;
    assert!(grown <= 16, "{grown}");
    let before = transport.round_trips();
    let ran = world.deploy(&files);
    assert_eq!((ran.tally.deployed, ran.tally.updated), (100, 0));
    let unchanged = transport.round_trips() - before;
    assert!(unchanged <= 6, "{unchanged}");
    // One that drifted is mended, and the others are still verified.
    fs::write(path(50), "drift").unwrap();
    fs::remove_file(path(51)).unwrap();
    let before = transport.round_trips();
    let ran = world.deploy(&files);
    assert_eq!((ran.tally.updated, ran.tally.created), (1, 1));
    assert_eq!(fs::read_to_string(path(50)).unwrap(), "same");
    assert_eq!(fs::read_to_string(path(51)).unwrap(), "same");
    let drifted = transport.round_trips() - before;
    assert!(drifted <= 24, "{drifted}");
}
