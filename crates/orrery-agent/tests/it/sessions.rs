//! Enrolment and sessions over real connections: trust, connections that break, certificates that end, and orderly ends.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orrery_agent::protocol::{FromAgent, PROTOCOL, Refusal, RefusalCode, ToAgent};
use orrery_agent::running::Limits;
use orrery_agent::token::JoinToken;
use orrery_agent::{Agent, AgentError, AskError, EnrolmentError, Pace, StateDirectory};
use orrery_model::OutcomeStatus;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::commands::{Gate, NAME, file, pause, telling};
use crate::gateway::{AGENT, Gateway, HOUR, PATIENCE, slow_line};

const QUICK: Pace = Pace { first: Duration::from_millis(20), most: Duration::from_millis(200) };

/// An agent that runs.
struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), AgentError>>,
}

impl Running {
    fn start(state: &Path) -> Self {
        let agent = Agent::start(open(state), Limits::default(), QUICK).unwrap();
        let stop = CancellationToken::new();
        let ended = tokio::spawn(agent.run(stop.clone()));
        Running { stop, ended }
    }

    async fn end(self) -> Result<(), AgentError> {
        tokio::time::timeout(PATIENCE, self.ended).await.unwrap().unwrap()
    }
}

async fn until(holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

fn open(path: &Path) -> StateDirectory {
    StateDirectory::open(path).unwrap()
}

#[tokio::test]
async fn a_token_becomes_a_certificate_once() {
    let gateway = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    let state = open(directory.path());
    let identity = gateway.join(&state).await;
    assert_eq!((identity.agent, identity.names.len()), (AGENT, 2));
    assert_eq!(state.identity().unwrap(), Some(identity));
    let again = orrery_agent::join(&state, &gateway.address(), gateway.token(), None).await;
    assert!(matches!(again, Err(EnrolmentError::Joined { agent: AGENT, .. })), "{again:?}");
    // The answer was lost: the same key gets the same agent.
    std::fs::remove_file(directory.path().join("identity.json")).unwrap();
    assert_eq!(gateway.join(&state).await.agent, AGENT);
    // Another machine has another key.
    let elsewhere = tempfile::tempdir().unwrap();
    let state = open(elsewhere.path());
    let used = orrery_agent::join(&state, &gateway.address(), gateway.token(), None).await;
    let used = used.unwrap_err();
    assert!(
        matches!(&used, EnrolmentError::Ask(AskError::Refused(refusal))
        if refusal.code == RefusalCode::Token && refusal.reason.contains("used")),
        "{used:?}"
    );
    assert_eq!(state.identity().unwrap(), None);
}

#[tokio::test]
async fn who_is_to_be_replaced_stays_until_there_is_another() {
    let (first, second) = (Gateway::start().await, Gateway::start().await);
    let directory = tempfile::tempdir().unwrap();
    let state = open(directory.path());
    let identity = first.join(&state).await;
    let key = state.key().unwrap().serialize_pem();
    std::fs::write(state.journal(), "").unwrap();
    let instead = |gateway: &Gateway, token: JoinToken| {
        let (address, state) = (gateway.address(), &state);
        async move { orrery_agent::join_instead(state, &address, &token, None).await }
    };
    // The token is for another gateway.
    let refused = instead(&second, first.token().clone()).await;
    assert!(matches!(refused, Err(EnrolmentError::Ask(_))), "{refused:?}");
    assert_eq!(state.identity().unwrap().as_ref(), Some(&identity));
    assert_eq!(state.key().unwrap().serialize_pem(), key);
    assert!(state.journal().exists());

    let next = instead(&second, second.token().clone()).await.unwrap();
    assert_eq!(next.gateway, second.address());
    assert_eq!(state.identity().unwrap(), Some(next));
    assert_ne!(state.key().unwrap().serialize_pem(), key);
    assert!(!state.journal().exists());
    drop(state);
    let agent = Running::start(directory.path());
    let mut second = second;
    second.talk().await;
    agent.stop.cancel();
    agent.end().await.unwrap();
}

#[tokio::test]
async fn only_the_gateway_of_the_token_learns_of_it() {
    let gateway = Gateway::start().await;
    let other = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    let state = open(directory.path());
    let wrong = orrery_agent::join(&state, &other.address(), gateway.token(), None).await;
    let wrong = wrong.unwrap_err();
    assert!(
        matches!(&wrong, EnrolmentError::Ask(AskError::Insecure { source, .. })
        if source.to_string().contains("another authority")),
        "{wrong:?}"
    );
    // The authority is right, and the name is not in the certificate.
    let by_name = format!("localhost:{}", gateway.address.port()).parse().unwrap();
    let wrong = orrery_agent::join(&state, &by_name, gateway.token(), None).await;
    assert!(matches!(&wrong, Err(EnrolmentError::Ask(AskError::Insecure { .. }))), "{wrong:?}");
    let token = gateway.token().text().expose();
    let guessed = JoinToken::parse(&format!("orrj_{}{}", "A".repeat(43), &token[48..]));
    let wrong = orrery_agent::join(&state, &gateway.address(), &guessed.unwrap(), None).await;
    assert!(matches!(&wrong, Err(EnrolmentError::Ask(AskError::Refused(_)))), "{wrong:?}");
}

#[tokio::test]
async fn what_does_not_speak_tls_is_called_no_gateway() {
    // As the port of the server's API would.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        // What is left unread must not reset the connection before the answer is read.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    });
    let directory = tempfile::tempdir().unwrap();
    let token = JoinToken::new(&[9; 32], b"an authority");
    let refused = orrery_agent::join(&open(directory.path()), &address, &token, None).await;
    assert!(matches!(refused, Err(EnrolmentError::Ask(AskError::NoGateway { .. }))), "{refused:?}");
}

#[tokio::test]
async fn who_has_not_joined_cannot_run() {
    let directory = tempfile::tempdir().unwrap();
    let refused = Agent::start(open(directory.path()), Limits::default(), QUICK).unwrap_err();
    assert!(refused.to_string().contains("orrery agent join"), "{refused}");
}

#[tokio::test]
async fn commands_are_carried_out_and_answered_and_an_orderly_end_waits_for_them() {
    let mut gateway = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    gateway.join(&open(&state)).await;
    let agent = Running::start(&state);
    let mut talk = gateway.talk().await;
    assert_eq!((talk.hello.protocol, talk.hello.running.len()), (PROTOCOL, 0));
    assert!(!talk.hello.machine.host_name.is_empty());
    talk.tell(ToAgent::Ping);
    assert!(matches!(talk.hear().await, Some(FromAgent::Pong)));
    let motd = directory.path().join("motd");
    // Megabytes in both directions.
    let text = "a line of a long file\n".repeat(200_000);
    let deploy = file(&motd, &json!({"content": text, "mode": 644}));
    talk.tell(ToAgent::Command(Box::new(deploy.clone())));
    let answer = talk.result().await;
    assert_eq!((answer.id, answer.outcome.status), (deploy.id, OutcomeStatus::Deployed));
    assert_eq!(std::fs::read_to_string(&motd).unwrap(), text);
    let gate = Gate::new(directory.path().join("gate"));
    let slow = gate.command("slow");
    talk.tell(ToAgent::Command(Box::new(slow.clone())));
    assert!(matches!(talk.hear().await, Some(FromAgent::Accepted { .. })));
    agent.stop.cancel();
    // It is on its way out, and takes nothing new from then on.
    loop {
        talk.tell(ToAgent::Command(Box::new(pause("b", 0))));
        match talk.hear().await {
            Some(FromAgent::Busy { .. }) => break,
            Some(FromAgent::Accepted { .. }) => assert_ne!(talk.result().await.id, slow.id),
            other => panic!("{other:?}"),
        }
    }
    gate.open();
    assert_eq!(talk.result().await.id, slow.id);
    assert!(talk.hear().await.is_none());
    agent.end().await.unwrap();
}

#[tokio::test]
async fn a_connection_that_breaks_costs_nothing_that_was_done() {
    let mut gateway = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    gateway.join(&open(&state)).await;
    let agent = Running::start(&state);
    let gate = Gate::new(directory.path().join("gate"));
    let command = gate.command("once");
    let once = ["once begins", "once ends"];
    let message = || ToAgent::Command(Box::new(command.clone()));
    let mut talk = gateway.talk().await;
    let boot = talk.hello.boot;
    talk.tell(message());
    assert!(matches!(talk.hear().await, Some(FromAgent::Accepted { .. })));
    drop(talk);
    // Between the command and its effect.
    let mut talk = gateway.talk().await;
    assert_eq!((talk.hello.boot, talk.hello.running.as_slice()), (boot, &[command.id][..]));
    talk.tell(message());
    gate.open();
    assert_eq!(talk.result().await.id, command.id);
    drop(talk);
    // Between the effect and the answer, as the gateway sees it.
    let mut talk = gateway.talk().await;
    talk.tell(message());
    assert_eq!(talk.result().await.outcome.status, OutcomeStatus::Deployed);
    assert_eq!(gate.noted(), once);
    agent.stop.cancel();
    agent.end().await.unwrap();
    // And after the agent's process began anew.
    let agent = Running::start(&state);
    let mut talk = gateway.talk().await;
    assert_ne!(talk.hello.boot, boot);
    talk.tell(message());
    assert_eq!(talk.result().await.id, command.id);
    assert_eq!(gate.noted(), once);
    agent.stop.cancel();
    agent.end().await.unwrap();
}

#[tokio::test]
async fn a_gateway_that_is_silent_or_talks_nonsense_is_left() {
    let mut gateway = Gateway::start().await;
    gateway.shared().heartbeat_seconds.store(1, Ordering::Relaxed);
    let directory = tempfile::tempdir().unwrap();
    gateway.join(&open(directory.path())).await;
    // Before it began, so before anything was heard.
    let begun = std::time::Instant::now();
    let agent = Running::start(directory.path());
    let mut talk = gateway.talk().await;
    assert!(talk.hear().await.is_none());
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    let mut talk = gateway.talk().await;
    talk.tell(ToAgent::Refuse(Refusal {
        code: RefusalCode::Unavailable,
        reason: "the gateway ends".to_owned(),
    }));
    assert!(talk.hear().await.is_none());
    gateway.talk().await;
    agent.stop.cancel();
    agent.end().await.unwrap();
}

#[tokio::test]
async fn a_message_may_take_longer_than_silence_as_long_as_it_moves() {
    let mut gateway = Gateway::start().await;
    gateway.shared().heartbeat_seconds.store(1, Ordering::Relaxed);
    let line = slow_line(gateway.address, 64 * 1024, Duration::from_millis(60)).await;
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    orrery_agent::join(&open(&state), &line, gateway.token(), None).await.unwrap();
    let agent = Running::start(&state);
    let mut talk = gateway.talk().await;
    let pings = talk.tell.clone();
    let pinging = tokio::spawn(async move {
        while pings.send(ToAgent::Ping).is_ok() {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    // More than three seconds there, and as long back.
    let facts = telling(7);
    talk.tell(ToAgent::Command(Box::new(facts.clone())));
    let told = talk.result().await;
    assert_eq!((told.id, told.outcome.facts.len()), (facts.id, 7));
    pinging.abort();
    agent.stop.cancel();
    agent.end().await.unwrap();
}

#[tokio::test]
async fn an_agent_hears_also_while_nobody_takes_what_it_says() {
    let mut gateway = Gateway::start().await;
    gateway.shared().is_deaf.store(true, Ordering::Relaxed);
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    gateway.join(&open(&state)).await;
    let agent = Running::start(&state);
    let talk = gateway.talk().await;
    // More than fits into what systems keep for both sides of a connection.
    talk.tell(ToAgent::Command(Box::new(telling(14))));
    // What it came to is kept, and then told.
    let is_kept = || {
        let kept = std::fs::read_dir(&state).unwrap().map(|one| one.unwrap().metadata().unwrap());
        kept.map(|file| file.len()).max() > Some(7 * 1024 * 1024)
    };
    until(is_kept).await;
    let gate = Gate::new(directory.path().join("gate"));
    talk.tell(ToAgent::Command(Box::new(gate.command("a"))));
    until(|| gate.noted() == ["a begins"]).await;
    gate.open();
    agent.ended.abort();
}

#[tokio::test]
async fn who_is_revoked_ends_and_who_is_superseded_waits() {
    let mut gateway = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    gateway.join(&open(directory.path())).await;
    let agent = Running::start(directory.path());
    let refusal = |code| Refusal { code, reason: "somebody decided so".to_owned() };
    let talk = gateway.talk().await;
    let begun = std::time::Instant::now();
    talk.tell(ToAgent::Refuse(refusal(RefusalCode::Superseded)));
    let talk = gateway.talk().await;
    assert!(begun.elapsed() >= QUICK.most, "{:?}", begun.elapsed());
    *gateway.shared().refusal.lock().unwrap() = Some(refusal(RefusalCode::Revoked));
    drop(talk);
    let ended = agent.end().await.unwrap_err();
    assert!(matches!(&ended, AgentError::Revoked(refusal) if refusal.reason.contains("decided")));
}

#[tokio::test]
async fn the_next_certificate_comes_in_time_and_is_used() {
    let mut gateway = Gateway::start().await;
    gateway.shared().valid_seconds.store(3, Ordering::Relaxed);
    let directory = tempfile::tempdir().unwrap();
    let identity = gateway.join(&open(directory.path())).await;
    let agent = Running::start(directory.path());
    let talk = gateway.talk().await;
    let first = talk.certificate.clone();
    let until = std::time::Instant::now() + PATIENCE;
    let renewed = || {
        let text = std::fs::read_to_string(directory.path().join("identity.json")).unwrap();
        let now: orrery_agent::Identity = serde_json::from_str(&text).unwrap();
        now.valid_seconds == HOUR && now.certificate != identity.certificate
    };
    while !renewed() {
        assert!(std::time::Instant::now() < until, "it is not renewed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(gateway.shared().renewals.load(Ordering::Relaxed), 1);
    drop(talk);
    // The identity in memory follows the file within a moment.
    let mut talk = gateway.talk().await;
    while talk.certificate == first {
        assert!(std::time::Instant::now() < until, "the old one is used");
        drop(talk);
        talk = gateway.talk().await;
    }
    agent.stop.cancel();
    agent.end().await.unwrap();
}

#[tokio::test]
async fn an_agent_serves_the_names_that_it_asked_for() {
    let mut gateway = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    {
        let state = open(directory.path());
        let names = Some(vec![NAME.to_owned()]);
        let joined = orrery_agent::join(&state, &gateway.address(), gateway.token(), names).await;
        assert_eq!(joined.unwrap().names, [NAME]);
    }
    let agent = Running::start(directory.path());
    let mut talk = gateway.talk().await;
    let mut foreign = pause("a", 0);
    foreign.resource.id = "std::testing::ScriptedResource[db1,name=a]".parse().unwrap();
    talk.tell(ToAgent::Command(Box::new(foreign)));
    assert!(matches!(talk.hear().await, Some(FromAgent::Rejected { .. })));
    agent.stop.cancel();
    agent.end().await.unwrap();
}
