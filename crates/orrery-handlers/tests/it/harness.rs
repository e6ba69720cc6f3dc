//! Runs handlers like the executor.

use orrery_handlers::run::{HandlerRun, Purpose, RunContext};
use orrery_handlers::target::{Content, Invocation, Output};
use orrery_handlers::{
    CancelToken, Contents, Context, LocalSecrets, MemoryTarget, Mode, NoContents, Registry, Target,
    TargetCache,
};
use orrery_model::{Attributes, LogLevel, Outcome, Resource, ResourceId, Timestamp, VersionNumber};

/// One agent with its target; every run has a new cache unless one is reused.
pub(crate) struct Agent<'t> {
    pub(crate) target: &'t dyn Target,
    pub(crate) registry: Registry,
    pub(crate) cache: TargetCache,
    pub(crate) stop: CancelToken,
    pub(crate) deployed_before: bool,
    pub(crate) changed_dependencies: Vec<ResourceId>,
}

impl<'t> Agent<'t> {
    pub(crate) fn new(target: &'t dyn Target) -> Self {
        Agent {
            target,
            registry: Registry::native(),
            cache: TargetCache::new(),
            stop: CancelToken::never(),
            deployed_before: false,
            changed_dependencies: Vec::new(),
        }
    }

    /// Runs the handler of a resource.
    pub(crate) fn run(&self, id: &str, attributes: &str, mode: Mode) -> Outcome {
        self.run_with(id, attributes, mode, &NoContents)
    }

    /// Runs the handler of a resource with these contents.
    pub(crate) fn run_with(
        &self,
        id: &str,
        attributes: &str,
        mode: Mode,
        contents: &dyn Contents,
    ) -> Outcome {
        let attributes = Attributes::parse(attributes).unwrap();
        let mut resource = Resource::new(id.parse().unwrap(), attributes, Vec::new());
        resource.flags.report_only = mode == Mode::ReportOnly;
        let run = HandlerRun {
            purpose: if mode == Mode::DryRun { Purpose::DryRun } else { Purpose::Deploy },
            resource: &resource,
            version: VersionNumber(1),
            epoch: None,
            deployed_before: self.deployed_before,
            changed_dependencies: &self.changed_dependencies,
            reason: &"a test",
            stop: &self.stop,
            before_change: None,
            effects: None,
        };
        let services = RunContext {
            cache: &self.cache,
            contents,
            secrets: &LocalSecrets,
            clock: &|| Timestamp(0),
            log_level: LogLevel::Debug,
            server: None,
        };
        let mut context = Context::new(&run, self.target, &services);
        let handler = self.registry.handler(resource.id.entity()).unwrap();
        handler.run(&resource.attributes, &mut context)
    }

    pub(crate) fn deploy(&self, id: &str, attributes: &str) -> Outcome {
        self.run(id, attributes, Mode::Deploy)
    }
}

/// A run with a new cache.
pub(crate) fn run(target: &dyn Target, id: &str, attributes: &str, mode: Mode) -> Outcome {
    Agent::new(target).run(id, attributes, mode)
}

/// Last log line: the error of a run.
pub(crate) fn reason(outcome: &Outcome) -> String {
    let line = outcome.log.last().map(|line| line.message.clone());
    line.unwrap_or_default()
}

/// Names of the changed attributes.
pub(crate) fn changed(outcome: &Outcome) -> Vec<&str> {
    outcome.change.attributes.iter().map(|change| &*change.name).collect()
}

/// Adds a command to a machine in memory that edits a text file and succeeds.
pub(crate) fn edits(
    target: &MemoryTarget,
    words: &str,
    path: &'static str,
    edit: impl Fn(&str, &Invocation<'_>) -> String + Send + Sync + 'static,
) {
    target.on(words, move |invocation| {
        let old = text(invocation.target, path);
        let new = edit(&old, invocation);
        invocation.target.put(path, Content::File(new.into()), 0o644);
        Output::default()
    });
}

/// Text of a file; empty if it does not exist.
pub(crate) fn text(target: &dyn Target, path: &str) -> String {
    let content = target.read_file(path, u64::MAX).unwrap().unwrap_or_default();
    String::from_utf8(content).unwrap()
}
