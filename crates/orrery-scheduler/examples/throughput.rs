//! Measures the scheduler alone: how fast null resources pass through it, what it keeps of each, and what a change
//! of one resource costs. `bench/scheduler/run.py` runs it for several sizes and compares.

use std::time::Instant;

use orrery_model::{
    AttributeHash, OutcomeStatus, ResourceFlags, ResourceId, Timestamp, VersionNumber,
};
use orrery_scheduler::{
    Command, Event, Filter, Intent, Scheduler, Scope, SetContent, SetDiff, Settings, TaskNumber,
    TaskResult, VersionDiff,
};

/// Changes that are timed, one after the other.
const CHANGES: u32 = 2_000;

/// The scheduler and the tasks that it has started.
struct Driver {
    scheduler: Scheduler,
    now: Timestamp,
    commands: Vec<Command>,
    started: std::collections::VecDeque<TaskNumber>,
    tasks: u64,
}

impl Driver {
    fn event(&mut self, event: Event) {
        self.scheduler.handle(event, self.now, &mut self.commands);
        for command in self.commands.drain(..) {
            if let Command::Start(start) = command {
                self.started.push_back(start.task);
            }
        }
    }

    /// Lets every task succeed, each as an event of its own, until there is nothing left to do.
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

/// Memory of this process in RAM, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
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
        driver.event(Event::Repair(Filter::all()));
        driver.run();
    });
    assert_eq!(driver.tasks, 2 * deployed, "a repair runs each once");
    driver.commands = Vec::new();
    driver.started = std::collections::VecDeque::new();
    let bytes = resident().saturating_sub(before);

    // Spread over the whole table; prepared before the clock runs.
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
    let counts = driver.scheduler.counts();
    assert_eq!((counts.resources, counts.dirty, counts.queued), (resources, 0, 0));
    println!(
        "{{\"resources\": {resources}, \"agents\": {agents}, \"load_seconds\": {load:.6}, \
         \"deploy_seconds\": {deploy:.6}, \"repair_seconds\": {repair:.6}, \
         \"bytes_per_resource\": {}, \"change_microseconds\": {:.3}}}",
        bytes / resources,
        change * 1e6 / f64::from(CHANGES)
    );
}
