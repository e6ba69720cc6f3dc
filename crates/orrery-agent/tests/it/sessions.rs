//! Enrolment and sessions over real connections: trust, lost connections, expiring certificates,
//! and graceful stops.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orrery_agent::protocol::{FromAgent, PROTOCOL, Refusal, RefusalCode, ToAgent};
use orrery_agent::runner::Limits;
use orrery_agent::token::JoinToken;
use orrery_agent::{
    AgentCommand, AgentError, AgentProcess, EnrolmentError, GatewayAddress, GatewayRequestError,
    ReconnectBackoff, StateDirectory,
};
use orrery_model::OutcomeStatus;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::commands::{Gate, NAME, file, pause, with_facts};
use crate::gateway::{AGENT, Gateway, HOUR, TIMEOUT, slow_link};

const QUICK: ReconnectBackoff =
    ReconnectBackoff { initial: Duration::from_millis(20), max: Duration::from_millis(200) };

/// A running agent.
struct RunningAgent {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), AgentError>>,
}

impl RunningAgent {
    fn start(state: &Path) -> Self {
        let agent = AgentProcess::start(open(state), Limits::default(), QUICK, None, None).unwrap();
        let stop = CancellationToken::new();
        let ended = tokio::spawn(agent.run(stop.clone()));
        RunningAgent { stop, ended }
    }

    async fn end(self) -> Result<(), AgentError> {
        tokio::time::timeout(TIMEOUT, self.ended).await.unwrap().unwrap()
    }
}

async fn until(holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap();
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
    // The response was lost: the same key gets the same agent.
    std::fs::remove_file(directory.path().join("identity.json")).unwrap();
    assert_eq!(gateway.join(&state).await.agent, AGENT);
    // Another machine has another key.
    let elsewhere = tempfile::tempdir().unwrap();
    let state = open(elsewhere.path());
    let used = orrery_agent::join(&state, &gateway.address(), gateway.token(), None).await;
    let used = used.unwrap_err();
    assert!(
        matches!(&used, EnrolmentError::Gateway(GatewayRequestError::Refused(refusal))
        if refusal.code == RefusalCode::Token && refusal.reason.contains("used")),
        "{used:?}"
    );
    assert_eq!(state.identity().unwrap(), None);
}

#[tokio::test]
async fn a_replaced_identity_stays_until_the_next_one_is_complete() {
    let (first, second) = (Gateway::start().await, Gateway::start().await);
    let directory = tempfile::tempdir().unwrap();
    let state = open(directory.path());
    let identity = first.join(&state).await;
    let key = state.key().unwrap().serialize_pem();
    std::fs::write(state.journal(), "").unwrap();
    let instead = |gateway: &Gateway, token: JoinToken| {
        let (address, state) = (gateway.address(), &state);
        async move { orrery_agent::join_and_replace(state, &address, &token, None).await }
    };
    // The token is for another gateway.
    let refused = instead(&second, first.token().clone()).await;
    assert!(matches!(refused, Err(EnrolmentError::Gateway(_))), "{refused:?}");
    assert_eq!(state.identity().unwrap().as_ref(), Some(&identity));
    assert_eq!(state.key().unwrap().serialize_pem(), key);
    assert!(state.journal().exists());

    let next = instead(&second, second.token().clone()).await.unwrap();
    assert_eq!(next.gateway, second.address());
    assert_eq!(state.identity().unwrap(), Some(next));
    assert_ne!(state.key().unwrap().serialize_pem(), key);
    assert!(!state.journal().exists());
    drop(state);
    let agent = RunningAgent::start(directory.path());
    let mut second = second;
    second.next_session().await;
    agent.stop.cancel();
    agent.end().await.unwrap();
}

