//! A proxy that delays some responses, to test commands on a slow network.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The delayed response, and the files that report and release it.
struct HeldResponse {
    /// The method, and the end of the path.
    request: (&'static str, &'static str),
    answered: PathBuf,
    go_on: PathBuf,
}

/// Forwards everything between clients and a server. The response to a matching request is held
/// back: the file `answered` appears when the server has sent it, and it is forwarded when a file
/// `go-on` exists. Returns the address.
pub(crate) fn open(
    server: &str,
    request: (&'static str, &'static str),
    directory: &Path,
) -> Result<String> {
    let server = server.strip_prefix("http://").context("the server has no plain address")?;
    let server = server.to_owned();
    let held = Arc::new(HeldResponse {
        request,
        answered: directory.join("answered"),
        go_on: directory.join("go-on"),
    });
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (server, held) = (server.clone(), Arc::clone(&held));
            std::thread::spawn(move || held.forward(&client, &server));
        }
    });
    Ok(address)
}

impl HeldResponse {
    /// A connection ends when either side closes.
    fn forward(self: Arc<Self>, client: &TcpStream, server: &str) -> std::io::Result<()> {
        let server = TcpStream::connect(server)?;
        let waits = Arc::new(AtomicBool::new(false));
        let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
        let (back, waits_back) = (Arc::clone(&self), Arc::clone(&waits));
        std::thread::spawn(move || {
            let mut part = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from_server.read(&mut part) {
                if waits_back.swap(false, Ordering::SeqCst) {
                    back.wait();
                }
                if to_client.write_all(&part[..count]).is_err() {
                    break;
                }
            }
            let _ = to_client.shutdown(Shutdown::Both);
        });
        let (mut from_client, mut to_server) = (client, &server);
        let mut part = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_client.read(&mut part) {
            if self.is_meant(&part[..count]) {
                waits.store(true, Ordering::SeqCst);
            }
            to_server.write_all(&part[..count])?;
        }
        server.shutdown(Shutdown::Both)
    }

    /// True if this is the matching request; clients send the head in one piece.
    fn is_meant(&self, part: &[u8]) -> bool {
        let line = part.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let (method, path) = self.request;
        line.starts_with(method) && line.ends_with(&format!("{path} HTTP/1.1"))
    }

    fn wait(&self) {
        let _ = std::fs::write(&self.answered, "");
        while !self.go_on.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
