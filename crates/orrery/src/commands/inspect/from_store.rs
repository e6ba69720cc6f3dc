//! Converts types of the store to the view of a local deployment.

use orrery_store::{
    Action, ActionKind, ParameterSource, RemovalStage, ResourceLine, ResourceOverview,
    ResourceQuery, StoredParameter, VersionInfo, removal_count,
};

use super::deployment::ResourceView;
use super::view::{
    ActionView, ActionViewKind, FactOrigin, FactView, RemovalProgress, ResourceSelection,
    VersionView,
};

impl From<VersionInfo> for VersionView {
    fn from(version: VersionInfo) -> Self {
        VersionView {
            number: version.number,
            made_at: version.made_at,
            released: version.released,
            released_at: version.released_at,
            removes: removal_count(&version.info),
            info: version.info,
            total: version.total,
            added: version.added,
            changed: version.changed,
            removed: version.removed,
        }
    }
}

impl From<RemovalStage> for RemovalProgress {
    fn from(stage: RemovalStage) -> Self {
        match stage {
            RemovalStage::Pending => RemovalProgress::Pending,
            RemovalStage::Done => RemovalProgress::Done,
        }
    }
}

impl From<ResourceLine> for ResourceView {
    fn from(line: ResourceLine) -> Self {
        let ResourceLine { summary, removal, .. } = line;
        let ResourceOverview { id, status, state, source, .. } = summary;
        ResourceView {
            id,
            status,
            last_run_at: state.last_run_at,
            last_outcome: state.last_outcome,
            last_success: state.last_success,
            attempts: state.attempts,
            parked: state.parked,
            source,
            removal: removal.map(RemovalProgress::from),
        }
    }
}

impl From<ActionKind> for ActionViewKind {
    fn from(kind: ActionKind) -> Self {
        match kind {
            ActionKind::Deploy => ActionViewKind::Deploy,
            ActionKind::DryRun => ActionViewKind::DryRun,
            ActionKind::GetFacts => ActionViewKind::GetFacts,
            ActionKind::Other => ActionViewKind::Other,
        }
    }
}

impl From<Action> for ActionView {
    fn from(action: Action) -> Self {
        ActionView {
            kind: action.kind.into(),
            version: action.version,
            started: action.started,
            finished: action.finished,
            outcome: action.outcome,
            change: action.change,
            log: action.log,
        }
    }
}

impl From<ParameterSource> for FactOrigin {
    fn from(source: ParameterSource) -> Self {
        match source {
            ParameterSource::Fact => FactOrigin::Fact,
            ParameterSource::Plugin => FactOrigin::Plugin,
            ParameterSource::User => FactOrigin::User,
            ParameterSource::Report => FactOrigin::Report,
        }
    }
}

impl From<StoredParameter> for FactView {
    fn from(one: StoredParameter) -> Self {
        FactView {
            name: one.name,
            value: one.value,
            resource: one.resource,
            origin: one.source.into(),
            updated: one.updated,
            expires: one.expires,
        }
    }
}

impl From<&ResourceSelection> for ResourceQuery {
    fn from(selection: &ResourceSelection) -> Self {
        let ResourceSelection { agent, entity, value, statuses, removed } = selection.clone();
        ResourceQuery { agent, entity, value, statuses, removed, ..ResourceQuery::default() }
    }
}
