//! Router, listening and shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::header;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate as _};
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::access::{AccessTable, RouteAccess};
use crate::body::BODY_MAX;
use crate::console::{Console, ConsoleFile};
use crate::error::ServerError;
use crate::further_api::FurtherApi;
use crate::listener::{self, ConnectionSlots, Encryption, SlotLimits};
use crate::middleware::{self, Admission, RouteParameters};
use crate::routes::html_pages;
use crate::state::ServerState;
use crate::throttle::Throttle;
use crate::tls::Tls;
use crate::{access, openapi};

/// Timeout for the next part of a body.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Throttle for the OpenAPI document, which is public and long: anonymous clients could keep
/// threads busy with copying.
static DOCUMENTS: Throttle = Throttle::new(Duration::from_millis(5), Duration::from_secs(5));

/// Router of a server without the api role: health and metrics only.
fn health_router(state: &ServerState) -> Router {
    let (routes, _) = crate::routes::health_routes().split_for_parts();
    let admission = Admission { state: state.clone(), table: Arc::new(AccessTable::new([])) };
    let routes = routes.route_layer(from_fn_with_state(admission, middleware::admit_request));
    with_common_layers(state, routes)
}

/// Router of the full server.
fn router(state: &ServerState, apis: &[FurtherApi], console: &Console) -> Router {
    let (routes, described) = crate::routes::all().split_for_parts();
    let document = openapi::complete(described);
    let parameters = RouteParameters::from_openapi(&document);
    let document = Bytes::from(document.to_string());
    let described = get(async move || {
        DOCUMENTS.turn().await?;
        Ok::<_, ServerError>(([(header::CONTENT_TYPE, "application/json")], document))
    });
    let table = Arc::new(AccessTable::new(apis.iter().map(|api| api.rules)));
    let admission = Admission { state: state.clone(), table };
    let routes = apis.iter().fold(routes, |routes, api| routes.merge((api.router)()));
    let pages = console.routes().into_iter();
    let routes = pages.fold(routes, |routes, (path, answer)| routes.route(path, answer));
    let routes = routes
        .route("/api/v1/openapi.json", described)
        .route("/api/v1/docs", get(html_pages::docs))
        .method_not_allowed_fallback(async || ServerError::MethodNotAllowed)
        // Set before the fallback: unknown paths need no right. The first of them runs first.
        .route_layer((
            from_fn_with_state(admission.clone(), middleware::admit_request),
            from_fn_with_state(parameters, middleware::check_parameters),
            from_fn_with_state(admission, middleware::replay_repeated),
        ));
    let router = with_common_layers(state, routes);
    apis.iter().fold(router, |router, api| router.layer(from_fn(api.convert_errors)))
}

/// Returns the access requirements of all routes of the server's own API.
pub fn routes() -> impl Iterator<Item = RouteAccess> {
    access::OWN.describe()
}

/// Adds the layers common to all requests.
///
/// A request clones all layers below each function layer. Therefore layers that do not need the
/// matched route are around a router of their own, which is cheap to clone, and neighbours share
/// one boxed service. Of each group, the first layer runs first.
fn with_common_layers(state: &ServerState, routes: Router<ServerState>) -> Router {
    let routes = routes
        .fallback(async || ServerError::NoRoute)
        .layer(from_fn_with_state(Arc::clone(state.metrics()), middleware::measure))
        .with_state(state.clone());
    let panicked = |_| {
        axum::response::IntoResponse::into_response(ServerError::Internal("a panic".to_owned()))
    };
    Router::new()
        .fallback_service(routes)
        .layer((
            from_fn(middleware::limit_compressed_size),
            RequestDecompressionLayer::new(),
            DefaultBodyLimit::max(BODY_MAX),
        ))
        .layer((
            from_fn(middleware::finalize_response),
            CatchPanicLayer::custom(panicked),
            RequestBodyTimeoutLayer::new(BODY_READ_TIMEOUT),
            CompressionLayer::new()
                .compress_when(DefaultPredicate::new().and(middleware::is_for_authenticated)),
        ))
}

/// Refusal to listen without TLS.
#[derive(Debug, thiserror::Error)]
#[error(
    "--listen {address} can be reached from other machines, and there is no TLS: passwords would be sent unencrypted; \
     give --tls-certificate and --tls-key, or --tls self-signed, or, if a proxy in front does TLS, --insecure-listen"
)]
pub struct TlsRequired {
    address: SocketAddr,
}

/// Fails if traffic could be intercepted: without TLS, a server listens only to its own machine,
/// unless the administrator overrides this.
///
/// # Errors
/// `TlsRequired`, which names the options.
pub fn check_listen(address: SocketAddr, tls: bool, insecure: bool) -> Result<(), TlsRequired> {
    let private = address.ip().to_canonical().is_loopback();
    if tls || insecure || private { Ok(()) } else { Err(TlsRequired { address }) }
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    state: ServerState,
    tls: Option<Tls>,
    api: bool,
    further: Vec<FurtherApi>,
    console: Console,
}

impl Server {
    /// Listens at an address; port 0 selects a free port. `check_listen` checks the need for TLS.
    ///
    /// # Errors
    /// If the address is not available.
    pub async fn bind(state: ServerState, address: SocketAddr) -> std::io::Result<Self> {
        Ok(Server {
            listener: TcpListener::bind(address).await?,
            state,
            tls: None,
            api: true,
            further: Vec::new(),
            console: Console::new(&[]),
        })
    }

    /// Removes the api role: the server reports health and metrics only.
    #[must_use]
    pub fn without_api(self) -> Self {
        Server { api: false, ..self }
    }

    /// Adds an API beside the server's own.
    #[must_use]
    pub fn with_api(mut self, api: FurtherApi) -> Self {
        self.further.push(api);
        self
    }

    /// Serves the web console from the files of its build.
    #[must_use]
    pub fn with_console(self, files: &[ConsoleFile]) -> Self {
        Server { console: Console::new(files), ..self }
    }

    /// Enables TLS.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        Server { tls: Some(tls), ..self }
    }

    /// # Errors
    /// If the operating system does not report the address.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`; finishes requests in progress, within limits.
    ///
    /// # Errors
    /// None today: the failure of a connection does not end the server.
    pub async fn run(self, stop: CancellationToken) -> std::io::Result<()> {
        let (stopping, ended) = (self.state.stopping().clone(), stop.clone());
        tokio::spawn(async move {
            ended.cancelled().await;
            stopping.cancel();
        });
        let encryption = self.tls.map_or(Encryption::Absent, Encryption::Present);
        let router = match self.api {
            true => router(&self.state, &self.further, &self.console),
            false => health_router(&self.state),
        };
        let proxies = self.state.settings().auth.trusted_proxies.clone();
        let slots = ConnectionSlots::new(SlotLimits::for_process(true), proxies);
        listener::serve(self.listener, encryption, router, slots, stop).await;
        self.state.close().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tls_a_server_listens_to_its_own_machine_only() {
        let check = |address: &str, tls, insecure| {
            check_listen(address.parse().unwrap(), tls, insecure).is_ok()
        };
        for own in ["127.0.0.1:1", "127.3.2.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(check(own, false, false), "{own}");
        }
        for others in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[2001:db8::1]:1"] {
            assert!(!check(others, false, false), "{others}");
            assert!(check(others, true, false), "{others}");
            assert!(check(others, false, true), "{others}");
        }
        let error = check_listen("0.0.0.0:1".parse().unwrap(), false, false).unwrap_err();
        assert!(error.to_string().contains("--insecure-listen"), "{error}");
    }
}
