//! The compile service with real git repositories and the real program: from a commit to a version.

mod attacks;
mod model_lookups;
mod modules;
mod polling;
mod runs;
mod sources;
mod unattended;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use orrery_compile_service::{CompileOptions, CompileService, ServerAddress};
use orrery_model::{CompileId, ProjectId, Timestamp};
use orrery_server::{
    Isolation, MasterKey, ServerSettings, ServerState, compile_context, load_uid_base,
};
use orrery_store::{
    CompileRecord, CompileRequest, EnvironmentRecord, Holder, NewCompileRecord,
    NewEnvironmentRecord, Store,
};
use uuid::Uuid;

use crate::BINARY;

const PATIENCE: Duration = Duration::from_secs(300);

type Test = fn(&mut World) -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 41] = [
        ("a_commit_becomes_a_version", sources::a_commit_becomes_a_version),
        ("errors_are_structured_and_reported", runs::errors_are_structured_and_reported),
        ("a_check_stores_nothing", runs::a_check_stores_nothing),
        ("equal_requests_share_a_run", runs::equal_requests_share_a_run),
        ("another_repository_is_cloned_anew", sources::another_repository_is_cloned_anew),
        ("a_branch_is_followed", sources::a_branch_is_followed),
        ("links_to_files_of_the_server_are_refused", sources::links_out_are_refused),
        ("a_stopped_compile_is_done_again", runs::a_stopped_compile_is_done_again),
        ("a_compile_that_takes_too_long_is_ended", runs::a_compile_that_takes_too_long_is_ended),
        ("a_compile_that_needs_too_much_memory_says_so", runs::too_much_memory),
        ("a_cancelled_compile_ends", runs::a_cancelled_compile_ends),
        (
            "values_that_were_unknown_are_compiled_in",
            runs::values_that_were_unknown_are_compiled_in,
        ),
        (
            "models_know_where_they_are_compiled_for",
            model_lookups::models_know_where_they_are_compiled_for,
        ),
        (
            "settings_of_pip_travel_with_the_code",
            model_lookups::settings_of_pip_travel_with_the_code,
        ),
        ("facts_are_asked_of_what_is_exported", model_lookups::facts_are_asked_of_what_is_exported),
        ("repositories_of_the_machine_need_permission", sources::repositories_need_permission),
        ("without_a_repository_a_compile_fails", sources::without_a_repository_a_compile_fails),
        ("a_lost_checkout_is_noticed", sources::a_lost_checkout_is_noticed),
        ("schedules_make_compiles", runs::schedules_make_compiles),
        ("a_schedule_that_is_switched_off_makes_none", runs::switched_off),
        ("credentials_are_used_and_never_shown", sources::credentials_are_used_and_never_shown),
        ("a_schedule_fetches_first", unattended::a_schedule_fetches_first),
        (
            "an_unchanged_result_stores_no_version",
            unattended::an_unchanged_result_stores_no_version,
        ),
        (
            "the_users_configuration_of_ssh_counts",
            unattended::the_users_configuration_of_ssh_counts,
        ),
        ("a_new_commit_is_compiled", polling::a_new_commit_is_compiled),
        ("a_missing_repository_is_reported_once", polling::a_missing_repository_is_reported_once),
        ("two_servers_compile_a_commit_once", polling::two_servers_compile_a_commit_once),
        ("a_thousand_branches_are_followed", polling::a_thousand_branches_are_followed),
        ("commit_statuses_are_reported_to_forges", polling::commit_statuses_are_reported_to_forges),
        ("modules_are_cloned_from_repositories", modules::modules_are_cloned_from_repositories),
        ("cloned_modules_are_locked", modules::cloned_modules_are_locked),
        (
            "modules_are_cloned_into_the_checkout_only",
            modules::modules_are_cloned_into_the_checkout_only,
        ),
        ("a_server_honours_the_lock_file", modules::a_server_honours_the_lock_file),
        (
            "a_module_without_a_repository_is_reported",
            modules::a_module_without_a_repository_is_reported,
        ),
        (
            "code_of_a_model_reaches_nothing_of_others",
            attacks::code_of_a_model_reaches_nothing_of_others,
        ),
        ("nothing_survives_a_compile", attacks::nothing_survives_a_compile),
        ("a_bomb_of_processes_is_contained", attacks::a_bomb_of_processes_is_contained),
        ("memory_of_all_processes_is_contained", attacks::memory_of_all_processes_is_contained),
        ("a_full_disk_is_prevented", attacks::a_full_disk_is_prevented),
        ("a_result_that_is_no_file_is_refused", attacks::a_result_that_is_no_file_is_refused),
        ("without_a_sandbox_nothing_is_compiled", attacks::without_a_sandbox_nothing_is_compiled),
    ];
    let trial = |(name, test): (&'static str, Test)| {
        Trial::test(format!("compile_service/{name}"), move || {
            let mut world = World::new().map_err(|error| format!("{error:#}"))?;
            Ok(test(&mut world).map_err(|error| format!("{error:#}"))?)
        })
    };
    tests.into_iter().map(trial).collect()
}

