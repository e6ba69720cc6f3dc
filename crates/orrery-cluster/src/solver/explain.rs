//! Explanations of infeasible problems: a minimal conflict and the nearest feasible changes.

use std::fmt;

use super::SolveError;
use super::instance::TooLarge;
use super::limits::{Interruption, Meter};
use super::prepare::PreparedProblem;
use super::problem::{LayoutProblem, Rule, RuleKind, SolverMode, nodes};
use super::search::Search;

/// Explanation of an infeasible problem.
#[derive(Debug, Clone)]
pub struct Infeasible {
    /// Requested number of nodes.
    pub size: u32,
    /// Rules that contradict each other at this size. Without any one of them, the others can be
    /// satisfied. Rules with a sufficient change come first.
    pub conflict: Vec<Rule>,
    /// Sizes that are feasible with all rules.
    pub sizes: SizeHint,
    /// Rule changes that make this size feasible, each sufficient on its own.
    pub changes: Vec<RuleChange>,
    /// Only the compatible search fails here; a layout exists.
    pub gave_up: bool,
    /// A limit was reached while explaining: the conflict may not be minimal, and advice may be
    /// missing.
    pub incomplete: Option<Interruption>,
}

/// Feasible sizes with all rules, nearest to the requested one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizeHint {
    pub smaller: Option<u32>,
    pub larger: Option<u32>,
}

/// A rule change that makes a layout possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleChange {
    /// Changes the number in a rule to the nearest feasible one.
    Relax { rule: Rule, to: u32 },
    /// Drops all of these rules.
    Drop(Vec<Rule>),
}

impl RuleChange {
    /// True if it changes this rule alone.
    fn is_of(&self, changed: &Rule) -> bool {
        match self {
            RuleChange::Relax { rule, .. } => rule == changed,
            RuleChange::Drop(rules) => matches!(rules.as_slice(), [rule] if rule == changed),
        }
    }
}

/// Distance in which sizes and bounds are tried one by one.
const NEAR: u32 = 64;
/// Maximum number of rules named in a text.
const MAX_SHOWN: usize = 12;
/// Maximum suggested size.
pub(crate) const LARGEST: u32 = 10_000;

enum Failure {
    Interrupted(Interruption),
    TooLarge(TooLarge),
}

impl From<Interruption> for Failure {
    fn from(error: Interruption) -> Self {
        Self::Interrupted(error)
    }
}

impl From<TooLarge> for Failure {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error)
    }
}

impl From<Failure> for SolveError {
    fn from(error: Failure) -> Self {
        match error {
            Failure::Interrupted(error) => Self::Interrupted(error),
            Failure::TooLarge(error) => Self::TooLarge(error),
        }
    }
}

/// Explains the infeasibility of a problem.
pub(crate) fn explain(
    problem: &LayoutProblem,
    meter: &Meter<'_>,
) -> Result<Infeasible, SolveError> {
    Ok(Explainer { problem, prepared: PreparedProblem::new(problem), meter }.explain()?)
}

/// Finds the smallest feasible size, among those that the problem allows.
pub(crate) fn smallest(
    problem: &LayoutProblem,
    meter: &Meter<'_>,
) -> Result<Option<u32>, SolveError> {
    Ok(Explainer { problem, prepared: PreparedProblem::new(problem), meter }.sizes_from(0)?.larger)
}

struct Explainer<'p, 'm> {
    problem: &'p LayoutProblem,
    prepared: PreparedProblem<'p>,
    meter: &'m Meter<'m>,
}

impl Explainer<'_, '_> {
    fn explain(&self) -> Result<Infeasible, Failure> {
        let mut active = vec![true; self.problem.rules.len()];
        let mut explained = Infeasible {
            size: self.problem.size,
            conflict: Vec::new(),
            sizes: SizeHint::default(),
            changes: Vec::new(),
            gave_up: false,
            incomplete: None,
        };
        let outcome = self.explain_into(&mut explained, &mut active);
        if !explained.gave_up {
            let conflict = active.iter().enumerate().filter(|(_, active)| **active);
            explained.conflict = conflict.map(|(rule, _)| self.rule(rule)).collect();
            // Rules that are part of every conflict come first: a change of one of them is enough.
            let changes = &explained.changes;
            explained.conflict.sort_by_key(|rule| !changes.iter().any(|change| change.is_of(rule)));
        }
        match outcome {
            Ok(()) => Ok(explained),
            // The infeasibility is known even without a full explanation.
            Err(Failure::Interrupted(reason)) => {
                explained.incomplete = Some(reason);
                Ok(explained)
            }
            Err(other) => Err(other),
        }
    }

