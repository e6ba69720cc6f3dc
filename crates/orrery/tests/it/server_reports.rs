//! Reports of deploys on a server are exact for any number of resources, and true while the server
//! restarts.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use orrery_api::client::{Client, Connection};
use orrery_api::{Operation, Transitioning};
use orrery_model::SecretText;
use serde_json::{Value, json};

use crate::server_commands::{PASSWORD, World};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("server_reports/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("counts_are_exact_for_any_number_sqlite", || counts_are_exact_for_any_number(false)),
        trial("counts_are_exact_for_any_number_postgres", || counts_are_exact_for_any_number(true)),
        trial("skipped_resources_stand_under_their_cause", skipped_by_cause),
        trial("progress_counts_the_work_of_this_run", progress_counts_the_work_of_this_run),
        trial("a_deploy_survives_a_restart", a_deploy_survives_a_restart),
        trial("a_deploy_that_gives_up_says_what_is_true", a_deploy_that_gives_up_says_what_is_true),
    ]
}

/// Files below ROOT, COUNT of them, with TEXT in each.
const FILES: &str = r#"
host = std::Host(name="localhost", os=std::linux)
owner = std::get_env("OWNER")
group = std::get_env("GROUP")
root = std::get_env("ROOT")
text = std::get_env("TEXT")
for number in std::sequence(int(std::get_env("COUNT"))):
    std::File(
        host=host, path="{{ root }}/{{ number }}.conf", owner=owner, group=group, mode=644,
        content="{{ text }} {{ number }}\n",
    )
end
"#;

/// The same behind a directory that cannot be created.
const BEHIND: &str = r#"
host = std::Host(name="localhost", os=std::linux)
owner = std::get_env("OWNER")
group = std::get_env("GROUP")
root = std::get_env("ROOT")
base = std::Directory(host=host, path="{{ root }}/file/base", owner=owner, group=group, mode=755)
for number in std::sequence(int(std::get_env("COUNT"))):
    std::File(
        host=host, path="{{ root }}/{{ number }}.conf", owner=owner, group=group, mode=644,
        content="x", requires=base,
    )
end
"#;

/// Slow commands, each once per deploy.
const COMMANDS: &str = r#"
import exec
host = std::Host(name="localhost", os=std::linux)
for number in std::sequence(int(std::get_env("COUNT"))):
    exec::Run(host=host, command="sh -c 'sleep 0.4; echo {{ number }} >> $ROOT/ran'", environment={"ROOT": std::get_env("ROOT")})
end
"#;

fn settled(model: &str, postgres: bool) -> Result<World> {
    let mut world = World::new(postgres)?;
    world.settle("")?;
    world.done("orrery new model")?;
    std::fs::write(world.directory.path().join("model/main.cf"), model)?;
    Ok(world)
}

/// A deploy of so many resources, as a shell command.
fn deploy(root: &str, count: usize, text: &str, options: &str) -> String {
    format!(
        "cd model && OWNER=$(id -un) GROUP=$(id -gn) ROOT={root} COUNT={count} TEXT={text} orrery deploy {options}"
    )
}

fn files_in(root: &std::path::Path, text: &str) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(root)? {
        count += usize::from(std::fs::read_to_string(entry?.path())?.starts_with(text));
    }
    Ok(count)
}

fn grouped(count: usize) -> String {
    if count < 1000 { count.to_string() } else { format!("{},{:03}", count / 1000, count % 1000) }
}

