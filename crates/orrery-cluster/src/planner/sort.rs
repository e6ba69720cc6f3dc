//! Sorts the steps of a plan for sequential execution.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::error::PlanError;
use super::step::Plan;

pub(super) fn sorted(mut plan: Plan) -> Result<Plan, PlanError> {
    let count = plan.steps.len();
    let mut left: Vec<usize> =
        plan.steps.iter().map(|step| step.requires.len() + step.after.len()).collect();
    let mut group_left: Vec<usize> = plan.groups.iter().map(Vec::len).collect();
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); plan.groups.len()];
    for (id, step) in plan.steps.iter().enumerate() {
        for before in &step.requires {
            next[*before].push(id);
        }
        for group in &step.after {
            waiting[*group].push(id);
        }
    }
    let mut groups_of: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (group, steps) in plan.groups.iter().enumerate() {
        for step in steps {
            groups_of[*step].push(group);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..count).filter(|id| left[*id] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(id)) = ready.pop() {
        order.push(id);
        let mut done = |id: usize| {
            left[id] -= 1;
            if left[id] == 0 {
                ready.push(Reverse(id));
            }
        };
        for after in &next[id] {
            done(*after);
        }
        for group in &groups_of[id] {
            group_left[*group] -= 1;
            if group_left[*group] == 0 {
                for after in &waiting[*group] {
                    done(*after);
                }
            }
        }
    }
    if order.len() < count {
        let held = (0..count).filter(|id| left[*id] > 0).map(|id| plan.steps[id].to_string());
        return Err(PlanError::DependencyCycle(held.collect()));
    }
    let mut place = vec![0; count];
    for (at, id) in order.iter().enumerate() {
        place[*id] = at;
    }
    let mut steps: Vec<Option<_>> = plan.steps.into_iter().map(Some).collect();
    plan.steps = order.iter().filter_map(|id| steps[*id].take()).collect();
    for step in &mut plan.steps {
        for before in &mut step.requires {
            *before = place[*before];
        }
        step.requires.sort_unstable();
        step.requires.dedup();
    }
    for step in plan.groups.iter_mut().flatten() {
        *step = place[*step];
    }
    for last in plan.gates.iter_mut().flat_map(|gate| gate.permits.values_mut()) {
        *last = place[*last];
    }
    Ok(plan)
}
