//! TLS connections, stalled peers, and shutdown.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_server::{AuthSettings, Server, ServerSettings, ServerState, Tls, TlsError, TlsSource};
use orrery_store::Store;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio_util::sync::CancellationToken;

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) thread: std::thread::JoinHandle<()>,
}

pub(crate) fn serve(tls: Option<Tls>) -> Running {
    let stop = CancellationToken::new();
    let until = stop.clone();
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async move {
            let auth = AuthSettings { secure_cookies: tls.is_some(), ..AuthSettings::default() };
            let settings = ServerSettings { auth, ..ServerSettings::default() };
            let app = ServerState::new(Store::in_memory().unwrap(), settings);
            let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
            let mut server = Server::bind(app, loopback).await.unwrap();
            if let Some(tls) = tls {
                server = server.with_tls(tls);
            }
            tell.send(server.address().unwrap()).unwrap();
            server.run(until).await.unwrap();
        });
    });
    Running { address: told.recv().unwrap(), stop, thread }
}

fn self_signed(directory: &std::path::Path) -> TlsSource {
    TlsSource::SelfSigned { directory: directory.to_owned(), names: vec!["localhost".to_owned()] }
}

/// Sends a TLS request, trusting one certificate only. Returns the response and the negotiated
/// protocol.
fn ask(
    address: SocketAddr,
    certificate: &std::path::Path,
    protocols: &[&[u8]],
) -> std::io::Result<(String, Option<Vec<u8>>)> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let mut config =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(address)?;
    let mut stream = rustls::StreamOwned::new(connection, stream);
    let request = "GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    if protocols != [b"h2"] {
        stream.read_to_string(&mut answer)?;
    }
    Ok((answer, stream.conn.alpn_protocol().map(<[u8]>::to_vec)))
}

#[test]
fn connections_are_encrypted_with_a_certificate_that_stays() {
    let directory = tempfile::tempdir().unwrap();
    let tls = Tls::load(self_signed(directory.path())).unwrap();
    let fingerprint = tls.fingerprint();
    let running = serve(Some(tls));
    let certificate = directory.path().join("self-signed.crt");
    let (answer, _) = ask(running.address, &certificate, &[b"http/1.1"]).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_, chosen) = ask(running.address, &certificate, &[b"h2"]).unwrap();
    assert_eq!(chosen.as_deref(), Some(b"h2".as_slice()));
    // A plaintext request gets no response.
    let mut plain = TcpStream::connect(running.address).unwrap();
    plain.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut got = Vec::new();
    let _ = plain.read_to_end(&mut got);
    assert!(!String::from_utf8_lossy(&got).contains("200"));
    let again = Tls::load(self_signed(directory.path())).unwrap();
    assert_eq!(again.fingerprint(), fingerprint);
    let mode = std::fs::metadata(directory.path().join("self-signed.key")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
    running.stop.cancel();
    running.thread.join().unwrap();
}

#[test]
fn a_new_certificate_is_taken_without_a_restart() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for directory in [&old, &new] {
        Tls::load(self_signed(directory.path())).unwrap();
    }
    let certificate = old.path().join("self-signed.crt");
    let key = old.path().join("self-signed.key");
    let kept = old.path().join("kept.crt");
    std::fs::copy(&certificate, &kept).unwrap();
    let files = TlsSource::Files { certificate: certificate.clone(), key: key.clone() };
    let tls = Tls::load(files).unwrap();
    let running = serve(Some(tls.clone()));
    ask(running.address, &kept, &[b"http/1.1"]).unwrap();
    std::fs::copy(new.path().join("self-signed.crt"), &certificate).unwrap();
    let mixed = tls.reload().unwrap_err();
    assert!(matches!(mixed, TlsError::Refused { .. }), "{mixed}");
    ask(running.address, &kept, &[b"http/1.1"]).unwrap();
    std::fs::copy(new.path().join("self-signed.key"), &key).unwrap();
    tls.reload().unwrap();
    ask(running.address, &certificate, &[b"http/1.1"]).unwrap();
    ask(running.address, &kept, &[b"http/1.1"]).unwrap_err();
    running.stop.cancel();
    running.thread.join().unwrap();
}

#[test]
fn errors_name_the_file() {
    let directory = tempfile::tempdir().unwrap();
    Tls::load(self_signed(directory.path())).unwrap();
    let certificate = directory.path().join("self-signed.crt");
    let key = directory.path().join("nothing.key");
    let load = |certificate: &std::path::Path, key: &std::path::Path| {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Tls::load(TlsSource::Files { certificate, key }).unwrap_err().to_string()
    };
    assert!(load(&certificate, &key).contains("nothing.key"));
    std::fs::write(&key, "no PEM").unwrap();
    assert!(load(&certificate, &key).contains("nothing.key"));
    assert!(load(&key, &certificate).contains("nothing.key"));
}

#[test]
fn stalled_peers_do_not_block_others() {
    let directory = tempfile::tempdir().unwrap();
    let tls = Tls::load(self_signed(directory.path())).unwrap();
    let running = serve(Some(tls));
    let stalled: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(running.address).unwrap()).collect();
    let begun = Instant::now();
    let certificate = directory.path().join("self-signed.crt");
    ask(running.address, &certificate, &[b"http/1.1"]).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // They do not delay the shutdown either.
    let begun = Instant::now();
    running.stop.cancel();
    running.thread.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(stalled);
}

#[test]
fn idle_connections_do_not_keep_a_server_from_stopping() {
    let running = serve(None);
    let mut kept_alive = TcpStream::connect(running.address).unwrap();
    kept_alive.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = [0; 15];
    kept_alive.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    let mut silent = TcpStream::connect(running.address).unwrap();
    silent.write_all(b"P").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    running.stop.cancel();
    running.thread.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
