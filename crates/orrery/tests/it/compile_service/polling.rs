//! Followed branches: compiles without a request, and commit statuses for forges.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use orrery_compile_service::CompileService;
use orrery_model::SecretText;
use orrery_server::compile_context;
use orrery_server::{MasterKey, ServerSettings, ServerState};
use orrery_store::{CompileRecord, EnvironmentRecord};
use serde_json::{Value, json};

use super::{World, model, text, update, wait_for};

/// Several times as long as the interval of these tests.
const A_WHILE: Duration = Duration::from_secs(4);

fn compiles(world: &World, of: &EnvironmentRecord) -> Result<Vec<CompileRecord>> {
    Ok(world.store().compiles().list(of.key, Default::default(), None, 999)?)
}

fn head(repository: &Path) -> Result<String> {
    let mut command = Command::new("git");
    let done = command.current_dir(repository).args(["rev-parse", "HEAD"]).output()?;
    Ok(String::from_utf8(done.stdout)?.trim().to_owned())
}

fn until_wanted(world: &World, of: &EnvironmentRecord, content: &str) -> Result<()> {
    wait_for(&format!("{content:?} is wanted"), || {
        let any = !world.store().versions().list(of.key)?.is_empty();
        Ok((any && world.newest_content(of)? == content).then_some(()))
    })
}

pub(super) fn a_new_commit_is_compiled(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let environment = world.environment(&text(&repository), "main")?;
    world.poll_every(&environment, 1.0)?;
    until_wanted(world, &environment, "one")?;
    let first = compiles(world, &environment)?;
    let message = format!("new commit {} on main", &head(&repository)?[..7]);
    ensure!(first[0].request.metadata["message"] == message, "{first:?}");
    ensure!(first[0].request.metadata["type"] == "commit" && first[0].request.update, "{first:?}");
    // Seen once, compiled once.
    std::thread::sleep(A_WHILE);
    ensure!(compiles(world, &environment)?.len() == 1, "{:?}", compiles(world, &environment)?);
    world.commit(&repository, &model("\"two\""))?;
    until_wanted(world, &environment, "two")?;
    // A compiled commit is not compiled again by the next server; commits pushed meanwhile are
    // found.
    let count = compiles(world, &environment)?.len();
    world.stop();
    world.start()?;
    std::thread::sleep(A_WHILE);
    ensure!(compiles(world, &environment)?.len() == count);
    world.stop();
    world.commit(&repository, &model("\"three\""))?;
    world.start()?;
    until_wanted(world, &environment, "three")?;
    // A commit that does not compile is not retried; the next one is compiled.
    world.commit(&repository, "nonsense nonsense")?;
    wait_for("the broken commit has failed", || {
        Ok(compiles(world, &environment)?.first().filter(|one| one.success == Some(false)).cloned())
    })?;
    let count = compiles(world, &environment)?.len();
    std::thread::sleep(A_WHILE);
    ensure!(compiles(world, &environment)?.len() == count);
    world.commit(&repository, &model("\"four\""))?;
    until_wanted(world, &environment, "four")?;
    // Nothing is followed while halted or disabled.
    let now = world.app.now();
    world.store().environments().set_halted(environment.uuid, true, now)?;
    std::thread::sleep(A_WHILE);
    world.commit(&repository, &model("\"five\""))?;
    std::thread::sleep(A_WHILE);
    ensure!(world.newest_content(&environment)? == "four");
    world.store().environments().set_halted(environment.uuid, false, now)?;
    until_wanted(world, &environment, "five")?;
    world.poll_every(&environment, 0.0)?;
    std::thread::sleep(A_WHILE);
    world.commit(&repository, &model("\"six\""))?;
    std::thread::sleep(A_WHILE);
    ensure!(world.newest_content(&environment)? == "five");
    Ok(())
}

pub(super) fn a_missing_repository_is_reported_once(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let environment = world.environment(&format!("file://{}", repository.display()), "main")?;
    world.poll_every(&environment, 0.5)?;
    until_wanted(world, &environment, "one")?;
    let store = world.store();
    let away = world.path("away");
    std::fs::rename(&repository, &away)?;
    let failed = wait_for("several attempts have failed", || {
        Ok(store.branches().get(environment.key)?.filter(|known| known.failures >= 4))
    })?;
    ensure!(failed.error.contains("model"), "{failed:?}");
    // With growing intervals.
    let pause = failed.due.0 - failed.checked.context("it was read once")?.0;
    ensure!(pause > 6_000_000, "{failed:?}");
    let notices = store.notifications().list(environment.key, &Default::default(), None, 99)?;
    let told = notices.iter().filter(|one| one.title == "Repository not readable").count();
    ensure!(told == 1, "{notices:?}");
    ensure!(compiles(world, &environment)?.len() == 1, "nothing is compiled because of it");
    std::fs::rename(&away, &repository)?;
    world.commit(&repository, &model("\"two\""))?;
    until_wanted(world, &environment, "two")?;
    let well = store.branches().get(environment.key)?.context("it is followed")?;
    ensure!(well.error.is_empty() && well.failures == 0, "{well:?}");
    Ok(())
}

