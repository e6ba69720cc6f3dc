//! Listening, serving, ending.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::access;
use crate::app::App;
use crate::connection;
use crate::metrics;
use crate::problem::ServerError;
use crate::routes;
use crate::tls::Tls;

/// Bodies are not larger than this.
const BODY_MAX: usize = 100 * 1024 * 1024;

/// A body of which nothing more comes for so long is given up.
const BODY_STALLED: Duration = Duration::from_secs(30);

/// The description of the API.
pub fn openapi() -> utoipa::openapi::OpenApi {
    routes::all().into_openapi()
}

/// All that the server answers.
pub(crate) fn router(app: &App) -> Router {
    let (routes, document) = routes::all().split_for_parts();
    let document = serde_json::to_value(document).unwrap_or_default();
    let described = get(move |State(_): State<App>| async move { axum::Json(document) });
    routes
        .route("/api/v1/openapi.json", described)
        .method_not_allowed_fallback(async || ServerError::MethodNotAllowed)
        // Before the fallback is set: what is not routed needs no right.
        .route_layer(middleware::from_fn_with_state(app.clone(), access::check))
        .fallback(async || ServerError::NoRoute)
        .layer(middleware::from_fn_with_state(app.clone(), metrics::measure))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(RequestBodyTimeoutLayer::new(BODY_STALLED))
        .layer(CatchPanicLayer::custom(|_| {
            axum::response::IntoResponse::into_response(ServerError::Internal("a panic".to_owned()))
        }))
        .with_state(app.clone())
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
}

impl Server {
    /// Listens at an address; port 0 takes any that is free. Whether that is safe without TLS, `check_listen` tells.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub async fn bind(app: App, address: SocketAddr) -> std::io::Result<Self> {
        Ok(Server { listener: TcpListener::bind(address).await?, app, tls: None })
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
        connection::serve(self.listener, self.tls, router(&self.app), stop).await;
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