    /// Fills in the findings and leaves a conflict active.
    fn explain_into(&self, explained: &mut Infeasible, active: &mut [bool]) -> Result<(), Failure> {
        // Only the compatible mode refuses problems that have a layout.
        if self.problem.mode == SolverMode::Compatible && self.feasible(active)? {
            explained.gave_up = true;
            return Ok(());
        }
        // Rules that are removed first are less likely to be named: a rule that only follows from
        // the request is less informative than a written one.
        let implied = |&rule: &usize| !matches!(self.rule_kind(rule), RuleKind::Requested { .. });
        let mut order: Vec<usize> = (0..active.len()).collect();
        order.sort_by_key(implied);
        self.shrink(&order, active)?;
        explained.sizes = self.sizes_from(self.problem.size)?;
        let conflict: Vec<usize> = (0..active.len()).filter(|&rule| active[rule]).collect();
        explained.changes = self.changes(&conflict)?;
        Ok(())
    }

    fn rule(&self, index: usize) -> Rule {
        self.problem.rules[index].clone()
    }

    fn rule_kind(&self, index: usize) -> &RuleKind {
        &self.problem.rules[index].kind
    }

    fn feasible(&self, active: &[bool]) -> Result<bool, Failure> {
        self.feasible_from(&self.prepared, active)
    }

    fn feasible_from(
        &self,
        prepared: &PreparedProblem<'_>,
        active: &[bool],
    ) -> Result<bool, Failure> {
        let instance = prepared.build(active, self.problem.size)?;
        Ok(Search::new(&instance, self.meter).feasible()?)
    }

    /// Deactivates rules as long as the rest is a conflict. The result is minimal: each remaining
    /// rule was necessary when more rules were active, so it is with fewer.
    fn shrink(&self, rules: &[usize], active: &mut [bool]) -> Result<(), Failure> {
        if rules.is_empty() {
            return Ok(());
        }
        for &rule in rules {
            active[rule] = false;
        }
        let feasible = self.feasible(active);
        if matches!(feasible, Ok(false)) {
            return Ok(());
        }
        for &rule in rules {
            active[rule] = true;
        }
        feasible?;
        if rules.len() > 1 {
            let (first, second) = rules.split_at(rules.len() / 2);
            self.shrink(first, active)?;
            self.shrink(second, active)?;
        }
        Ok(())
    }

    /// Single changes that make the whole problem feasible, or else rules to drop together.
    fn changes(&self, conflict: &[usize]) -> Result<Vec<RuleChange>, Failure> {
        let mut changes = Vec::new();
        let mut drops = Vec::new();
        for &rule in conflict {
            let mut active = vec![true; self.problem.rules.len()];
            active[rule] = false;
            if self.feasible(&active)? {
                if let Some(to) = self.relaxed(rule)? {
                    changes.push(RuleChange::Relax { rule: self.rule(rule), to });
                }
                drops.push(RuleChange::Drop(vec![self.rule(rule)]));
            }
        }
        if drops.is_empty() && !self.problem.rules.is_empty() {
            let mut active = vec![false; self.problem.rules.len()];
            let mut dropped = Vec::new();
            for rule in 0..active.len() {
                active[rule] = true;
                if !self.feasible(&active)? {
                    active[rule] = false;
                    dropped.push(self.rule(rule));
                }
            }
            // Even without rules it may be infeasible, for example without machines.
            if self.feasible(&active)? && !dropped.is_empty() {
                drops.push(RuleChange::Drop(dropped));
            }
        }
        changes.extend(drops);
        Ok(changes)
    }

    /// The nearest number in a rule that makes the problem feasible, given that it is feasible
    /// without the rule.
    fn relaxed(&self, rule: usize) -> Result<Option<u32>, Failure> {
        let (from, to) = match *self.rule_kind(rule) {
            RuleKind::Min { count, .. } => (count, 0),
            RuleKind::Max { count, .. } => (count, self.problem.size),
            RuleKind::AntiAffinity { max, .. } => (max, self.problem.size),
            RuleKind::Ratio { per, .. } => (per, self.problem.size),
            _ => return Ok(None),
        };
        let active = vec![true; self.problem.rules.len()];
        let fits = |value: u32| {
            let mut problem = self.problem.clone();
            match &mut problem.rules[rule].kind {
                RuleKind::Min { count, .. } | RuleKind::Max { count, .. } => *count = value,
                RuleKind::AntiAffinity { max, .. } => *max = value,
                RuleKind::Ratio { per, .. } => *per = value,
                _ => {}
            }
            self.feasible_from(&PreparedProblem::new(&problem), &active)
        };
        if from == to || !fits(to)? {
            return Ok(None);
        }
        // Feasible at `good`, infeasible at `bad`; weaker rules stay feasible.
        let (mut bad, mut good) = (i64::from(from), i64::from(to));
        while (good - bad).abs() > 1 {
            let middle = bad + (good - bad) / 2;
            if fits(u32::try_from(middle).unwrap_or(0))? {
                good = middle;
            } else {
                bad = middle;
            }
        }
        Ok(u32::try_from(good).ok())
    }

