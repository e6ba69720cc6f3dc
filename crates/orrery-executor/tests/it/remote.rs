//! Remote agents: commands sent to them, and handling of their results.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_executor::{ExecutionSite, NoTarget, TargetResolver, WorkerLimits};
use orrery_handlers::clock::now;
use orrery_handlers::run::{Purpose, Remote, RemoteCommand, RemoteError, RunContext, RunOutcome};
use orrery_handlers::target::{Algorithm, ContentDigest};
use orrery_handlers::{
    CodePart, Contents, Context, Durability, Handler, HandlerError, LocalTarget, NoContents,
    PortableCode, Registry, SecretError, SecretSource, Secrets, ServerReply, TargetCache,
};
use orrery_model::{
    Attributes, Change, Fact, LogLevel, LogLine, Outcome, OutcomeStatus, Resource, ResourceId,
    SecretText, Status, Timestamp,
};
use orrery_scheduler::{Event, Filter};
use serde_json::{Map, Value, json};

use crate::world::{DeployResult, World, command, file, resource, scripted};

/// Fields of a command as a remote agent sees them.
#[derive(Clone, Debug)]
struct SeenCommand {
    id: String,
    purpose: Purpose,
    epoch: Option<u64>,
    contents: BTreeMap<String, Vec<u8>>,
    secrets: BTreeMap<String, String>,
    wants_announcement: bool,
    code: Option<String>,
}

type RemoteScript = dyn Fn(&RemoteCommand<'_>) -> Result<RunOutcome, RemoteError> + Send + Sync;

/// A scripted remote agent.
struct ScriptedRemote {
    seen: Mutex<Vec<SeenCommand>>,
    answer: Box<RemoteScript>,
}

impl Remote for ScriptedRemote {
    fn run(&self, command: &RemoteCommand<'_>) -> Result<RunOutcome, RemoteError> {
        self.seen.lock().unwrap().push(SeenCommand {
            id: command.run.resource.id.to_string(),
            purpose: command.run.purpose,
            epoch: command.run.epoch,
            contents: command.contents.iter().map(|(key, it)| (key.clone(), it.to_vec())).collect(),
            secrets: command
                .secrets
                .iter()
                .map(|(name, secret)| (name.clone(), secret.expose().to_owned()))
                .collect(),
            wants_announcement: command.run.before_change.is_some(),
            code: command.code.as_ref().map(|code| code.digest.clone()),
        });
        (self.answer)(command)
    }
}

impl ScriptedRemote {
    fn new(
        answer: impl Fn(&RemoteCommand<'_>) -> Result<RunOutcome, RemoteError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(ScriptedRemote { seen: Mutex::default(), answer: Box::new(answer) })
    }

    fn failing(error: RemoteError) -> Arc<Self> {
        ScriptedRemote::new(move |_| Err(error.clone()))
    }

    fn seen_commands(&self) -> Vec<SeenCommand> {
        self.seen.lock().unwrap().clone()
    }
}

/// Resolves every agent to the remote one.
struct AllRemote(Arc<ScriptedRemote>);

impl TargetResolver for AllRemote {
    fn resolve(&self, _agent: &str) -> Result<ExecutionSite, NoTarget> {
        Ok(ExecutionSite::Remote(Arc::clone(&self.0) as Arc<dyn Remote>))
    }

    fn sync(&self) {}
}

fn world(remote: &Arc<ScriptedRemote>) -> World {
    World { targets: Arc::new(AllRemote(Arc::clone(remote))), ..World::new() }
}

/// Runs a command like a remote agent.
fn run_locally(command: &RemoteCommand<'_>) -> RunOutcome {
    let target = LocalTarget::new(Durability::None);
    let registry = Registry::native();
    let handler = registry.handler(command.run.resource.id.entity()).unwrap();
    let context = RunContext {
        cache: &TargetCache::new(),
        contents: &NoContents,
        secrets: &orrery_handlers::LocalSecrets,
        clock: &now,
        log_level: command.log_level,
        server: None,
    };
    command.run.run(&**handler, &target, &context)
}

fn line(message: &str) -> LogLine {
    let values = serde_json::Map::new();
    LogLine { at: Timestamp(1), level: LogLevel::Info, message: message.to_owned(), values }
}

fn done(message: &str) -> RunOutcome {
    Outcome {
        status: OutcomeStatus::Deployed,
        change: Change::default(),
        facts: Vec::new(),
        log: vec![line(message)],
    }
    .into()
}

/// Status and message of the only resource.
fn message(ran: &DeployResult) -> (OutcomeStatus, String) {
    let finished = &ran.finished[0];
    (finished.status, finished.message.clone().unwrap_or_default())
}

#[test]
fn remote_resources_are_deployed_under_the_lease() {
    let remote = ScriptedRemote::new(|command| Ok(run_locally(command)));
    let world = world(&remote);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("motd").display().to_string();
    let ran = world.deploy(&[file(&path, "hello\n"), scripted("a", "{}", &[])]);
    assert_eq!((ran.tally.deployed, ran.tally.created), (2, 1));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello\n");
    let seen = remote.seen_commands();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|one| one.purpose == Purpose::Deploy && one.epoch.is_some()));
    // A plan holds no lease.
    world.plan(&[file(&path, "hello\n")]);
    let last = remote.seen_commands().pop().unwrap();
    assert_eq!((last.purpose, last.epoch), (Purpose::DryRun, None));
}