#[tokio::test]
async fn only_the_gateway_of_the_token_receives_it() {
    let gateway = Gateway::start().await;
    let other = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    let state = open(directory.path());
    let wrong = orrery_agent::join(&state, &other.address(), gateway.token(), None).await;
    let wrong = wrong.unwrap_err();
    assert!(
        matches!(&wrong, EnrolmentError::Gateway(GatewayRequestError::Insecure { source, .. })
        if source.to_string().contains("another CA")),
        "{wrong:?}"
    );
    // The CA is right, but the certificate lacks the name.
    let by_name = format!("localhost:{}", gateway.address.port()).parse().unwrap();
    let wrong = orrery_agent::join(&state, &by_name, gateway.token(), None).await;
    assert!(
        matches!(&wrong, Err(EnrolmentError::Gateway(GatewayRequestError::Insecure { .. }))),
        "{wrong:?}"
    );
    let token = gateway.token().text().expose();
    let guessed = JoinToken::parse(&format!("orrj_{}{}", "A".repeat(43), &token[48..]));
    let wrong = orrery_agent::join(&state, &gateway.address(), &guessed.unwrap(), None).await;
    assert!(
        matches!(&wrong, Err(EnrolmentError::Gateway(GatewayRequestError::Refused(_)))),
        "{wrong:?}"
    );
}

