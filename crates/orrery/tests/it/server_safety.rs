//! Guarantees of a killed server to its clients: a request with a key is applied once, and
//! acknowledged changes are in the audit log. Also the configurations that it rejects.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use orrery_testing::Postgres;
use serde_json::{Value, json};

use crate::BINARY;
use crate::server_kills::{Server, World};

const ROUNDS: u32 = 8;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("server_safety/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("a_request_with_a_key_is_carried_out_once_sqlite", || carried_out_once(false)),
        trial("a_request_with_a_key_is_carried_out_once_postgres", || carried_out_once(true)),
        trial("a_kill_between_effect_and_answer", kill_between_effect_and_answer),
        trial("a_name_of_another_site_is_refused", foreign_host),
        trial("options_that_are_wrong_are_named", wrong_options),
        trial("empty_variables_say_nothing_and_all_lines_are_json", in_a_container),
        trial("why_a_token_of_an_issuer_is_refused_is_in_the_log", refused_tokens),
        trial("metrics_tell_of_work", metrics),
        trial("roles_serve_what_they_are_for", roles_apart),
        trial("a_server_without_the_key_of_the_secrets_refuses", without_the_key),
    ]
}

/// An environment without deploys.
fn environment(world: &World, server: &Server) -> Result<String> {
    let project = world.create(server, "/api/v1/projects", &json!({"name": "p"}))?;
    let body = json!({"project": project["id"], "name": "e"});
    let made = world.create(server, "/api/v1/environments", &body)?;
    Ok(format!("/api/v1/environments/{}", made["id"].as_str().context("no id")?))
}

fn version(number: usize) -> Value {
    json!({"resources": [{"id": "t::R[a,name=n]", "attributes": {"value": number}}]})
}

fn get(world: &World, server: &Server, path: &str) -> Result<Value> {
    let (status, answer) = world.call_with(server, "GET", path, None, "")?;
    ensure!(status == 200, "{path}: {status} {answer}");
    Ok(answer)
}

/// Length of a list over all pages. The path ends with `?` or `&`.
fn count(world: &World, server: &Server, path: &str) -> Result<usize> {
    let (mut count, mut after) = (0, String::new());
    loop {
        let page = get(world, server, &format!("{path}limit=100{after}"))?;
        count += page["items"].as_array().context("no items")?.len();
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(count),
        }
    }
}

/// Lets leases of a killed server expire, by moving the time.
fn let_time_pass(world: &World) -> Result<()> {
    let Some(database) = &world.database else { return Ok(()) };
    let pass = "UPDATE idempotency SET at = at - 180000000 WHERE status IS NULL";
    Ok(database.connect().batch_execute(pass)?)
}

fn carried_out_once(postgres: bool) -> Result<()> {
    let world = World::new(postgres)?;
    let mut server = world.start()?;
    let environment = environment(&world, &server)?;
    let path = format!("{environment}/versions");
    let (mut sent, mut acknowledged, mut lost) = (0, 0, 0);
    // A generator with a fixed seed: the moments differ, the rounds repeat.
    let mut random = 0x9e37_79b9_u64;
    for _ in 0..ROUNDS {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = Duration::from_micros((random >> 33) % 400_000);
        let pid = server.child.id().to_string();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(after);
            Command::new("kill").args(["-9", &pid]).status()
        });
        loop {
            sent += 1;
            let key = format!("key {sent}");
            match world.call_with(&server, "POST", &path, Some(&version(sent)), &key) {
                Ok((201, _)) => acknowledged += 1,
                Ok((status, answer)) => bail!("a version was refused: {status} {answer}"),
                // The server is gone.
                Err(_) => break,
            }
        }
        ensure!(killer.join().is_ok_and(|done| done.is_ok()), "it could not be killed");
        drop(std::mem::replace(&mut server, world.start()?));
        let_time_pass(&world)?;
        let key = format!("key {sent}");
        let (status, answer) =
            world.call_with(&server, "POST", &path, Some(&version(sent)), &key)?;
        match (status, answer["code"].as_str()) {
            (201, _) => acknowledged += 1,
            (409, Some("already-carried-out")) => lost += 1,
            _ => bail!("{status} {answer}"),
        }
    }
    let stored = count(&world, &server, &format!("{path}?"))?;
    ensure!(stored == sent, "{stored} versions of {sent} requests");
    let noted = count(
        &world,
        &server,
        "/api/v1/audit?action=POST%20/api/v1/environments/%7Benvironment%7D/versions&",
    )?;
    ensure!(noted >= acknowledged, "{noted} entries for {acknowledged} acknowledged versions");
    eprintln!("{sent} requests, {lost} of {ROUNDS} kills between effect and answer");
    Ok(())
}

