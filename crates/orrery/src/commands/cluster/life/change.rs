//! Changes of clusters: plan, confirmation, request and progress.

use std::path::Path;

use orrery_api::{
    ClusterChangeAnswer, ClusterOperationKind, ClusterOperationRequest, ClusterPlan, LayoutGroup,
    NewCluster, PreviewedPlan, RestartMode,
};
use serde_json::{Map, Value};

use super::{lookup, progress};
use crate::cli::cluster_life::{
    Change, ChangeServices, ClusterName, CreateCluster, OperateServices, PlanCluster,
    ReconfigureCluster, ResizeCluster, RestartChoice, RestartOptions, UpdateCluster,
};
use crate::commands::cluster::plan_text;
use crate::commands::inspect::text;
use crate::commands::remote::{print_json, terminal};
use crate::error::CliError;
use crate::remote::Remote;
use crate::{Exit, output, style};

/// Maximum number of named nodes.
const NAMES_MAX: usize = 10;

pub(super) fn create(options: &CreateCluster) -> Result<Exit, CliError> {
    let config = options.config.as_deref().map(read_config).transpose()?;
    let remote = options.args.open()?;
    let project = lookup::project_for(&remote, options.project.as_deref())?;
    let new = NewCluster {
        name: options.name.clone(),
        description: options.description.clone(),
        template: options.template.clone(),
        size: options.size,
        provider: options.provider.clone(),
        hardwaretype: options.hardware.clone(),
        imagetype: options.image.clone(),
        services: options.services.clone(),
        config,
        dns_suffix: options.dns_suffix.clone(),
        lease_seconds: options.lease.map(|lease| lease.0 / 1000),
        plan_only: false,
    };
    let id = project.id.to_string();
    let what = format!("create cluster {}", style::sanitize(&options.name));
    let send = |plan_only: bool| {
        let new = NewCluster { plan_only, ..new.clone() };
        Ok(remote.client.create_cluster(&id, &new)?)
    };
    carry_out(&remote, &options.change, options.args.json, &what, send)
}

pub(super) fn resize(options: &ResizeCluster, grows: bool) -> Result<Exit, CliError> {
    let found = lookup::find(&options.of)?;
    let size = found.cluster.size;
    let is_meant = if grows { options.size >= size } else { options.size <= size };
    if !is_meant {
        let other = if grows { "shrink" } else { "grow" };
        let has = style::count(size as usize, "node");
        let error = CliError::new(format!("{} already has {has}", found.name()));
        return Err(error.help(format!(
            "orrery cluster {other} {} {}",
            found.name(),
            options.size
        )));
    }
    let request = ClusterOperationRequest {
        size: Some(options.size),
        ..with_restart(ClusterOperationKind::Resize, &options.restart)
    };
    operate_on(&found, &options.change, options.of.args.json, request)
}

pub(super) fn services(
    options: &ChangeServices,
    kind: ClusterOperationKind,
) -> Result<Exit, CliError> {
    let services = named(&options.services);
    let request = ClusterOperationRequest { services, ..with_restart(kind, &options.restart) };
    request_operation(&options.of, &options.change, request)
}

pub(super) fn operate(
    options: &OperateServices,
    kind: ClusterOperationKind,
) -> Result<Exit, CliError> {
    let services = named(&options.services);
    let request = ClusterOperationRequest { services, ..ClusterOperationRequest::new(kind) };
    request_operation(&options.of, &options.change, request)
}

pub(super) fn update(
    options: &UpdateCluster,
    kind: ClusterOperationKind,
) -> Result<Exit, CliError> {
    request_operation(&options.of, &options.change, with_restart(kind, &options.restart))
}

pub(super) fn reconfigure(options: &ReconfigureCluster) -> Result<Exit, CliError> {
    let config = Some(read_config(&options.config)?);
    let kind = ClusterOperationKind::Reconfigure;
    let request = ClusterOperationRequest { config, ..with_restart(kind, &options.restart) };
    request_operation(&options.of, &options.change, request)
}

/// `orrery cluster plan`
pub(super) fn plan(options: &PlanCluster) -> Result<Exit, CliError> {
    use ClusterOperationKind as Kind;
    let what = &options.what;
    let kind = match what {
        _ if what.size.is_some() => Kind::Resize,
        _ if what.config.is_some() => Kind::Reconfigure,
        _ if what.replace.is_some() => Kind::Replace,
        _ if what.revert => Kind::Revert,
        _ if what.delete => Kind::Delete,
        _ => Kind::Update,
    };
    let request = ClusterOperationRequest {
        size: what.size,
        node: what.replace.clone(),
        config: what.config.as_deref().map(read_config).transpose()?,
        ..with_restart(kind, &options.restart)
    };
    let change = Change { yes: false, dry_run: true, no_wait: false };
    request_operation(&options.of, &change, request)
}

/// Services of a request; none mean all.
pub(super) fn named(services: &[String]) -> Option<Vec<String>> {
    (!services.is_empty()).then(|| services.to_vec())
}

pub(super) fn with_restart(
    kind: ClusterOperationKind,
    options: &RestartOptions,
) -> ClusterOperationRequest {
    let restart = options.restart.map(|choice| match choice {
        RestartChoice::None => RestartMode::None,
        RestartChoice::Together => RestartMode::Together,
        RestartChoice::Rolling => RestartMode::Rolling,
    });
    // A limit makes sense for rolling restarts only.
    let restart = restart.or(options.max_unavailable.map(|_| RestartMode::Rolling));
    ClusterOperationRequest {
        restart,
        max_unavailable: options.max_unavailable,
        ..ClusterOperationRequest::new(kind)
    }
}

