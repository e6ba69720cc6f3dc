//! HTTP resources: against a server in memory, and against one on a local socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use orrery_handlers::target::{Content, Request, Response};
use orrery_handlers::{CancelToken, Cause, MemoryTarget, Mode, Target};
use orrery_model::OutcomeStatus;

use crate::harness::{reason, run};
use crate::this_machine;

/// State of the server in memory.
const SERVER_STATE: &str = "/var/kept";

pub(crate) const DESIRED: &str = r#"{"url":"http://server/thing","method":"PUT","body":"{\"a\":1,\"b\":2}",
    "expected_body":"{\"a\":1}","expected_status":[200],"success_status":[200,201,204],"timeout":5,
    "headers":{"Content-Type":"application/json"}}"#;
pub(crate) const OTHER: &str = r#"{"url":"http://server/thing","method":"PUT","body":"{\"a\":3}",
    "expected_body":"{\"a\":3}","expected_status":[200],"success_status":[200,201,204],"timeout":5}"#;
pub(crate) const PURGED: &str = r#"{"url":"http://server/thing","method":"PUT","body":"",
    "expected_status":[200],"success_status":[200,201,204],"timeout":5,"purged":true}"#;

pub(crate) fn prepare(target: &MemoryTarget) {
    target.on_request("GET http://server/thing", |_, target| {
        match target.read_file(SERVER_STATE, u64::MAX).unwrap() {
            Some(body) => Response { status: 200, body },
            None => Response { status: 404, body: b"no such thing".to_vec() },
        }
    });
    target.on_request("PUT http://server/thing", |request, target| {
        target.put(SERVER_STATE, Content::File(request.body.clone().unwrap_or_default()), 0o644);
        Response { status: 201, body: Vec::new() }
    });
    target.on_request("DELETE http://server/thing", |_, target| {
        let status = if target.remove_file(SERVER_STATE).unwrap() { 204 } else { 404 };
        Response { status, body: Vec::new() }
    });
}

#[test]
fn a_refused_request_reports_the_response() {
    let target = MemoryTarget::new();
    prepare(&target);
    target.on_request("PUT http://server/thing", |_, _| Response {
        status: 422,
        body: b"a must be even".to_vec(),
    });
    let failed = run(&target, "http::Request[a,name=x]", DESIRED, Mode::Deploy);
    assert_eq!(failed.status, OutcomeStatus::Failed);
    assert!(reason(&failed).contains("status 422: a must be even"), "{}", reason(&failed));
}

#[test]
fn a_check_sends_nothing_and_can_wait_for_a_server() {
    let target = MemoryTarget::new();
    prepare(&target);
    let check = DESIRED.replace("PUT", "GET");
    let failed = run(&target, "http::Request[a,name=x]", &check, Mode::Deploy);
    assert_eq!(failed.status, OutcomeStatus::Failed);
    assert_eq!(target.history(), ["GET http://server/thing"]);

    let patient = check.replace("\"timeout\"", "\"skip_on_fail\":true,\"timeout\"");
    let skipped = run(&target, "http::Request[a,name=x]", &patient, Mode::Deploy);
    assert_eq!(skipped.status, OutcomeStatus::Skipped);

    target.put(SERVER_STATE, Content::File(r#"{"a":1}"#.into()), 0o644);
    let good = run(&target, "http::Request[a,name=x]", &check, Mode::Deploy);
    assert_eq!(good.status, OutcomeStatus::Deployed);
}

/// Echoes each request: request line, headers and body.
fn echo_server() -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for connection in listener.incoming().take(2) {
            let mut connection = connection.unwrap();
            let mut reader = BufReader::new(connection.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            seen.push(format!("{head}{}", String::from_utf8(body).unwrap()));
            let answer =
                "HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";
            connection.write_all(answer.as_bytes()).unwrap();
        }
        seen
    });
    (url, server)
}

#[test]
fn requests_of_this_machine_carry_method_headers_and_body() {
    let (url, server) = echo_server();
    let target = this_machine();
    let mut request = Request::new("PATCH", format!("{url}/a"));
    request.headers = vec![("X-Token".to_owned(), "secret".to_owned())];
    request.body = Some(b"hello".to_vec());
    let answer = target.request(&request, &CancelToken::never()).unwrap();
    assert_eq!(answer, Response { status: 409, body: b"busy".to_vec() });
    let answer = target.request(&Request::new("GET", url), &CancelToken::never()).unwrap();
    assert_eq!(answer.status, 409);
    let seen = server.join().unwrap();
    assert!(seen[0].starts_with("PATCH /a HTTP/1.1"), "{}", seen[0]);
    assert!(seen[0].to_lowercase().contains("x-token: secret"), "{}", seen[0]);
    assert!(seen[0].ends_with("hello"), "{}", seen[0]);
    assert!(seen[1].starts_with("GET / HTTP/1.1"), "{}", seen[1]);
}

#[test]
fn a_server_that_does_not_answer_is_not_waited_for_longer_than_allowed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let target = this_machine();
    let stop = CancelToken::never().within(Duration::from_millis(100));
    let error = target.request(&Request::new("GET", &*url), &stop).unwrap_err();
    assert!(matches!(error.cause, Cause::TimedOut), "{error}");
    drop(listener);
    let refused = target.request(&Request::new("GET", url), &CancelToken::never()).unwrap_err();
    assert!(!matches!(refused.cause, Cause::TimedOut), "{refused}");
}
