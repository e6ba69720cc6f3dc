//! Plug-in resources in an S3-compatible service: `BUCKET/PREFIX/TENANT/DIGEST`.

use std::fmt;
use std::sync::Arc;

use orrery_base::clock::unix_seconds;
use orrery_base::hex::to_hex;
use orrery_handlers::target::{Request, Response};
use orrery_handlers::{CancelToken, Durability, LocalTarget, Target as _};
use orrery_model::SecretText;
use sha2::{Digest as _, Sha256};

use crate::plugin::{PluginError, PluginResources};
use crate::resource_store::{PluginResourceStore, check_content, check_digest, tenant_path};
use crate::s3_signature::{UnsignedRequest, authorization, date};

/// Largest content in bytes.
const CONTENT_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Attempts of a request that the service throttles or fails.
const ATTEMPTS: u32 = 5;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// Place and credentials of a bucket.
#[derive(Clone)]
pub struct S3Settings {
    /// Such as `https://s3.eu-central-1.amazonaws.com`.
    pub endpoint: String,
    pub region: String,
    pub bucket: String,
    /// Start of the names of all objects.
    pub prefix: String,
    pub access_key: String,
    pub secret_key: SecretText,
}

/// A bucket as a store.
pub struct S3ResourceStore {
    settings: S3Settings,
    web: LocalTarget,
}

impl fmt::Debug for S3ResourceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3ResourceStore({}/{})", self.settings.endpoint, self.settings.bucket)
    }
}

impl S3ResourceStore {
    /// # Errors
    /// If endpoint, bucket or prefix cannot be part of an address.
    pub fn new(settings: S3Settings) -> Result<Self, PluginError> {
        let is_plain = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte))
        };
        let has_scheme =
            settings.endpoint.starts_with("https://") || settings.endpoint.starts_with("http://");
        if !has_scheme || settings.bucket.is_empty() || !is_plain(&settings.bucket) {
            let text = format!("{:?} is no bucket of {:?}", settings.bucket, settings.endpoint);
            return Err(PluginError::new(text)
                .with_hint("write an endpoint such as https://s3.example.com, and a bucket"));
        }
        if !is_plain(&settings.prefix) {
            let text = format!(
                "the prefix {:?} has other characters than a-z, 0-9, - . _ /",
                settings.prefix
            );
            return Err(PluginError::new(text));
        }
        Ok(S3ResourceStore { settings, web: LocalTarget::new(Durability::None) })
    }

    /// Sends a signed request; repeats it with backoff while the service is overloaded.
    fn send(
        &self,
        method: &str,
        tenant: &str,
        digest: &str,
        body: Option<&[u8]>,
    ) -> Result<Response, PluginError> {
        check_digest(digest)?;
        let settings = &self.settings;
        let prefix = settings.prefix.trim_matches('/');
        let separator = if prefix.is_empty() { "" } else { "/" };
        let name = format!("{prefix}{separator}{}/{digest}", tenant_path(tenant));
        let path = format!("/{}/{name}", settings.bucket);
        let endpoint = settings.endpoint.trim_end_matches('/');
        let host = endpoint.split_once("://").map_or("", |(_, host)| host);
        let body_digest = to_hex(&Sha256::digest(body.unwrap_or_default()));
        let mut pause = PAUSE;
        let mut attempt = 1;
        loop {
            let date = date(unix_seconds() as u64);
            let headers =
                [("host", host), ("x-amz-content-sha256", &body_digest), ("x-amz-date", &date)];
            let unsigned = UnsignedRequest {
                method,
                path: &path,
                headers: headers.into(),
                body_digest: &body_digest,
                date: &date,
                region: &settings.region,
            };
            let secret_key = settings.secret_key.expose();
            let authorization = authorization(&unsigned, &settings.access_key, secret_key);
            let mut request = Request::new(method, format!("{endpoint}{path}"));
            request.headers = vec![
                ("x-amz-content-sha256".to_owned(), body_digest.clone()),
                ("x-amz-date".to_owned(), date.clone()),
                ("authorization".to_owned(), authorization),
            ];
            request.body = body.map(<[u8]>::to_vec);
            request.body_limit = CONTENT_BYTES_MAX;
            let answer = self.web.request(&request, &CancelToken::never());
            let is_temporary = match &answer {
                Ok(response) => matches!(response.status, 429 | 500 | 502 | 503 | 504),
                Err(_) => true,
            };
            if !is_temporary || attempt == ATTEMPTS {
                return answer.map_err(|error| {
                    PluginError::new(format!("the bucket {}: {}", settings.bucket, error.cause))
                        .with_hint("see if this machine reaches the endpoint")
                });
            }
            std::thread::sleep(pause);
            (attempt, pause) = (attempt + 1, pause * 2);
        }
    }

    fn refused(&self, response: &Response) -> PluginError {
        let body = String::from_utf8_lossy(&response.body);
        let code = body.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        let code = code.map_or("", |(code, _)| code);
        let text =
            format!("the bucket {} answers {} {code}", self.settings.bucket, response.status);
        PluginError::new(text.trim_end()).with_hint("see the credentials and rights of the bucket")
    }
}

impl PluginResources for S3ResourceStore {
    fn content(&self, tenant: &str, digest: &str) -> Result<Option<Arc<[u8]>>, PluginError> {
        let response = self.send("GET", tenant, digest, None)?;
        match response.status {
            200 => check_content(digest, response.body).map(Some),
            404 if !String::from_utf8_lossy(&response.body).contains("NoSuchBucket") => Ok(None),
            _ => Err(self.refused(&response)),
        }
    }
}

impl PluginResourceStore for S3ResourceStore {
    fn put(&self, tenant: &str, content: &[u8]) -> Result<String, PluginError> {
        if content.len() > CONTENT_BYTES_MAX {
            return Err(PluginError::new("a plug-in resource has at most 512 MiB"));
        }
        let digest = to_hex(&Sha256::digest(content));
        let response = self.send("PUT", tenant, &digest, Some(content))?;
        match response.status {
            200 | 201 => Ok(digest),
            _ => Err(self.refused(&response)),
        }
    }

    fn delete(&self, tenant: &str, digest: &str) -> Result<(), PluginError> {
        let response = self.send("DELETE", tenant, digest, None)?;
        match response.status {
            200 | 204 | 404 => Ok(()),
            _ => Err(self.refused(&response)),
        }
    }
}