/// The database stops the server just before it can store the response.
fn kill_between_effect_and_answer() -> Result<()> {
    let world = World::new(true)?;
    let mut server = world.start()?;
    let environment = environment(&world, &server)?;
    let path = format!("{environment}/versions");
    let database = world.database.as_ref().context("no database")?;
    let mut client = database.connect();
    client.batch_execute(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(300); RETURN NEW; END $$; \
         CREATE TRIGGER wait BEFORE UPDATE ON idempotency FOR EACH ROW \
         WHEN (NEW.status IS NOT NULL) EXECUTE FUNCTION wait()",
    )?;
    let send = |server: &Server| world.call_with(server, "POST", &path, Some(&version(1)), "key");
    std::thread::scope(|scope| -> Result<()> {
        let asking = scope.spawn(|| send(&server));
        let until = Instant::now() + PATIENCE;
        while client.query_one("SELECT count(*) FROM version", &[])?.get::<_, i64>(0) == 0 {
            ensure!(Instant::now() < until, "the version never came");
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = server.child.id().to_string();
        ensure!(Command::new("kill").args(["-9", &pid]).status()?.success());
        ensure!(asking.join().is_ok_and(|answer| answer.is_err()), "it was answered");
        Ok(())
    })?;
    drop(client);
    database.cut_connections();
    database.connect().batch_execute("DROP TRIGGER wait ON idempotency")?;
    drop(std::mem::replace(&mut server, world.start()?));
    let (status, answer) = send(&server)?;
    ensure!((status, &answer["code"]) == (409, &json!("request-under-way")), "{status} {answer}");
    let_time_pass(&world)?;
    for _ in 0..2 {
        let (status, answer) = send(&server)?;
        ensure!(
            (status, &answer["code"]) == (409, &json!("already-carried-out")),
            "{status} {answer}"
        );
    }
    ensure!(count(&world, &server, &format!("{path}?"))? == 1);
    Ok(())
}

/// Starts a server that must fail; returns its error output.
fn refusal(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(BINARY);
    command.args(["server", "--listen", "127.0.0.1:0"]).args(arguments);
    if !arguments.contains(&"--log") {
        command.args(["--log", "error"]);
    }
    // If it does start, it is stopped, and the test fails.
    let mut limited = Command::new("timeout");
    limited.arg("60").arg(command.get_program()).args(command.get_args());
    let output = limited.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "{:?}: {text}", output.status);
    Ok(text)
}

