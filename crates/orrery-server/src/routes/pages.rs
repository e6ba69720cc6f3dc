//! Pages for people: the description of the API, and the form behind the link of the first start. They need nothing from elsewhere.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};

/// What a page may do: run its own script and ask this server. No other site may show it in a frame or learn its address.
const RULES: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
];

fn page(text: &'static str) -> Response {
    let rules = RULES.map(|(name, value)| (name, HeaderValue::from_static(value)));
    (rules, Html(text)).into_response()
}

/// Shows the description of the API.
pub(crate) async fn docs() -> Response {
    page(include_str!("docs.html"))
}

/// Asks for the name and the password of the first account. The ticket stands behind the `#` of the link, which browsers keep to
/// themselves: the page sends it with the form.
pub(crate) async fn setup() -> Response {
    page(include_str!("setup.html"))
}
