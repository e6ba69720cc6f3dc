//! One run of a compile, in stages: sources, modules, model.

mod outcome;

use std::path::Path;

use orrery_api::{CompileProblem, ProblemCategory};
use orrery_base::clock::monotonic;
use orrery_sandbox::{Confinement, LIMIT_EXCEEDED, MESSAGE_PREFIX};
use orrery_store::{
    ClaimedCompile, CompileRequest, EnvironmentRecord, NewCommitStatus, StoreError,
};
use serde_json::json;
use uuid::Uuid;

use self::outcome::ExportedVersion;
use crate::child::{ChildCommand, ChildLimits, End, end_leftovers};
use crate::context::CompileContext;
use crate::credentials::repository_url;
use crate::job::{CompileJob, CompileStep, JOB_COMMAND, JobParameter, JobResult};
use crate::output_filter::CredentialMask;
use crate::recorder::{Recorder, RunInterruption};
use crate::repository::Repository;
use crate::symlinks::{self, EscapingLink};
use crate::triggers::last_compiled_commit;
use crate::untrusted_file::{self, RESULT_MAX};
use crate::workdir::Workdir;
use crate::{CompileOptions, commit_status, confinement, memory_limit, poll_schedule};

/// Maximum size of a `project.yml`.
const PROJECT_MAX: u64 = 1 << 20;

/// Reason why a run ends without a version.
#[derive(Debug)]
pub(crate) enum RunError {
    RunInterruption(RunInterruption),
    Failed(RunFailure),
}

/// Problems of a failed run.
#[derive(Debug, Default)]
pub(crate) struct RunFailure {
    pub(crate) problems: Vec<CompileProblem>,
    /// The sources could not be fetched.
    pub(crate) while_fetching: bool,
}

impl From<RunInterruption> for RunError {
    fn from(interrupted: RunInterruption) -> Self {
        RunError::RunInterruption(interrupted)
    }
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        RunError::RunInterruption(error.into())
    }
}

impl RunError {
    pub(crate) fn failed(
        category: ProblemCategory,
        r#type: &str,
        message: impl Into<String>,
    ) -> Self {
        let problem = CompileProblem {
            category,
            r#type: r#type.to_owned(),
            message: message.into(),
            ..CompileProblem::default()
        };
        RunError::Failed(RunFailure { problems: vec![problem], while_fetching: false })
    }

    /// Replaces git's message by one that names the branch, if the branch does not exist.
    fn with_missing_branch(self, branch: &str) -> Self {
        const SIGNS: [&str; 3] =
            ["invalid reference: ", "did not match any file", "not found in upstream"];
        let RunError::Failed(mut failed) = self else { return self };
        for problem in &mut failed.problems {
            if SIGNS.iter().any(|sign| problem.message.contains(sign)) {
                problem.message = format!("the repository has no branch {branch}");
            }
        }
        RunError::Failed(failed)
    }

    fn while_fetching(self) -> Self {
        match self {
            RunError::Failed(failed) => {
                RunError::Failed(RunFailure { while_fetching: true, ..failed })
            }
            other @ RunError::RunInterruption(_) => other,
        }
    }
}

/// A run in progress.
pub(crate) struct Run<'a> {
    pub(crate) app: &'a CompileContext,
    pub(crate) options: &'a CompileOptions,
    pub(crate) environment: EnvironmentRecord,
    pub(crate) claimed: &'a ClaimedCompile,
    /// The request, merged with all others that this run serves.
    pub(crate) request: CompileRequest,
    pub(crate) workdir: Workdir,
    pub(crate) recorder: Recorder<'a>,
    /// Commit of the sources.
    pub(crate) commit: Option<String>,
    /// True if it was fetched as the head of the branch in this run.
    fetched: bool,
    /// Commit of the last compile, if another machine ran it: this run compiles the same one,
    /// unless the request asks for an update.
    pinned_commit: Option<String>,
    limits: ChildLimits,
    /// Confinement of tenant code.
    confinement: Option<Confinement>,
}

