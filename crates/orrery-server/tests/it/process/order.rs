//! Order of an environment's tasks, and retries after failures, observed at the target.

use std::path::Path;

use super::*;

fn file(path: &Path, content: &str) -> Resource {
    let path = path.display().to_string();
    let id = ResourceId::new("std::File", "localhost", "path", &path).unwrap();
    let attributes = json!({
        "path": path, "content": content, "mode": 644, "owner": null, "group": null, "purged": false,
        "prefix_content": [], "suffix_content": [], "content_seperator": "\n",
    });
    Resource::new(id, Attributes::parse(&attributes.to_string()).unwrap(), Vec::new())
}

/// One agent with a file and slow commands, each of which logs the content of the file at its end.
struct Site {
    directory: tempfile::TempDir,
}

const COMMANDS: usize = 8;

impl Site {
    fn new() -> Self {
        Site { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn resources(&self, content: &str, further: Option<&str>) -> Vec<Resource> {
        let (config, log) = (self.path("zz-config"), self.path("log"));
        let mut all: Vec<Resource> = (0..COMMANDS)
            .map(|at| {
                let script = format!(
                    "sleep 0.3; echo {at} $(cat {} {} 2>/dev/null) >> {}",
                    config.display(),
                    self.path("zz-further").display(),
                    log.display()
                );
                command("localhost", &script, 0)
            })
            .collect();
        all.push(file(&config, content));
        all.extend(further.map(|content| file(&self.path("zz-further"), content)));
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all
    }

    /// Returns the file content that each command saw.
    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines()
            .map(|line| line.split_once(' ').map_or("", |(_, saw)| saw).to_owned())
            .collect()
    }
}

/// During a repair or a verifying deploy, a new release takes precedence over the remaining tasks.
fn a_release_precedes_the_rest_of_a_repair(kind: Kind) {
    for verifying in [false, true] {
        let mut world = World::new(kind);
        let key = world.environment("one").key;
        let site = Site::new();
        world.put(key, &site.resources("old", None));
        world.start();
        world.until_deployed(key, &site.resources("old", None));
        let _ = std::fs::remove_file(site.path("log"));
        let asked = match verifying {
            false => world.request(key, "repair", &json!({})),
            true => world.put_and_verify(key, &site.resources("old", None)),
        };
        world.until("it is under way", |_| !site.log().is_empty());
        let released = site.resources("new", Some("more"));
        if verifying {
            let other = world.put_and_verify(key, &released);
            world.until("all is verified", |world| world.is_finished(other));
        } else {
            world.put(key, &released);
        }
        world.until("the repair is done", |world| world.is_finished(asked));
        world.until_deployed(key, &released);
        let log = site.log();
        let late = log.iter().filter(|saw| *saw == "newmore").count();
        // One was done and one was running; a loaded machine may have got one or two further.
        assert!(log.len() >= COMMANDS && late + 4 >= log.len(), "verifying: {verifying}, {log:?}");
        assert!(late >= COMMANDS / 2, "the rest ran after the release: {log:?}");
    }
}

fn notifications(world: &World, key: EnvironmentKey) -> Vec<(String, String)> {
    let filter = orrery_store::NotificationFilter::default();
    let found = world.app.store().notifications().list(key, &filter, None, 50).unwrap();
    found.into_iter().map(|one| (one.title, one.message)).collect()
}

fn set(world: &World, environment: &EnvironmentRecord, name: &str, value: &Value) {
    let store = world.app.store();
    store.settings().change(environment.key, name, Some(value), world.app.now()).unwrap();
    world.app.wake_up();
}

/// Six runs, a second apart: with exponential backoff they would take half a minute.
fn failed_resources_are_retried_at_the_interval(kind: Kind) {
    let mut world = World::new(kind);
    let environment = world.environment("one");
    let key = environment.key;
    set(&world, &environment, "autostart_agent_deploy_interval", &json!("1"));
    let fails = scripted("localhost", "fails", r#"{"outcome":"failed"}"#);
    world.put(key, std::slice::from_ref(&fails));
    world.start();
    let began = Instant::now();
    world.until("it was tried six times", |world| world.runs(key, &fails) >= 6);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let found = world.app.store().resources().find(key, fails.id.as_str()).unwrap().unwrap();
    assert!(!found.state.parked && notifications(&world, key).is_empty());
}

/// Also if the process that parked it ended before the notification.
fn parked_resources_are_reported(kind: Kind) {
    let mut world = World::new(kind);
    let environment = world.environment("one");
    let key = environment.key;
    set(&world, &environment, "autostart_agent_deploy_interval", &json!("1"));
    set(&world, &environment, "park_after_attempts", &json!(2));
    let fails = scripted("localhost", "fails", r#"{"outcome":"failed"}"#);
    world.put(key, std::slice::from_ref(&fails));
    world.start();
    world.until("the notification is added", |world| !notifications(world, key).is_empty());
    let reported = notifications(&world, key);
    assert_eq!(reported[0].0, "Resources were parked");
    assert!(reported[0].1.contains(&format!("{} failed 2 times", fails.id)), "{reported:?}");
    let parked = |world: &World| {
        let found = world.app.store().resources().find(key, fails.id.as_str()).unwrap().unwrap();
        found.state.parked
    };
    world.until("it is kept", parked);
    world.stop();
    world.start();
    let other = scripted("localhost", "other", "{}");
    world.put(key, &[fails.clone(), other.clone()]);
    world.until_deployed(key, std::slice::from_ref(&other));
    assert_eq!(notifications(&world, key).len(), 1, "once is enough");
    world.stop();
    world.app.store().notifications().expire(key, Timestamp(i64::MAX)).unwrap();
    world.start();
    world.until("the notification is added again", |world| notifications(world, key) == reported);
    assert_eq!(world.runs(key, &fails), 2, "it was not tried again");
    // An explicit deploy retries it.
    world.request(key, "deploy", &json!({}));
    world.until("it was tried again", |world| world.runs(key, &fails) > 2);
}

macro_rules! on {
    ($name:ident, $kind:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn a_release_precedes_the_rest_of_a_repair() {
                super::a_release_precedes_the_rest_of_a_repair($kind);
            }

            #[test]
            fn failed_resources_are_retried_at_the_interval() {
                super::failed_resources_are_retried_at_the_interval($kind);
            }

            #[test]
            fn parked_resources_are_reported() {
                super::parked_resources_are_reported($kind);
            }
        }
    };
}

on!(sqlite, Kind::Sqlite);
on!(postgres, Kind::Postgres);
