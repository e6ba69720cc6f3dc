//! Body of an uploaded version. Resources of a large one are parsed on two threads.

use axum::extract::{FromRequest, Request};
use orrery_api::{ResourceUpload, VersionUpload};
use orrery_base::thread::run_both;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::ServerError;
use crate::extract::{Body, has_nul, is_json, parse_blocking, parse_body, read_bytes};

/// Size from which a body is searched for resources before it is parsed.
const LARGE_BODY: usize = 256 * 1024;

/// Number of resources from which a second thread pays.
const PARALLEL_MIN: usize = 1_000;

/// An uploaded version, as `Body<VersionUpload>`.
#[derive(Clone, Debug)]
pub(crate) struct UploadBody(pub(crate) VersionUpload);

impl<S: Send + Sync> FromRequest<S> for UploadBody {
    type Rejection = ServerError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ServerError> {
        if !is_json(request.headers()) {
            return Err(ServerError::UnsupportedMediaType);
        }
        parse_blocking(read_bytes(request, state).await?, parse).await
    }
}

fn parse(bytes: &[u8]) -> Result<UploadBody, ServerError> {
    if bytes.len() >= LARGE_BODY
        && !has_nul(bytes)
        && let Some(upload) = parse_in_parts(bytes)
    {
        return Ok(UploadBody(upload));
    }
    // Also for the errors: they name a place in the whole body.
    parse_body(bytes).map(|Body(upload)| UploadBody(upload))
}

/// Texts of the resources of an upload.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    resources: Vec<&'a RawValue>,
}

/// Parses resources on two threads, and the rest without them. `None` if that does not pay, or the
/// body is not valid.
fn parse_in_parts(bytes: &[u8]) -> Option<VersionUpload> {
    let Outline { resources } = serde_json::from_slice(bytes).ok()?;
    if resources.len() < PARALLEL_MIN {
        return None;
    }
    let start = |resource: &RawValue| resource.get().as_ptr().addr() - bytes.as_ptr().addr();
    let (first, last) = (resources.first()?, resources.last()?);
    let end = start(last) + last.get().len();
    let rest = [&bytes[..start(first)], &bytes[end..]].concat();
    let mut upload: VersionUpload = serde_json::from_slice(&rest).ok()?;
    debug_assert!(upload.resources.is_empty(), "the rest has no resources");
    let (front, back) = resources.split_at(resources.len() / 2);
    let (front, back) = run_both("upload", || parse_resources(front), || parse_resources(back));
    upload.resources = front?;
    upload.resources.extend(back?);
    Some(upload)
}

fn parse_resources(texts: &[&RawValue]) -> Option<Vec<ResourceUpload>> {
    texts.iter().map(|text| serde_json::from_str(text.get()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An upload with members before and after its resources.
    fn upload(count: usize, change: impl FnOnce(&mut Vec<Value>)) -> Vec<u8> {
        let mut resources: Vec<Value> = (0..count)
            .map(|at| {
                json!({"id": format!("t::R[a,name={at}]"), "attributes": {"text": "é [\"},{"},
                    "requires": ["t::R[a,name=0]"], "undefined": at % 3 == 0})
            })
            .collect();
        change(&mut resources);
        let upload = json!({"release": true, "resources": resources, "info": {"resources": [1]},
            "unknowns": [{"name": "ip", "source": "fact"}]});
        serde_json::to_vec_pretty(&upload).unwrap()
    }

    #[test]
    fn large_uploads_are_parsed_as_small_ones_are() {
        for count in [PARALLEL_MIN, PARALLEL_MIN + 1] {
            let body = upload(count, |_| {});
            let expected: VersionUpload = serde_json::from_slice(&body).unwrap();
            let parsed = parse_in_parts(&body).unwrap();
            assert_eq!(parsed.resources, expected.resources);
            let json = |upload: &VersionUpload| serde_json::to_value(upload).unwrap();
            assert_eq!(json(&parsed), json(&expected));
        }
        let few = upload(PARALLEL_MIN - 1, |_| {});
        assert!(parse_in_parts(&few).is_none());
        assert_eq!(parse(&few).unwrap().0.resources.len(), PARALLEL_MIN - 1);
    }

    #[test]
    fn errors_of_large_uploads_name_the_place_in_the_body() {
        let wrong = [
            upload(5_000, |resources| resources[4_000]["id"] = json!(7)),
            upload(5_000, |resources| resources[4_000]["attributes"] = json!("\u{0}")),
            upload(5_000, |resources| resources[1]["unknown"] = json!(1)),
            upload(5_000, |_| {}).split_last().unwrap().1.to_vec(),
        ];
        for body in wrong {
            assert!(body.len() >= LARGE_BODY);
            let whole = parse_body::<VersionUpload>(&body).unwrap_err().problem();
            assert_eq!(parse(&body).unwrap_err().problem().detail, whole.detail);
        }
    }
}