fn wrong_options() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().display().to_string();
    let database = Postgres::shared().database();
    let url = database.url();
    let cases: [&[&str]; 2] = [
        &["--data", &data, "--database", &url, "--database-connections", "0"],
        &["--data", &data, "--database-connections", "5"],
    ];
    for case in cases {
        let told = refusal(case)?;
        ensure!(told.contains("--database-connections"), "{case:?}: {told}");
    }
    // From the file, which flags override.
    let config = directory.path().join("server.toml");
    std::fs::write(
        &config,
        format!("database = {url:?}\ndatabase-connections = 0\ndata = {data:?}\n"),
    )?;
    let told = refusal(&["--config", &config.display().to_string()])?;
    ensure!(told.contains("--database-connections"), "{told}");
    // Each names the option and the correct form.
    let open_key = directory.path().join("open.key");
    std::fs::write(&open_key, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")?;
    ensure!(Command::new("chmod").arg("644").arg(&open_key).status()?.success());
    let open_key = open_key.display().to_string();
    let no_key = directory.path().join("no.key");
    std::fs::write(&no_key, "my machine\n")?;
    ensure!(Command::new("chmod").arg("600").arg(&no_key).status()?.success());
    let no_key = no_key.display().to_string();
    let cases: [(&[&str], [&str; 2]); 16] = [
        (&["--workers", "many"], ["--workers", "whole number"]),
        (&["--traces", "not-a-url"], ["--traces", "http://"]),
        (&["--secret-key-file", &open_key], ["--secret-key-file", "0600"]),
        (&["--secret-key-file", &no_key], ["--secret-key-file", "Base64"]),
        (&["--secret-key-file", "/nowhere/key"], ["--secret-key-file", "does not exist"]),
        (&["--log", "nonsense"], ["--log", "not a level"]),
        (&["--compile-memory", "200"], ["--compile-memory", "512 MiB"]),
        (&["--database", "mysql://x"], ["--database mysql://", "postgres://"]),
        (&["--workers", "0"], ["--workers", "at least 1"]),
        (&["--local-workers", "0"], ["--local-workers", "at least 1"]),
        (&["--compile-time", "0"], ["--compile-time", "at least 1"]),
        (&["--traces", "not a url"], ["--traces", "not a url"]),
        (&["--tls-certificate", "/nowhere", "--tls-key", "/nowhere"], ["--tls-", "/nowhere"]),
        (&["--tls-certificate", "/nowhere"], ["--tls-certificate", "--tls-key"]),
        (&["--trusted-proxies", "nonsense"], ["--trusted-proxies", "10.0.0.0/8"]),
        (&["--api-address", "orrery.example.com"], ["--api-address", "https://"]),
    ];
    for (case, words) in cases {
        let told = refusal(&[&["--data", &data], case].concat())?;
        for word in words {
            ensure!(told.contains(word), "{case:?}: {word:?} is not in {told}");
        }
    }
    let told = refusal(&["--data", &data, "--trusted-proxies", "nonsense"])?;
    ensure!(told.matches("10.0.0.0/8").count() == 1, "it is said twice: {told}");
    // The file may contain a password.
    let secret = format!("data = {data:?}\ndatabase-connections = \"hunter2-of-ada\"\n");
    for text in [secret, "database = \"postgres://ada:hunter2-of-ada@db/x\" oops\n".to_owned()] {
        std::fs::write(&config, text)?;
        let told = refusal(&["--config", &config.display().to_string()])?;
        ensure!(!told.contains("hunter2"), "{told}");
        ensure!(told.contains("server.toml") && told.contains("line "), "{told}");
    }
    std::fs::write(&config, format!("data = {data:?}\nworkers = \"many\"\n"))?;
    let told = refusal(&["--config", &config.display().to_string()])?;
    ensure!(told.contains("workers: expected a whole number"), "{told}");
    // A single value is a list of one; and the key may be set elsewhere than the certificate.
    std::fs::write(&config, format!("role = \"api\"\ntls-key = \"/nokey\"\ndata = {data:?}\n"))?;
    let file = config.display().to_string();
    let told = refusal(&["--config", &file, "--database", &url, "--tls-certificate", "/nowhere"])?;
    ensure!(told.contains("/nowhere") && !told.contains("required"), "{told}");
    Ok(())
}

