//! Stages of a plan: each step is in the earliest stage that its requirements allow.

use super::step::{Plan, Step};

impl Plan {
    /// The stage of each step, from 0.
    pub fn levels(&self) -> Vec<usize> {
        let mut levels = vec![0; self.steps.len()];
        let mut groups: Vec<Option<usize>> = vec![None; self.groups.len()];
        // Steps are sorted: requirements come first.
        for at in 0..self.steps.len() {
            let step = &self.steps[at];
            let mut level = 0;
            for before in &step.requires {
                level = level.max(levels[*before] + 1);
            }
            for group in &step.after {
                let of_group = *groups[*group].get_or_insert_with(|| {
                    self.groups[*group].iter().map(|step| levels[*step] + 1).max().unwrap_or(0)
                });
                level = level.max(of_group);
            }
            levels[at] = level;
        }
        levels
    }

    /// Numbers of the steps of each stage.
    pub fn stages(&self) -> Vec<Vec<usize>> {
        let levels = self.levels();
        let count = levels.iter().max().map_or(0, |last| last + 1);
        let mut stages = vec![Vec::new(); count];
        for (step, level) in levels.into_iter().enumerate() {
            stages[level].push(step);
        }
        stages
    }

    /// Stages with at most one step per node, by first fit.
    pub fn split_stages(&self) -> Vec<Vec<usize>> {
        let mut split = Vec::new();
        for stage in self.stages() {
            let mut parts: Vec<Vec<usize>> = Vec::new();
            let mut used: std::collections::BTreeMap<&str, usize> = Default::default();
            for id in stage {
                let Step { node, .. } = &self.steps[id];
                let part = used.entry(node).or_default();
                if parts.len() == *part {
                    parts.push(Vec::new());
                }
                parts[*part].push(id);
                *part += 1;
            }
            split.extend(parts);
        }
        split
    }
}
