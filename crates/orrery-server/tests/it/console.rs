//! The web console: pages under its paths, cacheable files, and nothing of it below the API.

use orrery_server::{ConsoleFile, ServerSettings};
use orrery_store::Store;

use crate::support::{Answer, Client, Served};

const FILES: &[ConsoleFile] = &[
    ConsoleFile {
        path: "index.html",
        content: b"<!doctype html><title>console</title>",
        brotli: None,
        gzip: None,
    },
    ConsoleFile {
        path: "assets/main-1a2b.js",
        content: b"plain",
        brotli: Some(b"as brotli"),
        gzip: Some(b"as gzip"),
    },
];

fn served(files: &'static [ConsoleFile]) -> Served {
    Served::with_console(Store::in_memory().unwrap(), ServerSettings::default(), files)
}

fn get(client: &Client, path: &str, headers: &[(&str, &str)]) -> Answer {
    client.send("GET", path, headers, None)
}

#[test]
fn every_page_is_the_console_and_no_path_of_the_api_is() {
    let served = served(FILES);
    let client = served.anonymous();
    for path in
        ["/", "/login", "/setup", "/e/0d3f/resources/a%5Bb%2Cc%3Dd%5D?tab=log", "/admin/users"]
    {
        let page = get(&client, path, &[]);
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text.contains("<title>console</title>"), "{path}: {}", page.text);
        assert_eq!(page.headers["cache-control"], "no-cache", "{path}");
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self';"));
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    for path in [
        "/api",
        "/api/v1/nothing",
        "/api/v3/x",
        "/health/x",
        "/metrics/x",
        "/nothing",
        "/assets/x.js",
    ] {
        let answer = get(&client, path, &[]);
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.text.contains("<title>"), "{path}: {}", answer.text);
    }
    // Pages are for reading only.
    assert_eq!(client.send("POST", "/login", &[], None).status, 405);
}

#[test]
fn files_are_sent_in_the_best_accepted_encoding_and_cached_by_name() {
    let served = served(FILES);
    let client = served.anonymous();
    let file = |encodings: &str| {
        let answer = client.open("/assets/main-1a2b.js", &[("accept-encoding", encodings)]);
        let encoding = answer.headers().get("content-encoding");
        let encoding = encoding.map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(answer.headers()["cache-control"], "public, max-age=31536000, immutable");
        assert_eq!(answer.headers()["content-type"], "text/javascript; charset=utf-8");
        assert_eq!(answer.headers()["vary"], "accept-encoding");
        (encoding, answer.headers()["content-length"].to_str().unwrap().to_owned())
    };
    assert_eq!(file("gzip, deflate, br"), (Some("br".to_owned()), "9".to_owned()));
    assert_eq!(file("gzip"), (Some("gzip".to_owned()), "7".to_owned()));
    assert_eq!(file("identity"), (None, "5".to_owned()));

    let etag = get(&client, "/", &[]).headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(get(&client, "/", &[("if-none-match", &etag)]).status, 304);
    assert_eq!(get(&client, "/", &[("if-none-match", "\"other\"")]).status, 200);
}

#[test]
fn a_binary_without_the_console_says_how_to_build_it() {
    let served = served(&[]);
    let client = served.anonymous();
    for path in ["/", "/e/0d3f"] {
        let page = get(&client, path, &[]);
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text.contains("make build"), "{path}: {}", page.text);
    }
    assert!(get(&client, "/setup", &[]).text.contains("The first account"));
}
