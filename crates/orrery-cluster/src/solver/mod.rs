//! Solver: turns a template, a size and choices into a layout, or explains why there is none.
//!
//! A *layout* is a bag of node layouts: hardware type, image type, set of services. Of all layouts that
//! satisfy the rules, the answer is the one with the lexicographically greatest vector of counts over
//! node layouts in order of preference: more services first, then preferred machine types, then names.
//!
//! Start from [`solve`] for documents and [`solve_problem`] for everything else. [`LayoutProblem`] is the input
//! without documents, [`check()`] verifies an answer independently, [`add_services()`] extends an existing
//! layout. Tests are in `tests/solver`.
//!
//! | module | purpose |
//! |---|---|
//! | `problem` | input and output types |
//! | `request` | documents and a request to a problem, with the checks before the search |
//! | `prepare`, `instance` | a problem as integers and bit masks |
//! | `search`, `node` | the lexicographically greatest layout, one kind of node after the other |
//! | `packing`, `simplex`, `sets`, `witness` | decides whether demands fit on a number of nodes |
//! | `explain` | minimal conflicts and nearest changes |
//! | `add_services`, `counts` | additions to an existing layout |
//! | `resize` | another size for an existing layout |
//! | `preference` | enumeration of node layouts in order of preference, for small problems |

mod add_services;
mod check;
mod counts;
mod explain;
mod instance;
mod limits;
mod node;
mod packing;
mod preference;
mod prepare;
mod problem;
mod request;
mod resize;
mod search;
mod sets;
mod simplex;
mod witness;

pub use add_services::{AddError, add_services};
pub use check::{Violation, check, is_valid_node, is_valid_service_set, unconstrained};
pub use counts::{CountsError, DescendingCounts};
pub use explain::{Infeasible, RuleChange, SizeHint};
pub use instance::TooLarge;
pub use limits::{Interruption, SearchLimits};
pub use preference::{narrow, node_layouts, order_layouts, service_sets};
pub use problem::{
    ClusterService, Hardware, LayoutProblem, NodeGroup, NodeLayout, Rule, RuleKind, RuleLocation,
    Solution, SolverMode,
};
pub use request::{
    Invalid, InvalidReason, LayoutRequest, MAX_SIZE, lower, lower_template, smallest_size, solve,
    solve_template,
};
pub use resize::{ExistingNode, ResizeError, ResizeResult, resize};

use std::collections::BTreeSet;

use instance::{Instance, Mask, bits};
use limits::Meter;
use prepare::PreparedProblem;
use search::{ChosenNodes, Search};

/// Solver errors.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SolveError {
    /// The request does not fit the documents, so no search was started.
    #[error("{}", Invalid::join(.0))]
    Invalid(Vec<Invalid>),
    /// No layout satisfies all rules.
    #[error("{0}")]
    Infeasible(Box<Infeasible>),
    #[error(transparent)]
    Interrupted(#[from] Interruption),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Finds the preferred layout of a problem.
///
/// # Errors
/// An explanation if no layout satisfies all rules; an interruption if a limit was reached first.
pub fn solve_problem(
    problem: &LayoutProblem,
    limits: SearchLimits<'_>,
) -> Result<Solution, SolveError> {
    let meter = Meter::new(limits);
    let active = vec![true; problem.rules.len()];
    let instance = PreparedProblem::new(problem).build(&active, problem.size)?;
    let search = Search::new(&instance, &meter);
    if problem.mode == SolverMode::Compatible && !search.greedy_start_reaches_size()? {
        let explained = explain::explain(problem, &meter)?;
        return Err(SolveError::Infeasible(Box::new(explained)));
    }
    match search.solve()? {
        Some(chosen) => Ok(solution(problem, &instance, &chosen)),
        None => {
            let explained = explain::explain(problem, &meter)?;
            Err(SolveError::Infeasible(Box::new(explained)))
        }
    }
}

/// Decides whether a problem has a layout, without finding or explaining it.
///
/// # Errors
/// An interruption if a limit was reached first.
pub fn is_feasible(problem: &LayoutProblem, limits: SearchLimits<'_>) -> Result<bool, SolveError> {
    let meter = Meter::new(limits);
    let active = vec![true; problem.rules.len()];
    let instance = PreparedProblem::new(problem).build(&active, problem.size)?;
    Ok(Search::new(&instance, &meter).feasible()?)
}

/// Finds the smallest size with a layout, among those that the problem allows. Its own size is ignored.
///
/// # Errors
/// An interruption if a limit was reached first.
pub fn smallest_size_of(
    problem: &LayoutProblem,
    limits: SearchLimits<'_>,
) -> Result<Option<u32>, SolveError> {
    explain::smallest(problem, &Meter::new(limits))
}

fn solution(problem: &LayoutProblem, instance: &Instance, chosen: &[ChosenNodes]) -> Solution {
    let names = |atoms: Mask| -> BTreeSet<String> {
        let services = bits(atoms).flat_map(|atom| &instance.atoms[atom].services);
        let services = services.chain(&instance.everywhere);
        services.map(|&service| problem.services[service].name.clone()).collect()
    };
    let mut cost = Some(0u64);
    let groups: Vec<NodeGroup> = chosen
        .iter()
        .map(|ChosenNodes { node, count }| {
            let machine = &instance.machines[node.hardware.trailing_zeros() as usize];
            let image = &instance.images[node.images.trailing_zeros() as usize];
            let hardware = &problem.hardware[machine.index];
            let price = hardware.cost.and_then(|cost| cost.checked_mul(u64::from(*count)));
            cost = cost.zip(price).and_then(|(sum, price)| sum.checked_add(price));
            let layout = NodeLayout {
                hardware: hardware.name.clone(),
                image: problem.images[image.index].clone(),
                services: names(node.atoms),
            };
            NodeGroup { layout, count: *count }
        })
        .collect();
    let mut solution = Solution { groups, unplaced: Vec::new(), cost };
    let unplaced = problem.services.iter().filter(|service| solution.count(&service.name) == 0);
    solution.unplaced = unplaced.map(|service| service.name.clone()).collect();
    solution.unplaced.sort();
    solution
}