fn counts_are_exact_for_any_number(postgres: bool) -> Result<()> {
    let world = settled(FILES, postgres)?;
    for count in [199, 200, 201, 1000] {
        let directory = world.directory.path().canonicalize()?.join(format!("of{count}"));
        std::fs::create_dir(&directory)?;
        let root = directory.to_string_lossy().into_owned();
        let said = world.done(&deploy(&root, count, "one", ""))?;
        ensure!(files_in(&directory, "one")? == count, "{count} files were to be there");
        let summary = format!("deployed: {} created in ", grouped(count));
        ensure!(said.contains(&summary), "{count}: {summary:?} is missing\n{said}");
        let listed = said.lines().filter(|line| line.starts_with("created std::File")).count();
        ensure!(listed == count.min(200), "{count}: {listed} are listed");
        let rest = format!("… and {} more change", grouped(count.saturating_sub(200)));
        ensure!(said.contains(&rest) == (count > 200), "{count}\n{said}");

        let text = world.done(&deploy(&root, count, "two", "--json 2> /dev/null"))?;
        let report: Value = serde_json::from_str(&text).context(text)?;
        ensure!(files_in(&directory, "two")? == count, "{count} files were to be changed");
        let tally = json!([count, 0, count, 0, 0]);
        let found: Vec<&Value> = ["deployed", "created", "updated", "failed", "stopped"]
            .iter()
            .map(|name| &report["tally"][*name])
            .collect();
        ensure!(json!(found) == tally, "{count}: {}", report["tally"]);
        let resources = report["resources"].as_array().context("no resources")?;
        let mut ids: Vec<&str> = resources.iter().filter_map(|one| one["id"].as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        ensure!(ids.len() == count, "{count}: {} resources are listed", ids.len());
        let updated = |one: &Value| one["change"] == "updated" && one["status"] == "deployed";
        ensure!(resources.iter().all(updated), "{count}: not all were updated");

        let said = world.done(&deploy(&root, count, "two", ""))?;
        let summary = format!("nothing to change: {} resources unchanged", grouped(count));
        ensure!(said.contains(&summary), "{count}: {summary:?} is missing\n{said}");
    }
    Ok(())
}

fn skipped_by_cause() -> Result<()> {
    let world = settled(BEHIND, false)?;
    let root = world.directory.path().canonicalize()?.join("behind");
    std::fs::create_dir(&root)?;
    std::fs::write(root.join("file"), "a file is not a directory")?;
    let root = root.to_string_lossy().into_owned();
    let base = format!("std::Directory[localhost,path={root}/file/base]");
    // On the server, and locally.
    for options in ["", "--local"] {
        let (said, code) = world.run(&deploy(&root, 1000, "x", options))?;
        ensure!(code == 2, "{options}: {code}\n{said}");
        let lines: Vec<&str> = said.lines().collect();
        let at = |wanted: &str| {
            let found = lines.iter().position(|line| line.starts_with(wanted));
            found.with_context(|| format!("{options}: {wanted:?} is missing\n{said}"))
        };
        let skipped = at(&format!("skipped 1,000 resources because {base} failed"))?;
        let failed = at(&format!("failed {base}"))?;
        let summary = at("partially deployed: 1 failed, 1,000 skipped in ")?;
        ensure!(skipped < failed && failed < summary, "{options}: failures come last\n{said}");
        ensure!(summary - failed <= 3 && lines.len() < 15, "{options}: {} lines", lines.len());
    }
    Ok(())
}

/// A logged-in client, and the path of the environment.
fn client(world: &World) -> Result<(Client, String)> {
    let server = world.url()?.to_owned();
    let connection = |token| Connection { server: server.clone(), token, ca: None };
    let login = json!({"name": "admin", "password": PASSWORD});
    let session: Value = Client::new(&connection(None))?.post_once("/api/v1/login", &login)?;
    let token = session["token"].as_str().context("no token")?;
    let client = Client::new(&connection(Some(SecretText::new(token))))?;
    let environments: Value = client.get("/api/v1/environments")?;
    let id = environments["items"][0]["id"].as_str().context("no environment")?;
    let path = format!("/api/v1/environments/{id}");
    Ok((client, path))
}

fn progress_counts_the_work_of_this_run() -> Result<()> {
    let world = settled(COMMANDS, false)?;
    let root = world.directory.path().canonicalize()?.to_string_lossy().into_owned();
    world.done(&deploy(&root, 6, "x", ""))?;
    let (client, environment) = client(&world)?;
    // Earlier deploys are not part of the current one.
    let begun: Operation = client.post(&format!("{environment}/repair"), &json!({}))?;
    let at = format!("{environment}/operations/{}", begun.id);
    let mut seen = Vec::new();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let now: Operation = client.get(&at)?;
        if now.transitioning == Transitioning::No {
            break;
        }
        seen.extend(now.progress);
        ensure!(Instant::now() < until, "it does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    let first = seen.first().context("no progress was told")?;
    ensure!(first.total == 6 && first.done < 6, "{first:?}");
    ensure!(first.running.iter().any(|id| id.starts_with("exec::Run[localhost,")), "{first:?}");
    ensure!(seen.windows(2).all(|pair| pair[0].done <= pair[1].done), "{seen:?}");
    let report: Value = client.get(&format!("{at}/report"))?;
    let wanted =
        json!({"total": 6, "by_status": {"deployed": 6}, "created": 0, "updated": 6, "purged": 0});
    ensure!(report == wanted, "{report}");
    Ok(())
}

/// Starts a deploy in the background.
fn begin(world: &World, line: &str) -> Result<()> {
    let line = format!(
        "rm -f said code; ( ({line}) > said 2>&1; echo $? > code ) < /dev/null > /dev/null 2>&1 &"
    );
    world.done(&line)?;
    Ok(())
}

/// Waits until a file contains these words; returns its content.
fn wait_for(world: &World, file: &str, words: &str) -> Result<String> {
    let until = Instant::now() + Duration::from_secs(90);
    loop {
        let text = std::fs::read_to_string(world.directory.path().join(file)).unwrap_or_default();
        if text.contains(words) {
            return Ok(text);
        }
        if Instant::now() > until {
            let said = std::fs::read_to_string(world.directory.path().join("said"))?;
            anyhow::bail!("{file} has no {words:?}: {text}\n{said}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Commands that take 15 seconds together: a loaded machine sees the first one long before the
/// last.
const LONG: usize = 40;

fn a_deploy_survives_a_restart() -> Result<()> {
    let mut world = settled(COMMANDS, false)?;
    let root = world.directory.path().canonicalize()?.to_string_lossy().into_owned();
    begin(&world, &deploy(&root, LONG, "x", ""))?;
    wait_for(&world, "ran", "\n")?;
    // It is away for longer than a request is repeated.
    world.pause(Duration::from_secs(4))?;
    wait_for(&world, "code", "\n")?;
    let said = wait_for(&world, "said", "deployed")?;
    ensure!(world.done("cat code")?.trim() == "0", "{said}");
    let lost =
        "connection lost; version 1 is stored and released, the server continues; reconnecting";
    for words in [lost, "reconnected", &format!("deployed: {LONG} updated in ")] {
        ensure!(said.contains(words), "{words:?} is missing\n{said}");
    }
    Ok(())
}

fn a_deploy_that_gives_up_says_what_is_true() -> Result<()> {
    let mut world = settled(COMMANDS, false)?;
    let root = world.directory.path().canonicalize()?.to_string_lossy().into_owned();
    let line = deploy(&root, LONG, "x", "").replace("COUNT=", "ORRERY_RECONNECT_SECONDS=3 COUNT=");
    begin(&world, &line)?;
    wait_for(&world, "ran", "\n")?;
    world.end()?;
    wait_for(&world, "code", "1\n")?;
    let said = wait_for(&world, "said", "gave up after 3.0 s")?;
    let truth = "Version 1 is stored and released, and the server continues";
    for words in ["connection lost", truth, "orrery status"] {
        ensure!(said.contains(words), "{words:?} is missing\n{said}");
    }
    Ok(())
}