/// Runs a compile and records its outcome. An interrupted run is repeated later.
pub(crate) fn run(
    app: &CompileContext,
    options: &CompileOptions,
    claimed: &ClaimedCompile,
    stopping: &dyn Fn() -> bool,
) -> Result<(), RunInterruption> {
    let store = app.store();
    let mut environment = store.environments().by_key(claimed.run.environment)?;
    environment.repository = repository_url(app, &environment);
    let workdir = Workdir::for_environment(&options.data, environment.uuid);
    let request = claimed.record.used.clone().unwrap_or_else(|| claimed.record.request.clone());
    let mask = CredentialMask::for_url(&environment.repository);
    let recorder = Recorder::new(app, claimed.run, stopping, mask);
    let limits = ChildLimits {
        until: monotonic() + options.time_max,
        memory_max: options.memory_max,
        nice: options.nice,
    };
    let last = store.compiles().last(environment.key)?;
    let was_here =
        last.is_none_or(|last| workdir.last_compile() == Some(last.serving_compile().uuid()));
    let pinned_commit = match was_here || request.update {
        true => None,
        false => last_compiled_commit(app.store(), environment.key)?,
    };
    let mut run = Run {
        app,
        options,
        environment,
        claimed,
        request,
        workdir,
        recorder,
        commit: None,
        fetched: false,
        pinned_commit,
        limits,
        confinement: None,
    };
    let ended = run.execute();
    run.workdir.clean_up();
    run.record_sources(&ended)?;
    let outcome = match ended {
        Ok(None) => Ok((None, None)),
        Ok(Some(ExportedVersion { number, unchanged })) => {
            Ok((Some(number), unchanged.then(|| json!({ "unchanged": true }))))
        }
        Err(RunError::Failed(failed)) => Err(outcome::failure(&run, &failed)),
        Err(RunError::RunInterruption(interrupted)) => return Err(interrupted),
    };
    store.compiles().complete(&claimed.run, &outcome, app.now())?;
    match &outcome {
        Ok((Some(number), None)) => run.report("success", &format!("version {number}"))?,
        Ok((Some(number), Some(_))) => {
            run.report("success", &format!("unchanged: version {number} is still current"))?;
        }
        Ok((None, _)) => {}
        Err(failure) => run.report("failure", &first_problem(&failure.data))?,
    }
    app.wake_up();
    Ok(())
}

/// Returns the first line of the first problem.
fn first_problem(data: &serde_json::Value) -> String {
    let message = data["errors"][0]["message"].as_str().unwrap_or_default();
    let line = message.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("the compile failed").to_owned()
}

