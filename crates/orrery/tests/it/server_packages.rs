//! Python packages of handlers on a server: an index that does not answer, or has no such package,
//! holds up the resources of those handlers only.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::environments::{write_index, write_wheel};
use crate::python_agents::PythonScene;
use crate::server_kills::until;

/// Password in the address of the index, which no message has.
const PASSWORD: &str = "s3cr3t-of-the-index";

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("server_packages/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial(
            "a_slow_index_holds_up_its_own_resources_only",
            a_slow_index_holds_up_its_own_resources_only,
        ),
        trial(
            "a_missing_package_is_reported_and_tried_again",
            a_missing_package_is_reported_and_tried_again,
        ),
    ]
}

/// An index that answers once its gate is open.
struct Index {
    address: String,
    directory: PathBuf,
    open: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
}

impl Index {
    fn start(directory: PathBuf) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let (open, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (gate, count, root) = (Arc::clone(&open), Arc::clone(&requests), directory.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (gate, count, root) = (Arc::clone(&gate), Arc::clone(&count), root.clone());
                std::thread::spawn(move || answer(&stream, &gate, &count, &root));
            }
        });
        Ok(Index { address, directory, open, requests })
    }

    fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    fn publish(&self) -> Result<()> {
        let wheels = self.directory.join("wheels");
        fs::create_dir_all(&wheels)?;
        write_wheel(&wheels, "ship-text", "1.0", "", "ship_text")?;
        write_index(&wheels, &self.directory)
    }
}

fn answer(stream: &TcpStream, gate: &AtomicBool, count: &AtomicUsize, root: &Path) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    while !lines.next()?.ok()?.is_empty() {}
    count.fetch_add(1, Ordering::AcqRel);
    while !gate.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let path = root.join(first.split(' ').nth(1)?.trim_start_matches('/'));
    let path = if path.is_dir() { path.join("index.html") } else { path };
    let (status, body) = match fs::read(&path) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let kind = if path.extension().is_some_and(|end| end == "html") {
        "text/html"
    } else {
        "application/zip"
    };
    let mut stream = stream;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body).ok()
}

/// A version with a handler that needs a package, and files of the same and of another agent.
fn push(scene: &PythonScene, index: &Index) -> Result<()> {
    let libs = scene.project.join("libs/placed/requirements.txt");
    fs::write(libs, "ship-text>=1\n")?;
    let url = format!("http://ada:{PASSWORD}@{}/", index.address);
    let settings = format!("name: test\nmodulepath: libs\npip:\n    index_url: {url}\n");
    fs::write(scene.project.join("project.yml"), settings)?;
    let user = rustix::process::getuid().as_raw();
    let file = |host: &str, name: &str| {
        format!(
            "std::File(host=std::Host(name=\"{host}\", os=std::linux), path=\"{}\", content=\"x\", mode=644, owner=\"{user}\", group=\"{user}\")\n",
            scene.file(name).display()
        )
    };
    // The handler in Python comes first in the queue of its agent.
    let call =
        format!("placed::Call(agent=\"internal\", path=\"{}\")\n", scene.file("a-call").display());
    let model = format!(
        "import std\nimport placed\n{call}{}{}",
        file("internal", "same-agent"),
        file("localhost", "other-agent"),
    );
    scene.push(&model)
}

fn a_slow_index_holds_up_its_own_resources_only() -> Result<()> {
    let scene = PythonScene::new()?;
    let index = Index::start(scene.scene.world.path("index"))?;
    index.publish()?;
    push(&scene, &index)?;
    until("the other agent goes on", || Ok(scene.file("other-agent").exists()))?;
    until("the same agent goes on", || Ok(scene.file("same-agent").exists()))?;
    scene.until_all("deployed", 2)?;
    scene.until_all("unavailable", 1)?;
    // Creating the virtualenv may take longer than runs wait.
    until("the index is asked", || Ok(index.requests.load(Ordering::Acquire) > 0))?;
    let why = why(&scene)?;
    ensure!(why.contains("are being installed on the server since"), "{why}");
    ensure!(!scene.file("a-call").exists());
    index.open();
    until("the handler runs by itself", || Ok(scene.file("a-call").exists()))?;
    scene.until_all("deployed", 3)
}

fn a_missing_package_is_reported_and_tried_again() -> Result<()> {
    let scene = PythonScene::new()?;
    let index = Index::start(scene.scene.world.path("index"))?;
    push(&scene, &index)?;
    scene.until_all("deployed", 2)?;
    scene.until_all("unavailable", 1)?;
    ensure!(scene.file("other-agent").exists() && scene.file("same-agent").exists());
    // A failure after runs were refused is the new reason, without waiting for their retry.
    index.open();
    until("the failure is the reason", || {
        Ok(why(&scene)?.contains("No matching distribution found for ship-text"))
    })?;
    let why = why(&scene)?;
    ensure!(why.contains("the next attempt is at"), "{why}");
    let logs = scene.scene.logs(&scene.server)?;
    ensure!(!why.contains(PASSWORD) && !logs.contains(PASSWORD), "{why}\n{logs}");
    index.publish()?;
    until("the handler runs by itself", || Ok(scene.file("a-call").exists()))?;
    scene.until_all("deployed", 3)
}

fn why(scene: &PythonScene) -> Result<String> {
    let path = scene.file("a-call");
    let path = path.to_str().context("a path")?.replace('/', "%2F");
    let why = format!("/resources/placed::Call%5Binternal,path={path}%5D/why");
    Ok(scene.scene.get(&scene.server, &why)?.to_string())
}
