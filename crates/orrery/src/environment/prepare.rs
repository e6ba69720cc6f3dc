//! What pip is asked to do: its arguments, and the wheels that are offered to it.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::python_of;
use super::helper::{self, Contents};
use super::install::{Request, Upgrade};
use super::pip::{self, Event, Listener, Pip, Planned};
use super::stand_ins::StandIns;
use super::{Error, requirements};

/// What has to be looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Everything,
    Sdk,
}

/// Arguments for pip, and the wheels that they refer to.
pub(super) struct Prepared<'r> {
    request: &'r Request,
    environment: &'r Path,
    scratch: &'r Path,
    pub(super) wheels: PathBuf,
    /// Where packages are looked for, besides what pip is configured for.
    pub(super) sources: Vec<String>,
    wanted: Vec<String>,
    constraints: Vec<String>,
}

impl<'r> Prepared<'r> {
    pub(super) fn new(
        request: &'r Request,
        part: Part,
        environment: &'r Path,
        scratch: &'r Path,
    ) -> Result<Self, Error> {
        let wheels = scratch.join("wheels");
        fs::create_dir(&wheels).map_err(Error::system("make a temporary directory"))?;
        let mut sources = vec!["--find-links".to_owned(), wheels.display().to_string()];
        sources.extend(orrery_host::pip::arguments(&request.pip));
        let mut prepared = Prepared {
            request,
            environment,
            scratch,
            wheels,
            sources,
            wanted: Vec::new(),
            constraints: Vec::new(),
        };
        if part == Part::Everything {
            prepared.want();
        }
        if let Some(dir) = &request.sdk {
            let wheel = helper::sdk_wheel(&python_of(environment), dir, &prepared.wheels)?;
            prepared.wanted.push(format!("{}=={}", wheel.name, wheel.version));
        }
        Ok(prepared)
    }

    fn want(&mut self) {
        let request = self.request;
        let everything = match &request.upgrade {
            Upgrade::Nothing => true,
            Upgrade::All => {
                let eager = ["--upgrade", "--upgrade-strategy", "eager"];
                self.wanted.extend(eager.map(str::to_owned));
                true
            }
            Upgrade::Only(packages) => {
                self.wanted.push("--upgrade".into());
                self.wanted.extend(packages.iter().cloned());
                self.constraints.extend(requirements::as_constraints(&request.files));
                self.constraints.extend(request.requirements.iter().cloned());
                false
            }
        };
        if everything {
            for file in &request.files {
                self.wanted.extend(["--requirement".into(), file.display().to_string()]);
            }
            self.wanted.extend(request.requirements.iter().cloned());
            if let Some(dir) = &request.editable {
                self.wanted.extend(["--editable".into(), dir.display().to_string()]);
            }
        }
    }

    /// Has pip work out what is to be installed; once more with other stand-ins, if those do not fit what
    /// the modules ask for.
    pub(super) fn plan(
        &self,
        pip: &Pip<'_>,
        before: &Contents,
        listener: Listener<'_>,
    ) -> Result<Vec<Planned>, Error> {
        if !self.asks_for_anything() {
            return Ok(Vec::new());
        }
        listener(Event::Step("working out what to install".into()));
        let keep = self.request.upgrade == Upgrade::Nothing;
        let mut chosen =
            if keep { StandIns::installed(&before.packages) } else { StandIns::newest() };
        // Twice: what one conflict names may hide what another one would.
        for _ in 0..2 {
            match self.plan_with(&chosen, pip, listener) {
                Err(Error::Conflict { said }) => {
                    match chosen.for_conflict(self.environment, &said)? {
                        Some(other) => chosen = other,
                        None => return Err(Error::Conflict { said }),
                    }
                }
                other => return other,
            }
            listener(Event::Step(
                "these modules want an older generation: trying once more".into(),
            ));
        }
        self.plan_with(&chosen, pip, listener)
    }

    fn plan_with(
        &self,
        chosen: &StandIns,
        pip: &Pip<'_>,
        listener: Listener<'_>,
    ) -> Result<Vec<Planned>, Error> {
        chosen.write(self.environment, &self.wheels)?;
        let mut constraints = chosen.constraints();
        constraints.extend(self.constraints.iter().cloned());
        let file = pip::write_lines(&self.scratch.join("constraints.txt"), &constraints)?;
        let mut arguments = self.sources.clone();
        arguments.extend(["--constraint".into(), file.display().to_string()]);
        arguments.extend(self.wanted.iter().cloned());
        pip.plan(&arguments, self.scratch, listener)
    }

    fn asks_for_anything(&self) -> bool {
        self.wanted.iter().any(|argument| !argument.starts_with("--") && argument != "eager")
    }
}
