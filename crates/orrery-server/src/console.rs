//! The web console: files of its build, which the binary embeds, and the paths of its pages.
//!
//! A page is `index.html` under any path of [`PAGES`]; the script in it reads the path. Without a
//! build of the console, each page says how to build one, and the form for the first account is
//! plain.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use sha2::{Digest as _, Sha256};

use crate::error::ServerError;
use crate::routes::html_pages;

/// Paths of the console's pages. Paths of the API are never among them.
pub(crate) const PAGES: [&str; 10] = [
    "/",
    "/login",
    "/setup",
    "/e/{*page}",
    "/admin/{*page}",
    "/gallery",
    "/catalog",
    "/catalog/{*page}",
    "/clusters",
    "/clusters/{*page}",
];

/// Paths of the console's files.
pub(crate) const FILES: [&str; 3] = ["/assets/{*file}", "/theme.js", "/favicon.svg"];

/// The page under every path of [`PAGES`].
const INDEX: &str = "index.html";

/// Directory of files with a hash of their content in their names.
const HASHED: &str = "assets/";

/// Scripts, styles and fonts of the console itself, and requests to this server. `data:` is for
/// images in style sheets.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; \
     img-src 'self' data:; connect-src 'self'; worker-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'";

/// A file of the console's build.
#[derive(Clone, Copy, Debug)]
pub struct ConsoleFile {
    /// Path in the build, without a leading slash.
    pub path: &'static str,
    pub content: &'static [u8],
    /// The content, compressed with Brotli, if that is smaller.
    pub brotli: Option<&'static [u8]>,
    /// The content, compressed with gzip, if that is smaller.
    pub gzip: Option<&'static [u8]>,
}

impl ConsoleFile {
    fn media_type(&self) -> &'static str {
        let extension = self.path.rsplit_once('.').map_or("", |(_, extension)| extension);
        match extension {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "woff2" => "font/woff2",
            "json" => "application/json",
            "txt" => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        }
    }

    /// Files with a hash in their names never change. Others are compared with their `ETag`.
    fn cache_control(&self) -> &'static str {
        match self.path.starts_with(HASHED) {
            true => "public, max-age=31536000, immutable",
            false => "no-cache",
        }
    }
}

/// A file with its `ETag`.
#[derive(Debug)]
struct ServedFile {
    file: ConsoleFile,
    etag: HeaderValue,
}

/// Files of a build, by path.
#[derive(Clone, Debug)]
pub(crate) struct Console(Arc<HashMap<&'static str, ServedFile>>);

impl Console {
    pub(crate) fn new(files: &[ConsoleFile]) -> Self {
        let served = files.iter().map(|file| {
            let digest = Sha256::digest(file.content);
            let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            // Contains only visible characters.
            let etag = HeaderValue::from_str(&format!("\"{short}\""))
                .unwrap_or_else(|_| HeaderValue::from_static("\"\""));
            (file.path, ServedFile { file: *file, etag })
        });
        Console(Arc::new(served.collect()))
    }

    /// Routes of all pages and files.
    pub(crate) fn routes<S: Clone + Send + Sync + 'static>(
        &self,
    ) -> Vec<(&'static str, MethodRouter<S>)> {
        let page = |path: &'static str| {
            let console = self.clone();
            let answer = async move |headers: HeaderMap| match console.0.get(INDEX) {
                Some(index) => index.answer(&headers),
                None if path == "/setup" => html_pages::setup(),
                None => html_pages::without_console(),
            };
            (path, get(answer))
        };
        let file = |path: &'static str| {
            let console = self.clone();
            let answer = async move |request: Request| {
                let name = request.uri().path().trim_start_matches('/');
                match console.0.get(name) {
                    Some(file) => file.answer(request.headers()),
                    None => ServerError::NoRoute.into_response(),
                }
            };
            (path, get(answer))
        };
        PAGES.into_iter().map(page).chain(FILES.into_iter().map(file)).collect()
    }
}

impl ServedFile {
    fn answer(&self, request: &HeaderMap) -> Response {
        let known = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let is_current = known.is_some_and(|known| {
            known.split(',').any(|tag| tag.trim().trim_start_matches("W/") == self.etag)
        });
        let common: [(HeaderName, HeaderValue); 4] = [
            (header::ETAG, self.etag.clone()),
            (header::CACHE_CONTROL, HeaderValue::from_static(self.file.cache_control())),
            (header::VARY, HeaderValue::from_static("accept-encoding")),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        if is_current {
            return (StatusCode::NOT_MODIFIED, common).into_response();
        }
        let ConsoleFile { content, brotli, gzip, .. } = self.file;
        let (encoding, body) = match (brotli, gzip) {
            (Some(brotli), _) if accepts(request, "br") => (Some("br"), brotli),
            (_, Some(gzip)) if accepts(request, "gzip") => (Some("gzip"), gzip),
            _ => (None, content),
        };
        let mut response = (common, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.file.media_type()));
        if let Some(encoding) = encoding {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        if self.file.path == INDEX {
            headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
            headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        }
        response
    }
}

/// True if the client accepts a content encoding by name.
fn accepts(request: &HeaderMap, encoding: &str) -> bool {
    let given = request.get_all(header::ACCEPT_ENCODING).iter();
    let mut choices =
        given.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    choices.any(|choice| {
        let (name, weight) = choice.split_once(';').unwrap_or((choice, ""));
        let is_refused = weight
            .trim()
            .strip_prefix("q=")
            .is_some_and(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight == 0.0));
        name.trim().eq_ignore_ascii_case(encoding) && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(encodings: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(encodings))])
    }

    #[test]
    fn encodings_are_accepted_by_name_and_refused_by_weight() {
        assert!(accepts(&headers("gzip, br"), "br"));
        assert!(accepts(&headers("gzip;q=0.5,BR;q=1"), "br"));
        assert!(!accepts(&headers("gzip, br;q=0"), "br"));
        assert!(!accepts(&headers("brotli"), "br"));
        assert!(!accepts(&HeaderMap::new(), "gzip"));
    }

    #[test]
    fn no_page_shadows_the_api() {
        for path in PAGES.into_iter().chain(FILES) {
            for own in ["/api", "/health", "/metrics"] {
                assert!(!path.starts_with(own), "{path}");
            }
        }
    }
}
