//! A small gateway: a CA, a listener with mutual TLS, and sessions under the control of a test. And
//! a slow link to it. All messages of its sessions are validated against the schema of the protocol
//! page.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use orrery_agent::protocol::{
    FromAgent, Hello, JOIN_PATH, JoinRequest, JoinResponse, RENEW_PATH, Refusal, RefusalCode,
    RenewRequest, RenewResponse, SESSION_PATH, ToAgent, Welcome,
};
use orrery_agent::token::JoinToken;
use orrery_agent::{AgentIdentity, GatewayAddress};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer,
    KeyPair, PublicKeyData as _,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

use crate::commands::{ENVIRONMENT, NAME};
use crate::protocol_page::{check, check_from_agent, check_to_agent};

/// Timeout of all waits.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const AGENT: Uuid = Uuid::from_u128(5);
pub(crate) const HOUR: u64 = 3600;

/// Gateway side of a session.
pub(crate) struct TestSession {
    pub(crate) hello: Hello,
    /// Certificate of the agent.
    pub(crate) certificate: Vec<u8>,
    /// Dropping it closes the connection.
    pub(crate) tell: UnboundedSender<ToAgent>,
    said: UnboundedReceiver<FromAgent>,
}

impl TestSession {
    pub(crate) fn send(&self, message: ToAgent) {
        self.tell.send(message).unwrap();
    }

    /// Next message of the agent; `None` after its end.
    pub(crate) async fn receive(&mut self) -> Option<FromAgent> {
        tokio::time::timeout(TIMEOUT, self.said.recv()).await.unwrap()
    }