    /// Nearest feasible sizes on both sides of an infeasible one.
    fn sizes_from(&self, size: u32) -> Result<SizeHint, Failure> {
        let (min, max) = self.problem.size_range;
        let (min, max) = (min.unwrap_or(1).max(1), max.unwrap_or(LARGEST).min(LARGEST));
        let active = vec![true; self.problem.rules.len()];
        let widest = self.prepared.build(&active, LARGEST)?;
        let Some((least, most)) = Search::new(&widest, self.meter).size_range()? else {
            return Ok(SizeHint::default());
        };
        let (least, most) = (least.max(min), most.min(max));
        let fits = |size: u32| -> Result<bool, Failure> {
            let instance = self.prepared.build(&active, size)?;
            let search = Search::new(&instance, self.meter);
            if self.problem.mode == SolverMode::Compatible && !search.greedy_start_reaches_size()? {
                return Ok(false);
            }
            Ok(search.feasible()?)
        };
        let mut hint = SizeHint::default();
        let first = least.max(size.saturating_add(1));
        for larger in first..=most.min(first.saturating_add(NEAR)) {
            if fits(larger)? {
                hint.larger = Some(larger);
                break;
            }
        }
        if size > least {
            let last = most.min(size - 1);
            for smaller in (least.max(last.saturating_sub(NEAR))..=last).rev() {
                if fits(smaller)? {
                    hint.smaller = Some(smaller);
                    break;
                }
            }
        }
        Ok(hint)
    }
}

impl Infeasible {
    /// Sentences that recommend changes, best first.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if self.gave_up {
            advice.push("a layout exists: use the strict mode, which finds it".to_owned());
            return advice;
        }
        advice.extend(match (self.sizes.smaller, self.sizes.larger) {
            (None, Some(size)) => Some(format!("size {size} is the smallest that fits")),
            (Some(size), None) => Some(format!("size {size} is the largest that fits")),
            (Some(a), Some(b)) => Some(format!("sizes {a} and {b} are the nearest that fit")),
            (None, None) => None,
        });
        let mut drops = Vec::new();
        for change in &self.changes {
            match change {
                RuleChange::Relax { rule, to } => advice.push(relaxation(rule, *to)),
                RuleChange::Drop(rules) if rules.len() == 1 => {
                    drops.push(format!("\"{}\"", rules[0].kind));
                }
                RuleChange::Drop(rules) => {
                    let rules: Vec<String> =
                        rules.iter().map(|rule| format!("\"{}\"", rule.kind)).collect();
                    advice.push(format!("drop all of: {}", rules.join(", ")));
                }
            }
        }
        match drops.as_slice() {
            [] => {}
            [only] => advice.push(format!("drop {only}")),
            more if more.len() > MAX_SHOWN => advice.push("drop any of these rules".to_owned()),
            more => advice.push(format!("drop one of: {}", more.join(", "))),
        }
        advice
    }
}

fn relaxation(rule: &Rule, to: u32) -> String {
    match &rule.kind {
        RuleKind::Min { service, .. } => format!("lower the minimum of {service} to {to}"),
        RuleKind::Max { service, .. } => format!("raise the maximum of {service} to {to}"),
        RuleKind::AntiAffinity { service, label, .. } => {
            format!("allow {to} {service} for each {label}")
        }
        RuleKind::Ratio { service, of, .. } => {
            format!("let one {service} serve {to} {of}")
        }
        other => format!("change \"{other}\" to {to}"),
    }
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = nodes(self.size);
        if self.gave_up {
            write!(f, "the compatible search finds no layout with {size}")?;
        } else {
            write!(f, "no layout with {size} satisfies all rules")?;
        }
        for rule in self.conflict.iter().take(MAX_SHOWN) {
            write!(f, "\n  {} ({})", rule.kind, rule.location)?;
        }
        if self.conflict.len() > MAX_SHOWN {
            write!(f, "\n  and {} more rules", self.conflict.len() - MAX_SHOWN)?;
        }
        for advice in self.advice() {
            write!(f, "\n  help: {advice}")?;
        }
        if let Some(reason) = self.incomplete {
            write!(f, "\n  this explanation is incomplete: {reason}")?;
        }
        Ok(())
    }
}
