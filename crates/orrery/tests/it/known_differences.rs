//! Outcomes of cases that differ from the reference compiler on purpose: `differs.expected.json`.
//! `ORRERY_BLESS=1` records the current outcomes, for review.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::compare;
use crate::corpus::Case;

pub(crate) struct KnownDifferences {
    path: PathBuf,
    /// By `area/case`.
    recorded: BTreeMap<String, Value>,
    /// New outcomes to record, if requested.
    new: Option<Mutex<BTreeMap<String, Value>>>,
}

impl KnownDifferences {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let recorded = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let bless = std::env::var_os("ORRERY_BLESS").is_some();
        Ok(KnownDifferences { path: path.to_owned(), recorded, new: bless.then(Mutex::default) })
    }

    /// Entries without a listed case.
    pub(crate) fn strays(&self, is_listed: impl Fn(&str) -> bool) -> Vec<&str> {
        self.recorded.keys().map(String::as_str).filter(|id| !is_listed(id)).collect()
    }

    pub(crate) fn check(&self, case: &Case, actual: &Value) -> Result<()> {
        if let Some(new) = &self.new {
            let mut new = new.lock().unwrap_or_else(PoisonError::into_inner);
            new.insert(case.id(), actual.clone());
            return Ok(());
        }
        let Some(recorded) = self.recorded.get(&case.id()) else {
            bail!("differs, as it should, but has no outcome of its own: run with ORRERY_BLESS=1");
        };
        let found = compare::differences(recorded, actual);
        if !found.is_empty() {
            bail!("differs in another way than before\n{found}");
        }
        Ok(())
    }

    /// Records new outcomes; keeps those of listed cases that did not run.
    pub(crate) fn write(&self, is_listed: impl Fn(&str) -> bool) -> Result<()> {
        let Some(new) = &self.new else { return Ok(()) };
        let mut all = self.recorded.clone();
        all.extend(new.lock().unwrap_or_else(PoisonError::into_inner).clone());
        all.retain(|id, _| is_listed(id));
        let text = serde_json::to_string_pretty(&all)? + "\n";
        fs::write(&self.path, text).with_context(|| self.path.display().to_string())
    }
}
