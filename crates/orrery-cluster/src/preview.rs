//! Preview: the nodes that a request would get, and the plan that would create them. It changes no
//! machine.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use crate::document::{Catalog, line_column};
use crate::planner::{
    ClusterState, Effect, NodeState, Plan, PlanError, PlanPolicy, ServiceDefinitions, plan,
};
use crate::solver::{
    ExistingNode, Infeasible, Invalid, LayoutProblem, LayoutRequest, NodeGroup, NodeLayout,
    ResizeError, ResizeResult, RuleLocation, SearchLimits, Solution, SolveError, SolverMode, lower,
    order_layouts, resize, solve,
};

/// The number of a cluster's first node.
const FIRST_NODE: u64 = 1_000;

/// Expected result of a request.
#[derive(Clone, Debug)]
pub struct Preview {
    pub template: String,
    pub solution: Solution,
    /// Ordered by number.
    pub nodes: Vec<PreviewNode>,
    /// Services of the cluster that each service needs at run time.
    pub dependencies: BTreeMap<String, BTreeSet<String>>,
    pub plan: Plan,
    /// Number of the next node. Numbers are never reused.
    pub next: u64,
    /// Names of removed and added nodes, if the cluster exists.
    pub change: Option<NodeChange>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    pub removed: Vec<String>,
    pub added: Vec<String>,
}

/// The nodes of an existing cluster, as a previous preview defined them or as they were created.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ExistingCluster {
    pub nodes: Vec<PreviewNode>,
    #[serde(default)]
    pub next: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewNode {
    pub name: String,
    pub number: u64,
    pub hardwaretype: String,
    pub imagetype: String,
    pub services: Vec<String>,
}

