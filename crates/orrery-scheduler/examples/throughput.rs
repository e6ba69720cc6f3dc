//! Benchmark of the scheduler alone: throughput of null resources, memory per resource, and the
//! cost of changing one resource. `bench/scheduler/run.py` runs it for several sizes and compares.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report of a measurement goes to the terminal"
)]

use std::time::Instant;

use orrery_model::{
    AttributeHash, OutcomeStatus, ResourceFlags, ResourceId, Timestamp, VersionNumber,
};
use orrery_scheduler::{
    Event, Filter, Intent, RecoveredResource, Recovery, Scheduler, SchedulerCommand, Scope,
    SetContent, SetDiff, Settings, TaskNumber, TaskResult, VersionDiff,
};

/// Number of timed changes.
const CHANGES: u32 = 2_000;

/// The scheduler and its started tasks.
struct Driver {
    scheduler: Scheduler,
    now: Timestamp,
    commands: Vec<SchedulerCommand>,
    started: std::collections::VecDeque<TaskNumber>,
    tasks: u64,
}

impl Driver {
    fn event(&mut self, event: Event) {
        self.scheduler.handle(event, self.now, &mut self.commands);
        for command in self.commands.drain(..) {
            if let SchedulerCommand::Start(start) = command {
                self.started.push_back(start.task);
            }
        }
    }

    /// Lets every task succeed, each as an event of its own, until none remains.
    fn run(&mut self) {
        while let Some(task) = self.started.pop_front() {
            self.now.0 += 1;
            self.tasks += 1;
            let result = TaskResult::Finished(OutcomeStatus::Deployed);
            self.event(Event::TaskFinished { task, result });
        }
    }
}

fn id(number: usize, agents: usize) -> ResourceId {
    let agent = format!("host-{:04}", number % agents);
    ResourceId::new("std::testing::NullResource", &agent, "name", &format!("resource-{number:07}"))
        .expect("the parts are valid")
}

/// One in ten requires its neighbour on another agent, and every hundredth a hub as well.
fn intent(number: usize, agents: usize, value: u8) -> Intent {
    let mut requires = Vec::new();
    if number % 10 == 9 {
        requires.push(id(number - 1, agents));
    }
    if number % 100 == 99 {
        requires.push(id(number - 99, agents));
    }
    let mut hash = [value; 16];
    hash[..8].copy_from_slice(&number.to_le_bytes());
    Intent {
        id: id(number, agents),
        hash: AttributeHash(hash),
        flags: ResourceFlags::default(),
        requires,
    }
}

fn version(number: u32, scope: Scope, content: SetContent) -> Event {
    Event::NewVersions(vec![VersionDiff {
        version: VersionNumber(number),
        scope,
        sets: vec![SetDiff { set: None, content }],
    }])
}

/// Stored state of the resources.
fn recovery(scheduler: &Scheduler, resources: usize, agents: usize) -> Recovery {
    let recovered = |number| {
        let intent = intent(number, agents, 9);
        let index = scheduler.index_of(intent.id.as_str())?;
        Some(RecoveredResource { intent, set: None, state: scheduler.state(index)? })
    };
    Recovery {
        version: scheduler.version(),
        resources: (0..resources).filter_map(recovered).collect(),
        ..Recovery::default()
    }
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// CPU seconds of the work where the system reports them, to reduce noise; wall-clock seconds
/// elsewhere.
fn seconds(work: impl FnOnce()) -> f64 {
    let on_processor = || {
        let stat = std::fs::read_to_string("/proc/self/schedstat").ok()?;
        stat.split(' ').next()?.parse::<f64>().ok()
    };
    let (before, start) = (on_processor(), Instant::now());
    work();
    match (before, on_processor()) {
        (Some(before), Some(after)) => (after - before) / 1e9,
        _ => start.elapsed().as_secs_f64(),
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let (Some(Ok(resources)), Some(Ok(agents))) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: throughput RESOURCES AGENTS");
        return;
    };
    let before = resident();
    let mut driver = Driver {
        scheduler: Scheduler::new(Settings::default()),
        now: Timestamp(1_700_000_000_000_000),
        commands: Vec::new(),
        started: std::collections::VecDeque::new(),
        tasks: 0,
    };
    let intents = (0..resources).map(|number| intent(number, agents, 0)).collect();
    let first = version(1, Scope::Everything, SetContent::Whole(intents));
    let load = seconds(|| driver.event(first));
    let deploy = seconds(|| driver.run());
    let deployed = driver.tasks;
    assert_eq!(deployed, resources as u64, "each resource runs once");
    let repair = seconds(|| {
        driver.event(Event::Verify(Filter::all()));
        driver.run();
    });
    assert_eq!(driver.tasks, 2 * deployed, "a repair runs each once");
    driver.commands = Vec::new();
    driver.started = std::collections::VecDeque::new();
    let bytes = resident().saturating_sub(before);

    // Spread over the whole table; prepared before timing starts.
    let changes: Vec<Event> = (0..CHANGES)
        .map(|change| {
            let number = change as usize * 7919 % resources;
            let resources =
                vec![intent(number, agents, 1 + u8::try_from(change % 250).unwrap_or(0))];
            let content = SetContent::Changes { resources, removed: Vec::new() };
            version(2 + change, Scope::ChangedSets, content)
        })
        .collect();
    let change = seconds(|| {
        for event in changes {
            driver.event(event);
            driver.run();
        }
    });
    let intents = (0..resources).map(|number| intent(number, agents, 9)).collect();
    let whole = version(2 + CHANGES, Scope::Everything, SetContent::Whole(intents));
    driver.event(whole);
    driver.run();
    let intents = (0..resources).map(|number| intent(number, agents, 9)).collect();
    let whole = version(3 + CHANGES, Scope::Everything, SetContent::Whole(intents));
    let tasks = driver.tasks;
    let unchanged = seconds(|| driver.event(whole));
    assert_eq!(driver.tasks, tasks, "nothing changed");
    let counts = driver.scheduler.counts();
    assert_eq!((counts.resources, counts.dirty, counts.queued), (resources, 0, 0));
    let recovery = recovery(&driver.scheduler, resources, agents);
    driver.scheduler = Scheduler::new(Settings::default());
    let recover = seconds(|| driver.event(Event::Recover(Box::new(recovery))));
    assert!(driver.started.is_empty(), "everything was deployed before the restart");
    println!(
        "{{\"resources\": {resources}, \"agents\": {agents}, \"load_seconds\": {load:.6}, \
         \"deploy_seconds\": {deploy:.6}, \"repair_seconds\": {repair:.6}, \
         \"unchanged_seconds\": {unchanged:.6}, \"recover_seconds\": {recover:.6}, \
         \"bytes_per_resource\": {}, \"change_microseconds\": {:.3}}}",
        bytes / resources,
        change * 1e6 / f64::from(CHANGES)
    );
}