impl Run<'_> {
    pub(crate) fn id(&self) -> Uuid {
        self.claimed.run.id.uuid()
    }

    /// Records the fetched commit of the branch, and the compiled one.
    fn record_sources(
        &self,
        ended: &Result<Option<ExportedVersion>, RunError>,
    ) -> Result<(), StoreError> {
        let store = self.app.store();
        let key = self.environment.key;
        let commit = self.commit.as_deref();
        match ended {
            Err(RunError::RunInterruption(_)) => Ok(()),
            Err(RunError::Failed(failed)) if failed.while_fetching => {
                let Some(known) = store.branches().get(key)? else { return Ok(()) };
                let now = self.app.now();
                let due = poll_schedule::after_unfetched(known.unfetched, key, now);
                store.branches().record_fetch_failure(key, due)
            }
            ended => {
                let fetched = commit.filter(|_| self.fetched);
                store.branches().record_compiled_commit(
                    key,
                    fetched,
                    commit.filter(|_| matches!(ended, Ok(Some(_)))),
                )
            }
        }
    }

    /// Queues a commit status, if the run has a commit and stores a version.
    fn report(&self, state: &str, description: &str) -> Result<(), StoreError> {
        let Some(commit) = self.commit.as_deref().filter(|_| self.request.export) else {
            return Ok(());
        };
        let status = NewCommitStatus { commit, state, description, compile: self.claimed.run.id };
        commit_status::enqueue(self.app, self.environment.key, &status)
    }

    fn execute(&mut self) -> Result<Option<ExportedVersion>, RunError> {
        if let Some(number) = outcome::find_stored_version(self)? {
            return Ok(Some(ExportedVersion { number, unchanged: false }));
        }
        let confinement = self.options.isolation.confinement(self.environment.key);
        self.confinement = confinement.map_err(|error| {
            RunError::failed(ProblemCategory::Stage, "Isolation", error.to_string())
        })?;
        self.init()?;
        let installing = self.fetch_sources()?;
        self.check_links()?;
        self.commit = self.query(&Repository::commit(&self.workdir.project()))?;
        self.report("pending", "compiling")?;
        self.install_modules(installing)?;
        // Modules were cloned into the checkout.
        self.check_links()?;
        let result = self.compile()?;
        if !result.errors.is_empty() {
            let problems = memory_limit::explain(result.errors, self.options.memory_max);
            return Err(RunError::Failed(RunFailure { problems, while_fetching: false }));
        }
        let Some(upload) = result.upload else {
            let text = "the compiler succeeded without a result; see its output";
            return Err(RunError::failed(ProblemCategory::Stage, "NoResult", text));
        };
        if !self.request.export {
            return Ok(None);
        }
        outcome::store_version(self, upload, &result.contents).map(Some)
    }

    /// Runs a stage inside the server.
    fn internal_stage(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> std::io::Result<()>,
    ) -> Result<(), RunError> {
        self.recorder.begin(name, "")?;
        let done = work(self);
        if let Err(error) = &done {
            self.recorder.record_line(true, &error.to_string());
        }
        self.recorder.end(i64::from(done.is_err()))?;
        done.map_err(|error| RunError::failed(ProblemCategory::Stage, name, error.to_string()))
    }

    /// Runs a stage as a child process.
    fn stage(&mut self, name: &str, command: &ChildCommand) -> Result<(), RunError> {
        let shown = command.to_display(self.recorder.mask());
        self.recorder.begin(name, &shown)?;
        let end = self.watch(command);
        let tail = self.recorder.output_tail();
        let (returncode, failed) = match end {
            Ok(End::Exit(0)) => (0, None),
            Ok(End::Exit(code))
                if memory_limit::is_exhausted(&tail) && self.options.memory_max.is_some() =>
            {
                let problem =
                    memory_limit::limit_problem(self.options.memory_max.unwrap_or_default());
                self.recorder.record_line(true, &problem.message);
                let failed = RunFailure { problems: vec![problem], while_fetching: false };
                (code, Some(RunError::Failed(failed)))
            }
            Ok(End::Exit(code)) if code == i64::from(LIMIT_EXCEEDED) => {
                // The sandbox names the limit in its output.
                let detail = tail.lines().find_map(|line| line.strip_prefix(MESSAGE_PREFIX));
                let detail = detail.unwrap_or("a limit was exceeded");
                (code, Some(RunError::failed(ProblemCategory::Limit, "Sandbox", detail)))
            }
            Ok(End::Exit(code)) => {
                let detail = last_lines(&tail);
                let text = format!("{shown} failed (exit status {code}){detail}");
                (code, Some(RunError::failed(ProblemCategory::Stage, name, text)))
            }
            Ok(End::TimedOut) => {
                let seconds = self.options.time_max.as_secs();
                let text = format!("the compile took longer than {seconds} s and was ended");
                self.recorder.record_line(true, &text);
                (-1, Some(RunError::failed(ProblemCategory::Limit, "Timeout", text)))
            }
            Ok(End::Stopped) => {
                self.recorder.check()?;
                (-1, Some(RunInterruption::Lost.into()))
            }
            Err(error) => {
                let text = format!("{shown} could not be started: {error}");
                self.recorder.record_line(true, &text);
                (-1, Some(RunError::failed(ProblemCategory::Stage, name, text)))
            }
        };
        self.recorder.end(returncode)?;
        failed.map_or(Ok(()), Err)
    }

    fn watch(&mut self, command: &ChildCommand) -> std::io::Result<End> {
        let recorder = std::cell::RefCell::new(&mut self.recorder);
        let mut should_continue = || recorder.borrow_mut().should_continue();
        let mut on_output =
            |error: bool, bytes: &[u8]| recorder.borrow_mut().record_output(error, bytes);
        let command = command.clone().envs(&self.options.variables).data(&self.options.data);
        command.run(&self.limits, self.workdir.root(), &mut should_continue, &mut on_output)
    }

    /// Runs a query; returns its output, or `None` if it fails.
    fn query(&mut self, command: &ChildCommand) -> Result<Option<String>, RunError> {
        self.recorder.check()?;
        let mut text = Vec::new();
        let recorder = &mut self.recorder;
        let mut should_continue = || recorder.should_continue();
        let mut on_output = |error: bool, bytes: &[u8]| {
            if !error {
                text.extend_from_slice(bytes);
            }
        };
        let command = command.clone().envs(&self.options.variables).data(&self.options.data);
        let end =
            command.run(&self.limits, self.workdir.root(), &mut should_continue, &mut on_output);
        match end {
            Ok(End::Exit(0)) => Ok(Some(String::from_utf8_lossy(&text).trim().to_owned())),
            Ok(End::Stopped) => {
                self.recorder.check()?;
                Err(RunInterruption::Lost.into())
            }
            _ => Ok(None),
        }
    }

    fn init(&mut self) -> Result<(), RunError> {
        self.internal_stage("Init", |run| {
            // Leftovers of a run that was killed with its server.
            end_leftovers(run.workdir.root());
            // Accounts that may view a compile must not see the values.
            for name in run.request.all_variables().keys() {
                run.recorder.record_line(false, &format!("{name}=***"));
            }
            if run.request.reinstall && run.workdir.has_project() {
                run.recorder.record_line(false, "Deleting the checkout, as requested");
                run.workdir.wipe()?;
            }
            run.workdir.prepare(run.id(), run.confinement.as_ref())
        })
    }

    /// Rejects sources with symbolic links to files of the server.
    fn check_links(&self) -> Result<(), RunError> {
        let failed = |text: String| RunError::failed(ProblemCategory::Stage, "EscapingLink", text);
        let project = self.workdir.project();
        match symlinks::find_escaping(&project) {
            Ok(None) => Ok(()),
            Ok(Some(EscapingLink { path, target })) => Err(failed(format!(
                "{} is a symbolic link to {}, which is outside of the repository: a server compiles only files of the repository; commit the file itself",
                path.display(),
                target.display()
            ))),
            Err(error) => Err(failed(format!("cannot check the links of the checkout: {error}"))),
        }
    }

    /// Fetches the sources; returns true if the repository or branch changed.
    fn fetch_sources(&mut self) -> Result<bool, RunError> {
        let EnvironmentRecord { repository, branch, .. } = &self.environment;
        if repository.is_empty() && self.workdir.project().join("project.yml").is_file() {
            return Ok(false);
        }
        let local = self.app.local_repositories;
        let repository = match Repository::new(repository, branch, local) {
            Ok(repository) => repository,
            Err(error) => {
                let text = std::io::Error::other(error.to_string());
                self.internal_stage("Cloning repository", |_| Err(text))?;
                return Ok(false);
            }
        };
        let project = self.workdir.project();
        let origin = repository.fingerprint();
        if !self.workdir.has_checkout_of(&origin) {
            // Another repository, or an incomplete clone.
            self.workdir.wipe().map_err(|error| {
                RunError::failed(ProblemCategory::Stage, "Cloning repository", error.to_string())
            })?;
            let command = repository.clone_into(&project);
            let branch = repository.branch.clone();
            self.stage("Cloning repository", &command)
                .map_err(|stop| stop.while_fetching().with_missing_branch(&branch))?;
            self.workdir.record_origin(&origin).map_err(|error| {
                RunError::failed(ProblemCategory::Stage, "Cloning repository", error.to_string())
            })?;
            self.fetched = self.pinned_commit.is_none();
            self.restore_commit(&repository)?;
            return Ok(true);
        }
        let current = self.query(&repository.current_branch(&project))?;
        let wanted = match branch_of(&repository) {
            Some(wanted) => wanted,
            None => current.clone().unwrap_or_default(),
        };
        let switching = current.as_deref() != Some(&*wanted) && !wanted.is_empty();
        let mut known = self.query(&repository.upstream(&project, &wanted))?.is_some();
        let fetches = self.request.update || (switching && !known);
        if fetches {
            let command = repository.fetch(&project);
            self.stage("Fetching new branch heads", &command).map_err(RunError::while_fetching)?;
            known = self.query(&repository.upstream(&project, &wanted))?.is_some();
        }
        if switching {
            self.stage("Switching branch", &repository.switch(&project))
                .map_err(|stop| stop.while_fetching().with_missing_branch(&wanted))?;
        }
        if known && (self.request.update || switching) {
            let command = repository.reset_to_branch(&project, &wanted);
            self.stage("Pulling updates", &command).map_err(RunError::while_fetching)?;
            self.fetched = fetches;
        } else if !switching {
            self.restore_commit(&repository)?;
        }
        Ok(switching)
    }

    /// Checks out the commit of the last compile, if another machine ran it: an update was not
    /// requested.
    fn restore_commit(&mut self, repository: &Repository) -> Result<(), RunError> {
        let Some(commit) = self.pinned_commit.clone() else { return Ok(()) };
        let project = self.workdir.project();
        if self.query(&Repository::commit(&project))?.as_ref() == Some(&commit) {
            return Ok(());
        }
        let current = self.query(&repository.current_branch(&project))?;
        let Some(branch) = branch_of(repository).or(current) else { return Ok(()) };
        let has = repository.has_commit(&project, &branch, &commit);
        if self.query(&has)?.is_none() {
            let command = repository.fetch(&project);
            self.stage("Fetching new branch heads", &command).map_err(RunError::while_fetching)?;
            if self.query(&has)?.is_none() {
                // Another repository or branch, or a rewritten history: the commit is gone.
                return Ok(());
            }
        }
        let command = repository.reset_to(&project, &commit);
        self.stage("Checking out the commit of the last compile", &command)
            .map_err(RunError::while_fetching)
    }

    fn install_modules(&mut self, installing: bool) -> Result<(), RunError> {
        let (name, task) = if self.request.update && !installing {
            ("Updating modules", CompileStep::Update)
        } else if installing {
            ("Installing modules", CompileStep::Install)
        } else {
            ("Venv check", CompileStep::Install)
        };
        if self.may_name_repositories() {
            let fetch = if task == CompileStep::Update {
                CompileStep::FetchUpdates
            } else {
                CompileStep::Fetch
            };
            self.run_job("Fetching modules", fetch, Vec::new())?;
        }
        self.run_job(name, task, Vec::new())
    }

    /// True if the project file may name module repositories. A cheap pre-check that avoids a job
    /// for most projects.
    fn may_name_repositories(&self) -> bool {
        let project =
            untrusted_file::read(&self.workdir.project(), Path::new("project.yml"), PROJECT_MAX);
        let text = project.unwrap_or_default();
        text.windows(4).any(|word| word == b"repo")
    }

    fn compile(&mut self) -> Result<JobResult, RunError> {
        let name = "Recompiling configuration model";
        let parameters = self.parameters()?;
        let ended = self.run_job(name, CompileStep::Compile, parameters);
        let result = read_result(&self.workdir);
        match (ended, result) {
            (Ok(()), Ok(result)) => Ok(result),
            // Errors of the compiler take precedence over its exit status, unless a limit caused
            // it.
            (Err(RunError::Failed(failed)), Ok(mut result)) if !result.errors.is_empty() => {
                let limits = failed
                    .problems
                    .into_iter()
                    .filter(|one| one.category == ProblemCategory::Limit);
                result.errors.splice(0..0, limits);
                Ok(result)
            }
            (Err(stop), _) => Err(stop),
            (Ok(()), Err(error)) => {
                let text = format!("the compiler's result cannot be read: {error}");
                Err(RunError::failed(ProblemCategory::Stage, name, text))
            }
        }
    }

    /// Runs a job of this program in a child process.
    fn run_job(
        &mut self,
        name: &str,
        task: CompileStep,
        parameters: Vec<JobParameter>,
    ) -> Result<(), RunError> {
        let compiling = task == CompileStep::Compile;
        let job = CompileJob {
            task,
            project: self.workdir.project(),
            virtualenv: self.workdir.virtualenv(),
            fetched: self.workdir.fetched(),
            environment: self.environment.uuid.uuid(),
            environment_name: self.environment.name.clone(),
            server: self.options.server.to_job_server(),
            parameters,
            exporters: self.request.exporters.iter().cloned().collect(),
            contents: self.workdir.contents(),
            result: self.workdir.result(),
            local_repositories: self.app.local_repositories,
            memory_max: self.options.memory_max,
        };
        let mut input = serde_json::to_vec(&job)
            .map_err(|error| RunError::failed(ProblemCategory::Stage, name, error.to_string()))?;
        input.push(b'\n');
        let program = self.options.program.clone();
        // A new checkout has removed them.
        self.workdir
            .make_writable(self.confinement.as_ref())
            .map_err(|error| RunError::failed(ProblemCategory::Stage, name, error.to_string()))?;
        let confinement = self.confinement.clone().and_then(|confinement| {
            confinement::for_task(task, confinement, &self.workdir, self.options)
        });
        let mut command =
            ChildCommand::new(program).confined(confinement).arg(JOB_COMMAND).input(input);
        if !compiling {
            // Git, called by pip or for module repositories, must not prompt.
            command = command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_ASKPASS", "");
            command = command.env("SSH_ASKPASS", "").ssh_batch_mode();
        }
        if compiling {
            for (name, value) in self.request.all_variables() {
                command = command.env(&name, value);
            }
        }
        self.stage(name, &command.directory(self.workdir.root()))
    }

    /// Returns parameters and facts for the model.
    fn parameters(&self) -> Result<Vec<JobParameter>, RunError> {
        let known = outcome::model_parameters(self.app.store(), self.environment.key)?;
        Ok(known)
    }
}

fn branch_of(repository: &Repository) -> Option<String> {
    (!repository.branch.is_empty()).then(|| repository.branch.clone())
}

fn read_result(workdir: &Workdir) -> Result<JobResult, String> {
    let text = untrusted_file::read(&workdir.scratch(), Path::new("result.json"), RESULT_MAX);
    let text = text.map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// Returns the last lines of the output, for a message.
fn last_lines(tail: &str) -> String {
    let lines: Vec<&str> =
        tail.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(5)..];
    if shown.is_empty() { String::new() } else { format!(": {}", shown.join("\n")) }
}