#[test]
fn remote_errors_determine_status_and_message() {
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
            "never connected",
        ),
        (RemoteError::Busy { agent: agent() }, OutcomeStatus::Skipped, "is busy"),
        (RemoteError::Fenced, OutcomeStatus::Failed, "another server holds the lease"),
        (
            RemoteError::Rejected { reason: "the disk is full".to_owned() },
            OutcomeStatus::Failed,
            "the disk is full",
        ),
        (
            RemoteError::Unknown { reason: "the session broke".to_owned() },
            OutcomeStatus::Failed,
            "the effect is unknown",
        ),
    ] {
        let ran = world(&ScriptedRemote::failing(error)).deploy(&[scripted("a", "{}", &[])]);
        let (reported, text) = message(&ran);
        assert_eq!(reported, status, "{text}");
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn handlers_without_portable_code_do_not_run_on_remote_agents() {
    let remote = ScriptedRemote::new(|command| Ok(run_locally(command)));
    let mut world = world(&remote);
    // Registered like a Python handler, and without code that could travel.
    let scripted_handler = world.registry.handler("std::testing::ScriptedResource").unwrap();
    let handler = Arc::clone(scripted_handler);
    world.registry.register_hosted("corp::Thing".to_owned(), handler);
    let ran = world.deploy(&[resource("corp::Thing", "a", "{}", &[])]);
    let (status, text) = message(&ran);
    assert_eq!(status, OutcomeStatus::Unavailable);
    assert!(text.contains("corp::Thing") && text.contains("only where the server"), "{text}");
    assert!(remote.seen_commands().is_empty());
}

/// A handler whose code can travel.
struct TravellingHandler;

impl Handler for TravellingHandler {
    fn run(&self, _: &Attributes, _: &mut Context<'_>) -> Outcome {
        panic!("it runs elsewhere")
    }

    fn facts(&self, _: &Attributes, _: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        Ok(Vec::new())
    }

    fn portable_code(&self) -> Option<&dyn PortableCode> {
        Some(self)
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}

impl PortableCode for TravellingHandler {
    fn digest(&self) -> Result<String, HandlerError> {
        Ok("c0de".to_owned())
    }

    fn environment(&self) -> &'static str {
        "e"
    }

    fn read(&self, _: &str, _: u64, _: usize) -> Result<Option<CodePart>, HandlerError> {
        Ok(None)
    }

    fn answer(&self, _: &str, _: &Map<String, Value>, _: bool) -> ServerReply {
        ServerReply { status: 200, result: Value::Null }
    }
}

#[test]
fn python_handlers_travel_with_their_code() {
    let remote = ScriptedRemote::new(|command| {
        let outcome = Outcome {
            status: OutcomeStatus::Deployed,
            change: Change::default(),
            facts: Vec::new(),
            log: Vec::new(),
        };
        assert!(command.run.effects.is_some_and(|gate| !gate.is_unknown));
        Ok(outcome.into())
    });
    let mut world = world(&remote);
    // A class in code replaces the native handler of its entity.
    let entity = "std::testing::ScriptedResource";
    world.registry.register_hosted(entity.to_owned(), Arc::new(TravellingHandler));
    world.deploy(&[resource(entity, "a", "{}", &[])]);
    let seen = remote.seen_commands();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].code.as_deref(), Some("c0de"));
}

