//! Agents that are elsewhere: what is sent there, and what becomes of the answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_executor::{
    Bench, NoTarget, Order, Performed, Place, Purpose, Remote, RemoteError, Targets,
};
use orrery_handlers::target::{Algorithm, ContentDigest};
use orrery_handlers::{
    Contents, Durability, HandlerError, LocalTarget, NoContents, Reference, Registry, SecretError,
    Secrets, Session,
};
use orrery_model::{
    Change, LogLevel, LogLine, Outcome, OutcomeStatus, Resource, SecretText, Status, Timestamp,
};
use orrery_scheduler::{Event, Filter};
use orrery_store::Store;
use serde_json::json;

use crate::world::{Ran, World, command, file, resource, scripted};

/// What somebody elsewhere saw of an order.
#[derive(Clone, Debug)]
struct Seen {
    id: String,
    purpose: Purpose,
    epoch: Option<u64>,
    contents: BTreeMap<String, Vec<u8>>,
    secrets: BTreeMap<String, String>,
    wants_announcement: bool,
}

type Answer = dyn Fn(&Order<'_>) -> Result<Performed, RemoteError> + Send + Sync;

/// Somebody elsewhere, who does what a test says.
struct Elsewhere {
    seen: Mutex<Vec<Seen>>,
    answer: Box<Answer>,
}

impl Remote for Elsewhere {
    fn run(&self, order: &Order<'_>) -> Result<Performed, RemoteError> {
        self.seen.lock().unwrap().push(Seen {
            id: order.task.resource.id.to_string(),
            purpose: order.task.purpose,
            epoch: order.epoch,
            contents: order.contents.iter().map(|(key, it)| (key.clone(), it.to_vec())).collect(),
            secrets: order
                .secrets
                .iter()
                .map(|(name, secret)| (name.clone(), secret.expose().to_owned()))
                .collect(),
            wants_announcement: order.task.announce.is_some(),
        });
        (self.answer)(order)
    }
}

impl Elsewhere {
    fn new(
        answer: impl Fn(&Order<'_>) -> Result<Performed, RemoteError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Elsewhere { seen: Mutex::default(), answer: Box::new(answer) })
    }

    fn failing(error: RemoteError) -> Arc<Self> {
        Elsewhere::new(move |_| Err(error.clone()))
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// Every agent is there.
struct AllThere(Arc<Elsewhere>);

impl Targets for AllThere {
    fn place(&self, _agent: &str) -> Result<Place, NoTarget> {
        Ok(Place::Remote(Arc::clone(&self.0) as Arc<dyn Remote>))
    }

    fn sync(&self) {}
}

fn world(elsewhere: &Arc<Elsewhere>) -> World {
    World { targets: Arc::new(AllThere(Arc::clone(elsewhere))), ..World::new() }
}

/// Runs an order as a remote agent does.
fn carry_out(order: &Order<'_>) -> Performed {
    let target = LocalTarget::new(Durability::None);
    order.task.run(&Bench {
        registry: &Registry::native(),
        target: &target,
        session: &Session::new(),
        contents: &NoContents,
        secrets: &orrery_handlers::LocalSecrets,
        log_level: order.log_level,
    })
}

fn line(message: &str) -> LogLine {
    let values = serde_json::Map::new();
    LogLine { at: Timestamp(1), level: LogLevel::Info, message: message.to_owned(), values }
}

fn done(message: &str) -> Performed {
    Outcome {
        status: OutcomeStatus::Deployed,
        change: Change::default(),
        facts: Vec::new(),
        log: vec![line(message)],
    }
    .into()
}

/// Of the one resource.
fn message(ran: &Ran) -> (OutcomeStatus, String) {
    let finished = &ran.finished[0];
    (finished.status, finished.message.clone().unwrap_or_default())
}

#[test]
fn what_is_elsewhere_is_deployed_there_under_the_lease() {
    let elsewhere = Elsewhere::new(|order| Ok(carry_out(order)));
    let world = world(&elsewhere);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("motd").display().to_string();
    let ran = world.deploy(&[file(&path, "hello\n"), scripted("a", "{}", &[])]);
    assert_eq!((ran.tally.deployed, ran.tally.created), (2, 1));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello\n");
    let seen = elsewhere.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|one| one.purpose == Purpose::Deploy && one.epoch.is_some()));
    // A plan holds no lease.
    world.plan(&[file(&path, "hello\n")]);
    let last = elsewhere.seen().pop().unwrap();
    assert_eq!((last.purpose, last.epoch), (Purpose::DryRun, None));
}

#[test]
fn errors_of_the_way_say_what_is_known() {
    let at = "2026-11-16T09:30:00.000000Z".parse().unwrap();
    let agent = || "web1".to_owned();
    for (error, status, says) in [
        (
            RemoteError::NotConnected { agent: agent(), last_seen: Some(at) },
            OutcomeStatus::Unavailable,
            "web1 is not connected; it was last seen at 2026-11-16T09:30",
        ),
        (
            RemoteError::NotConnected { agent: agent(), last_seen: None },
            OutcomeStatus::Unavailable,
            "never been seen",
        ),
        (RemoteError::Busy { agent: agent() }, OutcomeStatus::Skipped, "too much to do"),
        (RemoteError::Fenced, OutcomeStatus::Failed, "another server acts"),
        (
            RemoteError::Rejected { reason: "the disk is full".to_owned() },
            OutcomeStatus::Failed,
            "the disk is full",
        ),
        (
            RemoteError::Unknown { reason: "the session broke".to_owned() },
            OutcomeStatus::Failed,
            "may have been done",
        ),
    ] {
        let ran = world(&Elsewhere::failing(error)).deploy(&[scripted("a", "{}", &[])]);
        let (told, text) = message(&ran);
        assert_eq!(told, status, "{text}");
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn handlers_in_the_code_of_modules_do_not_run_elsewhere() {
    let elsewhere = Elsewhere::new(|order| Ok(carry_out(order)));
    let mut world = world(&elsewhere);
    // As the code of a module does, which wins over what this program has.
    let scripted_handler = world.registry.handler("std::testing::ScriptedResource").unwrap();
    let handler = Arc::clone(scripted_handler);
    world.registry.serve("corp::Thing".to_owned(), handler);
    let ran = world.deploy(&[resource("corp::Thing", "a", "{}", &[])]);
    let (status, text) = message(&ran);
    assert_eq!(status, OutcomeStatus::Unavailable);
    assert!(text.contains("corp::Thing") && text.contains("code of a module"), "{text}");
    assert!(elsewhere.seen().is_empty());
}

/// One content that there is.
struct OneContent(ContentDigest, &'static [u8]);

impl Contents for OneContent {
    fn content(&self, digest: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError> {
        Ok((self.0 == *digest).then(|| Arc::from(self.1)))
    }
}

struct OneSecret;

impl Secrets for OneSecret {
    fn resolve(&self, reference: &Reference) -> Result<SecretText, SecretError> {
        match reference {
            Reference::Stored(name) if name == "db" => Ok(SecretText::new("hunter2")),
            other => Err(SecretError::NotText { what: format!("{other:?}") }),
        }
    }
}

fn file_with(path: &str, attributes: serde_json::Value) -> Resource {
    let attributes = orrery_model::Attributes::parse(&attributes.to_string()).unwrap();
    Resource::new(file(path, "").id, attributes, Vec::new())
}

#[test]
fn contents_and_secrets_go_with_the_order_and_no_secret_comes_back() {
    let elsewhere = Elsewhere::new(|_| Ok(done("the password is hunter2, as asked")));
    let mut world = world(&elsewhere);
    let known = Algorithm::Sha1.digest(b"content");
    world.contents = Arc::new(OneContent(known, b"content"));
    world.secrets = Arc::new(OneSecret);
    let known = known.to_string();
    let unknown = Algorithm::Sha1.digest(b"another").to_string();
    let secret = json!({
        "content": null,
        "references": [{"id": "r", "type": "std::Secret", "args": [
            {"name": "name", "type": "literal", "value": "db"},
        ]}],
        "mutators": [{"type": "core::Replace", "args": [
            {"name": "value", "type": "reference", "id": "r"},
            {"name": "destination", "type": "literal", "value": "content"},
        ]}],
    });
    let secret = file_with("/secret", secret);
    world.deploy(&[
        file_with("/known", json!({"hash": known})),
        file_with("/removed", json!({"hash": known, "purged": true})),
        file_with("/unknown", json!({"hash": unknown})),
        secret.clone(),
    ]);
    let seen: BTreeMap<String, Seen> =
        elsewhere.seen().into_iter().map(|one| (one.id.clone(), one)).collect();
    let of = |path: &str| &seen[&format!("std::File[here,path={path}]")];
    assert_eq!(of("/known").contents, BTreeMap::from([(known, b"content".to_vec())]));
    assert!(of("/removed").contents.is_empty());
    assert!(of("/unknown").contents.is_empty());
    let sent = &of("/secret").secrets;
    assert_eq!(sent, &BTreeMap::from([("db".to_owned(), "hunter2".to_owned())]));
    let id = secret.id.as_str();
    let actions = world.store.actions(world.environment, id, None, 10).unwrap();
    assert_eq!(actions[0].log[0].message, "the password is ***, as asked");
}

#[test]
fn a_content_that_does_not_fit_is_told() {
    const LARGE: &[u8] = &[0; 41 * 1024 * 1024];
    let elsewhere = Elsewhere::new(|_| Ok(done("")));
    let mut world = world(&elsewhere);
    let digest = Algorithm::Sha1.digest(b"large");
    world.contents = Arc::new(OneContent(digest, LARGE));
    let ran = world.deploy(&[file_with("/large", json!({"hash": digest.to_string()}))]);
    let (status, text) = message(&ran);
    assert_eq!(status, OutcomeStatus::Failed);
    assert!(text.contains("bytes"), "{text}");
    assert!(elsewhere.seen().is_empty());
}

#[test]
fn a_change_elsewhere_is_noted_before_it_is_made_and_counts_even_if_the_answer_is_lost() {
    let lost = Arc::new(Mutex::new(false));
    let answer = {
        let lost = Arc::clone(&lost);
        move |order: &Order<'_>| {
            if !*lost.lock().unwrap() || order.task.announce.is_none() {
                return Ok(done("nothing to do"));
            }
            let announce = order.task.announce.unwrap();
            // Twice: the agent began anew.
            (announce.0)().unwrap();
            (announce.0)().unwrap();
            Err(RemoteError::Unknown { reason: "the session broke".to_owned() })
        }
    };
    let elsewhere = Elsewhere::new(answer);
    let world = world(&elsewhere);
    let mut changes = scripted("a", "{}", &[]);
    changes.flags.send_event = true;
    let reloads = command("true", r#"{"reload_only":true}"#, &[&changes]);
    let resources = [changes.clone(), reloads];
    world.deploy(&resources);
    assert!(elsewhere.seen().iter().any(|one| one.wants_announcement), "also the first time");
    *lost.lock().unwrap() = true;
    world.deploy(&resources);
    assert_eq!(world.status("a"), Status::Failed);
    // It may have changed: whoever reloads for it is told when it is well again.
    *lost.lock().unwrap() = false;
    let told = Arc::new(Mutex::new(Vec::new()));
    let listening = {
        let told = Arc::clone(&told);
        Elsewhere::new(move |order| {
            let changed = order.task.changed_dependencies.iter().map(ToString::to_string);
            told.lock().unwrap().extend(changed);
            Ok(done("well"))
        })
    };
    let world = World { targets: Arc::new(AllThere(listening)), ..world };
    world.deploy(&resources);
    assert_eq!(*told.lock().unwrap(), [changes.id.to_string()]);
}

/// First here, then elsewhere.
struct Moving {
    elsewhere: Arc<Elsewhere>,
    moved: Mutex<bool>,
}

impl Targets for Moving {
    fn place(&self, _agent: &str) -> Result<Place, NoTarget> {
        if *self.moved.lock().unwrap() {
            return Ok(Place::Remote(Arc::clone(&self.elsewhere) as Arc<dyn Remote>));
        }
        Ok(Place::Here(Arc::new(LocalTarget::new(Durability::None))))
    }

    fn sync(&self) {}
}

#[test]
fn an_agent_that_moves_is_found_again() {
    let elsewhere = Elsewhere::new(|order| Ok(carry_out(order)));
    let moving = Arc::new(Moving { elsewhere: Arc::clone(&elsewhere), moved: Mutex::new(false) });
    let world = World { targets: Arc::clone(&moving) as Arc<dyn Targets>, ..World::new() };
    let mut moved = false;
    world.deploy_until(&[scripted("a", "{}", &[])], |engine, progress| {
        if progress.idle && !moved {
            assert!(elsewhere.seen().is_empty());
            *moving.moved.lock().unwrap() = true;
            engine.forget_places();
            engine.tell(Event::Repair(Filter::all()));
            while !engine.wait(Duration::from_millis(10)).idle {}
            moved = true;
        }
    });
    assert!(moved);
    assert_eq!(elsewhere.seen().len(), 1);
}
