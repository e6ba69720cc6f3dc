//! From what people type to resources: a whole id, a part that only one has, or a pattern.

use orrery_model::{Pattern, ResourceId, Status, VersionedId};
use orrery_store::{ResourceFilter, ResourceSummary, Store};

use super::{Look, Trouble};

/// Resources that are read at once.
const PAGE: usize = 5000;

/// How many of several candidates are named.
const CANDIDATES_MAX: usize = 10;

/// How many similar names are suggested, and how similar they must be, of 1.
const SIMILAR_MAX: usize = 3;
const SIMILAR_LEAST: f32 = 0.6;

/// Visits resources in the order of ids, until `visit` says no.
pub(crate) fn each(
    look: &Look,
    filter: &ResourceFilter,
    after: Option<&str>,
    mut visit: impl FnMut(ResourceSummary) -> Result<bool, Trouble>,
) -> Result<(), Trouble> {
    let mut after = after.map(str::to_owned);
    loop {
        let page = look.store.list_resources(look.environment, filter, after.as_deref(), PAGE)?;
        for resource in page.resources {
            if !visit(resource)? {
                return Ok(());
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// The one resource that is meant.
pub(crate) fn one(look: &Look, asked: &str) -> Result<ResourceSummary, Trouble> {
    let versioned = asked.parse::<VersionedId>().ok();
    let id = versioned.as_ref().map_or(asked, |versioned| versioned.id.as_str());
    if let Some(found) = look.store.find_resource(look.environment, id)? {
        return Ok(found);
    }
    let mut found = Candidates::new(asked);
    let all = ResourceFilter { statuses: Status::ALL.to_vec(), ..ResourceFilter::default() };
    each(look, &all, None, |resource| {
        found.look_at(resource);
        Ok(true)
    })?;
    found.decide()
}

/// What might be meant.
struct Candidates<'a> {
    asked: &'a str,
    pattern: Pattern,
    count: usize,
    /// The first of those that match.
    matching: Vec<ResourceSummary>,
    /// Those whose value is the text itself: `/etc/motd` is meant, not `/etc/motd.d`.
    exact: Vec<ResourceSummary>,
    /// Ids of those that look alike, as long as nothing matches.
    similar: Vec<ResourceId>,
    unsorted: Vec<ResourceId>,
}

impl<'a> Candidates<'a> {
    fn new(asked: &'a str) -> Self {
        Candidates {
            asked,
            pattern: Pattern::new(asked),
            count: 0,
            matching: Vec::new(),
            exact: Vec::new(),
            similar: Vec::new(),
            unsorted: Vec::new(),
        }
    }

    fn look_at(&mut self, resource: ResourceSummary) {
        if self.pattern.matches(&resource.id) {
            self.count += 1;
            if resource.id.value() == self.asked && self.exact.len() <= CANDIDATES_MAX {
                self.exact.push(resource.clone());
            }
            if self.matching.len() < CANDIDATES_MAX {
                self.matching.push(resource);
            }
        } else if self.count == 0 {
            self.unsorted.push(resource.id);
            if self.unsorted.len() >= PAGE {
                self.sort_out();
            }
        }
    }

    /// Keeps the most similar ids only.
    fn sort_out(&mut self) {
        // Who types a bracket means an id; who does not means a value.
        let whole = self.asked.contains('[');
        let name = |id: &'_ ResourceId| -> String {
            if whole { id.as_str().to_owned() } else { id.value().to_owned() }
        };
        self.unsorted.append(&mut self.similar);
        let names: Vec<String> = self.unsorted.iter().map(name).collect();
        let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
        let close = similar::get_close_matches(self.asked, &borrowed, SIMILAR_MAX, SIMILAR_LEAST);
        let mut kept: Vec<ResourceId> = Vec::new();
        for close in close {
            let same = self.unsorted.iter().zip(&names).filter(|(_, name)| *name == close);
            for (id, _) in same.take(SIMILAR_MAX) {
                if !kept.contains(id) {
                    kept.push(id.clone());
                }
            }
        }
        kept.truncate(SIMILAR_MAX);
        self.similar = kept;
        self.unsorted.clear();
    }

    fn decide(mut self) -> Result<ResourceSummary, Trouble> {
        if self.exact.len() == 1 {
            return Ok(self.exact.remove(0));
        }
        match self.count {
            1 => Ok(self.matching.remove(0)),
            0 => {
                self.sort_out();
                Err(unknown(self.asked, &self.similar))
            }
            count => Err(ambiguous(self.asked, count, &self.matching)),
        }
    }
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

fn ambiguous(asked: &str, count: usize, matching: &[ResourceSummary]) -> Trouble {
    let mut text = format!("{asked} can mean {count} resources:");
    for resource in matching {
        text += &format!("\n  {}", resource.id);
    }
    if count > matching.len() {
        let left = count - matching.len();
        text += &format!("\n  … and {left} more: orrery resources --filter '{asked}'");
    }
    Trouble::said(text).help("name one by its id, or by a part that no other one has")
}