#[tokio::test]
async fn a_server_without_tls_is_not_a_gateway() {
    // Like the port of the server's API.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        // Unread bytes must not reset the connection before the response is read.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    });
    let directory = tempfile::tempdir().unwrap();
    let token = JoinToken::new(&[9; 32], b"an authority");
    let refused = orrery_agent::join(&open(directory.path()), &address, &token, None).await;
    assert!(
        matches!(refused, Err(EnrolmentError::Gateway(GatewayRequestError::NoGateway { .. }))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn an_agent_must_join_before_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let refused = AgentProcess::start(open(directory.path()), Limits::default(), QUICK, None, None)
        .unwrap_err();
    let command = AgentCommand::new("orrery-agent", Some(directory.path()));
    let help = refused.help(&command).unwrap();
    let line = format!("orrery-agent join GATEWAY --state {}", directory.path().display());
    assert!(help.contains(&line), "{help}");
}

#[tokio::test]
async fn commands_are_executed_and_a_graceful_stop_waits_for_them() {
    let mut gateway = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    gateway.join(&open(&state)).await;
    let agent = RunningAgent::start(&state);
    let mut session = gateway.next_session().await;
    assert_eq!((session.hello.protocol, session.hello.running.len()), (PROTOCOL, 0));
    assert!(!session.hello.machine.host_name.is_empty());
    session.send(ToAgent::Ping);
    assert!(matches!(session.receive().await, Some(FromAgent::Pong)));
    let motd = directory.path().join("motd");
    // Megabytes in both directions.
    let text = "a line of a long file\n".repeat(200_000);
    let deploy = file(&motd, &json!({"content": text, "mode": 644}));
    session.send(ToAgent::Command(Box::new(deploy.clone())));
    let answer = session.result().await;
    assert_eq!((answer.id, answer.outcome.status), (deploy.id, OutcomeStatus::Deployed));
    assert_eq!(std::fs::read_to_string(&motd).unwrap(), text);
    let gate = Gate::new(directory.path().join("gate"));
    let slow = gate.command("slow");
    session.send(ToAgent::Command(Box::new(slow.clone())));
    assert!(matches!(session.receive().await, Some(FromAgent::Accepted { .. })));
    agent.stop.cancel();
    // It is stopping, and admits nothing new.
    loop {
        session.send(ToAgent::Command(Box::new(pause("b", 0))));
        match session.receive().await {
            Some(FromAgent::Busy { .. }) => break,
            Some(FromAgent::Accepted { .. }) => assert_ne!(session.result().await.id, slow.id),
            other => panic!("{other:?}"),
        }
    }
    gate.open();
    assert_eq!(session.result().await.id, slow.id);
    assert!(session.receive().await.is_none());
    agent.end().await.unwrap();
}

#[tokio::test]
async fn a_lost_connection_loses_no_result() {
    let mut gateway = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    gateway.join(&open(&state)).await;
    let agent = RunningAgent::start(&state);
    let gate = Gate::new(directory.path().join("gate"));
    let command = gate.command("once");
    let once = ["once begins", "once ends"];
    let message = || ToAgent::Command(Box::new(command.clone()));
    let mut session = gateway.next_session().await;
    let boot = session.hello.boot;
    session.send(message());
    assert!(matches!(session.receive().await, Some(FromAgent::Accepted { .. })));
    drop(session);
    // Between the command and its effect.
    let mut session = gateway.next_session().await;
    assert_eq!((session.hello.boot, session.hello.running.as_slice()), (boot, &[command.id][..]));
    session.send(message());
    gate.open();
    assert_eq!(session.result().await.id, command.id);
    drop(session);
    // Between the effect and the result, as the gateway sees it.
    let mut session = gateway.next_session().await;
    session.send(message());
    assert_eq!(session.result().await.outcome.status, OutcomeStatus::Deployed);
    assert_eq!(gate.records(), once);
    agent.stop.cancel();
    agent.end().await.unwrap();
    // And after a restart of the agent.
    let agent = RunningAgent::start(&state);
    let mut session = gateway.next_session().await;
    assert_ne!(session.hello.boot, boot);
    session.send(message());
    assert_eq!(session.result().await.id, command.id);
    assert_eq!(gate.records(), once);
    agent.stop.cancel();
    agent.end().await.unwrap();
}

#[tokio::test]
async fn a_silent_or_invalid_gateway_is_disconnected() {
    let mut gateway = Gateway::start().await;
    gateway.shared().heartbeat_seconds.store(1, Ordering::Relaxed);
    let directory = tempfile::tempdir().unwrap();
    gateway.join(&open(directory.path())).await;
    // Before the welcome, so before any message.
    let begun = std::time::Instant::now();
    let agent = RunningAgent::start(directory.path());
    let mut session = gateway.next_session().await;
    assert!(session.receive().await.is_none());
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    let mut session = gateway.next_session().await;
    session.send(ToAgent::Refuse(Refusal {
        code: RefusalCode::Unavailable,
        reason: "the gateway ends".to_owned(),
    }));
    assert!(session.receive().await.is_none());
    gateway.next_session().await;
    agent.stop.cancel();
    agent.end().await.unwrap();
}

/// A further address of a gateway, until it is dropped.
struct Link {
    address: GatewayAddress,
    forwarding: JoinHandle<()>,
}

impl Link {
    async fn to(gateway: std::net::SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let forwarding = tokio::spawn(async move {
            let mut links = tokio::task::JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                links.spawn(async move {
                    let mut far = tokio::net::TcpStream::connect(gateway).await?;
                    tokio::io::copy_bidirectional(&mut near, &mut far).await
                });
            }
        });
        Link { address, forwarding }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.forwarding.abort();
    }
}

#[tokio::test]
async fn an_agent_moves_to_another_gateway_and_remembers_it() {
    let mut gateway = Gateway::start().await;
    let (first, second) = (Link::to(gateway.address).await, Link::to(gateway.address).await);
    let addresses = [&first, &second].map(|link| link.address.to_string());
    *gateway.shared().gateways.lock().unwrap() = addresses.to_vec();
    let directory = tempfile::tempdir().unwrap();
    let state = open(directory.path());
    orrery_agent::join(&state, &first.address, gateway.token(), None).await.unwrap();
    drop(state);
    let agent = RunningAgent::start(directory.path());
    let mut session = gateway.next_session().await;
    drop(first);
    assert!(session.receive().await.is_none());
    let lost = std::time::Instant::now();
    let _session = gateway.next_session().await;
    assert!(lost.elapsed() < Duration::from_secs(5), "{:?}", lost.elapsed());
    agent.stop.cancel();
    agent.end().await.unwrap();
    // A restarted agent knows the second gateway, though it joined at the first one.
    let state = open(directory.path());
    let known = state.identity().unwrap().unwrap().addresses();
    assert_eq!(known.iter().map(ToString::to_string).collect::<Vec<_>>(), addresses);
    drop(state);
    let agent = RunningAgent::start(directory.path());
    gateway.next_session().await;
    agent.stop.cancel();
    agent.end().await.unwrap();
}

#[tokio::test]
async fn a_slow_message_does_not_time_out() {
    let mut gateway = Gateway::start().await;
    gateway.shared().heartbeat_seconds.store(1, Ordering::Relaxed);
    let line = slow_link(gateway.address, 64 * 1024, Duration::from_millis(60)).await;
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    orrery_agent::join(&open(&state), &line, gateway.token(), None).await.unwrap();
    let agent = RunningAgent::start(&state);
    let mut session = gateway.next_session().await;
    let pings = session.tell.clone();
    let pinging = tokio::spawn(async move {
        while pings.send(ToAgent::Ping).is_ok() {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    // More than three seconds in each direction.
    let facts = with_facts(7);
    session.send(ToAgent::Command(Box::new(facts.clone())));
    let told = session.result().await;
    assert_eq!((told.id, told.outcome.facts.len()), (facts.id, 7));
    pinging.abort();
    agent.stop.cancel();
    agent.end().await.unwrap();
}

#[tokio::test]
async fn an_agent_receives_while_its_sends_are_blocked() {
    let mut gateway = Gateway::start().await;
    gateway.shared().is_deaf.store(true, Ordering::Relaxed);
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    gateway.join(&open(&state)).await;
    let agent = RunningAgent::start(&state);
    let session = gateway.next_session().await;
    // More than the socket buffers of both sides hold.
    session.send(ToAgent::Command(Box::new(with_facts(14))));
    // The result is stored, and then sent.
    let is_kept = || {
        let kept = std::fs::read_dir(&state).unwrap().map(|one| one.unwrap().metadata().unwrap());
        kept.map(|file| file.len()).max() > Some(7 * 1024 * 1024)
    };
    until(is_kept).await;
    let gate = Gate::new(directory.path().join("gate"));
    session.send(ToAgent::Command(Box::new(gate.command("a"))));
    until(|| gate.records() == ["a begins"]).await;
    gate.open();
    agent.ended.abort();
}

#[tokio::test]
async fn a_revoked_agent_ends_and_a_superseded_one_waits() {
    let mut gateway = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    gateway.join(&open(directory.path())).await;
    let agent = RunningAgent::start(directory.path());
    let refusal = |code| Refusal { code, reason: "somebody decided so".to_owned() };
    let session = gateway.next_session().await;
    let begun = std::time::Instant::now();
    session.send(ToAgent::Refuse(refusal(RefusalCode::Superseded)));
    let session = gateway.next_session().await;
    assert!(begun.elapsed() >= QUICK.max, "{:?}", begun.elapsed());
    *gateway.shared().refusal.lock().unwrap() = Some(refusal(RefusalCode::Revoked));
    drop(session);
    let ended = agent.end().await.unwrap_err();
    assert!(matches!(&ended, AgentError::Revoked(refusal) if refusal.reason.contains("decided")));
}

#[tokio::test]
async fn certificates_are_renewed_in_time() {
    let mut gateway = Gateway::start().await;
    gateway.shared().valid_seconds.store(3, Ordering::Relaxed);
    let directory = tempfile::tempdir().unwrap();
    let identity = gateway.join(&open(directory.path())).await;
    let agent = RunningAgent::start(directory.path());
    let session = gateway.next_session().await;
    let first = session.certificate.clone();
    let until = std::time::Instant::now() + TIMEOUT;
    let renewed = || {
        let text = std::fs::read_to_string(directory.path().join("identity.json")).unwrap();
        let now: orrery_agent::AgentIdentity = serde_json::from_str(&text).unwrap();
        now.valid_seconds == HOUR && now.certificate != identity.certificate
    };
    while !renewed() {
        assert!(std::time::Instant::now() < until, "it is not renewed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(gateway.shared().renewals.load(Ordering::Relaxed), 1);
    drop(session);
    // The identity in memory follows the file shortly.
    let mut session = gateway.next_session().await;
    while session.certificate == first {
        assert!(std::time::Instant::now() < until, "the old one is used");
        drop(session);
        session = gateway.next_session().await;
    }
    agent.stop.cancel();
    agent.end().await.unwrap();
}

#[tokio::test]
async fn an_agent_serves_the_requested_names() {
    let mut gateway = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    {
        let state = open(directory.path());
        let names = Some(vec![NAME.to_owned()]);
        let joined = orrery_agent::join(&state, &gateway.address(), gateway.token(), names).await;
        assert_eq!(joined.unwrap().names, [NAME]);
    }
    let agent = RunningAgent::start(directory.path());
    let mut session = gateway.next_session().await;
    let mut foreign = pause("a", 0);
    foreign.resource.id = "std::testing::ScriptedResource[db1,name=a]".parse().unwrap();
    session.send(ToAgent::Command(Box::new(foreign)));
    assert!(matches!(session.receive().await, Some(FromAgent::Rejected { .. })));
    agent.stop.cancel();
    agent.end().await.unwrap();
}
