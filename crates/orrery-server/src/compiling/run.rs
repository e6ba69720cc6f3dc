//! One run of a compile, stage by stage: sources, modules, the model.

use std::path::Path;
use std::time::Instant;

use orrery_api::CompileProblem;
use orrery_sandbox::{Confinement, LIMIT_EXCEEDED, VOICE};
use orrery_store::{
    ClaimedCompile, CompileRequest, EnvironmentRecord, NewCommitStatus, StoreError,
};
use serde_json::json;
use uuid::Uuid;

use super::child::{Command, End, Limits, end_leftovers};
use super::credentials::address_of;
use super::handover::{self, RESULT_MAX};
use super::job::{JOB_COMMAND, Job, JobParameter, JobResult, Task};
use super::links::{self, EscapingLink};
use super::outcome::Exported;
use super::place::Place;
use super::recorder::{Interrupted, Recorder};
use super::repository::Repository;
use super::requests::recorded_commit;
use super::text::Mask;
use super::{CompileOptions, commit_status, confining, memory, outcome, polling};
use crate::app::App;

/// Bytes of a `project.yml`.
const PROJECT_MAX: u64 = 1 << 20;

/// Why a run ends without a version.
#[derive(Debug)]
pub(super) enum Stop {
    Interrupted(Interrupted),
    Failed(Failed),
}

/// What went wrong.
#[derive(Debug, Default)]
pub(super) struct Failed {
    pub(super) problems: Vec<CompileProblem>,
    /// The sources could not be brought up to date.
    pub(super) pulling: bool,
}

impl From<Interrupted> for Stop {
    fn from(interrupted: Interrupted) -> Self {
        Stop::Interrupted(interrupted)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Stop::Interrupted(error.into())
    }
}

impl Stop {
    pub(super) fn failed(category: &str, r#type: &str, message: impl Into<String>) -> Self {
        let problem = CompileProblem {
            category: category.to_owned(),
            r#type: r#type.to_owned(),
            message: message.into(),
            ..CompileProblem::default()
        };
        Stop::Failed(Failed { problems: vec![problem], pulling: false })
    }

    /// The same, in words that name the branch, if that is what git does not find.
    fn without_branch(self, branch: &str) -> Self {
        const SIGNS: [&str; 3] =
            ["invalid reference: ", "did not match any file", "not found in upstream"];
        let Stop::Failed(mut failed) = self else { return self };
        for problem in &mut failed.problems {
            if SIGNS.iter().any(|sign| problem.message.contains(sign)) {
                problem.message = format!("the repository has no branch {branch}");
            }
        }
        Stop::Failed(failed)
    }

    fn pulling(self) -> Self {
        match self {
            Stop::Failed(failed) => Stop::Failed(Failed { pulling: true, ..failed }),
            other => other,
        }
    }
}

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) app: &'a App,
    pub(super) options: &'a CompileOptions,
    pub(super) environment: EnvironmentRecord,
    pub(super) claimed: &'a ClaimedCompile,
    /// All that it and those merged with it ask for.
    pub(super) request: CompileRequest,
    pub(super) place: Place,
    pub(super) recorder: Recorder<'a>,
    /// The commit of the sources.
    pub(super) commit: Option<String>,
    /// It is the one that the branch had at the repository a moment ago.
    fetched: bool,
    /// The last compile happened elsewhere, and was of this commit: so is this one, unless somebody asks for newer ones.
    elsewhere: Option<String>,
    limits: Limits,
    /// What confines code of the environment.
    confinement: Option<Confinement>,
}

