//! Sources of models: clones, branches, permissions, credentials, and lost checkouts.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use orrery_compile_service::CompileService;
use orrery_server::compile_context;
use orrery_server::{ServerSettings, ServerState};
use orrery_store::{CompileRecord, CompileRequest, EnvironmentChange, EnvironmentRecord};

use super::{World, git, model, text, update, wait_for};

pub(super) fn a_commit_becomes_a_version(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let environment = world.environment(&format!("file://{}", repository.display()), "")?;
    let first = world.succeed(&environment, &update())?;
    let stages = world.stages(&first)?;
    let model_stage = "Recompiling configuration model";
    ensure!(
        stages == ["Init", "Cloning repository", "Installing modules", model_stage],
        "{stages:?}"
    );
    ensure!(world.newest_content(&environment)? == "one");
    let versions = world.store().versions().list(environment.key)?;
    let version = &versions[0];
    ensure!(Some(version.number) == first.version && version.released, "{version:?}");
    ensure!(version.info["compile"] == first.id.uuid().to_string(), "{version:?}");
    ensure!(version.info["export_metadata"]["message"] == "a test", "{version:?}");
    ensure!(version.info["commit"].as_str().is_some_and(|hash| hash.len() == 40), "{version:?}");
    world.commit(&repository, &model("\"two\""))?;
    // Without an update, nothing is fetched.
    world.succeed(&environment, &CompileRequest::default())?;
    ensure!(world.newest_content(&environment)? == "one");
    let second = world.succeed(&environment, &update())?;
    ensure!(world.newest_content(&environment)? == "two");
    let stages = world.stages(&second)?;
    let expected = ["Init", "Fetching new branch heads", "Pulling updates", "Updating modules"];
    ensure!(stages == [&expected[..], &[model_stage]].concat(), "{stages:?}");
    let settings = serde_json::json!(false);
    world.store().settings().change(
        environment.key,
        "auto_deploy",
        Some(&settings),
        orrery_model::Timestamp(1),
    )?;
    world.commit(&repository, &model("\"not yet\""))?;
    world.succeed(&environment, &update())?;
    let versions = world.store().versions().list(environment.key)?;
    ensure!(!versions.last().context("a version")?.released);
    // Rewritten history is followed, too.
    std::fs::write(repository.join("main.cf"), model("\"three\""))?;
    git(&repository, &["commit", "--quiet", "--all", "--amend", "--message=other"])?;
    world.succeed(&environment, &update())?;
    ensure!(world.newest_content(&environment)? == "three");
    Ok(())
}

pub(super) fn links_out_are_refused(world: &mut World) -> Result<()> {
    world.start()?;
    let secret = world.path("secret.txt");
    std::fs::write(&secret, "s3cr3t-of-the-server\n")?;
    for name in ["main.cf", "orrery.lock"] {
        let repository = world.repository(&format!("with-{name}"), &model("\"one\""))?;
        let _ = std::fs::remove_file(repository.join(name));
        std::os::unix::fs::symlink(&secret, repository.join(name))?;
        git(&repository, &["add", "--all"])?;
        git(&repository, &["commit", "--quiet", "--message=link"])?;
        let environment = world.environment(&format!("file://{}", repository.display()), "")?;
        let failed = world.compile(&environment, &update())?;
        let data = failed.data.context("errors")?.to_string();
        ensure!(!data.contains("s3cr3t"), "{data}");
        ensure!(data.contains(&format!("{name} is a symbolic link to ")), "{data}");
    }
    Ok(())
}

pub(super) fn another_repository_is_cloned_anew(world: &mut World) -> Result<()> {
    world.start()?;
    let first = world.repository("first", &model("\"first\""))?;
    let second = world.repository("second", &model("\"second\""))?;
    let environment = world.environment(&text(&first), "main")?;
    world.succeed(&environment, &CompileRequest::default())?;
    let repository = text(&second);
    let change = EnvironmentChange { repository: Some(&repository), ..Default::default() };
    let now = world.app.now();
    world.store().environments().update(environment.uuid, None, &change, now)?;
    let done = world.succeed(&environment, &CompileRequest::default())?;
    ensure!(world.stages(&done)?.contains(&"Cloning repository".to_owned()));
    ensure!(world.newest_content(&environment)? == "second");
    let again = CompileRequest { reinstall: true, ..CompileRequest::default() };
    let done = world.succeed(&environment, &again)?;
    ensure!(world.stages(&done)?.contains(&"Cloning repository".to_owned()));
    Ok(())
}

