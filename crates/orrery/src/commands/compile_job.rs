//! `orrery compile-job`: the process that the compile service of a server starts. Reads a job from
//! standard input and writes its result to a file; the output is a log for users.

use std::io::{BufRead as _, Read as _};
use std::path::Path;
use std::sync::Arc;

use orrery_base::thread::spawn_named;
use orrery_compile_service::{CompileJob, CompileStep, JobResult};
use orrery_compiler::plugins::ServerEnvironmentInfo;
use orrery_compiler::project::CompileLimits;
use orrery_project::{FactSnapshot, FoundProject, MAIN_FILE, ProjectRequest, ServerContext};

use super::deploy::failed;
use super::modules;
use super::version_upload::{ExportOutput, export_project};
use crate::{Exit, output, style};

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
        update: matches!(job.task, CompileStep::Update | CompileStep::FetchUpdates),
    };
    match job.task {
        CompileStep::Fetch | CompileStep::FetchUpdates => {
            installation.fetch(modules::Allowed::ByServer { local: job.local_repositories })
        }
        CompileStep::Install | CompileStep::Update => installation.install(),
        CompileStep::Compile => compile(&job),
    }
}

fn read_job() -> std::io::Result<CompileJob> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Exits when the server is gone: it keeps standard input open while it lives.
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
    // Without the thread, the compile just runs to its end.
    if let Err(error) = spawn_named("lifeline", wait) {
        tracing::debug!(%error, "cannot watch for the end of the server");
    }
}

fn compile(job: &CompileJob) -> Exit {
    // Without a virtualenv, the system's Python is used.
    let virtualenv = Some(&job.virtualenv).filter(|path| path.join("pyvenv.cfg").is_file());
    let mut limits = CompileLimits::default();
    if let Some(bytes) = job.memory_max {
        // Below the limit of the operating system, so that the compiler can report the reason.
        let bytes = usize::try_from(bytes / 10 * 8).unwrap_or(usize::MAX);
        limits.memory_bytes = limits.memory_bytes.min(bytes);
    }
    let parameters = job.parameters.iter().cloned();
    let known = parameters.map(|one| (one.resource, one.name, one.value));
    let known = Arc::new(FactSnapshot::new(known));
    let side = ServerEnvironmentInfo {
        environment: job.environment.to_string(),
        environment_name: job.environment_name.clone(),
        host: job.server.host.clone(),
        port: job.server.port,
        tls: job.server.tls,
        ca: job.server.ca.clone(),
    };
    let environment = ServerContext { side, files: job.contents.clone(), known };
    // Paths on the server are meaningless to users: files are named relative to the project.
    let export_output = ExportOutput { verbose: true, quiet: false, project: Some(Path::new(".")) };
    let request = ProjectRequest {
        python_environment: virtualenv.cloned(),
        now: orrery_base::clock::unix_seconds(),
        limits,
        exporters: job.exporters.clone(),
        ..ProjectRequest::default()
    };
    let project = FoundProject::open(job.project.clone(), MAIN_FILE);
    let result = match export_project(project, request, &environment, export_output) {
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
            output::print_status(&format!("{}: {path}: {error}", style::error("error")));
            Exit::Error
        }
    }
}

/// Writes the result atomically.
fn write(path: &Path, result: &JobResult) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    let file = std::io::BufWriter::with_capacity(1 << 16, std::fs::File::create(&fresh)?);
    serde_json::to_writer(file, result)?;
    std::fs::rename(fresh, path)
}
