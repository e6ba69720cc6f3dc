//! URLs as defined by the WHATWG standard, which pydantic follows too.

use url::Url;

const HTTP_URL_BYTES_MAX: usize = 2083;

pub(super) fn is_url(text: &str) -> bool {
    Url::parse(text).is_ok()
}

/// `http` or `https`; both need a host.
pub(super) fn is_any_http_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

pub(super) fn is_http_url(text: &str) -> bool {
    text.len() <= HTTP_URL_BYTES_MAX && is_any_http_url(text)
}