/// Requests an operation on a named cluster.
pub(super) fn request_operation(
    of: &ClusterName,
    change: &Change,
    request: ClusterOperationRequest,
) -> Result<Exit, CliError> {
    operate_on(&lookup::find(of)?, change, of.args.json, request)
}

fn operate_on(
    found: &lookup::FoundCluster,
    change: &Change,
    json: bool,
    request: ClusterOperationRequest,
) -> Result<Exit, CliError> {
    let what = format!("{} of cluster {}", request.kind.as_str(), found.name());
    let client = &found.remote.client;
    let send = |plan_only: bool| {
        let request = ClusterOperationRequest { plan_only, ..request.clone() };
        Ok(client.operate_cluster(&found.cluster.id, &request)?)
    };
    carry_out(&found.remote, change, json, &what, send)
}

/// Shows the plan, asks for confirmation, sends the request, and follows the operation.
fn carry_out(
    remote: &Remote,
    change: &Change,
    json: bool,
    what: &str,
    send: impl Fn(bool) -> Result<ClusterChangeAnswer, CliError>,
) -> Result<Exit, CliError> {
    let planned = send(true)?;
    let Some(plan) = &planned.plan else {
        return Err(CliError::new(format!("{} returned no plan", remote.client.server())));
    };
    if !json && !output::print_styled(&plan_as_text(plan)) {
        return Ok(Exit::Error);
    }
    if change.dry_run {
        if json {
            print_json(&planned)?;
        }
        return Ok(if is_empty(plan) { Exit::Done } else { Exit::Pending });
    }
    terminal::agree(change.yes, what)?;
    let answer = send(false)?;
    let begun = answer.cluster.as_ref().zip(answer.operation.as_ref());
    match begun {
        Some((cluster, operation)) if !change.no_wait => {
            progress::follow(remote, cluster, operation.number, json)
        }
        Some((cluster, operation)) if !json => {
            let name = style::sanitize(&cluster.name);
            output::print_status(&format!("operation {} of {name} began", operation.number));
            output::print_status(&format!("{}: orrery cluster watch {name}", style::help("help")));
            Ok(Exit::Done)
        }
        _ if json => print_json(&answer),
        _ => Ok(Exit::Done),
    }
}

fn is_empty(plan: &ClusterPlan) -> bool {
    let resources = &plan.resources;
    plan.steps == 0 && resources.added + resources.changed + resources.removed == 0
}

/// The plan with the layout after it.
fn plan_as_text(plan: &ClusterPlan) -> String {
    let mut out = String::new();
    if !plan.layout.is_empty() {
        out += &layout_table(&plan.layout);
        out.push('\n');
    }
    for (names, word) in
        [(&plan.removed, "removed"), (&plan.replaced, "replaced"), (&plan.added, "added")]
    {
        if !names.is_empty() {
            let shown: Vec<String> =
                names.iter().take(NAMES_MAX).map(|name| style::sanitize(name)).collect();
            let more = match names.len().saturating_sub(NAMES_MAX) {
                0 => String::new(),
                more => format!(" and {} more", style::grouped(more)),
            };
            let count = style::count(names.len(), "node");
            out += &format!("{count} {word}: {}{more}\n", shown.join(", "));
        }
    }
    if is_empty(plan) {
        out += "no changes\n";
        return out;
    }
    if plan.steps > 0 {
        let steps = usize::try_from(plan.steps).unwrap_or(usize::MAX);
        out += &plan_text::render(&PreviewedPlan { steps, stages: plan.stages.clone() });
    }
    let number = |count: u64| style::grouped(usize::try_from(count).unwrap_or(usize::MAX));
    let resources = &plan.resources;
    out += &format!(
        "resources: {} added, {} changed, {} removed\n",
        number(resources.added),
        number(resources.changed),
        number(resources.removed)
    );
    if !plan.pending_restarts.is_empty() {
        let names: Vec<String> =
            plan.pending_restarts.iter().map(|name| style::sanitize(name)).collect();
        out += &format!(
            "{}: a restart will be pending: {}\n",
            style::warning("warning"),
            names.join(", ")
        );
    }
    out
}

pub(super) fn layout_table(groups: &[LayoutGroup]) -> String {
    let headings = ["NODES", "HARDWARE", "IMAGE", "SERVICES"];
    let mut rows = vec![headings.iter().map(|&text| text.to_owned()).collect::<Vec<_>>()];
    for group in groups {
        let services: Vec<&str> = group.services.iter().map(String::as_str).collect();
        let cells =
            [&group.count.to_string(), &group.hardwaretype, &group.imagetype, &services.join(", ")];
        rows.push(cells.into_iter().map(|cell| style::sanitize(cell)).collect());
    }
    text::heading_table(&rows)
}

/// Reads a configuration from a file with YAML or JSON.
fn read_config(file: &Path) -> Result<Map<String, Value>, CliError> {
    let wrong = |reason: &dyn std::fmt::Display| {
        CliError::new(format!("cannot read the configuration {}: {reason}", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    orrery_cluster::intent::read_config(&text).map_err(|error| wrong(&error))
}