/// As in a container: each variable is set, most of them empty, and a program reads the log.
fn in_a_container() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let config = directory.path().join("server.toml");
    std::fs::write(&config, "listen = \"127.0.0.1:0\"\n")?;
    let mut command = Command::new(BINARY);
    command.arg("server").arg("--config").arg(&config).arg("--data").arg(directory.path());
    command.args(["--log-format", "json", "--tls", "self-signed"]);
    command.args(["--traces", "http://127.0.0.1:1/v1/traces"]);
    let empty =
        ["LISTEN", "WORKERS", "DATABASE", "ROLE", "LOG", "SECRET_KEY_FILE", "COMPILE_MEMORY"];
    command.envs(empty.map(|name| (format!("ORRERY_{name}"), "")));
    command.env("ORRERY_ADMIN_PASSWORD", "").env("CREDENTIALS_DIRECTORY", "");
    let errors = tempfile::NamedTempFile::new()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.reopen()?);
    let mut child = command.spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().context("no output")?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)?;
    // Each request is a span, whatever its status; spans are sent after some seconds.
    let url = line.split_whitespace().last().context("it did not start")?;
    let mut request = Command::new(BINARY);
    request.args(["project", "list"]).env("ORRERY_SERVER", url).env("ORRERY_TOKEN", "orr_none");
    request.env("ORRERY_CA", directory.path().join("self-signed.crt"));
    let refused = request.stdin(Stdio::null()).output()?;
    ensure!(!refused.status.success(), "a token that there is not is taken");
    let until = Instant::now() + PATIENCE;
    let told = loop {
        let told = std::fs::read_to_string(errors.path())?;
        if told.contains("traces cannot be sent") || Instant::now() > until {
            break told;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    child.kill()?;
    child.wait()?;
    ensure!(line.contains("listens on"), "{line:?}: {told}");
    let lines: Result<Vec<Value>, _> = told.lines().map(serde_json::from_str).collect();
    let lines = lines.with_context(|| told.clone())?;
    let has = |name: &str, word: &str| {
        lines
            .iter()
            .any(|line| line["fields"][name].as_str().is_some_and(|text| text.contains(word)))
    };
    ensure!(has("link", "/setup#") && has("command", "orrery login"), "{told}");
    ensure!(has("message", "traces cannot be sent"), "{told}");
    Ok(())
}

/// Signed with the key of the configuration below, except for one; the response has no details.
fn refused_tokens() -> Result<()> {
    use std::io::{BufRead as _, Read as _, Write as _};
    let cases = [
        (
            "it has expired",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJvcnJlcnkiLCJzdWIiOiJhZGEiLCJleHAiOjF9.5fCTaI1rLIOzM2Inrx58pMz1A_cqWv277LiHdDqDNVI",
        ),
        (
            "its audience is not orrery",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJvdGhlciIsInN1YiI6ImFkYSIsImV4cCI6NDEwMjQ0NDgwMH0.g8X9KObbjy9PParIh1HG_TXf7CzjyFgH9AItEyuALOs",
        ),
        (
            "its signature does not match",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJvcnJlcnkiLCJzdWIiOiJhZGEiLCJleHAiOjQxMDI0NDQ4MDB9.8jIx0MVHqTGfV0LyyJlQvsvn7v-LQyqzM1aaxXEg1KQ",
        ),
        (
            "no issuer of this name",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL25vYm9keS5leGFtcGxlIiwiYXVkIjoib3JyZXJ5Iiwic3ViIjoiYWRhIiwiZXhwIjo0MTAyNDQ0ODAwfQ.HJnwWIfSwZQBDYHGVMq4MTktSm7lRL9pR6AGSW2TObM",
        ),
        (
            "it has no claim sub",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJvcnJlcnkiLCJleHAiOjQxMDI0NDQ4MDB9.nXZtNpyU8ehWzeSgngMl2sP5dkgZ16JFdU_-lgk3ldU",
        ),
    ];
    let directory = tempfile::tempdir()?;
    let config = directory.path().join("server.toml");
    std::fs::write(
        &config,
        "listen = \"127.0.0.1:0\"\n[[issuers]]\nname = \"id\"\nissuer = \"https://id.example\"\n\
         audience = \"orrery\"\nshared-key = \"0123456789abcdef0123456789abcdef\"\n",
    )?;
    let mut command = Command::new(BINARY);
    command.arg("server").arg("--config").arg(&config).arg("--data").arg(directory.path());
    let errors = tempfile::NamedTempFile::new()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.reopen()?);
    let mut child = command.spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().context("no output")?;
    std::io::BufReader::new(out).read_line(&mut line)?;
    let address = line.trim().rsplit('/').next().context("no address")?.to_owned();
    let ask = |token: &str| -> Result<String> {
        let mut connection = std::net::TcpStream::connect(&address)?;
        let head = "GET /api/v1/projects HTTP/1.1\r\nHost: test\r\nConnection: close";
        write!(connection, "{head}\r\nAuthorization: Bearer {token}\r\n\r\n")?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answers: Result<Vec<String>> = cases.iter().map(|(_, token)| ask(token)).collect();
    child.kill()?;
    child.wait()?;
    let told = std::fs::read_to_string(errors.path())?;
    for ((reason, _), answer) in cases.iter().zip(answers?) {
        ensure!(answer.starts_with("HTTP/1.1 401"), "{reason}: {answer}");
        ensure!(answer.contains("invalid token") && !answer.contains(reason), "{answer}");
        ensure!(told.contains(reason), "{reason:?} is not in {told}");
    }
    Ok(())
}

fn metrics() -> Result<()> {
    let world = World::new(true)?;
    let server = world.start()?;
    let environment = environment(&world, &server)?;
    world.create(&server, &format!("{environment}/versions"), &version(1))?;
    // There is no handler for it.
    let wanted = [
        "orrery_handler_runs_total{outcome=\"unavailable\"} 1",
        "orrery_handler_run_seconds_count 1",
        "orrery_compile_seconds_count 0",
        "orrery_database_connections_max 10",
        "orrery_database_connections{state=\"idle\"}",
    ];
    let until = Instant::now() + PATIENCE;
    loop {
        let told = get(&world, &server, "/metrics")?;
        let told = told.as_str().context("no text")?;
        let Some(missing) = wanted.iter().find(|line| !told.contains(**line)) else { break };
        ensure!(Instant::now() < until, "{missing} is not in {told}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// As by DNS rebinding: a page of another site reaches the server under its own name.
fn foreign_host() -> Result<()> {
    let world = World::new(false)?;
    let ask = |server: &Server, method: &str, path: &str, host: &str, more: &str| -> Result<u16> {
        let address = server.base.strip_prefix("http://").context("no address")?;
        let mut connection = std::net::TcpStream::connect(address)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        let body = if method == "POST" { "{}" } else { "" };
        write!(
            connection,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n{body}",
            body.len()
        )?;
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(connection), &mut line)?;
        Ok(line.split(' ').nth(1).context("no status")?.parse()?)
    };
    let server = world.start()?;
    let own = server.base.strip_prefix("http://").context("no address")?.to_owned();
    let token = format!("Authorization: Bearer {}\r\n", server.token);
    let evil = "evil.example:8888";
    for (method, path) in [("GET", "/"), ("POST", "/api/v1/login"), ("POST", "/api/v1/setup")] {
        ensure!(ask(&server, method, path, evil, "")? == 421, "{path}");
        ensure!(ask(&server, method, path, evil, &token)? == 421, "{path} is public");
        ensure!(ask(&server, method, path, &own, "")? != 421, "{path}");
        ensure!(ask(&server, method, path, "localhost:1", "")? != 421, "{path}");
    }
    let me = "/api/v1/me";
    ensure!(ask(&server, "GET", me, evil, "Cookie: orrery=orrs_x\r\n")? == 421);
    ensure!(ask(&server, "GET", me, evil, &token)? == 200, "programs may use any name");
    ensure!(ask(&server, "GET", "/health/live", evil, "")? == 200, "probes may use any name");
    drop(server);
    let server = world.start_with(&["--host-names", "orrery.example.com,*.lab"])?;
    ensure!(ask(&server, "POST", "/api/v1/login", "orrery.example.com", "")? != 421);
    ensure!(ask(&server, "POST", "/api/v1/login", "one.lab:8888", "")? != 421);
    ensure!(ask(&server, "POST", "/api/v1/login", evil, "")? == 421);
    drop(server);
    let server = world.start_with(&["--trusted-proxies", "127.0.0.1"])?;
    ensure!(ask(&server, "POST", "/api/v1/login", evil, "")? != 421, "a proxy is in front");
    Ok(())
}

/// A server without an account, and the link that it prints, if any.
fn start_new(database: &str, data: &str, role: &str) -> Result<(Server, Option<String>)> {
    let mut command = Command::new(BINARY);
    command.args(["server", "--listen", "127.0.0.1:0", "--log", "error", "--role", role]);
    command.args(["--data", data, "--database", database]).env_remove("ORRERY_ADMIN_PASSWORD");
    let errors = tempfile::NamedTempFile::new()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.reopen()?);
    let mut child = command.spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().context("no output")?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)?;
    let base = line.split_whitespace().last().context("it did not start")?.to_owned();
    let told = std::fs::read_to_string(errors.path())?;
    let ticket = told.split_once("/setup#").and_then(|(_, rest)| rest.lines().next());
    let ticket = ticket.map(|ticket| ticket.trim().to_owned());
    Ok((Server { child, base, token: String::new() }, ticket))
}

/// One process has the API; starting the others does not affect it, and they serve only health.
fn roles_apart() -> Result<()> {
    let world = World::new(true)?;
    let database = world.database.as_ref().context("no database")?.url();
    let data = world.path("data").display().to_string();
    let (api, ticket) = start_new(&database, &data, "api")?;
    let ticket = ticket.context("no link was printed")?;
    for role in ["process", "gateway", "process,gateway"] {
        let (other, own) = start_new(&database, &data, role)?;
        ensure!(own.is_none(), "{role} prints a link");
        for path in ["/health", "/health/live", "/health/ready"] {
            // A gateway is ready when the others can know of it.
            let until = Instant::now() + PATIENCE;
            loop {
                let (status, answer) = world.call_with(&other, "GET", path, None, "")?;
                if status == 200 {
                    break;
                }
                ensure!(Instant::now() < until, "{role} {path}: {status} {answer}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let (_, answer) = world.call_with(&other, "GET", "/health", None, "")?;
        for part in role.split(',').chain(["store"]) {
            ensure!(answer["checks"][part] == "ok", "{role}: {answer}");
        }
        let (status, _) = world.call_with(&other, "GET", "/metrics", None, "")?;
        ensure!(status == 401, "{role} /metrics: {status}");
        for path in ["/", "/setup", "/api/v1/docs", "/api/v1/openapi.json", "/api/v1/projects"] {
            let (status, answer) = world.call_with(&other, "GET", path, None, "")?;
            ensure!(status == 404, "{role} {path}: {status} {answer}");
        }
        let body = json!({"name": "admin", "password": "x"});
        let (status, _) = world.call_with(&other, "POST", "/api/v1/login", Some(&body), "")?;
        ensure!(status == 404, "{role} login: {status}");
    }
    let body = json!({"token": ticket, "name": "ada", "password": "correct horse battery 1"});
    let (status, answer) = world.call_with(&api, "POST", "/api/v1/setup", Some(&body), "")?;
    ensure!(status < 300, "the link does not work any more: {status} {answer}");
    // A repetition and a wrong link are reported as such.
    for (ticket, reason) in [(&*ticket, "was used already"), ("oru_x", "not the set-up link")] {
        let link = format!("{}/setup#{ticket}", api.base);
        let mut login = Command::new(BINARY);
        login.args(["login", &link, "--name", "ada"]).env("HOME", world.path("home"));
        login.env("XDG_CONFIG_HOME", world.path("home")).env_remove("ORRERY_TOKEN");
        let mut login =
            login.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        login.stdin.take().context("no input")?.write_all(b"correct horse battery 1\n")?;
        let done = login.wait_with_output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.code() == Some(1) && said.contains(reason), "{said}");
        ensure!(!said.contains("not logged in"), "{said}");
    }
    Ok(())
}

fn without_the_key() -> Result<()> {
    let world = World::new(true)?;
    let server = world.start()?;
    let body = json!({"value": "hidden"});
    let path = "/api/v1/secrets/db";
    let (status, answer) = world.call_with(&server, "PUT", path, Some(&body), "")?;
    ensure!(status < 300, "{status} {answer}");
    let url = world.database.as_ref().context("no database")?.url();
    // Another machine, first without a key, then with its own, then with the right one.
    let data = world.path("other");
    std::fs::create_dir(&data)?;
    let other = data.display().to_string();
    let key = data.join("secret.key");
    for own in [None, Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")] {
        if let Some(own) = own {
            std::fs::write(&key, own)?;
            ensure!(Command::new("chmod").arg("600").arg(&key).status()?.success());
        }
        let told = refusal(&["--data", &other, "--database", &url])?;
        for word in ["secret.key", "copy the key file", "--secret-key-file"] {
            ensure!(told.contains(word), "{own:?}: {told}");
        }
    }
    std::fs::copy(world.path("data").join("secret.key"), &key)?;
    let mut command = Command::new(BINARY);
    command.args(["server", "--listen", "127.0.0.1:0", "--log", "error", "--role", "api"]);
    command.args(["--data", &other, "--database", &url, "--database-connections", "3"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().context("no output")?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)?;
    child.kill()?;
    child.wait()?;
    ensure!(line.contains("listens on"), "{line:?}");
    Ok(())
}
