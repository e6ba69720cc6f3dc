//! Intervals, cron, retries, parking.

use orrery_model::{Duration, OutcomeStatus, Timestamp};
use orrery_scheduler::{Event, Filter, Interval, Priority, Reason, Retry, Settings, TimerKind};

use crate::world::{START, World, calm, id, r};

const DEPLOY: u64 = 100;
const REPAIR: u64 = 1000;

fn every(seconds: u64) -> Interval {
    Interval::Every(Duration::from_secs(seconds))
}

fn cron(text: &str) -> Interval {
    text.parse().unwrap()
}

fn intervals(deploy: Interval, repair: Interval) -> Settings {
    Settings { deploy_interval: deploy, repair_interval: repair, ..calm() }
}

fn timer(world: &World, name: &str) -> Option<(u64, TimerKind)> {
    let index = world.scheduler.index_of(id(name).as_str()).unwrap();
    let (at, kind) = world.scheduler.timer(index)?;
    Some((at.since(START).as_secs(), kind))
}

fn settled(settings: Settings) -> World {
    let mut world = World::new(settings);
    world.outcome("bad", OutcomeStatus::Failed);
    world.outcome("skipped", OutcomeStatus::Skipped);
    let models = [
        r("good"),
        r("bad"),
        r("skipped"),
        r("waits").requires(&["bad"]),
        r("undefined").undefined(),
    ];
    world.version(1, &models);
    world.run_all();
    world.started.clear();
    world
}

// 57
#[test]
fn compliant_resources_are_repaired_and_others_retried_at_the_smaller_interval() {
    let world = settled(intervals(every(DEPLOY), every(REPAIR)));
    assert_eq!(timer(&world, "good"), Some((REPAIR, TimerKind::Repair)));
    assert_eq!(timer(&world, "waits"), Some((REPAIR, TimerKind::Repair)));
    assert_eq!(timer(&world, "bad"), Some((DEPLOY, TimerKind::Retry)));
    assert_eq!(timer(&world, "skipped"), Some((DEPLOY, TimerKind::Retry)));
    assert_eq!(timer(&world, "undefined"), None);
    let world = settled(intervals(every(REPAIR), every(DEPLOY)));
    assert_eq!(timer(&world, "bad"), Some((DEPLOY, TimerKind::Repair)));
    let world = settled(intervals(Interval::Off, Interval::Off));
    assert_eq!((timer(&world, "good"), timer(&world, "bad")), (None, None));
}

// 57
#[test]
fn timers_run_their_resources_with_their_priority_and_reason() {
    let mut world = settled(intervals(every(DEPLOY), every(REPAIR)));
    assert_eq!(world.wake_at, Some(START + Duration::from_secs(DEPLOY)));
    world.advance(DEPLOY - 1);
    assert!(world.started.is_empty());
    world.advance(1);
    assert_eq!(world.started, ["bad", "skipped"]);
    assert_eq!(world.running[0].priority, Priority::IntervalDeploy);
    assert_eq!(world.running[0].reason, Reason::Retry { attempts: 1 });
    assert_eq!(timer(&world, "bad"), None, "no timer while it runs");
    world.run_all();
    assert_eq!(timer(&world, "bad"), Some((2 * DEPLOY, TimerKind::Retry)));
    world.started.clear();
    world.advance(REPAIR - DEPLOY);
    world.ok("bad");
    assert_eq!(world.started, ["bad", "skipped", "good", "waits"]);
    let good = world.running.iter().find(|start| world.name_of_start(start) == "good").unwrap();
    assert_eq!((good.priority, &good.reason), (Priority::IntervalRepair, &Reason::RepairInterval));
}

