//! Text form of a plan: one line per stage.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use orrery_api::PreviewedPlan;

use crate::style;

pub(super) fn render(plan: &PreviewedPlan) -> String {
    let stages = &plan.stages;
    let mut out = format!(
        "{}: {} in {}\n",
        style::heading("plan"),
        style::count(plan.steps, "step"),
        style::count(stages.len(), "stage"),
    );
    let width = stages.len().to_string().len();
    for (number, stage) in stages.iter().enumerate() {
        let mut actions: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for step in stage {
            let service = step.service.as_deref().unwrap_or("machine");
            *actions.entry(&step.action).or_default().entry(service).or_default() += 1;
        }
        let actions = actions.into_iter().map(|(action, services)| {
            let services = services.into_iter().map(|(name, count)| match count {
                1 => name.to_owned(),
                count => format!("{name} ×{}", style::grouped(count)),
            });
            let services: Vec<String> = services.collect();
            format!("{} {}", action.to_lowercase(), services.join(", "))
        });
        let actions: Vec<String> = actions.collect();
        let _ = writeln!(out, "  {:>width$}  {}", number + 1, actions.join("; "));
    }
    out
}
