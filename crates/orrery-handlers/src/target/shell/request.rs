//! HTTP requests from the machine, with `curl`.

use super::session::{NOISE_MAX, Session, find_reply, nonce, split_line};
use crate::error::{Cause, TargetError, TargetVerb};
use crate::target::local::cancel_cause;
use crate::target::transport::ExecLimits;
use crate::target::{CancelToken, Request, Response, Result};

/// Limit of the headers of a response.
const HEADERS_MAX: usize = 256 * 1024;

pub(super) fn send(session: &Session, request: &Request, stop: &CancelToken) -> Result<Response> {
    let error = |cause| TargetError::new(TargetVerb::Request, &*request.url, cause);
    if let Some(reason) = stop.reason() {
        return Err(error(cancel_cause(reason)));
    }
    if !session.capabilities(TargetVerb::Request)?.curl {
        let text = "the machine has no curl, which sends requests for it: install the package";
        return Err(error(Cause::Unexpected(text.to_owned())));
    }
    let headers = request.headers.iter().flat_map(|(name, value)| [name, value]);
    if headers.chain([&request.method, &request.url]).any(|text| text.contains(['\0', '\n', '\r']))
    {
        return Err(error(Cause::Unexpected("it has a line break or zero byte".to_owned())));
    }
    session.end_abandoned().map_err(error)?;
    session.read_ahead.invalidate();
    let nonce = nonce();
    let script = session
        .script(TargetVerb::Request)?
        .set("options", &options(request))
        .part(include_str!("scripts/request.sh"));
    let limits = ExecLimits {
        timeout: Some(request.timeout),
        output_bytes: request.body_limit.saturating_add(HEADERS_MAX + NOISE_MAX),
    };
    let body = request.body.as_deref().unwrap_or_default();
    let done = session.execute(&nonce, script, Some(body), &limits, stop);
    if !["GET", "HEAD"].iter().any(|reads| request.method.eq_ignore_ascii_case(reads)) {
        session.count_change(done.as_ref().err());
    }
    let output = done.map_err(error)?;
    let Some(at) = find_reply(&nonce, &output.stdout) else {
        return Err(error(super::cause::text_cause(&output)));
    };
    // With a truncated response, curl cannot write the rest.
    if let Some(response) = parse(split_line(&output.stdout[at..]).1, request.body_limit) {
        return Ok(response);
    }
    Err(error(match output.code {
        7 => Cause::Io(std::io::Error::new(
            std::io::ErrorKind::ConnectionRefused,
            output.error_excerpt(),
        )),
        28 => Cause::TimedOut,
        _ => Cause::Unexpected(output.error_excerpt()),
    }))
}

/// Options of curl, as a file of its own format: they may contain secrets.
fn options(request: &Request) -> String {
    let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut text = format!(
        "url = \"{}\"\nrequest = \"{}\"\nmax-time = {}\n",
        quote(&request.url),
        quote(&request.method),
        request.timeout.as_secs_f64().max(0.001),
    );
    if request.method.eq_ignore_ascii_case("head") {
        text.push_str("head\n");
    }
    if request.body.is_some() {
        text.push_str("data-binary = \"@/dev/fd/4\"\n");
        // Not the content type of a form.
        text.push_str("header = \"Content-Type:\"\nheader = \"Expect:\"\n");
    }
    for (name, value) in &request.headers {
        text.push_str(&format!("header = \"{}: {}\"\n", quote(name), quote(value)));
    }
    text
}

/// Parses a response with its headers, after those of interim responses.
fn parse(mut text: &[u8], body_limit: usize) -> Option<Response> {
    loop {
        let end = text.windows(4).position(|window| window == b"\r\n\r\n")?;
        let (status, _) = split_line(&text[..end]);
        let status: u16 = status.split_whitespace().nth(1)?.parse().ok()?;
        text = &text[end + 4..];
        if status >= 200 || status == 101 {
            let body = text[..text.len().min(body_limit)].to_vec();
            return Some(Response { status, body });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_follows_interim_ones() {
        let text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nA: b\r\n\r\nbody";
        let response = parse(text, 3).unwrap();
        assert_eq!((response.status, &response.body[..]), (201, &b"bod"[..]));
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n", 9), None);
    }
}
