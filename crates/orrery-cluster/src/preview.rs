//! Preview: the nodes that a request would get, and the plan that would create them. No machine is touched.

use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::document::{Catalog, line_column};
use crate::planner::{ClusterState, NodeState, Plan, PlanError, Policy, Services, plan};
use crate::solver::{
    Infeasible, Invalid, Limits, Mode, Place, Request, Solution, SolveError, solve,
};

/// The number of a cluster's first node.
const FIRST_NODE: u64 = 1_000;

/// What a request would lead to.
#[derive(Clone, Debug)]
pub struct Preview {
    pub template: String,
    pub solution: Solution,
    /// In the order of their numbers.
    pub nodes: Vec<PreviewNode>,
    pub plan: Plan,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreviewNode {
    pub name: String,
    pub number: u64,
    pub hardwaretype: String,
    pub imagetype: String,
    pub services: Vec<String>,
}

/// Reasons for no preview.
#[derive(Debug, Error)]
pub enum PreviewError {
    #[error(transparent)]
    Solve(#[from] SolveError),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Solves a request and plans the cluster.
///
/// # Errors
/// There is no layout, or its services wait for each other.
pub fn preview(
    catalog: &Catalog,
    request: &Request,
    limits: Limits<'_>,
) -> Result<Preview, PreviewError> {
    let solution = solve(catalog, request, limits)?;
    let mut nodes = Vec::new();
    let mut state = ClusterState::default();
    for group in &solution.groups {
        for _ in 0..group.count {
            let number = FIRST_NODE + nodes.len() as u64;
            let name = format!("{}-{number}", request.template);
            let services = group.layout.services.iter();
            let services = services.map(|service| (service.clone(), Default::default())).collect();
            let node = NodeState {
                hardware: group.layout.hardware.clone(),
                image: group.layout.image.clone(),
                services,
                ..NodeState::default()
            };
            state.nodes.insert(name.clone(), node);
            nodes.push(PreviewNode {
                name,
                number,
                hardwaretype: group.layout.hardware.clone(),
                imagetype: group.layout.image.clone(),
                services: group.layout.services.iter().cloned().collect(),
            });
        }
    }
    let services = Services::new(catalog.services.values().map(|document| &document.body));
    let is_compatible = request.mode == Mode::Compatible;
    let policy = Policy { is_compatible, ..Policy::default() };
    let plan = plan(&services, &ClusterState::default(), &state, &policy)?;
    Ok(Preview { template: request.template.clone(), solution, nodes, plan })
}

impl Preview {
    /// The preview for programs.
    pub fn to_json(&self) -> Value {
        let stage = |stage: Vec<usize>| -> Value {
            let steps = stage.into_iter().map(|step| {
                let step = &self.plan.steps[step];
                json!({"node": step.node, "action": step.action(), "service": step.service})
            });
            steps.collect()
        };
        let stages: Vec<Value> = self.plan.stages().into_iter().map(stage).collect();
        json!({
            "status": "solved",
            "template": self.template,
            "size": self.nodes.len(),
            "cost": self.solution.cost.map(cost),
            "layout": layout_json(&self.solution),
            "unplaced": self.solution.unplaced,
            "nodes": self.nodes,
            "plan": {"steps": self.plan.steps.len(), "stages": stages},
        })
    }
}

/// A cost in the unit of the documents.
pub fn cost(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

/// A layout for programs.
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

fn place_json(catalog: &Catalog, place: &Place) -> Value {
    let mut value = json!({"document": place.document, "path": place.path});
    if let Some(source) = &place.source {
        let file = catalog.file(source.file);
        let (line, column) = line_column(&file.text, source.span.start);
        value["file"] = json!(file.name);
        value["line"] = json!(line);
        value["column"] = json!(column);
    }
    value
}

fn invalid_json(catalog: &Catalog, invalid: &Invalid) -> Value {
    json!({
        "message": invalid.message,
        "place": invalid.place.as_ref().map(|place| place_json(catalog, place)),
        "help": invalid.help,
    })
}

fn infeasible_json(catalog: &Catalog, infeasible: &Infeasible) -> Value {
    let conflict = infeasible.conflict.iter().map(|rule| {
        let mut value = place_json(catalog, &rule.place);
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

/// The reason for no preview, for programs.
pub fn error_json(catalog: &Catalog, error: &PreviewError) -> Value {
    match error {
        PreviewError::Solve(SolveError::Infeasible(infeasible)) => {
            infeasible_json(catalog, infeasible)
        }
        PreviewError::Solve(SolveError::Invalid(all)) => {
            let problems: Vec<Value> = all.iter().map(|one| invalid_json(catalog, one)).collect();
            json!({"status": "invalid", "problems": problems})
        }
        PreviewError::Solve(SolveError::Interrupted(error)) => {
            json!({"status": "interrupted", "message": error.to_string()})
        }
        other => json!({"status": "error", "message": other.to_string()}),
    }
}