/// A store of one content.
struct OneContent(ContentDigest, &'static [u8]);

impl Contents for OneContent {
    fn content(&self, digest: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError> {
        Ok((self.0 == *digest).then(|| Arc::from(self.1)))
    }
}

struct OneSecret;

impl Secrets for OneSecret {
    fn resolve(&self, reference: &SecretSource) -> Result<SecretText, SecretError> {
        match reference {
            SecretSource::Stored(name) if name == "db" => Ok(SecretText::new("hunter2")),
            other => Err(SecretError::NotText { what: format!("{other:?}") }),
        }
    }
}

fn file_with(path: &str, attributes: serde_json::Value) -> Resource {
    let attributes = orrery_model::Attributes::parse(&attributes.to_string()).unwrap();
    Resource::new(file(path, "").id, attributes, Vec::new())
}

#[test]
fn commands_carry_contents_and_secrets_and_results_are_redacted() {
    let remote = ScriptedRemote::new(|_| Ok(done("the password is hunter2, as asked")));
    let mut world = world(&remote);
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
    let seen: BTreeMap<String, SeenCommand> =
        remote.seen_commands().into_iter().map(|one| (one.id.clone(), one)).collect();
    let of = |path: &str| &seen[&format!("std::File[here,path={path}]")];
    assert_eq!(of("/known").contents, BTreeMap::from([(known, b"content".to_vec())]));
    assert!(of("/removed").contents.is_empty());
    assert!(of("/unknown").contents.is_empty());
    let sent = &of("/secret").secrets;
    assert_eq!(sent, &BTreeMap::from([("db".to_owned(), "hunter2".to_owned())]));
    let id = secret.id.as_str();
    let actions = world.store.actions().of_resource(world.environment, id, None, 10).unwrap();
    assert_eq!(actions[0].log[0].message, "the password is ***, as asked");
}

#[test]
fn too_large_content_is_an_error() {
    const LARGE: &[u8] = &[0; 41 * 1024 * 1024];
    let remote = ScriptedRemote::new(|_| Ok(done("")));
    let mut world = world(&remote);
    let digest = Algorithm::Sha1.digest(b"large");
    world.contents = Arc::new(OneContent(digest, LARGE));
    let ran = world.deploy(&[file_with("/large", json!({"hash": digest.to_string()}))]);
    let (status, text) = message(&ran);
    assert_eq!(status, OutcomeStatus::Failed);
    assert!(text.contains("bytes"), "{text}");
    assert!(remote.seen_commands().is_empty());
}

#[test]
fn a_remote_change_is_recorded_first_and_counts_even_if_its_result_is_lost() {
    let result_is_lost = Arc::new(Mutex::new(false));
    let answer = {
        let result_is_lost = Arc::clone(&result_is_lost);
        move |command: &RemoteCommand<'_>| {
            if !*result_is_lost.lock().unwrap() || command.run.before_change.is_none() {
                return Ok(done("nothing to do"));
            }
            let announce = command.run.before_change.unwrap();
            // Twice: the agent was restarted.
            (announce.0)().unwrap();
            (announce.0)().unwrap();
            Err(RemoteError::Unknown { reason: "the session broke".to_owned() })
        }
    };
    let remote = ScriptedRemote::new(answer);
    let world = world(&remote);
    let mut changes = scripted("a", "{}", &[]);
    changes.flags.send_event = true;
    let reloads = command("true", r#"{"reload_only":true}"#, &[&changes]);
    let resources = [changes.clone(), reloads];
    world.deploy(&resources);
    assert!(remote.seen_commands().iter().any(|one| one.wants_announcement), "also the first time");
    *result_is_lost.lock().unwrap() = true;
    world.deploy(&resources);
    assert_eq!(world.status("a"), Status::Failed);
    // It may have changed: dependents reload after its next success.
    *result_is_lost.lock().unwrap() = false;
    let reported = Arc::new(Mutex::new(Vec::new()));
    let listening = {
        let reported = Arc::clone(&reported);
        ScriptedRemote::new(move |command| {
            let changed = command.run.changed_dependencies.iter().map(ToString::to_string);
            reported.lock().unwrap().extend(changed);
            Ok(done("well"))
        })
    };
    let world = World { targets: Arc::new(AllRemote(listening)), ..world };
    world.deploy(&resources);
    assert_eq!(*reported.lock().unwrap(), [changes.id.to_string()]);
}

/// Local at first, then remote.
struct MovingAgent {
    remote: Arc<ScriptedRemote>,
    moved: Mutex<bool>,
}

impl TargetResolver for MovingAgent {
    fn resolve(&self, _agent: &str) -> Result<ExecutionSite, NoTarget> {
        if *self.moved.lock().unwrap() {
            return Ok(ExecutionSite::Remote(Arc::clone(&self.remote) as Arc<dyn Remote>));
        }
        Ok(ExecutionSite::Local(Arc::new(LocalTarget::new(Durability::None))))
    }

    fn sync(&self) {}
}

#[test]
fn a_moved_agent_is_resolved_again() {
    let remote = ScriptedRemote::new(|command| Ok(run_locally(command)));
    let moving = Arc::new(MovingAgent { remote: Arc::clone(&remote), moved: Mutex::new(false) });
    let world = World { targets: Arc::clone(&moving) as Arc<dyn TargetResolver>, ..World::new() };
    let mut moved = false;
    world.deploy_until(&[scripted("a", "{}", &[])], |engine, progress| {
        if progress.idle && !moved {
            assert!(remote.seen_commands().is_empty());
            *moving.moved.lock().unwrap() = true;
            engine.invalidate_sites();
            engine.handle_event(Event::Verify(Filter::all()));
            while !engine.wait(Duration::from_millis(10)).idle {}
            moved = true;
        }
    });
    assert!(moved);
    assert_eq!(remote.seen_commands().len(), 1);
}

/// The agent connects while a run ends that did not find it.
#[test]
fn a_request_during_a_run_without_a_machine_is_not_lost() {
    let (connected, begun) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (is_connected, has_begun) = (Arc::clone(&connected), Arc::clone(&begun));
    let remote = ScriptedRemote::new(move |command| {
        if has_begun.swap(true, Ordering::SeqCst) {
            return Ok(run_locally(command));
        }
        while !is_connected.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Err(RemoteError::NotConnected { agent: "a".to_owned(), last_seen: None })
    });
    let world = World { targets: Arc::new(AllRemote(Arc::clone(&remote))), ..World::new() };
    let mut requested = false;
    let DeployResult { tally, .. } =
        world.deploy_until(&[scripted("a", "{}", &[])], |engine, _| {
            if begun.load(Ordering::SeqCst) && !requested {
                requested = true;
                engine.handle_event(Event::DeployDirty(Filter::agent("here")));
                connected.store(true, Ordering::SeqCst);
            }
        });
    assert_eq!((remote.seen_commands().len(), tally.unavailable, tally.deployed), (2, 1, 1));
}

/// One agent is remote, the others are this machine.
struct OneRemote(Arc<ScriptedRemote>, Arc<LocalTarget>);

impl TargetResolver for OneRemote {
    fn resolve(&self, agent: &str) -> Result<ExecutionSite, NoTarget> {
        Ok(match agent {
            "remote" => ExecutionSite::Remote(Arc::clone(&self.0) as Arc<dyn Remote>),
            _ => ExecutionSite::Local(Arc::clone(&self.1) as Arc<dyn orrery_handlers::Target>),
        })
    }

    fn sync(&self) {}
}

#[test]
fn local_runs_are_bounded_and_delay_no_remote_one() {
    let called_at = Arc::new(Mutex::new(None));
    let call = Arc::clone(&called_at);
    let remote = ScriptedRemote::new(move |_| {
        *call.lock().unwrap() = Some(monotonic());
        Ok(done("done"))
    });
    let target = Arc::new(LocalTarget::new(Durability::None));
    let mut world = World::new();
    world.targets = Arc::new(OneRemote(remote, target));
    world.workers = WorkerLimits::starting_at(2).local_at_most(2);
    let on_agent = |agent: &str, command: &str| {
        let id = ResourceId::new("exec::Run", agent, "command", command).unwrap();
        let attributes = json!({"command": command}).to_string();
        Resource::new(id, Attributes::parse(&attributes).unwrap(), Vec::new())
    };
    let mut resources: Vec<Resource> =
        (0..6).map(|number| on_agent(&format!("local{number}"), "sleep 0.5")).collect();
    resources.push(on_agent("remote", "true"));
    let began = monotonic();
    let DeployResult { tally, .. } = world.deploy(&resources);
    let ended = monotonic();
    assert_eq!(tally.deployed, 7);
    // Three times two commands, one after the other.
    assert!(ended - began >= Duration::from_millis(1400), "{:?}", ended - began);
    let called_at = called_at.lock().unwrap().expect("the remote agent was called");
    assert!(
        ended - called_at >= Duration::from_millis(450),
        "the remote run waited for the local ones"
    );
}
