//! From what people type to resources: a whole id, a part that only one has, or a pattern.

use orrery_model::{Pattern, ResourceId, Status, VersionedId, shell_word};
use orrery_store::ResourceQuery;

use super::source::Seen;
use super::{Look, Trouble};

/// Resources that are read at once.
pub(crate) const PAGE: usize = 5000;

/// How many of several candidates are named.
const CANDIDATES_MAX: usize = 10;

/// How many similar names are suggested, and how similar they must be, of 1.
const SIMILAR_MAX: usize = 3;
const SIMILAR_LEAST: f32 = 0.6;

/// How many are compared with a name that nothing has: a suggestion is not worth more time.
const SIMILAR_SEARCHED: usize = 200_000;

/// Visits resources in the order of ids, until `visit` says no.
pub(crate) fn each(
    look: &Look,
    query: &ResourceQuery,
    after: Option<&str>,
    mut visit: impl FnMut(Seen) -> Result<bool, Trouble>,
) -> Result<(), Trouble> {
    look.each(query, after, PAGE, &mut visit)
}

/// The one resource that is meant.
pub(crate) fn one(look: &Look, asked: &str) -> Result<Seen, Trouble> {
    let versioned = asked.parse::<VersionedId>().ok();
    let id = versioned.as_ref().map_or(asked, |versioned| versioned.id.as_str());
    if let Some(found) = look.find(id)? {
        return Ok(found);
    }
    let (mut found, mut gone) = (Candidates::default(), Candidates::default());
    let pattern = Pattern::new(asked);
    let query = ResourceQuery { removed: true, ..everything() };
    each(look, &query, None, |resource| {
        if pattern.matches(&resource.id) {
            let is_gone = resource.status == Status::Orphaned;
            if is_gone { &mut gone } else { &mut found }.add(resource, asked);
        }
        Ok(true)
    })?;
    // What is no longer wanted is meant only if nothing else fits as well.
    if found.count == 0 || (found.exact_count == 0 && gone.exact_count > 0) {
        found.extend(gone);
    }
    match found {
        Candidates { mut exact, .. } if exact.len() == 1 => Ok(exact.remove(0)),
        Candidates { mut all, count: 1, .. } => Ok(all.remove(0)),
        Candidates { count: 0, .. } => Err(unknown(asked, &similar(look, asked)?)),
        Candidates { exact, all, .. } if exact.is_empty() => {
            Err(ambiguous(asked, found.count, &all))
        }
        Candidates { exact, exact_count, .. } => Err(ambiguous(asked, exact_count, &exact)),
    }
}

/// Also what is no longer wanted.
pub(crate) fn everything() -> ResourceQuery {
    ResourceQuery { statuses: Status::ALL.to_vec(), ..ResourceQuery::default() }
}

/// What might be meant: the first few of it.
#[derive(Default)]
struct Candidates {
    all: Vec<Seen>,
    count: usize,
    /// Those whose value is the text itself: `/etc/motd` is meant, not `/etc/motd.d`.
    exact: Vec<Seen>,
    exact_count: usize,
}

impl Candidates {
    fn add(&mut self, resource: Seen, asked: &str) {
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

/// Ids that look like what was typed, the most similar first.
fn similar(look: &Look, asked: &str) -> Result<Vec<ResourceId>, Trouble> {
    let (mut kept, mut batch): (Vec<ResourceId>, Vec<ResourceId>) = (Vec::new(), Vec::new());
    let mut left = SIMILAR_SEARCHED;
    each(look, &everything(), None, |resource| {
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
    // Who types a bracket means an id; who does not means a value.
    let is_id = asked.contains('[');
    let name = |id: &'_ ResourceId| if is_id { id.to_string() } else { id.value().to_owned() };
    let names: Vec<String> = ids.iter().map(name).collect();
    let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
    let close = similar::get_close_matches(asked, &borrowed, SIMILAR_MAX, SIMILAR_LEAST);
    let mut found: Vec<ResourceId> = Vec::new();
    for close in close {
        // Several agents can have a value.
        let same = ids.iter().zip(&names).filter(|(_, name)| *name == close).map(|(id, _)| id);
        found.extend(same.filter(|id| !found.contains(id)).cloned().collect::<Vec<_>>());
    }
    found.truncate(SIMILAR_MAX);
    found
}

fn unknown(asked: &str, similar: &[ResourceId]) -> Trouble {
    let trouble = Trouble::said(format!("there is no resource {asked}"));
    match similar {
        [] => trouble.help("`orrery resources` lists them all"),
        [one] => trouble.help(format!("did you mean {one}?")),
        several => {
            let lines: Vec<String> = several.iter().map(|id| format!("\n  {id}")).collect();
            trouble.help(format!("did you mean one of these?{}", lines.concat()))
        }
    }
}

fn ambiguous(asked: &str, count: usize, matching: &[Seen]) -> Trouble {
    let mut text = format!("{asked} can mean {count} resources:");
    for resource in matching {
        text += &format!("\n  {}", resource.id);
    }
    if count > matching.len() {
        let left = count - matching.len();
        text += &format!("\n  … and {left} more: orrery resources --filter {}", shell_word(asked));
    }
    Trouble::said(text).help("name one by its id, or by a part that no other one has")
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
