//! Limits for anonymous clients: memory, time and connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_server::{Tls, TlsSource};
use rustls_pki_types::ServerName;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;

use crate::support::Served;

fn raw(served: &Served) -> TcpStream {
    TcpStream::connect(served.admin.base.strip_prefix("http://").unwrap()).unwrap()
}

/// A body that sends a byte every second ends at its deadline, with a response and the connection
/// closed.
#[test]
fn a_slow_anonymous_body_ends_at_its_deadline() {
    let served = Served::start();
    let mut slow = raw(&served);
    slow.write_all(
        b"POST /api/v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n{",
    )
    .unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let begun = Instant::now();
    let mut answer = Vec::new();
    while begun.elapsed() < Duration::from_secs(30) {
        let mut part = [0; 4096];
        match slow.read(&mut part) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        let _ = slow.write_all(b" ");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body-too-slow"), "{answer}");
}

/// Anonymous clients together hold a few mebibytes, and one network leaves room for others.
#[test]
fn anonymous_bodies_share_a_budget() {
    let served = Served::start();
    let begin = |size: usize| {
        let mut stream = raw(&served);
        let head = format!(
            "POST /api/v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    // All but the last byte of each: 4 MiB.
    let mut held = Vec::new();
    for _ in 0..64 {
        let mut stream = begin(64 * 1024);
        stream.write_all(&vec![b' '; 64 * 1024 - 1]).unwrap();
        held.push(stream);
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut one_more = begin(60_000);
    one_more.write_all(&vec![b' '; 60_000]).unwrap();
    let mut answer = vec![0; 2000];
    let length = one_more.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("overloaded"), "{answer}");
    assert!(answer.to_lowercase().contains("retry-after: 1"), "{answer}");
    // Authenticated clients are not affected.
    assert_eq!(served.admin.get("/api/v1/me").status, 200);
    served
        .admin
        .post("/api/v1/projects", &json!({"name": "a", "description": "x".repeat(100_000)}));
    drop(held);
    let until = Instant::now() + Duration::from_secs(5);
    while served
        .anonymous()
        .send_bytes(
            "POST",
            "/api/v1/login",
            &[("content-type", "application/json")],
            vec![b' '; 60_000],
        )
        .status
        == 503
    {
        assert!(Instant::now() < until, "what was held is not given back");
    }
}

/// HTTP/2 preface with an empty settings frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Answers pings until the peer closes. Returns the time, and all data.
fn stay(mut stream: impl Read + Write, most: Duration) -> (Duration, Vec<u8>) {
    let begun = Instant::now();
    let mut seen = Vec::new();
    while begun.elapsed() < most {
        let mut part = [0; 4096];
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => {
                seen.extend_from_slice(&part[..length]);
                let mut frames = &part[..length];
                while let Some(frame) = frames.get(..17).filter(|frame| frame[3] == 6) {
                    let mut answer = frame.to_vec();
                    answer[4] |= 1;
                    let _ = stream.write_all(&answer);
                    frames = &frames[17..];
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    (begun.elapsed(), seen)
}

/// There is no HTTP/2 without TLS, and no connection stays open without a request.
#[test]
fn a_connection_without_a_request_ends() {
    let served = Served::start();
    let silent = raw(&served);
    silent.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut second = raw(&served);
    second.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    second.write_all(PREFACE).unwrap();
    let (took, seen) = stay(second, Duration::from_secs(40));
    assert!(took < Duration::from_secs(15), "{took:?}");
    let is_settings = |frame: &[u8]| frame[3] == 4;
    assert!(!seen.windows(9).next().is_some_and(is_settings), "it speaks HTTP/2: {seen:?}");
    let (took, _) = stay(silent, Duration::from_secs(30));
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// With HTTP/2, answered pings do not keep a connection without a request open.
#[test]
fn an_http2_connection_without_a_request_ends() {
    let directory = tempfile::tempdir().unwrap();
    let names = vec!["localhost".to_owned()];
    let source = TlsSource::SelfSigned { directory: directory.path().to_owned(), names };
    let running = crate::tls::serve(Some(Tls::load(source).unwrap()));
    let mut roots = rustls::RootCertStore::empty();
    let certificate = directory.path().join("self-signed.crt");
    roots.add(rustls_pki_types::CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let mut config =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(running.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, stream);
    stream.write_all(PREFACE).unwrap();
    let (took, seen) = stay(stream, Duration::from_secs(60));
    assert!(seen.len() > 9 && seen[3] == 4, "it speaks HTTP/2: {seen:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    running.stop.cancel();
    running.thread.join().unwrap();
}

/// Responses are not cacheable unless they say so.
#[test]
fn responses_are_not_cacheable_by_default() {
    let served = Served::start();
    let login = json!({"name": "admin", "password": crate::support::ADMIN_PASSWORD});
    let token = json!({"name": "t", "role": "viewer"});
    for answer in [
        served.anonymous().post("/api/v1/login", &login),
        served.admin.post("/api/v1/tokens", &token),
        served.admin.get("/api/v1/me"),
    ] {
        assert_eq!(answer.headers["cache-control"], "no-store", "{answer:?}");
    }
}
