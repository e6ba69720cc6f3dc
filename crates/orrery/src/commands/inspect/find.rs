//! Finds a resource by id, unique part of an id, or pattern.

use orrery_model::{Pattern, ResourceId, Status, VersionedId, shell_word};

use super::deployment::ResourceView;
use super::view::ResourceSelection;
use super::{CliError, OpenDeployment};

/// Page size.
pub(crate) const PAGE: usize = 5000;

/// Maximum number of listed candidates.
const CANDIDATES_MAX: usize = 10;

/// Maximum number of suggestions, and their minimum similarity.
const SIMILAR_MAX: usize = 3;
const SIMILAR_LEAST: f32 = 0.6;

/// Maximum number of ids that are compared for suggestions.
const SIMILAR_SEARCHED: usize = 200_000;

/// Visits resources sorted by id, until `visit` returns false.
pub(crate) fn visit(
    deployment: &OpenDeployment,
    query: &ResourceSelection,
    after: Option<&str>,
    mut visit: impl FnMut(ResourceView) -> Result<bool, CliError>,
) -> Result<(), CliError> {
    deployment.visit(query, after, PAGE, &mut visit)
}

/// Finds the resource that the argument denotes.
pub(crate) fn find_one(deployment: &OpenDeployment, asked: &str) -> Result<ResourceView, CliError> {
    let versioned = asked.parse::<VersionedId>().ok();
    let id = versioned.as_ref().map_or(asked, |versioned| versioned.id.as_str());
    if let Some(found) = deployment.find(id)? {
        return Ok(found);
    }
    let (mut found, mut gone) = (Candidates::default(), Candidates::default());
    let pattern = Pattern::new(asked);
    let query = ResourceSelection { removed: true, ..everything() };
    visit(deployment, &query, None, |resource| {
        if pattern.matches(&resource.id) {
            let is_gone = resource.status == Status::Orphaned;
            if is_gone { &mut gone } else { &mut found }.add(resource, asked);
        }
        Ok(true)
    })?;
    // Orphaned resources match only if nothing else matches as well.
    if found.count == 0 || (found.exact_count == 0 && gone.exact_count > 0) {
        found.extend(gone);
    }
    match found {
        Candidates { mut exact, .. } if exact.len() == 1 => Ok(exact.remove(0)),
        Candidates { mut all, count: 1, .. } => Ok(all.remove(0)),
        Candidates { count: 0, .. } => Err(unknown_resource(asked, &similar(deployment, asked)?)),
        Candidates { exact, all, .. } if exact.is_empty() => {
            Err(ambiguous(asked, found.count, &all))
        }
        Candidates { exact, exact_count, .. } => Err(ambiguous(asked, exact_count, &exact)),
    }
}

/// Query that includes orphaned resources.
pub(crate) fn everything() -> ResourceSelection {
    ResourceSelection { statuses: Status::ALL.to_vec(), ..ResourceSelection::default() }
}

/// The first matching resources.
#[derive(Default)]
struct Candidates {
    all: Vec<ResourceView>,
    count: usize,
    /// Resources with a value that equals the text: `/etc/motd`, not `/etc/motd.d`.
    exact: Vec<ResourceView>,
    exact_count: usize,
}

impl Candidates {
    fn add(&mut self, resource: ResourceView, asked: &str) {
        self.count += 1;
        if resource.id.value() == asked {
            self.exact_count += 1;
            if self.exact.len() < CANDIDATES_MAX {
                self.exact.push(resource.clone());
            }
        }
        if self.all.len() < CANDIDATES_MAX {
            self.all.push(resource);
        }
    }
}

impl Candidates {
    fn extend(&mut self, others: Candidates) {
        self.all.extend(others.all);
        self.exact.extend(others.exact);
        self.all.truncate(CANDIDATES_MAX);
        self.exact.truncate(CANDIDATES_MAX);
        self.count += others.count;
        self.exact_count += others.exact_count;
    }
}

/// Similar ids, most similar first.
fn similar(deployment: &OpenDeployment, asked: &str) -> Result<Vec<ResourceId>, CliError> {
    let (mut kept, mut batch): (Vec<ResourceId>, Vec<ResourceId>) = (Vec::new(), Vec::new());
    let mut left = SIMILAR_SEARCHED;
    visit(deployment, &everything(), None, |resource| {
        batch.push(resource.id);
        left -= 1;
        if batch.len() >= PAGE {
            batch.append(&mut kept);
            kept = most_similar(asked, &batch);
            batch.clear();
        }
        Ok(left > 0)
    })?;
    batch.append(&mut kept);
    Ok(most_similar(asked, &batch))
}

fn most_similar(asked: &str, ids: &[ResourceId]) -> Vec<ResourceId> {
    // Text with a bracket is an id, otherwise a value.
    let is_id = asked.contains('[');
    let name = |id: &'_ ResourceId| if is_id { id.to_string() } else { id.value().to_owned() };
    let names: Vec<String> = ids.iter().map(name).collect();
    let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
    let close = similar::get_close_matches(asked, &borrowed, SIMILAR_MAX, SIMILAR_LEAST);
    let mut found: Vec<ResourceId> = Vec::new();
    for close in close {
        // Several agents can have the same value.
        let same = ids.iter().zip(&names).filter(|(_, name)| *name == close).map(|(id, _)| id);
        found.extend(same.filter(|id| !found.contains(id)).cloned().collect::<Vec<_>>());
    }
    found.truncate(SIMILAR_MAX);
    found
}

fn unknown_resource(asked: &str, similar: &[ResourceId]) -> CliError {
    let error = CliError::new(format!("no resource {asked}"));
    match similar {
        [] => error.help("`orrery resources` lists all resources"),
        [one] => error.help(format!("did you mean {one}?")),
        several => {
            let lines: Vec<String> = several.iter().map(|id| format!("\n  {id}")).collect();
            error.help(format!("did you mean one of these?{}", lines.concat()))
        }
    }
}

fn ambiguous(asked: &str, count: usize, matching: &[ResourceView]) -> CliError {
    let mut text = format!("{asked} matches {count} resources:");
    for resource in matching {
        text += &format!("\n  {}", resource.id);
    }
    if count > matching.len() {
        let left = count - matching.len();
        text += &format!("\n  … and {left} more: orrery resources --filter {}", shell_word(asked));
    }
    CliError::new(text).help("use an id, or a unique part of it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_found_by_value_or_by_id() {
        let ids: Vec<ResourceId> = [
            "std::File[web1,path=/etc/motd]",
            "std::File[web2,path=/etc/motd]",
            "std::File[web1,path=/srv/something]",
        ]
        .map(|id| id.parse().unwrap())
        .to_vec();
        assert_eq!(most_similar("/etc/mtod", &ids), ids[..2]);
        assert_eq!(most_similar("std::File[web2,path=/etc/mtd]", &ids)[0], ids[1]);
        assert!(most_similar("nginx", &ids).is_empty());
    }
}
