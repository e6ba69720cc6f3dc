//! A client of a gateway, with or without a certificate.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use orrery_agent::protocol::{
    Command, FromAgent, Hello, JoinResponse, Machine, PROTOCOL, SESSION_PATH, ToAgent,
};
use orrery_model::OutcomeStatus;
use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, WebSocket};
use uuid::Uuid;

use super::commands::answer;

pub(super) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Accepts any server certificate: the tests are about the gateway.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A machine with a key and an optional certificate.
pub(super) struct Identity {
    key: KeyPair,
    pub(super) agent: Uuid,
    pub(super) certificate: Option<String>,
    pub(super) boot: Uuid,
}

impl Identity {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        Identity { key, agent: Uuid::nil(), certificate: None, boot: Uuid::new_v4() }
    }

    pub(super) fn csr(&self) -> String {
        let params = CertificateParams::new(Vec::new()).unwrap();
        params.serialize_request(&self.key).unwrap().pem().unwrap()
    }

    pub(super) fn connect(&self, address: &str) -> Stream {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)));
        let config = match &self.certificate {
            None => config.with_no_client_auth(),
            Some(pem) => {
                let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
                let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
                let key = PrivateKeyDer::Pkcs8(key);
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        StreamOwned::new(connection, stream)
    }

    /// Sends a request; returns the status and the body.
    pub(super) fn post(&self, address: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut stream = self.connect(address);
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A connection without a TLS close notification has delivered the response, too.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default();
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    pub(super) fn try_join(
        &self,
        address: &str,
        token: &str,
        names: Option<&[&str]>,
    ) -> (u16, Value) {
        let machine = Machine { host_name: "web1".to_owned(), ..Machine::default() };
        let mut body = json!({"token": token, "csr": self.csr(), "machine": machine});
        if let Some(names) = names {
            body["names"] = json!(names);
        }
        self.post(address, "/agent/v1/join", &body)
    }

    pub(super) fn join(&mut self, address: &str, token: &str) -> JoinResponse {
        let (status, answer) = self.try_join(address, token, None);
        assert_eq!(status, 200, "{answer}");
        let answer: JoinResponse = serde_json::from_value(answer).unwrap();
        self.agent = answer.agent;
        self.certificate = Some(answer.certificate.clone());
        answer
    }

    /// Opens a WebSocket; else returns the status of the refusal, 0 without a response.
    pub(super) fn dial(&self, address: &str) -> Result<Session, u16> {
        self.dial_path(address, SESSION_PATH)
    }

    pub(super) fn dial_path(&self, address: &str, path: &str) -> Result<Session, u16> {
        use tokio_tungstenite::tungstenite::{Error, HandshakeError};
        let url = format!("wss://{address}{path}");
        match tokio_tungstenite::tungstenite::client::client(url, self.connect(address)) {
            Ok((socket, _)) => Ok(Session { socket }),
            Err(HandshakeError::Failure(Error::Http(answer))) => Err(answer.status().as_u16()),
            Err(_) => Err(0),
        }
    }

    pub(super) fn hello(&self) -> FromAgent {
        FromAgent::Hello(Hello {
            protocol: PROTOCOL,
            program_version: "test".to_owned(),
            boot: self.boot,
            running: Vec::new(),
            machine: Machine { host_name: "web1".to_owned(), ..Machine::default() },
            types: Vec::new(),
            python: false,
        })
    }

    /// Opens a session; returns it with its number.
    pub(super) fn open(&self, address: &str) -> (Session, u64) {
        let mut session = self.dial(address).unwrap();
        session.send(&self.hello());
        match session.receive() {
            Some(ToAgent::Welcome(welcome)) => {
                assert_eq!(welcome.agent, self.agent);
                (session, welcome.session)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A session with a gateway.
pub(super) struct Session {
    pub(super) socket: WebSocket<Stream>,
}

impl Session {
    pub(super) fn send(&mut self, message: &FromAgent) {
        let text = serde_json::to_string(message).unwrap();
        self.socket.send(Message::text(text)).unwrap();
    }

    /// Returns the next message other than a ping; `None` if the session is over.
    pub(super) fn receive(&mut self) -> Option<ToAgent> {
        let until = std::time::Instant::now() + super::PATIENCE;
        loop {
            assert!(std::time::Instant::now() < until, "nothing but pings came");
            match self.socket.read() {
                Ok(Message::Text(text)) => match serde_json::from_str(&text).unwrap() {
                    ToAgent::Ping => self.send(&FromAgent::Pong),
                    message => return Some(message),
                },
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Returns the next message other than a ping, however long it takes; `None` if the session is
    /// over.
    pub(super) fn receive_patiently(&mut self) -> Option<ToAgent> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => match serde_json::from_str(&text).ok()? {
                    ToAgent::Ping => {
                        let pong = serde_json::to_string(&FromAgent::Pong).ok()?;
                        self.socket.send(Message::text(pong)).ok()?;
                    }
                    message => return Some(message),
                },
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Returns the next command. Answers epoch announcements.
    #[track_caller]
    pub(super) fn command(&mut self) -> Command {
        loop {
            match self.receive() {
                Some(ToAgent::Command(command)) if command.resource.id.value() == "epoch" => {
                    self.send(&answer(&command, OutcomeStatus::Deployed));
                }
                Some(ToAgent::Command(command)) => return *command,
                other => panic!("{other:?}"),
            }
        }
    }
}
