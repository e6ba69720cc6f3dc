//! Explanations of infeasible problems: a minimal conflict and the nearest changes that fit.

use std::fmt;

use super::SolveError;
use super::instance::TooLarge;
use super::limits::{Interrupted, Meter};
use super::prepare::Prepared;
use super::problem::{Mode, Problem, Rule, RuleKind, nodes};
use super::search::Search;

/// Explanation of a "no".
#[derive(Debug, Clone)]
pub struct Infeasible {
    /// Number of nodes that was asked for.
    pub size: u32,
    /// Rules that contradict each other at this size. Without any one of them, the others can be satisfied. Those whose change alone is
    /// enough come first.
    pub conflict: Vec<Rule>,
    /// Sizes that fit with all rules.
    pub sizes: SizeHint,
    /// Changes of rules that fit at this size, each sufficient on its own.
    pub changes: Vec<Change>,
    /// Only the compatible search gives up here; a layout exists.
    pub gave_up: bool,
    /// A limit was reached while explaining: the conflict may not be minimal, and advice may be missing.
    pub incomplete: Option<Interrupted>,
}

/// Sizes that fit with all rules, nearest to the one that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizeHint {
    pub smaller: Option<u32>,
    pub larger: Option<u32>,
}

/// A change of rules after which a layout exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The number in a rule becomes another one, the nearest that fits.
    Relax { rule: Rule, to: u32 },
    /// Rules are dropped, all of them.
    Drop(Vec<Rule>),
}

impl Change {
    /// Whether it is a change of this rule alone.
    fn is_of(&self, changed: &Rule) -> bool {
        match self {
            Change::Relax { rule, .. } => rule == changed,
            Change::Drop(rules) => matches!(rules.as_slice(), [rule] if rule == changed),
        }
    }
}

/// Distance in which sizes and bounds are tried one by one.
const NEAR: u32 = 64;
/// Rules that texts name, at most.
const MAX_SHOWN: usize = 12;
/// Sizes beyond this are not suggested.
pub(crate) const LARGEST: u32 = 10_000;

enum Failure {
    Interrupted(Interrupted),
    TooLarge(TooLarge),
}

impl From<Interrupted> for Failure {
    fn from(error: Interrupted) -> Self {
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

/// Explains why a problem has no layout.
pub(crate) fn explain(problem: &Problem, meter: &Meter<'_>) -> Result<Infeasible, SolveError> {
    Ok(Explainer { problem, prepared: Prepared::new(problem), meter }.explain()?)
}

/// Finds the smallest size with a layout, among those that the problem allows.
pub(crate) fn smallest(problem: &Problem, meter: &Meter<'_>) -> Result<Option<u32>, SolveError> {
    Ok(Explainer { problem, prepared: Prepared::new(problem), meter }.sizes_from(0)?.larger)
}

struct Explainer<'p, 'm> {
    problem: &'p Problem,
    prepared: Prepared<'p>,
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
            // That there is no layout is known, and more than nothing.
            Err(Failure::Interrupted(reason)) => {
                explained.incomplete = Some(reason);
                Ok(explained)
            }
            Err(other) => Err(other),
        }
    }

    /// Fills in what is found out, and leaves a conflict active.
    fn explain_into(&self, explained: &mut Infeasible, active: &mut [bool]) -> Result<(), Failure> {
        // Only the compatible mode refuses what has a layout.
        if self.problem.mode == Mode::Compatible && self.feasible(active)? {
            explained.gave_up = true;
            return Ok(());
        }
        // Rules that are removed first are less likely to be named: a rule that only follows from the
        // request says less than one that was written down.
        let implied = |&rule: &usize| !matches!(self.kind(rule), RuleKind::Requested { .. });
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

    fn kind(&self, index: usize) -> &RuleKind {
        &self.problem.rules[index].kind
    }

    fn feasible(&self, active: &[bool]) -> Result<bool, Failure> {
        self.feasible_from(&self.prepared, active)
    }

    fn feasible_from(&self, prepared: &Prepared<'_>, active: &[bool]) -> Result<bool, Failure> {
        let instance = prepared.build(active, self.problem.size)?;
        Ok(Search::new(&instance, self.meter).feasible()?)
    }

    /// Deactivates rules as long as the rest is a conflict. What remains is minimal: each remaining rule
    /// was necessary when more rules were active, so it is with fewer.
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
    fn changes(&self, conflict: &[usize]) -> Result<Vec<Change>, Failure> {
        let mut changes = Vec::new();
        let mut drops = Vec::new();
        for &rule in conflict {
            let mut active = vec![true; self.problem.rules.len()];
            active[rule] = false;
            if self.feasible(&active)? {
                if let Some(to) = self.relaxed(rule)? {
                    changes.push(Change::Relax { rule: self.rule(rule), to });
                }
                drops.push(Change::Drop(vec![self.rule(rule)]));
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
            // With no rule at all it may still be infeasible, as when there are no machines.
            if self.feasible(&active)? && !dropped.is_empty() {
                drops.push(Change::Drop(dropped));
            }
        }
        changes.extend(drops);
        Ok(changes)
    }

    /// The nearest number in a rule with which the problem is feasible, given that it is without the rule.
    fn relaxed(&self, rule: usize) -> Result<Option<u32>, Failure> {
        let (from, to) = match *self.kind(rule) {
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
            self.feasible_from(&Prepared::new(&problem), &active)
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

    /// Nearest feasible sizes on both sides of one that is not feasible.
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
            if self.problem.mode == Mode::Compatible && !search.greedy_start_reaches_size()? {
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
    /// Sentences that say what to change, best first.
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
                Change::Relax { rule, to } => advice.push(relaxation(rule, *to)),
                Change::Drop(rules) if rules.len() == 1 => {
                    drops.push(format!("\"{}\"", rules[0].kind))
                }
                Change::Drop(rules) => {
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
            write!(f, "\n  {} ({})", rule.kind, rule.place)?;
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