pub(super) fn a_branch_is_followed(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"main\""))?;
    let environment = world.environment(&text(&repository), "main")?;
    world.succeed(&environment, &CompileRequest::default())?;
    git(&repository, &["checkout", "--quiet", "-b", "feature/x"])?;
    world.commit(&repository, &model("\"feature\""))?;
    let change = EnvironmentChange { branch: Some("feature/x"), ..Default::default() };
    let now = world.app.now();
    world.store().environments().update(environment.uuid, None, &change, now)?;
    let done = world.succeed(&environment, &CompileRequest::default())?;
    ensure!(world.stages(&done)?.contains(&"Switching branch".to_owned()));
    ensure!(world.newest_content(&environment)? == "feature");
    let change = EnvironmentChange { branch: Some("nowhere"), ..Default::default() };
    world.store().environments().update(environment.uuid, None, &change, now)?;
    let failed = world.compile(&environment, &update())?;
    ensure!(failed.success == Some(false), "{failed:?}");
    let data = failed.data.context("errors")?.to_string();
    ensure!(data.contains("the repository has no branch nowhere"), "{data}");
    ensure!(data.contains("Switching branch"), "{data}");
    let fresh = world.environment(&text(&repository), "nowhere")?;
    let failed = world.compile(&fresh, &update())?;
    let data = failed.data.context("errors")?.to_string();
    ensure!(data.contains("the repository has no branch nowhere"), "{data}");
    Ok(())
}

pub(super) fn repositories_need_permission(world: &mut World) -> Result<()> {
    world.app = ServerState::new(world.app.store().clone(), ServerSettings::default());
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    for url in [text(&repository), format!("file://{}", repository.display())] {
        let environment = world.environment(&url, "main")?;
        let failed = world.compile(&environment, &update())?;
        let data = failed.data.context("errors")?.to_string();
        ensure!(data.contains("--allow-local-repositories"), "{data}");
    }
    let environment = world.environment("", "")?;
    let data = world.compile(&environment, &update())?.data.context("errors")?.to_string();
    ensure!(data.contains("no repository"), "{data}");
    Ok(())
}

/// Serves files of a directory with a password, as a simple web server.
fn serve_files(root: PathBuf) -> Result<std::net::SocketAddr> {
    use std::io::{BufRead as _, BufReader, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let answer = move |stream: std::net::TcpStream| -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let mut allowed = false;
        for line in lines {
            let line = line?;
            // ada:s3cret-word
            allowed |= line.eq_ignore_ascii_case("authorization: basic YWRhOnMzY3JldC13b3Jk");
            if line.is_empty() {
                break;
            }
        }
        let path = first.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default().trim_start_matches('/');
        let content = std::fs::read(root.join(path));
        let (status, body) = match (allowed, content) {
            (false, _) => ("401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"", Vec::new()),
            (true, Ok(content)) => ("200 OK", content),
            (true, Err(_)) => ("404 Not Found", Vec::new()),
        };
        let length = body.len();
        let mut stream = stream;
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        )?;
        stream.write_all(&body)
    };
    // It ends with the tests.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = answer(stream);
        }
    });
    Ok(address)
}

/// As in Inmanta: clients may request it, and the report has the reason in the fetch stage.
pub(super) fn without_a_repository_a_compile_fails(world: &mut World) -> Result<()> {
    world.start()?;
    let environment = world.environment("", "")?;
    let failed = world.compile(&environment, &update())?;
    ensure!(failed.success == Some(false) && failed.version.is_none(), "{failed:?}");
    let stages = world.stages(&failed)?;
    ensure!(stages == ["Init", "Cloning repository"], "{stages:?}");
    let data = failed.data.clone().context("errors")?.to_string();
    ensure!(data.contains("the environment has no repository"), "{data}");
    Ok(())
}