pub(crate) struct World {
    directory: tempfile::TempDir,
    pub(crate) app: ServerState,
    options: CompileOptions,
    service: Option<CompileService>,
}

/// A model of one file with the given content expression.
fn model(content: &str) -> String {
    format!(
        "import std\n\nhost = std::Host(name=\"internal\", os=std::linux)\n\
         std::ConfigFile(host=host, path=\"/tmp/orrery-compile-service\", content={content})\n"
    )
}

impl World {
    pub(crate) fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let holder = Holder::this_process("test", Timestamp(1));
        let store: Store = Store::open(directory.path().join("state.db"), &holder)?;
        let master_key = MasterKey::Generated(directory.path().join("secret.key"));
        let settings =
            ServerSettings { local_repositories: true, master_key, ..ServerSettings::default() };
        let app = ServerState::new(store, settings);
        let server = ServerAddress::from_listen("192.0.2.7:4711".parse()?, None);
        let data = directory.path().join("data");
        // To see sandbox tests fail without the sandbox.
        let isolation = match std::env::var_os("ORRERY_TEST_SHARED_IDENTITY") {
            Some(_) => Isolation::Shared,
            None => match Isolation::detect(Path::new(BINARY), directory.path()) {
                // The process limit is per user.
                Isolation::Sandboxed(sandboxing) => {
                    let base = load_uid_base(app.store())?;
                    Isolation::Sandboxed(Box::new(sandboxing.uid_base(base)))
                }
                isolation => isolation,
            },
        };
        let mut options = CompileOptions::new(data, BINARY.into(), server, isolation);
        options.parallel = 2;
        Ok(World { directory, app, options, service: None })
    }

    fn start(&mut self) -> Result<()> {
        self.service =
            Some(CompileService::start(compile_context(&self.app), self.options.clone())?);
        Ok(())
    }

    fn stop(&mut self) {
        self.service = None;
    }

    fn store(&self) -> &Store {
        self.app.store()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Lets code of all environments read a path.
    fn show(&mut self, path: PathBuf) {
        if let Isolation::Sandboxed(sandboxing) = &self.options.isolation {
            let sandboxing = sandboxing.as_ref().clone().allow_read([path]);
            self.options.isolation = Isolation::Sandboxed(Box::new(sandboxing));
        }
    }

    /// Directory that code of the only compiled environment can write and keep.
    fn bytecode(&self) -> Option<PathBuf> {
        let mut all = std::fs::read_dir(self.options.data.join("environments")).ok()?.flatten();
        all.next().map(|entry| entry.path().join("bytecode"))
    }

    /// A repository with a project of the given model.
    fn repository(&self, name: &str, model: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir_all(&path)?;
        git(&path, &["init", "--quiet", "--initial-branch=main"])?;
        std::fs::write(path.join("project.yml"), "name: test\nmodulepath: libs\n")?;
        self.commit(&path, model)?;
        Ok(path)
    }

    fn commit(&self, repository: &Path, model: &str) -> Result<()> {
        std::fs::write(repository.join("main.cf"), model)?;
        git(repository, &["add", "--all"])?;
        git(repository, &["commit", "--quiet", "--message=change"])
    }

    fn environment(&self, repository: &str, branch: &str) -> Result<EnvironmentRecord> {
        let store = self.store();
        let project = ProjectId::from_bytes([7; 16]);
        let _ = store.projects().create(project, "project", "", Timestamp(1));
        let uuid = Uuid::new_v4();
        let name = uuid.to_string();
        let new = NewEnvironmentRecord {
            uuid: uuid.into(),
            project,
            name: &name,
            description: "",
            icon: "",
            repository,
            branch,
        };
        let made = store.environments().add(&new, Timestamp(1))?;
        // Background polling is enabled only by tests about it.
        self.poll_every(&made, 0.0)?;
        Ok(made)
    }

    fn poll_every(&self, environment: &EnvironmentRecord, seconds: f64) -> Result<()> {
        let (value, now) = (serde_json::json!(seconds), self.app.now());
        let store = self.store();
        let name = "repository_poll_interval";
        Ok(store.settings().change(environment.key, name, Some(&value), now)?)
    }

    fn ask(&self, of: &EnvironmentRecord, request: &CompileRequest) -> Result<CompileId> {
        let id = Uuid::new_v4().into();
        let new = NewCompileRecord { id, request };
        self.store().compiles().add(of.key, &new, self.app.now())?;
        self.app.wake_up();
        Ok(id)
    }

    fn find(&self, of: &EnvironmentRecord, id: CompileId) -> Result<CompileRecord> {
        Ok(self.store().compiles().get(of.key, id)?)
    }

    fn await_compile(&self, of: &EnvironmentRecord, id: CompileId) -> Result<CompileRecord> {
        wait_for("the compile ends", || {
            Ok(Some(self.find(of, id)?).filter(|one| one.completed.is_some()))
        })
    }

    fn compile(&self, of: &EnvironmentRecord, request: &CompileRequest) -> Result<CompileRecord> {
        let id = self.ask(of, request)?;
        self.await_compile(of, id)
    }

    fn succeed(&self, of: &EnvironmentRecord, request: &CompileRequest) -> Result<CompileRecord> {
        let done = self.compile(of, request)?;
        ensure!(done.success == Some(true), "{done:?}\n{}", self.output(&done)?);
        Ok(done)
    }

    fn stages(&self, compile: &CompileRecord) -> Result<Vec<String>> {
        let stages = self.store().compiles().stages(compile.serving_compile())?;
        Ok(stages.into_iter().map(|stage| stage.name).collect())
    }

    fn output(&self, compile: &CompileRecord) -> Result<String> {
        let pieces = self.store().compiles().output(compile.serving_compile(), 0, 10_000)?;
        Ok(pieces.into_iter().map(|piece| piece.text).collect())
    }

    /// The content of the only file in the newest version.
    fn newest_content(&self, of: &EnvironmentRecord) -> Result<String> {
        let versions = self.store().versions().list(of.key)?;
        let newest = versions.last().context("there is no version")?;
        let version = self.store().versions().load(of.key, newest.number)?;
        let mut files =
            version.resources.iter().filter(|one| one.id.entity() != "std::AgentConfig");
        let file = files.next().context("there is no resource")?;
        Ok(file.attributes.to_object()["content"].as_str().unwrap_or("(unknown)").to_owned())
    }
}

fn git(directory: &Path, arguments: &[&str]) -> Result<()> {
    let done = Command::new("git")
        .current_dir(directory)
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.org"])
        .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .output()?;
    ensure!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > until {
            bail!("waited too long until {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn update() -> CompileRequest {
    CompileRequest { update: true, ..CompileRequest::with_reason("api", "a test") }
}

impl World {
    /// Halts all environments, so that nothing starts any more.
    fn stop_without_drop(&self) {
        for one in self.store().environments().list(None).unwrap_or_default() {
            let _ = self.store().environments().set_halted(one.uuid, true, self.app.now());
        }
    }
}
