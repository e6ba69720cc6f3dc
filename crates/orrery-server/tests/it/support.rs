//! Test support: an empty server on a free port, and a client logged in as its administrator.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{OnceLock, mpsc};
use std::thread::JoinHandle;

use orrery_model::SecretText;
use orrery_server::{
    BootstrapState, ConsoleFile, Server, ServerSettings, ServerState, prepare_first_account,
};
use orrery_store::Store;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::further_apis;

pub(crate) const ADMIN_PASSWORD: &str = "Correct-horse-1";

/// A server that runs until it is dropped.
pub(crate) struct Served {
    pub(crate) app: ServerState,
    /// Logged in as `admin`.
    pub(crate) admin: Client,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Starts a server with a store in memory.
    pub(crate) fn start() -> Self {
        Self::with(Store::in_memory().unwrap(), ServerSettings::default())
    }

    pub(crate) fn with(store: Store, settings: ServerSettings) -> Self {
        let mut served = Self::without_accounts(store, settings);
        let app = served.app.clone();
        let password = SecretText::new(ADMIN_PASSWORD);
        let made =
            blocking(async move { prepare_first_account(&app, Some(&password)).await }).unwrap();
        assert!(!matches!(made, BootstrapState::BootstrapToken(_)), "{made:?}");
        served.admin = served.login("admin", ADMIN_PASSWORD);
        served
    }

    pub(crate) fn without_accounts(store: Store, settings: ServerSettings) -> Self {
        Self::with_console(store, settings, &[])
    }

    /// Starts a server without accounts that serves these files as its console.
    pub(crate) fn with_console(
        store: Store,
        settings: ServerSettings,
        console: &'static [ConsoleFile],
    ) -> Self {
        let stop = CancellationToken::new();
        let (tell, told) = mpsc::channel();
        let until = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async move {
                let app = ServerState::new(store, settings);
                let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
                let server = Server::bind(app.clone(), loopback).await.unwrap();
                let server = further_apis().into_iter().fold(server, Server::with_api);
                let server = server.with_console(console);
                tell.send((app, server.address().unwrap())).unwrap();
                server.run(until).await.unwrap();
            });
        });
        let (app, address) = told.recv().unwrap();
        let admin = Client { base: format!("http://{address}"), token: None };
        Served { app, admin, stop, thread: Some(thread) }
    }

    /// Returns an anonymous client.
    pub(crate) fn anonymous(&self) -> Client {
        Client { token: None, ..self.admin.clone() }
    }

    pub(crate) fn with_token(&self, token: &str) -> Client {
        Client { token: Some(token.to_owned()), ..self.admin.clone() }
    }

    pub(crate) fn login(&self, name: &str, password: &str) -> Client {
        let login = json!({"name": name, "password": password});
        let answer = self.anonymous().post("/api/v1/login", &login);
        assert_eq!(answer.status, 200, "{answer:?}");
        self.with_token(answer.body["token"].as_str().unwrap())
    }

    pub(crate) fn end(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a future from a synchronous test.
pub(crate) fn blocking<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A client with credentials.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) base: String,
    pub(crate) token: Option<String>,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: ureq::http::HeaderMap,
    pub(crate) text: String,
    /// `Null` if the body is not JSON.
    pub(crate) body: Value,
}

impl Answer {
    /// Returns the body of a success.
    #[track_caller]
    pub(crate) fn good(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.body
    }
}

impl Client {
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], Some(body))
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, &[], Some(body))
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send("PATCH", path, &[], Some(body))
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], None)
    }

    /// Starts to read an endless response.
    pub(crate) fn open(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> ureq::http::Response<ureq::Body> {
        agent().run(self.request("GET", path, headers).body(()).unwrap()).unwrap()
    }

    /// Sends raw bytes.
    pub(crate) fn send_bytes(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        let request = self.request(method, path, headers);
        answer(agent().run(request.body(body).unwrap()), method, path)
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> ureq::http::request::Builder {
        let url = format!("{}{path}", self.base);
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let request = self.request(method, path, headers);
        let got = match body {
            Some(body) => {
                let request = request.header("content-type", "application/json");
                agent().run(request.body(body.to_string()).unwrap())
            }
            None => agent().run(request.body(()).unwrap()),
        };
        answer(got, method, path)
    }
}

fn answer(
    got: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    method: &str,
    path: &str,
) -> Answer {
    let mut answer = got.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    let text = answer.body_mut().read_to_string().unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    let status = answer.status().as_u16();
    Answer { status, headers: answer.headers().clone(), text, body }
}

fn agent() -> &'static ureq::Agent {
    static AGENT: OnceLock<ureq::Agent> = OnceLock::new();
    AGENT.get_or_init(|| {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(std::time::Duration::from_secs(60)));
        config.build().into()
    })
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}
