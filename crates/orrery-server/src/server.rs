//! Listening, serving, ending.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{StatusCode, Version, header};
use axum::middleware::{self, Next};
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
use crate::connection::{self, Encryption, PlaceLimits, Places};
use crate::conventions::{self, Parameters};
use crate::metrics;
use crate::pace::Pace;
use crate::problem::ServerError;
use crate::tls::Tls;
use crate::{access, classic, document, routes};

/// Bodies are not larger than this.
pub(crate) const BODY_MAX: usize = 100 * 1024 * 1024;

/// A body of which nothing more comes for so long is given up.
const BODY_STALLED: Duration = Duration::from_secs(30);

/// The document is public and long: strangers who ask for many at once, and read none, would keep the threads busy with copying.
static DOCUMENTS: Pace = Pace::new(Duration::from_millis(5), Duration::from_secs(5));

/// All that a server without the API answers: whether it is well.
fn bare_router(app: &App) -> Router {
    let (routes, _) = routes::of_every_role().split_for_parts();
    framed(app, routes.route_layer(middleware::from_fn_with_state(app.clone(), access::check)))
}

/// All that the server answers.
pub(crate) fn router(app: &App) -> Router {
    let (routes, described) = routes::all().split_for_parts();
    let document = document::complete(described);
    let parameters = Parameters::of(&document);
    let document = Bytes::from(document.to_string());
    let described = get(async move || {
        DOCUMENTS.turn().await?;
        Ok::<_, ServerError>(([(header::CONTENT_TYPE, "application/json")], document))
    });
    let routes = routes
        .route("/", get(routes::pages::home))
        .route("/api/v1/openapi.json", described)
        .route("/api/v1/docs", get(routes::pages::docs))
        .route("/setup", get(routes::pages::setup))
        .merge(classic::router())
        .method_not_allowed_fallback(async || ServerError::MethodNotAllowed)
        // Before the fallback is set: what is not routed needs no right. The last one runs first.
        .route_layer(middleware::from_fn_with_state(app.clone(), conventions::repeat))
        .route_layer(middleware::from_fn_with_state(parameters, conventions::check_parameters))
        .route_layer(middleware::from_fn_with_state(app.clone(), access::check));
    framed(app, routes)
}

/// What holds for all requests, whatever is served.
fn framed(app: &App, routes: Router<App>) -> Router {
    routes
        .fallback(async || ServerError::NoRoute)
        .layer(middleware::from_fn_with_state(app.clone(), metrics::measure))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(RequestDecompressionLayer::new())
        .layer(middleware::from_fn(limit_packed))
        .layer(CompressionLayer::new().compress_when(DefaultPredicate::new().and(is_for_known)))
        .layer(RequestBodyTimeoutLayer::new(BODY_STALLED))
        .layer(CatchPanicLayer::custom(|_| {
            axum::response::IntoResponse::into_response(ServerError::Internal("a panic".to_owned()))
        }))
        .layer(middleware::from_fn(conventions::frame))
        .layer(middleware::from_fn(classic::errors))
        .with_state(app.clone())
}

/// Marks answers to strangers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToStranger;

/// Packing needs memory as long as the answer is not taken, and strangers may take their time.
fn is_for_known(
    _: StatusCode,
    _: Version,
    _: &axum::http::HeaderMap,
    extensions: &axum::http::Extensions,
) -> bool {
    extensions.get::<ToStranger>().is_none()
}

/// Limits a body as it is sent, packed or not.
async fn limit_packed(request: Request, next: Next) -> Result<Response, ServerError> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > BODY_MAX) {
        return Err(ServerError::TooLarge(format!("at most {BODY_MAX} bytes are taken")));
    }
    let encoding = request.headers().get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "gzip" && encoding != "identity") {
        // So that the connection can be used again.
        access::swallow(request.into_body()).await;
        return Err(ServerError::UnknownEncoding);
    }
    Ok(next.run(request.map(|body| Body::new(Limited::new(body, BODY_MAX)))).await)
}

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
#[error(
    "--listen {address} can be reached from other machines, and there is no TLS: passwords would go in the clear; \
     give --tls-certificate and --tls-key, or --tls self-signed, or, if a proxy in front does TLS, --insecure-listen"
)]
pub struct NotWithoutTls {
    address: SocketAddr,
}

/// Fails if others could listen in: without TLS, a server is for its own machine, unless the administrator says otherwise.
///
/// # Errors
/// `NotWithoutTls`, which names the options.
pub fn check_listen(address: SocketAddr, tls: bool, insecure: bool) -> Result<(), NotWithoutTls> {
    let private = address.ip().to_canonical().is_loopback();
    if tls || insecure || private { Ok(()) } else { Err(NotWithoutTls { address }) }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    app: App,
    tls: Option<Tls>,
    api: bool,
}

impl Server {
    /// Listens at an address; port 0 takes any that is free. Whether that is safe without TLS, `check_listen` tells.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub async fn bind(app: App, address: SocketAddr) -> std::io::Result<Self> {
        Ok(Server { listener: TcpListener::bind(address).await?, app, tls: None, api: true })
    }

    /// The same server without the role `api`: it tells whether it is well, and what can be measured, and nothing else.
    pub fn without_api(self) -> Self {
        Server { api: false, ..self }
    }

    /// The same server, with connections encrypted.
    pub fn with_tls(self, tls: Tls) -> Self {
        Server { tls: Some(tls), ..self }
    }

    /// # Errors
    /// If the operating system does not tell.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`; requests that are under way are finished, within limits.
    ///
    /// # Errors
    /// None today; listening goes on whatever happens to a connection.
    pub async fn run(self, stop: CancellationToken) -> std::io::Result<()> {
        let (stopping, ended) = (self.app.stopping().clone(), stop.clone());
        tokio::spawn(async move {
            ended.cancelled().await;
            stopping.cancel();
        });
        let encryption = self.tls.map_or(Encryption::Absent, Encryption::Present);
        let router = if self.api { router(&self.app) } else { bare_router(&self.app) };
        let proxies = self.app.settings().auth.trusted_proxies.clone();
        let places = Places::new(PlaceLimits::for_process(true), proxies);
        connection::serve(self.listener, encryption, router, places, stop).await;
        self.app.close().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tls_a_server_is_for_its_own_machine() {
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