pub(super) fn credentials_are_used_and_never_shown(world: &mut World) -> Result<()> {
    let repository = world.repository("model", &model("\"private\""))?;
    let bare = world.path("served/model.git");
    let (from, to) = (text(&repository), text(&bare));
    git(world.directory.path(), &["clone", "--quiet", "--bare", &from, &to])?;
    git(&bare, &["update-server-info"])?;
    let address = serve_files(world.path("served"))?;
    let home = world.path("home");
    std::fs::create_dir_all(&home)?;
    world.options.variables.insert("HOME".to_owned(), text(&home));
    world.start()?;
    // There is no password prompt: the compile fails at once, with the reason.
    let open = world.environment(&format!("http://{address}/model.git"), "main")?;
    let started = Instant::now();
    let failed = world.compile(&open, &update())?;
    let data = failed.data.clone().context("errors")?.to_string();
    ensure!(failed.success == Some(false) && data.contains("Cloning repository"), "{data}");
    ensure!(data.contains("could not read Username"), "{data}");
    ensure!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let wrong = world.environment(&format!("http://ada:wr0ng-word@{address}/model.git"), "main")?;
    let failed = world.compile(&wrong, &update())?;
    let data = failed.data.clone().context("errors")?.to_string();
    ensure!(data.contains("Authentication failed"), "{data}");
    let filter = orrery_store::NotificationFilter::default();
    let told = world.store().notifications().list(wrong.key, &filter, None, 10)?;
    ensure!(told[0].message.contains("could not be fetched"), "{told:?}");
    // In the URL, and from git's credential file.
    let right =
        world.environment(&format!("http://ada:s3cret-word@{address}/model.git"), "main")?;
    // While git runs, its arguments never show the password to other users.
    let (ended, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let watching = {
        let (ended, seen) = (Arc::clone(&ended), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut looks = 0;
            while !ended.load(Ordering::Relaxed) {
                looks += usize::from(is_in_arguments("git"));
                if is_in_arguments("s3cret-word") {
                    seen.store(true, Ordering::Relaxed);
                }
            }
            looks
        })
    };
    let done = world.succeed(&right, &update())?;
    ended.store(true, Ordering::Relaxed);
    let looks = watching.join().ok().context("the watch ended early")?;
    ensure!(looks > 0, "git was never seen");
    ensure!(!seen.load(Ordering::Relaxed), "the password is an argument of a program");
    ensure!(world.newest_content(&right)? == "private");
    let config = world.path("data/environments").join(right.uuid.to_string());
    let config = std::fs::read_to_string(config.join("project/.git/config"))?;
    ensure!(config.contains("model.git") && !config.contains("s3cret"), "{config}");
    // A password that an older release stored in plain text is sealed at the next start, and still
    // used.
    world.stop();
    world.start()?;
    let sealed = format!("http://ada:***@{address}/model.git");
    wait_for("the password is sealed", || {
        let kept = world.store().environments().get(right.uuid)?.repository;
        Ok((kept == sealed).then_some(()))
    })?;
    world.succeed(&right, &update())?;
    let netrc = "machine 127.0.0.1 login ada password s3cret-word\n";
    std::fs::write(home.join(".netrc"), netrc)?;
    world.succeed(&open, &update())?;
    // No stored or shown text contains the password.
    let mut kept = data;
    for (environment, compile) in [(&wrong, &failed), (&right, &done)] {
        kept.push_str(&world.output(compile)?);
        kept.push_str(&format!("{:?}", world.store().compiles().stages(compile.id)?));
        kept.push_str(&format!("{:?}", world.store().versions().list(environment.key)?));
        kept.push_str(&format!("{:?}", world.find(environment, compile.id)?));
    }
    ensure!(!kept.contains("s3cret") && !kept.contains("wr0ng"), "{kept}");
    Ok(())
}

/// True if a program on this machine has a text in its arguments.
fn is_in_arguments(text: &str) -> bool {
    let own = std::process::id().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    processes.flatten().filter(|process| *process.file_name() != *own).any(|process| {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(text)
    })
}

pub(super) fn a_lost_checkout_is_noticed(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let here = world.environment(&text(&repository), "main")?;
    let halted = world.environment(&text(&repository), "main")?;
    for environment in [&here, &halted] {
        world.succeed(environment, &update())?;
    }
    world.stop();
    let now = world.app.now();
    world.store().environments().set_halted(halted.uuid, true, now)?;
    std::fs::remove_dir_all(world.path("data"))?;
    // Compiled without a request.
    world.commit(&repository, &model("\"two\""))?;
    let is_recovery = |one: &CompileRecord| one.request.metadata["type"] == "recovery";
    let recovered = |of: &EnvironmentRecord| {
        let all = world.app.store().compiles().list(of.key, Default::default(), None, 10)?;
        Ok::<_, anyhow::Error>(
            all.into_iter().find(|one| is_recovery(one) && one.completed.is_some()),
        )
    };
    let service = CompileService::start(compile_context(&world.app), world.options.clone())?;
    let done = wait_for("the checkout is made again", || recovered(&here))?;
    ensure!(done.success == Some(true) && !done.request.update, "{done:?}");
    let wanted = world.newest_content(&here)?;
    ensure!(wanted.contains("one"), "a commit that nobody asked for: {wanted}");
    ensure!(recovered(&halted)?.is_none());
    world.store().environments().set_halted(halted.uuid, false, now)?;
    world.app.wake_up();
    wait_for("the checkout is made again after the halt", || recovered(&halted))?;
    // Unchanged checkouts are kept.
    drop(service);
    let count = || {
        let all = world.app.store().compiles().list(here.key, Default::default(), None, 99);
        all.map(|all| all.len())
    };
    let before = count()?;
    let service = CompileService::start(compile_context(&world.app), world.options.clone())?;
    std::thread::sleep(Duration::from_millis(500));
    ensure!(count()? == before);
    drop(service);
    Ok(())
}
