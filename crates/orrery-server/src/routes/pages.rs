//! Pages for people: the description of the API, and the form behind the link of the first start. They need nothing from elsewhere.

use std::sync::LazyLock;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// A page, and what browsers may do with it.
struct Page {
    text: &'static str,
    rules: [(HeaderName, HeaderValue); 4],
}

impl Page {
    /// It may run its own script, have its own style and ask this server: nothing that somebody managed to put into it counts. No other
    /// site may show it in a frame or learn its address.
    fn new(text: &'static str) -> Self {
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            source(text, "<script>", "</script>"),
            source(text, "<style>", "</style>"),
        );
        // It has nothing but visible characters; without it, a page does nothing at all.
        let policy = HeaderValue::from_str(&policy)
            .unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"));
        let rules = [
            (header::CONTENT_SECURITY_POLICY, policy),
            (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        Page { text, rules }
    }

    fn answer(&self) -> Response {
        (self.rules.clone(), Html(self.text)).into_response()
    }
}

/// The digest by which a browser knows the one piece of a page between two marks.
fn source(text: &str, begin: &str, end: &str) -> String {
    let piece = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
    match piece {
        Some((piece, _)) => format!("'sha256-{}'", STANDARD.encode(Sha256::digest(piece))),
        None => "'none'".to_owned(),
    }
}

static DOCS: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("docs.html")));
static SETUP: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("setup.html")));

/// There is nothing to see at the address itself, but at another one.
pub(crate) async fn home() -> Redirect {
    Redirect::to("/api/v1/docs")
}

/// Shows the description of the API.
pub(crate) async fn docs() -> Response {
    DOCS.answer()
}

/// Asks for the name and the password of the first account. The ticket stands behind the `#` of the link, which browsers keep to
/// themselves: the page sends it with the form.
pub(crate) async fn setup() -> Response {
    SETUP.answer()
}
