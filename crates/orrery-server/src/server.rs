//! Listening, serving, ending.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use http_body_util::Limited;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::decompression::RequestDecompressionLayer;

use crate::app::App;
use crate::conventions::{self, Parameters};
use crate::metrics;
use crate::problem::ServerError;
use crate::{access, classic, document, routes};

/// Bodies are not larger than this.
const BODY_MAX: usize = 100 * 1024 * 1024;

/// All that the server answers.
pub(crate) fn router(app: &App) -> Router {
    let (routes, described) = routes::all().split_for_parts();
    let document = document::complete(described);
    let parameters = Parameters::of(&document);
    let document = Bytes::from(document.to_string());
    let described = get(async move || ([(header::CONTENT_TYPE, "application/json")], document));
    routes
        .route("/api/v1/openapi.json", described)
        .route("/api/v1/docs", get(routes::docs::page))
        .merge(classic::router())
        .method_not_allowed_fallback(async || ServerError::MethodNotAllowed)
        // Before the fallback is set: what is not routed needs no right. The last one runs first.
        .route_layer(middleware::from_fn_with_state(app.clone(), conventions::repeat))
        .route_layer(middleware::from_fn_with_state(parameters, conventions::check_parameters))
        .route_layer(middleware::from_fn_with_state(app.clone(), access::check))
        .fallback(async || ServerError::NoRoute)
        .layer(middleware::from_fn_with_state(app.clone(), metrics::measure))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(RequestDecompressionLayer::new())
        .layer(middleware::from_fn(limit_packed))
        .layer(CompressionLayer::new())
        .layer(CatchPanicLayer::custom(|_| {
            axum::response::IntoResponse::into_response(ServerError::Internal("a panic".to_owned()))
        }))
        .layer(middleware::from_fn(conventions::frame))
        .layer(middleware::from_fn(classic::errors))
        .with_state(app.clone())
}

/// Limits a body as it is sent, packed or not.
async fn limit_packed(request: Request, next: Next) -> Result<Response, ServerError> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > BODY_MAX) {
        return Err(ServerError::TooLarge(format!("at most {BODY_MAX} bytes are taken")));
    }
    Ok(next.run(request.map(|body| Body::new(Limited::new(body, BODY_MAX)))).await)
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
        let (stopping, ended) = (self.app.stopping().clone(), stop.clone());
        tokio::spawn(async move {
            ended.cancelled().await;
            stopping.cancel();
        });
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let served = axum::serve(self.listener, service)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await;
        self.app.close().await;
        served
    }
}
