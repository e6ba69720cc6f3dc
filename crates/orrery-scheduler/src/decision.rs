//! The base handler's decision to run or skip, from the statuses of the requirements.

use orrery_model::{LogLevel, Status};

/// Default decision of a handler about its requirements; a handler may override it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Run,
    /// End with `SkippedForDependency`.
    Skip {
        level: LogLevel,
        cause: SkipCause,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipCause {
    /// A requirement cannot be deployed at all.
    Undeployable,
    /// A requirement has a newer intent, which is still to be deployed.
    Superseded,
    /// A requirement is not compliant.
    NotDeployed,
}

impl SkipCause {
    pub fn as_str(self) -> &'static str {
        match self {
            SkipCause::Undeployable => "something that it requires cannot be deployed",
            SkipCause::Superseded => "something that it requires has a new desired state meanwhile",
            SkipCause::NotDeployed => "a requirement is not deployed",
        }
    }
}

/// Decides from the statuses of the direct requirements; the worst one counts. A report-only
/// resource always runs, because it changes nothing.
pub fn decide(dependencies: impl IntoIterator<Item = Status>, report_only: bool) -> Decision {
    if report_only {
        return Decision::Run;
    }
    let mut cause = None;
    for status in dependencies {
        let found = match status {
            Status::Deployed => continue,
            Status::Undefined | Status::SkippedForUndefined | Status::Orphaned => {
                SkipCause::Undeployable
            }
            Status::Available | Status::Deploying => SkipCause::Superseded,
            Status::Skipped | Status::Failed | Status::Unavailable | Status::NonCompliant => {
                SkipCause::NotDeployed
            }
        };
        let rank = |cause: SkipCause| cause as u8;
        if cause.is_none_or(|known| rank(found) < rank(known)) {
            cause = Some(found);
        }
    }
    match cause {
        None => Decision::Run,
        Some(cause) => {
            let level = match cause {
                SkipCause::Undeployable => LogLevel::Warning,
                SkipCause::Superseded | SkipCause::NotDeployed => LogLevel::Info,
            };
            Decision::Skip { level, cause }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip_cause(statuses: &[Status]) -> Option<SkipCause> {
        match decide(statuses.iter().copied(), false) {
            Decision::Run => None,
            Decision::Skip { cause, .. } => Some(cause),
        }
    }

    #[test]
    fn a_handler_runs_if_all_requirements_are_deployed() {
        assert_eq!(skip_cause(&[]), None);
        assert_eq!(skip_cause(&[Status::Deployed, Status::Deployed]), None);
    }

    #[test]
    fn the_worst_requirement_is_the_cause() {
        use Status::{Available, Deployed, Deploying, Failed, NonCompliant, Skipped, Undefined};
        assert_eq!(skip_cause(&[Deployed, Failed]), Some(SkipCause::NotDeployed));
        assert_eq!(skip_cause(&[NonCompliant]), Some(SkipCause::NotDeployed));
        assert_eq!(skip_cause(&[Skipped, Available]), Some(SkipCause::Superseded));
        assert_eq!(skip_cause(&[Deploying]), Some(SkipCause::Superseded));
        assert_eq!(skip_cause(&[Failed, Available, Undefined]), Some(SkipCause::Undeployable));
    }

    #[test]
    fn report_only_resources_ignore_requirements() {
        assert_eq!(decide([Status::Failed, Status::Undefined], true), Decision::Run);
    }
}
