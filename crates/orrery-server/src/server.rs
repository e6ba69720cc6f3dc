//! Listening, serving, ending.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::access;
use crate::app::App;
use crate::metrics;
use crate::problem::ServerError;
use crate::routes;

/// Bodies are not larger than this.
const BODY_MAX: usize = 100 * 1024 * 1024;

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
        .layer(CatchPanicLayer::custom(|_| {
            axum::response::IntoResponse::into_response(ServerError::Internal("a panic".to_owned()))
        }))
        .with_state(app.clone())
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    app: App,
}

impl Server {
    /// Listens at an address; port 0 takes any that is free.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub async fn bind(app: App, address: SocketAddr) -> std::io::Result<Self> {
        Ok(Server { listener: TcpListener::bind(address).await?, app })
    }

    /// # Errors
    /// If the operating system does not tell.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`; requests that are under way are finished.
    ///
    /// # Errors
    /// If listening fails.
    pub async fn run(self, stop: CancellationToken) -> std::io::Result<()> {
        let router = router(&self.app);
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let served = axum::serve(self.listener, service)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await;
        self.app.close().await;
        served
    }
}