/// Preview errors.
#[derive(Debug, Error)]
pub enum PreviewError {
    #[error(transparent)]
    Solve(#[from] SolveError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Resize(#[from] ResizeError),
}

/// Solves a request and plans the cluster.
///
/// # Errors
/// There is no layout, or its services wait for each other.
pub fn preview(
    catalog: &Catalog,
    request: &LayoutRequest,
    limits: SearchLimits<'_>,
) -> Result<Preview, PreviewError> {
    let solution = solve(catalog, request, limits)?;
    plan_transition(
        catalog,
        request,
        &ExistingCluster::default(),
        ResizeResult::default(),
        solution,
    )
}

/// Solves a request for an existing cluster without changing its nodes, and plans the change.
///
/// # Errors
/// As for [`preview`], and if no layout of that size retains the nodes.
pub fn preview_from(
    catalog: &Catalog,
    request: &LayoutRequest,
    existing: &ExistingCluster,
    limits: SearchLimits<'_>,
) -> Result<Preview, PreviewError> {
    let problem = lower(catalog, request).map_err(SolveError::Invalid)?;
    let nodes: Vec<ExistingNode> = existing
        .nodes
        .iter()
        .map(|node| ExistingNode { number: node.number, layout: node.layout() })
        .collect();
    let mut twice = BTreeSet::new();
    if let Some(node) = existing.nodes.iter().find(|node| !twice.insert(node.number)) {
        let text = format!("two nodes have the number {}", node.number);
        return Err(ResizeError::Broken(vec![text]).into());
    }
    let resized = resize(&problem, &nodes, limits)?;
    let mut groups = resized.added.clone();
    let kept = nodes.into_iter().filter(|node| !resized.removed.contains(&node.number));
    groups.extend(kept.map(|node| NodeGroup { layout: node.layout, count: 1 }));
    let solution = solution_of(&problem, groups);
    plan_transition(catalog, request, existing, resized, solution)
}

/// Merges equal nodes, in order of preference.
fn solution_of(problem: &LayoutProblem, groups: Vec<NodeGroup>) -> Solution {
    let mut counts: BTreeMap<NodeLayout, u32> = BTreeMap::new();
    for group in groups {
        *counts.entry(group.layout).or_default() += group.count;
    }
    let mut layouts: Vec<NodeLayout> = counts.keys().cloned().collect();
    order_layouts(problem, &mut layouts);
    let mut cost = Some(0u64);
    let mut groups = Vec::with_capacity(layouts.len());
    for layout in layouts {
        let count = counts[&layout];
        let hardware = problem.hardware.iter().find(|one| one.name == layout.hardware);
        let price = hardware.and_then(|one| one.cost?.checked_mul(u64::from(count)));
        cost = cost.zip(price).and_then(|(sum, price)| sum.checked_add(price));
        groups.push(NodeGroup { layout, count });
    }
    let mut solution = Solution { groups, unplaced: Vec::new(), cost };
    let services = problem.services.iter().map(|service| service.name.clone());
    solution.unplaced = services.filter(|name| solution.count(name) == 0).collect();
    solution.unplaced.sort();
    solution
}

/// Plans the transition from the existing nodes to those of a solution.
fn plan_transition(
    catalog: &Catalog,
    request: &LayoutRequest,
    existing: &ExistingCluster,
    resized: ResizeResult,
    solution: Solution,
) -> Result<Preview, PreviewError> {
    let mut old = ClusterState::default();
    for node in &existing.nodes {
        old.nodes.insert(node.name.clone(), node.state());
    }
    let old = old.established();
    let is_removed = |node: &PreviewNode| resized.removed.contains(&node.number);
    let mut nodes: Vec<PreviewNode> =
        existing.nodes.iter().filter(|node| !is_removed(node)).cloned().collect();
    let mut state = ClusterState::default();
    for node in &nodes {
        state
            .nodes
            .extend(old.nodes.get_key_value(&node.name).map(|(k, v)| (k.clone(), v.clone())));
    }
    let after = existing.nodes.iter().map(|node| node.number + 1).max().unwrap_or(FIRST_NODE);
    let mut next = existing.next.unwrap_or(FIRST_NODE).max(after);
    let groups = if existing.nodes.is_empty() { &solution.groups } else { &resized.added };
    let mut added = Vec::new();
    for group in groups {
        for _ in 0..group.count {
            let node = PreviewNode {
                name: format!("{}-{next}", request.template),
                number: next,
                hardwaretype: group.layout.hardware.clone(),
                imagetype: group.layout.image.clone(),
                services: group.layout.services.iter().cloned().collect(),
            };
            next += 1;
            state.nodes.insert(node.name.clone(), node.state());
            added.push(node.name.clone());
            nodes.push(node);
        }
    }
    nodes.sort_by_key(|node| node.number);
    let services =
        ServiceDefinitions::new(catalog.services.values().map(|document| &document.body));
    let is_compatible = request.mode == SolverMode::Compatible;
    let policy = PlanPolicy { is_compatible, ..PlanPolicy::default() };
    let plan = plan(&services, &old, &state, &policy)?;
    let placed: BTreeSet<&str> = state.services();
    let dependencies = services.runtime_dependencies(&placed).unwrap_or_default();
    let template = request.template.clone();
    let removed = existing.nodes.iter().filter(|node| is_removed(node));
    let removed = removed.map(|node| node.name.clone()).collect();
    let change = (!existing.nodes.is_empty()).then_some(NodeChange { removed, added });
    Ok(Preview { template, solution, nodes, dependencies, plan, next, change })
}

impl PreviewNode {
    fn layout(&self) -> NodeLayout {
        NodeLayout {
            hardware: self.hardwaretype.clone(),
            image: self.imagetype.clone(),
            services: self.services.iter().cloned().collect(),
        }
    }