/// Two servers poll; each commit is compiled once.
pub(super) fn two_servers_compile_a_commit_once(world: &mut World) -> Result<()> {
    world.start()?;
    let mut options = world.options.clone();
    options.data = world.path("other data");
    let other = CompileService::start(compile_context(&world.app), options)?;
    let repository = world.repository("model", &model("\"0\""))?;
    let environment = world.environment(&text(&repository), "main")?;
    world.poll_every(&environment, 0.2)?;
    for round in 0..4 {
        if round > 0 {
            world.commit(&repository, &model(&format!("\"{round}\"")))?;
        }
        until_wanted(world, &environment, &round.to_string())?;
    }
    let all = compiles(world, &environment)?;
    let by_commit = all.iter().filter(|one| one.request.metadata["type"] == "commit").count();
    ensure!(by_commit == 4, "{all:?}");
    drop(other);
    Ok(())
}

fn threads() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Polls are spread over time, with a few threads.
pub(super) fn a_thousand_branches_are_followed(world: &mut World) -> Result<()> {
    const COUNT: usize = 1_000;
    let repository = world.repository("model", &model("\"one\""))?;
    let commit = head(&repository)?;
    let mut all = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        all.push(world.environment(&text(&repository), "main")?);
    }
    world.start()?;
    let before = threads()?;
    let store = world.store();
    wait_for("all branches are known", || {
        Ok((store.branches().list()?.len() == COUNT).then_some(()))
    })?;
    for one in &all {
        // As after a compile: nothing new.
        store.branches().record_compiled_commit(one.key, Some(&commit), None)?;
        world.poll_every(one, 60.0)?;
    }
    let now = world.app.now();
    let rows = wait_for("all have a time", || {
        let rows = store.branches().list()?;
        Ok(rows.iter().all(|row| row.due.0 != i64::MAX).then_some(rows))
    })?;
    let mut by_second = BTreeMap::new();
    for row in &rows {
        *by_second.entry((row.due.0 - now.0) / 1_000_000).or_insert(0) += 1;
    }
    let most = by_second.values().copied().max().unwrap_or(0);
    ensure!(most < 150 && by_second.len() > 20, "{by_second:?}");
    // All due at once, as after an outage.
    for row in &rows {
        store.branches().claim(row, now)?;
    }
    let mut threads_most = 0;
    wait_for("some hundred are read", || {
        threads_most = threads_most.max(threads()?);
        let read = store.branches().list()?.iter().filter(|row| row.checked.is_some()).count();
        Ok((read > 100).then_some(()))
    })?;
    // Each running program has a few reader threads.
    ensure!(threads_most < before + 60, "{before} {threads_most}");
    let queued = all.iter().map(|one| compiles(world, one).map(|found| found.len()));
    ensure!(queued.sum::<Result<usize>>()? == 0);
    Ok(())
}

type Received = Arc<Mutex<Vec<(String, Value)>>>;

/// A forge that records its requests. It rejects the first one.
fn forge() -> Result<(std::net::SocketAddr, Received)> {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let received = Received::default();
    let heard = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
                    break;
                }
                if let Some(given) = line.to_lowercase().strip_prefix("content-length:") {
                    length = given.trim().parse().unwrap_or(0);
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            let mut all = heard.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((head, serde_json::from_slice(&body).unwrap_or_default()));
            let status = if all.len() == 1 { "503 Not now" } else { "201 Created" };
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
            let _ = reader.into_inner().write_all(answer.as_bytes());
        }
    });
    Ok((address, received))
}

pub(super) fn commit_statuses_are_reported_to_forges(world: &mut World) -> Result<()> {
    let (address, received) = forge()?;
    let settings = ServerSettings {
        local_repositories: true,
        master_key: MasterKey::Generated(world.path("secret.key")),
        ..ServerSettings::default()
    };
    world.app = ServerState::new(world.app.store().clone(), settings);
    world.start()?;
    let repository = world.repository("shop/model", &model("\"one\""))?;
    let url = format!("file://localhost{}", repository.display());
    let environment = world.environment(&url, "main")?;
    let (key, now) = (environment.key, world.app.now());
    world.app.vault().put(Some(key), "commit-status-token", &SecretText::new("a-token"), now)?;
    let set = |name: &str, value: &str| {
        world.store().settings().change(key, name, Some(&json!(value)), now)
    };
    set("commit_status", "gitea")?;
    set("commit_status_url", &format!("http://{address}/api/v1/"))?;
    world.succeed(&environment, &update())?;
    let good = head(&repository)?;
    world.commit(&repository, "nonsense nonsense")?;
    world.compile(&environment, &update())?;
    let bad = head(&repository)?;
    let all = || received.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let last = |commit: &str| {
        all().into_iter().rfind(|(head, _)| head.contains(commit)).unwrap_or_default()
    };
    // The rejected status is sent again.
    wait_for("both commits are told", || {
        let told = last(&good).1["state"] == "success" && last(&bad).1["state"] == "failure";
        Ok(told.then_some(()))
    })
    .with_context(|| format!("{:?}", all()))?;
    let (head, body) = last(&bad);
    ensure!(head.starts_with("POST /api/v1/repos/"), "{head}");
    ensure!(head.contains(&format!("/shop/model/statuses/{bad} ")), "{head}");
    ensure!(head.to_lowercase().contains("authorization: token a-token"), "{head}");
    ensure!(body["context"] == format!("orrery/project/{}", environment.name), "{body}");
    let target = body["target_url"].as_str().unwrap_or_default();
    ensure!(target.starts_with("http://192.0.2.7:4711/api/v1/environments/"), "{body}");
    ensure!(last(&good).1["description"] == "version 1", "{:?}", last(&good));
    wait_for("nothing is left to tell", || {
        Ok(world.store().commit_statuses().list(key)?.is_empty().then_some(()))
    })
}