/// Runs a compile to its end and writes down what came of it. What is interrupted is done again later.
pub(super) fn run(
    app: &App,
    options: &CompileOptions,
    claimed: &ClaimedCompile,
    stopping: &dyn Fn() -> bool,
) -> Result<(), Interrupted> {
    let records = app.store().records();
    let mut environment = records.environment_of(claimed.run.environment)?;
    environment.repository = address_of(app, &environment);
    let place = Place::of(&options.data, &environment.uuid);
    let request = claimed.record.used.clone().unwrap_or_else(|| claimed.record.request.clone());
    let mask = Mask::for_url(&environment.repository);
    let recorder = Recorder::new(app, claimed.run, stopping, mask);
    let limits = Limits {
        until: Instant::now() + options.time_max,
        memory_max: options.memory_max,
        nice: options.nice,
    };
    let last = records.last_compile(environment.key)?;
    let was_here =
        last.is_none_or(|last| place.last_compile() == Some(Uuid::from_bytes(last.run_by())));
    let elsewhere = match was_here || request.update {
        true => None,
        false => recorded_commit(&**app.store(), environment.key)?,
    };
    let mut run = Run {
        app,
        options,
        environment,
        claimed,
        request,
        place,
        recorder,
        commit: None,
        fetched: false,
        elsewhere,
        limits,
        confinement: None,
    };
    let ended = run.carry_out();
    run.place.end();
    run.note_sources(&ended)?;
    let outcome = match ended {
        Ok(None) => Ok((None, None)),
        Ok(Some(Exported { number, unchanged })) => {
            Ok((Some(number), unchanged.then(|| json!({ "unchanged": true }))))
        }
        Err(Stop::Failed(failed)) => Err(outcome::failure(&run, &failed)),
        Err(Stop::Interrupted(interrupted)) => return Err(interrupted),
    };
    records.complete_compile(&claimed.run, &outcome, app.now())?;
    match &outcome {
        Ok((Some(number), None)) => run.report("success", &format!("version {number}"))?,
        Ok((Some(number), Some(_))) => {
            run.report("success", &format!("unchanged: version {number} is still current"))?;
        }
        Ok((None, _)) => {}
        Err(failure) => run.report("failure", &first_problem(&failure.data))?,
    }
    app.nudge();
    Ok(())
}

/// What a failure is told as in one line.
fn first_problem(data: &serde_json::Value) -> String {
    let message = data["errors"][0]["message"].as_str().unwrap_or_default();
    let line = message.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("the compile failed").to_owned()
}

