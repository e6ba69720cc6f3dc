//! Traces of a server, as a collector receives them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::BINARY;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("server_traces/requests_are_spans", || {
        Ok(requests_are_spans().map_err(|error| format!("{error:#}"))?)
    })]
}

fn requests_are_spans() -> Result<()> {
    let collector = TcpListener::bind("127.0.0.1:0")?;
    let directory = tempfile::tempdir()?;
    let mut server = Command::new(BINARY)
        .args(["server", "--listen", "127.0.0.1:0", "--log", "info"])
        .arg("--data")
        .arg(directory.path())
        .arg("--traces")
        .arg(format!("http://{}/v1/traces", collector.local_addr()?))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // The first request is sent when the server ends.
    let received = std::thread::spawn(move || -> Result<Vec<u8>> {
        let (mut connection, _) = collector.accept()?;
        connection.set_read_timeout(Some(Duration::from_millis(500)))?;
        let mut bytes = Vec::new();
        // The client waits for a response and keeps the connection open: a pause ends the reading.
        let _ = connection.read_to_end(&mut bytes);
        connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        Ok(bytes)
    });
    let mut line = String::new();
    BufReader::new(server.stdout.take().context("no output")?).read_line(&mut line)?;
    let address = line.trim().rsplit('/').next().context("no address")?.to_owned();
    let mut connection = TcpStream::connect(&address)?;
    connection
        .write_all(b"GET /health/live HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let pid = server.id().to_string();
    ensure!(Command::new("kill").args(["-TERM", &pid]).status()?.success(), "not told to end");
    ensure!(server.wait()?.success(), "the server did not end well");
    let bytes = received.join().map_err(|_| anyhow::anyhow!("the collector crashed"))??;
    let text = String::from_utf8_lossy(&bytes);
    ensure!(text.starts_with("POST /v1/traces"), "{text}");
    ensure!(text.contains("GET /health/live"), "no span of the request: {text}");
    Ok(())
}
