//! Router, listening and shutdown.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{StatusCode, Version, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use http_body_util::Limited;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate as _};
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::app::App;
use crate::error::ServerError;
use crate::listener::{self, ConnectionSlots, Encryption, SlotLimits};
use crate::metrics;
use crate::middleware::{self, RouteParameters};
use crate::throttle::Throttle;
use crate::tls::Tls;
use crate::{access, inmanta_api, openapi, routes};

/// Maximum size of a request body.
pub(crate) const BODY_MAX: usize = 100 * 1024 * 1024;

/// Timeout for the next part of a body.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Throttle for the OpenAPI document, which is public and long: anonymous clients could keep
/// threads busy with copying.
static DOCUMENTS: Throttle = Throttle::new(Duration::from_millis(5), Duration::from_secs(5));

/// Router of a server without the api role: health and metrics only.
fn health_router(app: &App) -> Router {
    let (routes, _) = routes::health_routes().split_for_parts();
    with_common_layers(app, routes.route_layer(from_fn_with_state(app.clone(), access::check)))
}

/// Router of the full server.
pub(crate) fn router(app: &App) -> Router {
    let (routes, described) = routes::all().split_for_parts();
    let document = openapi::complete(described);
    let parameters = RouteParameters::from_openapi(&document);
    let document = Bytes::from(document.to_string());
    let described = get(async move || {
        DOCUMENTS.turn().await?;
        Ok::<_, ServerError>(([(header::CONTENT_TYPE, "application/json")], document))
    });
    let routes = routes
        .route("/", get(routes::html_pages::home))
        .route("/api/v1/openapi.json", described)
        .route("/api/v1/docs", get(routes::html_pages::docs))
        .route("/setup", get(routes::html_pages::setup))
        .merge(inmanta_api::router())
        .method_not_allowed_fallback(async || ServerError::MethodNotAllowed)
        // Set before the fallback: unknown paths need no right. The last layer runs first.
        .route_layer(from_fn_with_state(app.clone(), middleware::replay_repeated))
        .route_layer(from_fn_with_state(parameters, middleware::check_parameters))
        .route_layer(from_fn_with_state(app.clone(), access::check));
    with_common_layers(app, routes)
}

/// Adds the layers common to all requests.
fn with_common_layers(app: &App, routes: Router<App>) -> Router {
    routes
        .fallback(async || ServerError::NoRoute)
        .layer(from_fn_with_state(app.clone(), metrics::measure))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(RequestDecompressionLayer::new())
        .layer(from_fn(limit_compressed_size))
        .layer(
            CompressionLayer::new()
                .compress_when(DefaultPredicate::new().and(is_for_authenticated)),
        )
        .layer(RequestBodyTimeoutLayer::new(BODY_READ_TIMEOUT))
        .layer(CatchPanicLayer::custom(|_| {
            axum::response::IntoResponse::into_response(ServerError::Internal("a panic".to_owned()))
        }))
        .layer(from_fn(middleware::finalize_response))
        .layer(from_fn(inmanta_api::convert_errors))
        .with_state(app.clone())
}

/// Marks responses to anonymous clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnonymousResponse;

/// Compression holds memory until the response is read, which anonymous clients could delay.
fn is_for_authenticated(
    _: StatusCode,
    _: Version,
    _: &axum::http::HeaderMap,
    extensions: &axum::http::Extensions,
) -> bool {
    extensions.get::<AnonymousResponse>().is_none()
}

/// Limits the size of a body as sent, before decompression.
async fn limit_compressed_size(request: Request, next: Next) -> Result<Response, ServerError> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > BODY_MAX) {
        return Err(ServerError::TooLarge(format!("the limit is {BODY_MAX} bytes")));
    }
    let encoding = request.headers().get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "gzip" && encoding != "identity") {
        // Keeps the connection usable.
        access::drain_body(request.into_body()).await;
        return Err(ServerError::UnknownEncoding);
    }
    Ok(next.run(request.map(|body| Body::new(Limited::new(body, BODY_MAX)))).await)
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
    app: App,
    tls: Option<Tls>,
    api: bool,
}

impl Server {
    /// Listens at an address; port 0 selects a free port. `check_listen` checks the need for TLS.
    ///
    /// # Errors
    /// If the address is not available.
    pub async fn bind(app: App, address: SocketAddr) -> std::io::Result<Self> {
        Ok(Server { listener: TcpListener::bind(address).await?, app, tls: None, api: true })
    }

    /// Removes the api role: the server reports health and metrics only.
    pub fn without_api(self) -> Self {
        Server { api: false, ..self }
    }

    /// Enables TLS.
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
        let (stopping, ended) = (self.app.stopping().clone(), stop.clone());
        tokio::spawn(async move {
            ended.cancelled().await;
            stopping.cancel();
        });
        let encryption = self.tls.map_or(Encryption::Absent, Encryption::Present);
        let router = if self.api { router(&self.app) } else { health_router(&self.app) };
        let proxies = self.app.settings().auth.trusted_proxies.clone();
        let slots = ConnectionSlots::new(SlotLimits::for_process(true), proxies);
        listener::serve(self.listener, encryption, router, slots, stop).await;
        self.app.close().await;
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