impl Run<'_> {
    pub(super) fn id(&self) -> Uuid {
        Uuid::from_bytes(self.claimed.run.id)
    }

    /// Notes which commit the branch was found at, and which one was compiled.
    fn note_sources(&self, ended: &Result<Option<Exported>, Stop>) -> Result<(), StoreError> {
        let records = self.app.store().records();
        let key = self.environment.key;
        let commit = self.commit.as_deref();
        match ended {
            Err(Stop::Interrupted(_)) => Ok(()),
            Err(Stop::Failed(failed)) if failed.pulling => {
                let Some(known) = records.followed(key)? else { return Ok(()) };
                let now = self.app.now();
                let due = polling::after_unfetched(known.unfetched, key, now);
                records.note_unfetched(key, due)
            }
            ended => {
                let fetched = commit.filter(|_| self.fetched);
                records.note_sources(key, fetched, commit.filter(|_| matches!(ended, Ok(Some(_)))))
            }
        }
    }

    /// Has the forge told about the commit, if the compile is of one and stores a version.
    fn report(&self, state: &str, description: &str) -> Result<(), StoreError> {
        let Some(commit) = self.commit.as_deref().filter(|_| self.request.export) else {
            return Ok(());
        };
        let status = NewCommitStatus { commit, state, description, compile: &self.claimed.run.id };
        commit_status::note(self.app, self.environment.key, &status)
    }

    fn carry_out(&mut self) -> Result<Option<Exported>, Stop> {
        if let Some(number) = outcome::stored_before(self)? {
            return Ok(Some(Exported { number, unchanged: false }));
        }
        let confinement = self.options.isolation.confinement(self.environment.key);
        self.confinement = confinement
            .map_err(|error| Stop::failed("stage_error", "Isolation", error.to_string()))?;
        self.init()?;
        let installing = self.sources()?;
        self.check_links()?;
        self.commit = self.ask(&Repository::commit(&self.place.project()))?;
        self.report("pending", "compiling")?;
        self.modules(installing)?;
        // Modules are cloned into the checkout.
        self.check_links()?;
        let result = self.compile()?;
        if !result.errors.is_empty() {
            let problems = memory::explain(result.errors, self.options.memory_max);
            return Err(Stop::Failed(Failed { problems, pulling: false }));
        }
        let Some(upload) = result.upload else {
            let text = "the compiler ended well and left no resources; its output tells more";
            return Err(Stop::failed("stage_error", "NoResult", text));
        };
        if !self.request.export {
            return Ok(None);
        }
        outcome::store(self, upload, &result.contents).map(Some)
    }

    /// A stage that the server does itself.
    fn own_stage(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> std::io::Result<()>,
    ) -> Result<(), Stop> {
        self.recorder.begin(name, "")?;
        let done = work(self);
        if let Err(error) = &done {
            self.recorder.say(true, &error.to_string());
        }
        self.recorder.end(i64::from(done.is_err()))?;
        done.map_err(|error| Stop::failed("stage_error", name, error.to_string()))
    }

    /// A stage that is a program.
    fn stage(&mut self, name: &str, command: &Command) -> Result<(), Stop> {
        let shown = command.shown(self.recorder.mask());
        self.recorder.begin(name, &shown)?;
        let end = self.watch(command);
        let tail = self.recorder.tail();
        let (returncode, failed) = match end {
            Ok(End::Exit(0)) => (0, None),
            Ok(End::Exit(code))
                if memory::is_exhausted(&tail) && self.options.memory_max.is_some() =>
            {
                let problem = memory::problem(self.options.memory_max.unwrap_or_default());
                self.recorder.say(true, &problem.message);
                let failed = Failed { problems: vec![problem], pulling: false };
                (code, Some(Stop::Failed(failed)))
            }
            Ok(End::Exit(code)) if code == i64::from(LIMIT_EXCEEDED) => {
                // The sandbox says which one.
                let said = tail.lines().find_map(|line| line.strip_prefix(VOICE));
                let said = said.unwrap_or("it was ended because of a limit");
                (code, Some(Stop::failed("limit", "Sandbox", said)))
            }
            Ok(End::Exit(code)) => {
                let said = last_lines(&tail);
                let text = format!("{shown} failed (exit status {code}){said}");
                (code, Some(Stop::failed("stage_error", name, text)))
            }
            Ok(End::TimedOut) => {
                let seconds = self.options.time_max.as_secs();
                let text = format!("the compile took longer than {seconds} s and was ended");
                self.recorder.say(true, &text);
                (-1, Some(Stop::failed("limit", "Timeout", text)))
            }
            Ok(End::Stopped) => {
                self.recorder.check()?;
                (-1, Some(Interrupted::Lost.into()))
            }
            Err(error) => {
                let text = format!("{shown} could not be started: {error}");
                self.recorder.say(true, &text);
                (-1, Some(Stop::failed("stage_error", name, text)))
            }
        };
        self.recorder.end(returncode)?;
        failed.map_or(Ok(()), Err)
    }

    fn watch(&mut self, command: &Command) -> std::io::Result<End> {
        let recorder = std::cell::RefCell::new(&mut self.recorder);
        let mut go_on = || recorder.borrow_mut().go_on();
        let mut said = |error: bool, bytes: &[u8]| recorder.borrow_mut().said(error, bytes);
        let command = command.clone().envs(&self.options.variables).data(&self.options.data);
        command.run(&self.limits, self.place.root(), &mut go_on, &mut said)
    }

    /// A program that only answers yes or no, and what it says.
    fn ask(&mut self, command: &Command) -> Result<Option<String>, Stop> {
        self.recorder.check()?;
        let mut text = Vec::new();
        let recorder = &mut self.recorder;
        let mut go_on = || recorder.go_on();
        let mut said = |error: bool, bytes: &[u8]| {
            if !error {
                text.extend_from_slice(bytes);
            }
        };
        let command = command.clone().envs(&self.options.variables).data(&self.options.data);
        let end = command.run(&self.limits, self.place.root(), &mut go_on, &mut said);
        match end {
            Ok(End::Exit(0)) => Ok(Some(String::from_utf8_lossy(&text).trim().to_owned())),
            Ok(End::Stopped) => {
                self.recorder.check()?;
                Err(Interrupted::Lost.into())
            }
            _ => Ok(None),
        }
    }

    fn init(&mut self) -> Result<(), Stop> {
        self.own_stage("Init", |run| {
            // Of a run that was killed with its server.
            end_leftovers(run.place.root());
            // Whoever may look at a compile need not know what it was given.
            for name in run.request.all_variables().keys() {
                run.recorder.say(false, &format!("{name}=***"));
            }
            if run.request.reinstall && run.place.has_project() {
                run.recorder.say(false, "Deleting the checkout: it was asked for");
                run.place.wipe()?;
            }
            run.place.begin(run.id(), run.confinement.as_ref())
        })
    }

    /// Refuses sources with links to files of the server.
    fn check_links(&self) -> Result<(), Stop> {
        let failed = |text: String| Stop::failed("stage_error", "EscapingLink", text);
        let project = self.place.project();
        match links::find_escaping(&project) {
            Ok(None) => Ok(()),
            Ok(Some(EscapingLink { path, target })) => Err(failed(format!(
                "{} is a symbolic link to {}, which is outside of the repository: a server compiles only what the repository has; put the file itself there",
                path.display(),
                target.display()
            ))),
            Err(error) => Err(failed(format!("cannot look for links in the checkout: {error}"))),
        }
    }

    /// Brings the sources to where they should be; answers whether they are other sources than before.
    fn sources(&mut self) -> Result<bool, Stop> {
        let EnvironmentRecord { repository, branch, .. } = &self.environment;
        if repository.is_empty() && self.place.project().join("project.yml").is_file() {
            return Ok(false);
        }
        let local = self.app.settings().local_repositories;
        let repository = match Repository::new(repository, branch, local) {
            Ok(repository) => repository,
            Err(error) => {
                let text = std::io::Error::other(error.to_string());
                self.own_stage("Cloning repository", |_| Err(text))?;
                return Ok(false);
            }
        };
        let project = self.place.project();
        let origin = repository.fingerprint();
        if !self.place.has_checkout_of(&origin) {
            // Another repository, or a clone that was not finished.
            self.place.wipe().map_err(|error| {
                Stop::failed("stage_error", "Cloning repository", error.to_string())
            })?;
            let command = repository.clone_into(&project);
            let branch = repository.branch.clone();
            self.stage("Cloning repository", &command)
                .map_err(|stop| stop.pulling().without_branch(&branch))?;
            self.place.note_origin(&origin).map_err(|error| {
                Stop::failed("stage_error", "Cloning repository", error.to_string())
            })?;
            self.fetched = self.elsewhere.is_none();
            self.go_back(&repository)?;
            return Ok(true);
        }
        let current = self.ask(&repository.current_branch(&project))?;
        let wanted = match branch_of(&repository) {
            Some(wanted) => wanted,
            None => current.clone().unwrap_or_default(),
        };
        let switching = current.as_deref() != Some(&*wanted) && !wanted.is_empty();
        let mut known = self.ask(&repository.upstream(&project, &wanted))?.is_some();
        let fetches = self.request.update || (switching && !known);
        if fetches {
            let command = repository.fetch(&project);
            self.stage("Fetching new branch heads", &command).map_err(Stop::pulling)?;
            known = self.ask(&repository.upstream(&project, &wanted))?.is_some();
        }
        if switching {
            self.stage("Switching branch", &repository.switch(&project))
                .map_err(|stop| stop.pulling().without_branch(&wanted))?;
        }
        if known && (self.request.update || switching) {
            let command = repository.advance(&project, &wanted);
            self.stage("Pulling updates", &command).map_err(Stop::pulling)?;
            self.fetched = fetches;
        } else if !switching {
            self.go_back(&repository)?;
        }
        Ok(switching)
    }

    /// Goes to the commit that was compiled last, if that happened elsewhere: nobody has asked for a newer one.
    fn go_back(&mut self, repository: &Repository) -> Result<(), Stop> {
        let Some(commit) = self.elsewhere.clone() else { return Ok(()) };
        let project = self.place.project();
        if self.ask(&Repository::commit(&project))?.as_ref() == Some(&commit) {
            return Ok(());
        }
        let current = self.ask(&repository.current_branch(&project))?;
        let Some(branch) = branch_of(repository).or(current) else { return Ok(()) };
        let has = repository.has_commit(&project, &branch, &commit);
        if self.ask(&has)?.is_none() {
            let command = repository.fetch(&project);
            self.stage("Fetching new branch heads", &command).map_err(Stop::pulling)?;
            if self.ask(&has)?.is_none() {
                // Another repository or branch, or a history that was rewritten: there is nothing to go back to.
                return Ok(());
            }
        }
        let command = repository.go_to(&project, &commit);
        self.stage("Going to the commit of the last compile", &command).map_err(Stop::pulling)
    }

    fn modules(&mut self, installing: bool) -> Result<(), Stop> {
        let (name, task) = if self.request.update && !installing {
            ("Updating modules", Task::Update)
        } else if installing {
            ("Installing modules", Task::Install)
        } else {
            ("Venv check", Task::Install)
        };
        if self.names_repositories() {
            let fetch = if task == Task::Update { Task::FetchUpdates } else { Task::Fetch };
            self.job("Fetching modules", fetch, Vec::new())?;
        }
        self.job(name, task, Vec::new())
    }

    /// Whether the project may name repositories of modules. Who reads it decides; most need not be read.
    fn names_repositories(&self) -> bool {
        let project = handover::read(&self.place.project(), Path::new("project.yml"), PROJECT_MAX);
        let text = project.unwrap_or_default();
        text.windows(4).any(|word| word == b"repo")
    }

    fn compile(&mut self) -> Result<JobResult, Stop> {
        let name = "Recompiling configuration model";
        let parameters = self.parameters()?;
        let ended = self.job(name, Task::Compile, parameters);
        let result = read_result(&self.place);
        match (ended, result) {
            (Ok(()), Ok(result)) => Ok(result),
            // A compiler that says why counts more than its exit status, unless a limit is behind it.
            (Err(Stop::Failed(failed)), Ok(mut result)) if !result.errors.is_empty() => {
                let limits = failed.problems.into_iter().filter(|one| one.category == "limit");
                result.errors.splice(0..0, limits);
                Ok(result)
            }
            (Err(stop), _) => Err(stop),
            (Ok(()), Err(error)) => {
                let text = format!("the compiler's result cannot be read: {error}");
                Err(Stop::failed("stage_error", name, text))
            }
        }
    }

    /// Runs this program itself, for what needs the compiler.
    fn job(&mut self, name: &str, task: Task, parameters: Vec<JobParameter>) -> Result<(), Stop> {
        let compiling = task == Task::Compile;
        let job = Job {
            task,
            project: self.place.project(),
            virtualenv: self.place.virtualenv(),
            fetched: self.place.fetched(),
            environment: Uuid::from_bytes(self.environment.uuid),
            environment_name: self.environment.name.clone(),
            server: self.options.server.told(),
            parameters,
            exporters: self.request.exporters.iter().cloned().collect(),
            contents: self.place.contents(),
            result: self.place.result(),
            local_repositories: self.app.settings().local_repositories,
            memory_max: self.options.memory_max,
        };
        let mut input = serde_json::to_vec(&job)
            .map_err(|error| Stop::failed("stage_error", name, error.to_string()))?;
        input.push(b'\n');
        let program = self.options.program.clone();
        // A checkout that was made anew took them with it.
        self.place
            .make_writable(self.confinement.as_ref())
            .map_err(|error| Stop::failed("stage_error", name, error.to_string()))?;
        let confinement = self.confinement.clone().and_then(|confinement| {
            confining::for_task(task, confinement, &self.place, self.options)
        });
        let mut command = Command::new(program).confined(confinement).arg(JOB_COMMAND).input(input);
        if !compiling {
            // Git, which pip or the project's repositories need, asks nobody.
            command = command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_ASKPASS", "");
            command = command.env("SSH_ASKPASS", "").without_questions_of_ssh();
        }
        if compiling {
            for (name, value) in self.request.all_variables() {
                command = command.env(&name, value);
            }
        }
        self.stage(name, &command.directory(self.place.root()))
    }

    /// What the model may ask for.
    fn parameters(&self) -> Result<Vec<JobParameter>, Stop> {
        let known = outcome::known_parameters(&**self.app.store(), self.environment.key)?;
        Ok(known)
    }
}

fn branch_of(repository: &Repository) -> Option<String> {
    (!repository.branch.is_empty()).then(|| repository.branch.clone())
}

fn read_result(place: &Place) -> Result<JobResult, String> {
    let text = handover::read(&place.scratch(), Path::new("result.json"), RESULT_MAX);
    let text = text.map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// The end of what a program said, as it fits into a message.
fn last_lines(tail: &str) -> String {
    let lines: Vec<&str> =
        tail.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(5)..];
    if shown.is_empty() { String::new() } else { format!(": {}", shown.join("\n")) }
}