    /// The state of the node with running services.
    fn state(&self) -> NodeState {
        let services = self.services.iter();
        NodeState {
            hardware: self.hardwaretype.clone(),
            image: self.imagetype.clone(),
            services: services.map(|name| (name.clone(), Default::default())).collect(),
            ..NodeState::default()
        }
    }
}

impl Preview {
    /// The preview as JSON.
    pub fn to_json(&self) -> Value {
        let stage = |stage: Vec<usize>| -> Value {
            let steps = stage.into_iter().map(|step| {
                let step = &self.plan.steps[step];
                // Verified resources are only read, not changed.
                let action = match step.effect {
                    Effect::Verify => "VERIFY",
                    Effect::Apply | Effect::Remove => step.action(),
                };
                json!({"node": step.node, "action": action, "service": step.service})
            });
            steps.collect()
        };
        let stages: Vec<Value> = self.plan.stages().into_iter().map(stage).collect();
        let mut report = json!({
            "status": "solved",
            "template": self.template,
            "size": self.nodes.len(),
            "cost": self.solution.cost.map(cost),
            "layout": layout_json(&self.solution),
            "unplaced": self.solution.unplaced,
            "dependencies": self.dependencies,
            "nodes": self.nodes,
            "plan": {"steps": self.plan.steps.len(), "stages": stages},
            "next": self.next,
        });
        if let Some(NodeChange { removed, added }) = &self.change {
            report["removed"] = json!(removed);
            report["added"] = json!(added);
        }
        report
    }
}

/// A cost in the unit of the documents.
pub fn cost(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

/// A layout as JSON.
pub fn layout_json(solution: &Solution) -> Value {
    let groups = solution.groups.iter().map(|group| {
        json!({
            "count": group.count,
            "hardwaretype": group.layout.hardware,
            "imagetype": group.layout.image,
            "services": group.layout.services,
        })
    });
    groups.collect()
}

fn location_json(catalog: &Catalog, location: &RuleLocation) -> Value {
    let mut value = json!({"document": location.document, "path": location.path});
    if let Some(source) = &location.source {
        let file = catalog.file(source.file);
        if !file.is_stored {
            let (line, column) = line_column(&file.text, source.span.start);
            value["file"] = json!(file.name);
            value["line"] = json!(line);
            value["column"] = json!(column);
        }
    }
    value
}

fn invalid_json(catalog: &Catalog, invalid: &Invalid) -> Value {
    json!({
        "message": invalid.message,
        "place": invalid.location.as_ref().map(|location| location_json(catalog, location)),
        "help": invalid.help,
    })
}

fn infeasible_json(catalog: &Catalog, infeasible: &Infeasible) -> Value {
    let conflict = infeasible.conflict.iter().map(|rule| {
        let mut value = location_json(catalog, &rule.location);
        value["rule"] = json!(rule.kind.to_string());
        value
    });
    json!({
        "status": "unsolvable",
        "size": infeasible.size,
        "conflict": conflict.collect::<Vec<Value>>(),
        "nearest": {"smaller": infeasible.sizes.smaller, "larger": infeasible.sizes.larger},
        "advice": infeasible.advice(),
    })
}

/// A preview error as JSON.
pub fn error_json(catalog: &Catalog, error: &PreviewError) -> Value {
    match error {
        PreviewError::Solve(SolveError::Infeasible(infeasible)) => {
            infeasible_json(catalog, infeasible)
        }
        PreviewError::Solve(SolveError::Invalid(all)) => {
            let problems: Vec<Value> = all.iter().map(|one| invalid_json(catalog, one)).collect();
            json!({"status": "invalid", "problems": problems})
        }
        PreviewError::Solve(SolveError::Interrupted(error))
        | PreviewError::Resize(ResizeError::Interrupted(error)) => {
            json!({"status": "interrupted", "message": error.to_string()})
        }
        PreviewError::Resize(ResizeError::Broken(all)) => {
            let one = |message: &String| json!({"message": message, "place": null, "help": null});
            json!({"status": "invalid", "problems": all.iter().map(one).collect::<Vec<_>>()})
        }
        PreviewError::Resize(
            error @ (ResizeError::NoGrowth { size, nearest, .. }
            | ResizeError::NoShrinking { size, nearest, .. }),
        ) => {
            let mut advice = vec![error.to_string()];
            advice.extend(error.advice());
            json!({
                "status": "unsolvable",
                "size": size,
                "conflict": [],
                "nearest": {"smaller": nearest.0, "larger": nearest.1},
                "advice": advice,
            })
        }
        other => json!({"status": "error", "message": other.to_string()}),
    }
}