    pub(crate) async fn result(&mut self) -> orrery_agent::protocol::CommandResult {
        loop {
            match self.receive().await {
                Some(FromAgent::Result(answer)) => return *answer,
                Some(FromAgent::Accepted { .. } | FromAgent::Pong) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    talks: UnboundedReceiver<TestSession>,
}

pub(crate) struct Shared {
    issuer: Issuer<'static, KeyPair>,
    ca: String,
    token: JoinToken,
    /// Key that joined with the token.
    joined: Mutex<Option<Vec<u8>>>,
    /// Validity of certificates from tokens; renewed ones last an hour.
    pub(crate) valid_seconds: AtomicU64,
    pub(crate) heartbeat_seconds: AtomicU32,
    pub(crate) renewals: AtomicU32,
    /// Reads nothing in sessions.
    pub(crate) is_deaf: AtomicBool,
    pub(crate) wants_drift: AtomicBool,
    /// Addresses that it reports to agents.
    pub(crate) gateways: Mutex<Vec<String>>,
    /// Refusal for every session, if set.
    pub(crate) refusal: Mutex<Option<Refusal>>,
    sessions: AtomicU64,
    talks: UnboundedSender<TestSession>,
}

fn refuse(status: StatusCode, code: RefusalCode, reason: &str) -> Response {
    (status, Json(Refusal { code, reason: reason.to_owned() })).into_response()
}

impl Shared {
    fn issue(&self, csr: &str) -> (String, Vec<u8>) {
        let mut request = CertificateSigningRequestParams::from_pem(csr).unwrap();
        let key = request.public_key.der_bytes().to_vec();
        request.params = CertificateParams::default();
        request.params.distinguished_name.push(DnType::CommonName, AGENT.to_string());
        (request.signed_by(&self.issuer).unwrap().pem(), key)
    }
}

async fn join(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<serde_json::Value>,
) -> Response {
    check("join_request", &request);
    let request: JoinRequest = serde_json::from_value(request).unwrap();
    if request.token.0 != *shared.token.text() {
        return refuse(StatusCode::UNAUTHORIZED, RefusalCode::Token, "the token is not known");
    }
    let (certificate, key) = shared.issue(&request.csr);
    let mut joined = shared.joined.lock().unwrap();
    if joined.get_or_insert_with(|| key.clone()) != &key {
        return refuse(StatusCode::CONFLICT, RefusalCode::Token, "the token is used");
    }
    let valid_seconds = shared.valid_seconds.load(Ordering::Relaxed);
    let names = request.names.unwrap_or_else(|| vec![NAME.to_owned(), "db1".to_owned()]);
    let ca = shared.ca.clone();
    let answer = JoinResponse {
        agent: AGENT,
        environment: ENVIRONMENT,
        names,
        certificate,
        ca,
        valid_seconds,
    };
    Json(answer).into_response()
}

type Peer = Option<CertificateDer<'static>>;

async fn renew(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Json(request): Json<RenewRequest>,
) -> Response {
    if peer.is_none() {
        return refuse(StatusCode::UNAUTHORIZED, RefusalCode::Revoked, "who are you?");
    }
    shared.renewals.fetch_add(1, Ordering::Relaxed);
    let (certificate, _) = shared.issue(&request.csr);
    let ca = shared.ca.clone();
    Json(RenewResponse { certificate, ca, valid_seconds: HOUR }).into_response()
}

async fn session(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let Some(certificate) = peer else {
        return refuse(StatusCode::FORBIDDEN, RefusalCode::Revoked, "who are you?");
    };
    let size = orrery_agent::protocol::MESSAGE_MAX;
    upgrade.max_message_size(size).max_frame_size(size).on_upgrade(move |socket| async move {
        run_session(shared, certificate.to_vec(), socket).await;
    })
}

async fn send(socket: &mut WebSocket, message: &ToAgent) -> Option<()> {
    let value = serde_json::to_value(message).unwrap();
    check_to_agent(&value);
    socket.send(Message::Text(value.to_string().into())).await.ok()
}

/// Reads a message of the agent.
fn read(text: &str) -> FromAgent {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    check_from_agent(&value);
    serde_json::from_value(value).unwrap()
}

async fn run_session(
    shared: Arc<Shared>,
    certificate: Vec<u8>,
    mut socket: WebSocket,
) -> Option<()> {
    let Message::Text(text) = socket.recv().await?.ok()? else { return None };
    let FromAgent::Hello(hello) = read(&text) else { return None };
    let refusal = shared.refusal.lock().unwrap().clone();
    if let Some(refusal) = refusal {
        return send(&mut socket, &ToAgent::Refuse(refusal)).await;
    }
    let welcome = Welcome {
        agent: AGENT,
        session: shared.sessions.fetch_add(1, Ordering::Relaxed) + 1,
        heartbeat_seconds: shared.heartbeat_seconds.load(Ordering::Relaxed),
        gateways: shared.gateways.lock().unwrap().clone(),
        drift: shared.wants_drift.load(Ordering::Relaxed),
    };
    send(&mut socket, &ToAgent::Welcome(welcome)).await?;
    let (tell, mut told) = unbounded_channel();
    let (hears, said) = unbounded_channel();
    shared.talks.send(TestSession { hello, certificate, tell, said }).ok()?;
    loop {
        tokio::select! {
            message = told.recv() => send(&mut socket, &message?).await?,
            message = socket.recv(), if !shared.is_deaf.load(Ordering::Relaxed) => {
                if let Message::Text(text) = message?.ok()? {
                    hears.send(read(&text)).ok()?;
                }
            }
        }
    }
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let ca = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let own_key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let own = own.signed_by(&own_key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .unwrap();
        let own_key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![own.der().clone(), ca.der().clone()], own_key)
            .unwrap();
        let (sender, talks) = unbounded_channel();
        let shared = Arc::new(Shared {
            issuer,
            token: JoinToken::new(&[9; 32], ca.der()),
            ca: ca.pem(),
            joined: Mutex::default(),
            valid_seconds: AtomicU64::new(HOUR),
            heartbeat_seconds: AtomicU32::new(10),
            renewals: AtomicU32::new(0),
            is_deaf: AtomicBool::new(false),
            wants_drift: AtomicBool::new(false),
            gateways: Mutex::default(),
            refusal: Mutex::default(),
            sessions: AtomicU64::new(0),
            talks: sender,
        });
        let router = Router::new()
            .route(JOIN_PATH, post(join))
            .route(RENEW_PATH, post(renew))
            .route(SESSION_PATH, get(session))
            .with_state(Arc::clone(&shared));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), stream, router.clone()));
            }
        });
        Gateway { address, shared, talks }
    }

    pub(crate) fn address(&self) -> GatewayAddress {
        self.address.to_string().parse().unwrap()
    }

    pub(crate) fn token(&self) -> &JoinToken {
        &self.shared.token
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Next session.
    pub(crate) async fn next_session(&mut self) -> TestSession {
        tokio::time::timeout(TIMEOUT, self.talks.recv()).await.unwrap().unwrap()
    }

    pub(crate) async fn join(&self, state: &orrery_agent::StateDirectory) -> AgentIdentity {
        orrery_agent::join(state, &self.address(), self.token(), None).await.unwrap()
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, router: Router) {
    // A client that does not trust this CA disconnects here.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let peer: Peer = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|first| first.clone().into_owned());
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    let builder = Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
}

/// A slow link to a gateway: this many bytes at a time, with a pause before each chunk.
pub(crate) async fn slow_link(to: SocketAddr, bytes: usize, pause: Duration) -> GatewayAddress {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (from_near, to_near) = near.into_split();
            let (from_far, to_far) = TcpStream::connect(to).await.unwrap().into_split();
            tokio::spawn(trickle(from_near, to_far, bytes, pause));
            tokio::spawn(trickle(from_far, to_near, bytes, pause));
        }
    });
    address.to_string().parse().unwrap()
}

async fn trickle(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, bytes: usize, pause: Duration) {
    let mut buffer = vec![0; bytes];
    while let Ok(count) = from.read(&mut buffer).await {
        tokio::time::sleep(pause).await;
        if count == 0 || to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}
