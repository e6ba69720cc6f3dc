//! Every state has readable reasons.

use orrery_model::{Duration, OutcomeStatus, Status};
use orrery_scheduler::{
    AgentGroup, Event, Filter, Interval, Priority, Reason, ResourceExplanation, Retry, Settings,
    StateReason, TimerKind,
};

use crate::world::{START, World, calm, id, r};

fn why(world: &World, name: &str) -> ResourceExplanation {
    let index = world.scheduler.index_of(id(name).as_str()).unwrap();
    world.scheduler.explain(index).unwrap()
}

#[test]
fn a_waiting_task_names_the_chain_down_to_what_runs() {
    let mut world = World::new(calm());
    world.version(1, &[r("a"), r("b").requires(&["a"]), r("c").requires(&["b"])]);
    let StateReason::WaitingOn { resources, priority, first, .. } = &why(&world, "c").reasons[0]
    else {
        panic!("{}", why(&world, "c"));
    };
    assert_eq!((resources.as_slice(), *priority), (&[id("b")][..], Priority::NewVersion));
    let first = first.as_ref().unwrap();
    let StateReason::WaitingOn { first: Some(first), .. } = &first.reasons[0] else {
        panic!("{first}")
    };
    assert!(matches!(first.reasons[0], StateReason::Running { .. }));
    let expected = "test::Null[c,name=c] is available\n  \
        waiting for test::Null[b,name=b], because version 1 was released\n    \
        test::Null[b,name=b] is available\n      \
        waiting for test::Null[a,name=a], because version 1 was released\n        \
        test::Null[a,name=a] is deploying\n          \
        running since 2023-11-14T22:13:20.000000Z, because version 1 was released";
    assert_eq!(why(&world, "c").to_string(), expected);
}

#[test]
fn a_very_long_chain_is_followed_only_so_far() {
    let mut world = World::new(calm());
    let link = |n: usize| {
        let before = format!("n{:03}", n.saturating_sub(1));
        let model = r(&format!("n{n:03}"));
        if n == 0 { model } else { model.requires(&[&before]) }
    };
    world.version(1, &(0..100).map(link).collect::<Vec<_>>());
    let text = why(&world, "n099").to_string();
    assert!(text.contains("waiting for test::Null[n098,name=n098]"));
    assert!(text.lines().count() < 50, "{text}");
}

#[test]
fn a_queued_task_names_its_position_and_blockers() {
    let groups = vec![AgentGroup { name: "site".into(), agents: vec!["z".into()], running_max: 0 }];
    let mut world = World::new(Settings { groups, ..calm() });
    world.version(1, &[r("x/a"), r("x/b"), r("x/c"), r("z")]);
    let queued = why(&world, "x/c");
    let StateReason::Queued { ahead, behind, .. } = &queued.reasons[0] else { panic!("{queued}") };
    assert_eq!((*ahead, behind), (1, &Some(id("x/a"))));
    assert!(queued.to_string().contains("1 before it; now running test::Null[x,name=a]"));
    world.pause("x");
    assert!(why(&world, "x/c").reasons.contains(&StateReason::AgentPaused { agent: "x".into() }));
    let full = StateReason::GroupFull { group: "site".into(), limit: 0 };
    assert!(why(&world, "z").reasons.contains(&full));
    world.event(Event::Halt);
    assert!(why(&world, "x/b").reasons.contains(&StateReason::Halted));
}

#[test]
fn a_blocked_resource_shows_the_path_to_what_is_undefined() {
    let mut world = World::new(calm());
    world.version(1, &[r("u").undefined(), r("a").requires(&["u"]), r("b").requires(&["a"])]);
    let blocked = why(&world, "b");
    assert_eq!(blocked.status, Status::SkippedForUndefined);
    assert_eq!(blocked.reasons, [StateReason::Undefined { path: vec![id("b"), id("a"), id("u")] }]);
    assert!(blocked.to_string().contains("name=b] requires test::Null[a,name=a] requires"));
    assert!(why(&world, "u").to_string().contains("blocked: undefined"));
}

#[test]
fn an_idle_resource_names_its_next_timer() {
    let every = |seconds| Interval::Every(Duration::from_secs(seconds));
    let settings = Settings { deploy_interval: every(100), repair_interval: every(1000), ..calm() };
    let mut world = World::new(settings);
    world.outcome("bad", OutcomeStatus::Failed);
    world.version(1, &[r("good"), r("bad"), r("waits").requires(&["bad"])]);
    world.run_all();
    let at = |seconds| START + Duration::from_secs(seconds);
    let retry = StateReason::NextTimer { at: at(100), kind: TimerKind::Retry };
    let repair = StateReason::NextTimer { at: at(1000), kind: TimerKind::Repair };
    assert_eq!(why(&world, "bad").reasons, std::slice::from_ref(&retry));
    assert_eq!(why(&world, "good").reasons, std::slice::from_ref(&repair));
    let recovery = StateReason::WaitingForRecovery { bad: vec![id("bad")] };
    assert_eq!(why(&world, "waits").reasons, [recovery, repair]);
    assert!(why(&world, "bad").to_string().contains("retried at 2023-11-14T22:15:00"));
    let crons = Settings { repair_interval: "0 3 * * *".parse().unwrap(), ..calm() };
    world.event(Event::SettingsChanged(Box::new(crons)));
    assert!(matches!(
        why(&world, "good").reasons[..],
        [StateReason::NextCron { kind: TimerKind::Repair, .. }]
    ));
    world.event(Event::SettingsChanged(Box::new(calm())));
    assert_eq!(why(&world, "good").reasons, [StateReason::Settled]);
    assert_eq!(why(&world, "bad").reasons, [StateReason::NothingPlanned]);
}

#[test]
fn a_parked_resource_is_explained() {
    let retry = Retry { attempts_max: Some(1), ..Retry::constant() };
    let mut world = World::new(Settings { retry, ..calm() });
    world.outcome("a", OutcomeStatus::Failed);
    world.version(1, &[r("a")]);
    world.run_all();
    assert_eq!(why(&world, "a").reasons, [StateReason::Parked { attempts: 1 }]);
    assert!(why(&world, "a").to_string().contains("parked after 1 failed attempts"));
}

#[test]
fn an_outdated_or_cancelled_run_is_explained() {
    let mut world = World::new(calm());
    world.version(1, &[r("a")]);
    world.version(2, &[r("a").value(1)]);
    let outdated = why(&world, "a");
    assert!(matches!(
        outdated.reasons[..],
        [StateReason::Running { .. }, StateReason::Outdated, StateReason::Queued { ahead: 0, .. }]
    ));
    world.event(Event::Cancel(Filter::all()));
    assert!(why(&world, "a").to_string().contains("being cancelled on request"));
}

#[test]
fn reasons_name_their_sender_while_it_is_there() {
    let models = [r("s").sends(), r("x/b").requires(&["s"])];
    let mut world = World::deployed(&models);
    world.pause("x");
    world.event(Event::Verify(Filter::ids([id("s")])));
    world.ok("s");
    assert_eq!(world.reason("x/b"), Some(Reason::Event { from: Some(id("s")) }));
    world.version(2, &[r("x/b"), r("t")]);
    assert_eq!(world.reason("x/b"), Some(Reason::Event { from: None }));
    assert!(why(&world, "x/b").to_string().contains("a resource that is no longer managed"));
}
