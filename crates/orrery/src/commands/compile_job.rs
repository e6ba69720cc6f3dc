//! `orrery compile-job`: what the compile service of a server runs. A job comes on standard input, its result goes to a file; what is
//! printed is for people.

use std::io::{BufRead as _, Read as _};
use std::path::Path;
use std::sync::Arc;

use orrery_compiler::plugins::ServerSide;
use orrery_compiler::project::Options;
use orrery_server::compiling::{Job, JobResult, Task};

use crate::code::ServerEnvironment;
use crate::known::Known;
use crate::making::Telling;
use crate::{Exit, making, output, projects, style};

use super::deploy::failed;
use super::modules;

pub(crate) fn run() -> Exit {
    let job = match read_job() {
        Ok(job) => job,
        Err(error) => return failed(&error),
    };
    end_with_the_server();
    let installation = modules::ServerInstallation {
        project: &job.project,
        virtualenv: &job.virtualenv,
        fetched: &job.fetched,
        update: matches!(job.task, Task::Update | Task::FetchUpdates),
    };
    match job.task {
        Task::Fetch | Task::FetchUpdates => {
            installation.fetch(modules::Allowed::ByServer { local: job.local_repositories })
        }
        Task::Install | Task::Update => installation.install(),
        Task::Compile => compile(&job),
    }
}

fn read_job() -> std::io::Result<Job> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// The server keeps standard input open as long as it lives. Nobody waits for the result of a compile whose server is gone.
fn end_with_the_server() {
    let wait = || {
        let mut rest = [0; 64];
        while !matches!(std::io::stdin().lock().read(&mut rest), Ok(0) | Err(_)) {}
        let own = rustix::process::getpid();
        let signal = rustix::process::Signal::KILL;
        let group = rustix::process::getpgrp();
        let _ = match group == own {
            true => rustix::process::kill_process_group(group, signal),
            false => rustix::process::kill_process(own, signal),
        };
    };
    // Without it, the compile only runs to its end for nobody.
    if let Err(error) = std::thread::Builder::new().name("lifeline".to_owned()).spawn(wait) {
        tracing::debug!(%error, "nobody watches the server");
    }
}

fn compile(job: &Job) -> Exit {
    let mut options = Options::new(&job.project);
    options.now = projects::now();
    // Without one, whatever Python the machine has does.
    let virtualenv = Some(&job.virtualenv).filter(|path| path.join("pyvenv.cfg").is_file());
    options.python_environment = virtualenv.cloned();
    if let Some(bytes) = job.memory_max {
        // Before the system says no, the model can be told why.
        let bytes = usize::try_from(bytes / 10 * 8).unwrap_or(usize::MAX);
        options.limits.memory_bytes = options.limits.memory_bytes.min(bytes);
    }
    let parameters = job.parameters.iter().cloned();
    let known = parameters.map(|one| (one.resource, one.name, one.value));
    let known = Arc::new(Known::new(known));
    let side = ServerSide {
        environment: job.environment.to_string(),
        environment_name: job.environment_name.clone(),
        host: job.server.host.clone(),
        port: job.server.port,
        tls: job.server.tls,
        ca: job.server.ca.clone(),
    };
    let environment = ServerEnvironment { side, files: job.contents.clone(), known };
    // Where the project lies on the server is of no use to people: files are called as the project calls them.
    let telling = Telling { verbose: true, quiet: false, project: Some(Path::new(".")) };
    let result = match making::make(&options, &environment, &job.exporters, telling) {
        Ok(made) => {
            JobResult { upload: Some(made.upload), contents: made.contents, errors: Vec::new() }
        }
        Err(errors) => JobResult { errors, ..JobResult::default() },
    };
    let exit = if result.errors.is_empty() { Exit::Done } else { Exit::Error };
    match write(&job.result, &result) {
        Ok(()) => exit,
        Err(error) => {
            let path = job.result.display();
            output::say(&format!("{}: {path}: {error}", style::error("error")));
            Exit::Error
        }
    }
}

/// The result is there as a whole or not at all.
fn write(path: &Path, result: &JobResult) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    let file = std::io::BufWriter::with_capacity(1 << 16, std::fs::File::create(&fresh)?);
    serde_json::to_writer(file, result)?;
    std::fs::rename(fresh, path)
}
