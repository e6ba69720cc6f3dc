//! HTTP requests and responses of handlers.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
    pub timeout: Duration,
    /// Limit of the response body in bytes; the rest is dropped.
    pub body_limit: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Request {
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
    pub const BODY_LIMIT_DEFAULT: usize = 4 * 1024 * 1024;

    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Request {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: None,
            timeout: Self::TIMEOUT_DEFAULT,
            body_limit: Self::BODY_LIMIT_DEFAULT,
        }
    }
}
