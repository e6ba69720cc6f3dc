//! The description of the API as a page for people. It needs nothing from elsewhere.

use axum::response::Html;

/// Shows the description.
pub(crate) async fn page() -> Html<&'static str> {
    Html(include_str!("docs.html"))
}
