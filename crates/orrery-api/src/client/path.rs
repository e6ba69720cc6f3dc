//! URLs of servers and of API objects.

use ureq::http::Uri;

use super::ClientError;

/// Builds a path: `path(&["environments", id, "versions", "7"])`. Each part is percent-encoded.
pub fn path(parts: &[&str]) -> String {
    let mut path = "/api/v1".to_owned();
    for part in parts {
        path.push('/');
        encode(part, &mut path);
    }
    path
}

/// Appends query parameters to a path. Parameters without a value are omitted.
pub fn query(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut path = path.to_owned();
    for (name, value) in parameters {
        let Some(value) = value else { continue };
        path.push(if path.contains('?') { '&' } else { '?' });
        encode(name, &mut path);
        path.push('=');
        encode(value, &mut path);
    }
    path
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// Validates and normalizes the address of a server.
pub(super) fn parse_server(given: &str) -> Result<String, ClientError> {
    let bad = |reason: &str| ClientError::BadAddress {
        address: given.to_owned(),
        reason: reason.to_owned(),
    };
    let text = given.trim().trim_end_matches('/');
    let uri: Uri =
        text.parse().map_err(|error: ureq::http::uri::InvalidUri| bad(&error.to_string()))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(other) => return Err(bad(&format!("{other} is neither http nor https"))),
        None => return Err(bad("it does not begin with https:// or http://")),
    }
    let authority = uri.authority().ok_or_else(|| bad("it has no host"))?;
    if authority.as_str().contains('@') {
        return Err(bad("it must not contain credentials"));
    }
    if uri.query().is_some() {
        return Err(bad("it must not have a query"));
    }
    Ok(text.to_owned())
}

/// Splits a validated address: TLS, host and port.
pub(super) fn split_address(server: &str) -> (bool, String, u16) {
    let uri: Uri = server.parse().unwrap_or_default();
    let tls = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    (tls, host, uri.port_u16().unwrap_or(if tls { 443 } else { 80 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_are_encoded() {
        assert_eq!(
            path(&["a", "std::File[web1,path=/etc/x y]"]),
            "/api/v1/a/std%3A%3AFile%5Bweb1%2Cpath%3D%2Fetc%2Fx%20y%5D"
        );
        let with = query("/p", &[("a", Some("1&2")), ("b", None), ("c", Some("ü"))]);
        assert_eq!(with, "/p?a=1%262&c=%C3%BC");
    }

    #[test]
    fn addresses_have_parts() {
        let own = |tls, host: &str, port| (tls, host.to_owned(), port);
        assert_eq!(split_address("https://a.example"), own(true, "a.example", 443));
        assert_eq!(split_address("http://[::1]:8888/prefix"), own(false, "::1", 8888));
    }

    #[test]
    fn addresses_are_checked() {
        assert_eq!(parse_server("https://a.example:1/ ").unwrap(), "https://a.example:1");
        assert_eq!(parse_server("http://127.0.0.1:8888").unwrap(), "http://127.0.0.1:8888");
        for bad in ["", "a.example", "ftp://a", "https://", "https://u:p@a", "https://a?b=c"] {
            assert!(parse_server(bad).is_err(), "{bad}");
        }
    }
}