// 57
#[test]
fn cron_replaces_the_timers_of_its_kind() {
    // The start is a Tuesday, 22:13:20.
    let mut world = settled(intervals(cron("*/5 * * * *"), every(REPAIR)));
    assert_eq!(timer(&world, "bad"), Some((REPAIR, TimerKind::Repair)));
    assert_eq!(world.wake_at, Some(START + Duration::from_secs(100)));
    world.advance(100);
    assert_eq!(world.started, ["bad", "skipped"]);
    assert_eq!(world.running[0].reason, Reason::DeployCron);
    world.run_all();

    let mut world = settled(intervals(every(DEPLOY), cron("0 23 * * *")));
    assert_eq!(timer(&world, "good"), None);
    assert_eq!(timer(&world, "bad"), Some((DEPLOY, TimerKind::Retry)));
    world.advance(47 * 60);
    world.run_all();
    let all = ["bad", "skipped", "good", "waits"];
    assert_eq!(world.started, all, "a repair is for all that can be deployed");
    assert_eq!(world.scheduler.next_wakeup().map(|at| at.since(world.now).as_secs()), Some(DEPLOY));
}

// 57
#[test]
fn missed_cron_times_are_not_caught_up() {
    let mut world = settled(intervals(Interval::Off, cron("*/5 * * * *")));
    world.advance(3600);
    world.run_all();
    assert_eq!(world.started.iter().filter(|name| *name == "good").count(), 1);
    assert_eq!(world.scheduler.next_wakeup().map(|at| at.since(world.now).as_secs()), Some(100));
}

// 58
#[test]
fn changed_settings_take_effect_at_once() {
    let mut world = settled(intervals(Interval::Off, Interval::Off));
    let change =
        |world: &mut World, settings| world.event(Event::SettingsChanged(Box::new(settings)));
    change(&mut world, intervals(every(DEPLOY), every(REPAIR)));
    assert_eq!(timer(&world, "good"), Some((REPAIR, TimerKind::Repair)));
    world.advance(50);
    change(&mut world, intervals(every(40), every(REPAIR)));
    assert_eq!(timer(&world, "bad"), Some((40, TimerKind::Retry)));
    assert!(world.wake_at.unwrap() <= world.now, "what is past due fires immediately");
    world.advance(0);
    assert_eq!(world.started, ["bad", "skipped"]);
    world.run_all();
    world.started.clear();
    change(&mut world, intervals(Interval::Off, Interval::Off));
    world.advance(100_000);
    assert!(world.started.is_empty(), "what was cancelled never fires");
    assert_eq!(world.scheduler.next_wakeup(), None);
}

// 58
#[test]
fn a_timer_of_what_was_deployed_otherwise_does_not_fire_early() {
    let mut world = settled(intervals(every(DEPLOY), every(REPAIR)));
    world.advance(REPAIR - DEPLOY);
    world.run_all();
    world.event(Event::Verify(Filter::ids([id("good")])));
    world.run_all();
    world.started.clear();
    world.advance(DEPLOY);
    assert!(!world.started.contains(&"good".to_owned()));
    assert_eq!(timer(&world, "good"), Some((2 * REPAIR - DEPLOY, TimerKind::Repair)));
}

// 59
#[test]
fn reports_use_the_repair_interval_if_compliant_and_the_deploy_interval_if_not() {
    let mut world = World::new(intervals(every(DEPLOY), every(REPAIR)));
    world.outcome("differs", OutcomeStatus::NonCompliant);
    world.outcome("fails", OutcomeStatus::Failed);
    world.version(1, &[r("same").reports(), r("differs").reports(), r("fails").reports()]);
    world.run_all();
    assert_eq!(timer(&world, "same"), Some((REPAIR, TimerKind::Repair)));
    assert_eq!(timer(&world, "differs"), Some((DEPLOY, TimerKind::Retry)));
    assert_eq!(timer(&world, "fails"), Some((DEPLOY, TimerKind::Retry)));
}

