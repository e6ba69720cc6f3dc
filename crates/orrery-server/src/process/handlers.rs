//! The handlers of one version: those of this program, and those in the code that came with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orrery_executor::{Consequences, Hosted, Hosting, HostingError, StoredFiles, StoredParameters};
use orrery_handlers::Registry;
use orrery_host::environments::Environments;
use orrery_host::handling::FileContents;
use orrery_model::Timestamp;
use orrery_sandbox::Confinement;
use orrery_store::sql::Sql;
use orrery_store::{
    EnvironmentKey, EnvironmentRecord, Lease, ParameterEffect, StoreError, VersionInfo, uuid_text,
};

use crate::app::App;
use crate::compiling::{Trigger, request_for_values};
use crate::isolation::Isolation;
use crate::versions::named_files;

use super::ProcessOptions;
use super::own_machine::Rights;

/// How long runs with former handlers may take to end.
const CLOSE_AFTER: Duration = Duration::from_secs(120);
/// Virtualenvs that were not used for so long are removed.
const VIRTUALENVS_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Contents of files that handlers asked for.
const FILES: &str = "files";
/// Where Python keeps what it made of the sources of one environment.
const BYTECODE: &str = "bytecode";
/// Bytes that code of an environment may write to the disk of the server.
const DISK_MAX: u64 = 4 << 30;
/// Contents of files that handlers asked for are kept here for so long.
const CONTENTS_KEPT: Duration = Duration::from_secs(7 * 86_400);

pub(super) struct Handlers {
    /// Which code they come from.
    code: Option<String>,
    /// With which rights it runs.
    rights: Rights,
    hosted: Option<(Hosted, Arc<StoredFiles>)>,
}

/// Which code a version needs, if any.
fn code_of(version: &VersionInfo) -> Option<&str> {
    version.info.get("code")?.as_str()
}

/// Virtualenvs of an environment are its own where they are made by code of its packages. What was made in a sandbox is never run
/// outside of one.
fn virtualenvs(place: &Place<'_>, own: &Path) -> PathBuf {
    match (&place.options.isolation, place.rights) {
        (Isolation::Shared, _) | (_, Rights::Server) => place.options.data.join("python"),
        _ => own.join("virtualenvs"),
    }
}

/// What confines the code of handlers: it sees itself, writes where its project would be, and acts on this machine with the rights
/// that the environment has there.
fn confinement(place: &Place<'_>, own: &Path, code: &str) -> Result<Option<Confinement>, String> {
    if place.rights == Rights::Server {
        return Ok(None);
    }
    let confinement = place.options.isolation.handler_confinement(place.environment.key);
    let confinement = confinement.map_err(|error| error.to_string())?;
    let Some(mut confinement) = confinement else { return Ok(None) };
    if place.rights == Rights::Sandbox {
        confinement.policy.manage_machine();
    }
    let bytecode = own.join(BYTECODE);
    for path in [&own.join("handlers"), &bytecode] {
        let made = confinement.make_directory(path);
        made.map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
    }
    // A path that comes later would not be seen.
    let files = own.join(FILES);
    std::fs::create_dir_all(&files)
        .map_err(|error| format!("{} cannot be made: {error}", files.display()))?;
    let mut confinement = confinement.env("PYTHONPYCACHEPREFIX", &bytecode);
    confinement.policy.limits.disk = Some(DISK_MAX);
    Ok(Some(confinement.writable(bytecode).readable(place.options.data.join("code").join(code))))
}

/// Where handlers work.
pub(super) struct Place<'a> {
    pub(super) app: &'a App,
    pub(super) options: &'a ProcessOptions,
    pub(super) environment: &'a EnvironmentRecord,
    /// `None` for dry runs, which keep nothing.
    pub(super) lease: Option<Lease>,
    /// Those that the environment has on this machine.
    pub(super) rights: Rights,
}

/// Values that handlers set are reasons for compiles, like those that people set.
struct Compiles {
    app: App,
    environment: EnvironmentKey,
}

impl Consequences for Compiles {
    fn of_value(
        &self,
        sql: &mut dyn Sql,
        is_fact: bool,
        effect: ParameterEffect,
        wanted: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let trigger = if is_fact { Trigger::Fact } else { Trigger::Parameter };
        request_for_values(sql, self.environment, trigger, effect, wanted, now).map(drop)
    }

    fn kept(&self) {
        self.app.nudge();
    }
}

impl Handlers {
    /// Goes on with a newer version that has the same code: processes and what handlers keep stay, but for what is bound to
    /// older versions.
    pub(super) fn follow(&self, version: &VersionInfo) {
        if let Some((hosted, files)) = &self.hosted {
            files.set_names(named_files(&version.info));
            hosted.begin_version(version.number);
        }
    }

    pub(super) fn of(place: &Place<'_>, version: &VersionInfo) -> Result<Self, HostingError> {
        let Place { app, options, environment, lease, rights } = *place;
        let Some(code) = code_of(version) else {
            return Ok(Handlers { code: None, rights, hosted: None });
        };
        let store = Arc::clone(app.store());
        let data = &options.data;
        let set = crate::code::open(&*store, data, code)?;
        let own = data.join("environments").join(uuid_text(&environment.uuid));
        let (confinement, refused) = match confinement(place, &own, code) {
            Ok(confinement) => (confinement, None),
            Err(reason) => (None, Some(reason)),
        };
        let clock = crate::app::system_time;
        let consequences = Arc::new(Compiles { app: app.clone(), environment: environment.key });
        let files = Arc::new(StoredFiles::new(Arc::clone(&store), environment.key, clock));
        files.set_names(named_files(&version.info));
        let contents = FileContents::cached(own.join(FILES), Arc::clone(&files) as _);
        contents.clean(CONTENTS_KEPT, crate::app::wall_clock());
        let parameters =
            StoredParameters { store, environment: environment.key, lease, clock, consequences };
        let environments = Environments::new(virtualenvs(place, &own), Vec::new());
        let _ = environments.clean(VIRTUALENVS_KEPT, crate::app::wall_clock());
        let hosting = Hosting {
            environment: uuid_text(&environment.uuid),
            files: contents,
            project: own.join("handlers"),
            environments,
            memory_max: options.host_memory,
            confinement,
            refused,
            parameters: Arc::new(parameters),
        };
        let hosted = hosting.now_or_later(&set)?;
        Ok(Handlers { code: Some(code.to_owned()), rights, hosted: Some((hosted, files)) })
    }

    pub(super) fn are_for(&self, version: &VersionInfo, rights: Rights) -> bool {
        self.rights == rights && self.code.as_deref() == code_of(version)
    }

    pub(super) fn registry(&self) -> Arc<Registry> {
        match &self.hosted {
            Some((hosted, _)) => Arc::clone(&hosted.registry),
            None => Arc::new(Registry::native()),
        }
    }

    /// Ends all processes.
    pub(super) fn close(&self) {
        if let Some((hosted, _)) = &self.hosted {
            hosted.close();
        }
    }

    /// Ends them after what runs has had time to end.
    pub(super) fn close_when_idle(self) {
        if self.hosted.is_none() {
            return;
        }
        let close = move || {
            std::thread::sleep(CLOSE_AFTER);
            self.close();
        };
        let thread = std::thread::Builder::new().name("closer".to_owned()).spawn(close);
        if let Err(error) = thread {
            tracing::warn!(%error, "former handlers are ended when the server is");
        }
    }
}
