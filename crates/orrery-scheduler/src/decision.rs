//! Whether a resource may be deployed, given how its requirements are: the base handler's decision.

use orrery_model::{LogLevel, Status};

/// What a handler does about its requirements, unless it decides for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Run,
    /// End with `SkippedForDependency`.
    Skip {
        level: LogLevel,
        because: SkipCause,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipCause {
    /// A requirement cannot be deployed at all.
    Undeployable,
    /// A requirement got a new intent meanwhile, and will be deployed.
    Superseded,
    /// A requirement is not as wanted.
    NotDeployed,
}

impl SkipCause {
    pub fn as_str(self) -> &'static str {
        match self {
            SkipCause::Undeployable => "something that it requires cannot be deployed",
            SkipCause::Superseded => "something that it requires has a new desired state meanwhile",
            SkipCause::NotDeployed => "something that it requires is not deployed",
        }
    }
}

/// The decision for a resource whose direct requirements have these statuses. The worst one counts.
/// A report-only resource changes nothing, so it may always look.
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
        Some(because) => {
            let level = match because {
                SkipCause::Undeployable => LogLevel::Warning,
                SkipCause::Superseded | SkipCause::NotDeployed => LogLevel::Info,
            };
            Decision::Skip { level, because }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn because(statuses: &[Status]) -> Option<SkipCause> {
        match decide(statuses.iter().copied(), false) {
            Decision::Run => None,
            Decision::Skip { because, .. } => Some(because),
        }
    }

    #[test]
    fn a_handler_runs_if_all_requirements_are_deployed() {
        assert_eq!(because(&[]), None);
        assert_eq!(because(&[Status::Deployed, Status::Deployed]), None);
    }

    #[test]
    fn the_worst_requirement_is_the_cause() {
        use Status::{Available, Deployed, Deploying, Failed, NonCompliant, Skipped, Undefined};
        assert_eq!(because(&[Deployed, Failed]), Some(SkipCause::NotDeployed));
        assert_eq!(because(&[NonCompliant]), Some(SkipCause::NotDeployed));
        assert_eq!(because(&[Skipped, Available]), Some(SkipCause::Superseded));
        assert_eq!(because(&[Deploying]), Some(SkipCause::Superseded));
        assert_eq!(because(&[Failed, Available, Undefined]), Some(SkipCause::Undeployable));
    }

    #[test]
    fn what_only_reports_does_not_care() {
        assert_eq!(decide([Status::Failed, Status::Undefined], true), Decision::Run);
    }
}
