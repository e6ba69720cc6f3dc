//! HTML pages outside the console: the API documentation, and replacements for pages of the console in
//! a binary that was built without it. Self-contained.

use std::sync::LazyLock;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// A page with its security headers.
struct Page {
    text: &'static str,
    rules: [(HeaderName, HeaderValue); 4],
}

impl Page {
    /// Permits only the page's own script and style, and requests to this server, so injected code
    /// does not run. Forbids frames and referrers.
    fn new(text: &'static str) -> Self {
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            source(text, "<script>", "</script>"),
            source(text, "<style>", "</style>"),
        );
        // Contains only visible characters.
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

/// Returns the CSP hash of the element between two marks.
fn source(text: &str, begin: &str, end: &str) -> String {
    let piece = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
    match piece {
        Some((piece, _)) => format!("'sha256-{}'", STANDARD.encode(Sha256::digest(piece))),
        None => "'none'".to_owned(),
    }
}

static DOCS: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("docs.html")));
static SETUP: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("setup.html")));
static WITHOUT_CONSOLE: LazyLock<Page> =
    LazyLock::new(|| Page::new(include_str!("without_console.html")));

/// Shows the API documentation.
pub(crate) async fn docs() -> Response {
    DOCS.answer()
}

/// Shows the form for the first account. The bootstrap token is in the fragment of the link, which
/// browsers do not send; the script sends it with the form.
pub(crate) fn setup() -> Response {
    SETUP.answer()
}

/// Shows instructions for building the console.
pub(crate) fn without_console() -> Response {
    WITHOUT_CONSOLE.answer()
}