// 59
#[test]
fn cron_deploys_look_again_at_reported_differences() {
    let mut world = World::new(intervals(cron("*/5 * * * *"), Interval::Off));
    world.outcome("differs", OutcomeStatus::NonCompliant);
    world.version(1, &[r("same").reports(), r("differs").reports()]);
    world.run_all();
    world.started.clear();
    world.advance(100);
    assert_eq!(world.started, ["differs"]);
}

fn retrying(retry: Retry) -> World {
    let settings = Settings { retry, ..intervals(every(DEPLOY), Interval::Off) };
    let mut world = World::new(settings);
    world.outcome("a", OutcomeStatus::Failed);
    world.version(1, &[r("a")]);
    world.run_all();
    world
}

/// Returns the delays between runs of a resource that always fails.
fn pauses(world: &mut World, count: usize) -> Vec<u64> {
    let mut pauses = Vec::new();
    while let Some(at) = world.scheduler.next_wakeup().filter(|_| pauses.len() < count) {
        pauses.push(at.since(world.now).as_secs());
        world.now = at;
        world.advance(0);
        world.run_all();
    }
    pauses
}

#[test]
fn failed_resources_are_retried_at_the_interval_forever() {
    let mut world = retrying(Retry::constant());
    assert_eq!(pauses(&mut world, 50), [DEPLOY; 50]);
    assert!(!world.state("a").parked && world.state("a").attempts == 51);
    let mut world = retrying(Retry::default());
    let usual = pauses(&mut world, 50);
    assert!(usual.iter().all(|pause| (DEPLOY * 9 / 10..=DEPLOY).contains(pause)), "{usual:?}");
    assert!(!world.state("a").parked);
}

#[test]
fn retries_may_back_off_up_to_the_interval() {
    let mut world = retrying(Retry { delay: Some(Duration::from_secs(30)), ..Retry::constant() });
    assert_eq!(pauses(&mut world, 5), [30, 60, DEPLOY, DEPLOY, DEPLOY]);
}

#[test]
fn parking_is_optional_and_announced() {
    let mut world = retrying(Retry { attempts_max: Some(4), ..Retry::constant() });
    assert_eq!(pauses(&mut world, 50), [DEPLOY; 3]);
    let state = world.state("a");
    assert!(state.parked && state.attempts == 4);
    assert_eq!(world.parked, [("a".to_owned(), 4)], "told once");
    assert_eq!(world.stored[&id("a")], state, "parking is kept");
    world.started.clear();
    world.version(2, &[r("a"), r("b")]);
    world.restart(false);
    world.run_all();
    assert!(!world.started.contains(&"a".to_owned()), "neither a version nor a restart un-parks");
}

#[test]
fn a_lower_limit_parks_resources_beyond_it() {
    let mut world = retrying(Retry::constant());
    pauses(&mut world, 2);
    assert_eq!(world.state("a").attempts, 3);
    let with = |attempts_max| {
        let retry = Retry { attempts_max: Some(attempts_max), ..Retry::constant() };
        let settings = Settings { retry, ..intervals(every(DEPLOY), Interval::Off) };
        Event::SettingsChanged(Box::new(settings))
    };
    world.event(with(4));
    assert!(!world.state("a").parked);
    world.event(with(3));
    assert!(world.state("a").parked);
    assert_eq!(world.parked, [("a".to_owned(), 3)]);
    assert_eq!(world.stored[&id("a")], world.state("a"), "parking is kept");
    assert_eq!(world.scheduler.next_wakeup(), None);
}

/// A client that knows only the state, such as an API server, computes the same time as the
/// scheduler.
#[test]
fn the_next_run_follows_from_the_state_alone() {
    for settings in [
        intervals(every(DEPLOY), every(REPAIR)),
        intervals(every(REPAIR), every(DEPLOY)),
        intervals(Interval::Off, every(REPAIR)),
        Settings { retry: Retry::default(), ..intervals(every(DEPLOY), Interval::Off) },
    ] {
        let world = settled(settings.clone());
        for name in ["good", "bad", "skipped", "waits", "undefined"] {
            let index = world.scheduler.index_of(id(name).as_str()).unwrap();
            let next = settings.next_run(&id(name), &world.state(name), world.now);
            assert_eq!(next, world.scheduler.timer(index), "{name} with {settings:?}");
        }
    }
    let settings = intervals(cron("*/5 * * * *"), cron("0 23 * * *"));
    let world = settled(settings.clone());
    let next = |name: &str| {
        let (at, kind) = settings.next_run(&id(name), &world.state(name), world.now).unwrap();
        (at.since(START).as_secs(), kind)
    };
    assert_eq!(next("bad"), (100, TimerKind::Retry));
    assert_eq!(next("good"), (46 * 60 + 40, TimerKind::Repair));
    let mut parked = world.state("bad");
    parked.parked = true;
    assert_eq!(settings.next_run(&id("bad"), &parked, world.now), None);
}

#[test]
fn requests_and_new_intents_run_parked_resources() {
    let parked = || {
        let world = retrying(Retry { attempts_max: Some(1), ..Retry::constant() });
        assert!(world.state("a").parked);
        world
    };
    let mut world = parked();
    world.deploy();
    assert_eq!((world.running_names(), world.state("a").attempts), (vec!["a".into()], 0));
    world.ok("a");
    assert!(!world.state("a").parked);
    let mut world = parked();
    world.repair();
    assert_eq!(world.running_names(), ["a"]);
    world.fail("a");
    assert!(world.state("a").parked, "it has failed once more");
    let mut world = parked();
    world.version(2, &[r("a").value(1)]);
    assert_eq!((world.running_names(), world.state("a").parked), (vec!["a".into()], false));
}

#[test]
fn an_event_runs_a_parked_resource_but_only_success_unparks_it() {
    let settings =
        Settings { retry: Retry { attempts_max: Some(1), ..Retry::constant() }, ..calm() };
    let mut world = World::new(settings);
    world.outcome("a", OutcomeStatus::Failed);
    world.version(1, &[r("s").sends(), r("a").requires(&["s"])]);
    world.run_all();
    for (outcome, parked) in [(OutcomeStatus::Failed, true), (OutcomeStatus::Deployed, false)] {
        world.event(Event::Verify(Filter::ids([id("s")])));
        world.ok("s");
        world.finish("a", outcome);
        assert_eq!(world.state("a").parked, parked);
    }
}

#[test]
fn skipping_is_not_a_failed_attempt() {
    let retry = Retry { attempts_max: Some(2), ..Retry::constant() };
    let mut world = World::new(Settings { retry, ..intervals(every(DEPLOY), Interval::Off) });
    world.outcome("a", OutcomeStatus::Skipped);
    world.version(1, &[r("a")]);
    for _ in 0..5 {
        world.run_all();
        assert_eq!(world.scheduler.next_wakeup(), Some(world.now + Duration::from_secs(DEPLOY)));
        world.advance(DEPLOY);
    }
}

#[test]
fn jitter_is_the_same_after_a_restart_and_differs_between_resources() {
    let retry = Retry { jitter_percent: 50, ..Retry::constant() };
    let settings = Settings { retry, seed: 42, ..intervals(every(DEPLOY), Interval::Off) };
    let mut world = World::new(settings);
    for name in ["a", "b", "c"] {
        world.outcome(name, OutcomeStatus::Failed);
    }
    world.version(1, &[r("a"), r("b"), r("c")]);
    world.run_all();
    let due = |world: &World| -> Vec<Timestamp> {
        let all = world.scheduler.resources();
        all.filter_map(|index| world.scheduler.timer(index)).map(|(at, _)| at).collect()
    };
    let before = due(&world);
    assert!(before[0] != before[1] && before[1] != before[2]);
    world.pause("a");
    world.restart(false);
    world.event(Event::Cancel(Filter::all()));
    let after = due(&world);
    assert_eq!(after[0], before[0], "`a` was queued, taken back and armed again");
}
