//! Consistency check of the stored data. The database checks its own pages.

use super::transaction::Tx;
use crate::Result;

/// Problems, each with a query that counts its occurrences.
const PROBLEMS: [(&str, &str); 9] = [
    (
        "resources point to revisions that do not exist or belong to other resources",
        "SELECT count(*) FROM resource LEFT JOIN revision ON revision.id = resource.head \
         WHERE resource.head IS NOT NULL AND (revision.id IS NULL \
         OR revision.resource <> resource.id OR revision.environment <> resource.environment)",
    ),
    (
        "resources point to ended revisions",
        "SELECT count(*) FROM resource JOIN ended ON ended.revision = resource.head \
         WHERE NOT EXISTS (SELECT 1 FROM unclaimed \
             WHERE unclaimed.environment = ended.environment AND unclaimed.step = ended.until)",
    ),
    (
        "resources are not in the set of their revision",
        "SELECT count(*) FROM resource LEFT JOIN revision ON revision.id = resource.head \
         WHERE resource.resource_set <> coalesce(revision.resource_set, 0)",
    ),
    (
        "resources have a revision without a digest, or a digest without a revision",
        "SELECT count(*) FROM resource WHERE (head IS NULL) <> (digest IS NULL)",
    ),
    (
        "resources are not marked as absent as they are",
        "SELECT count(*) FROM resource WHERE absent <> (head IS NULL)",
    ),
    (
        "open revisions belong to no resource",
        "SELECT count(*) FROM revision LEFT JOIN resource ON resource.head = revision.id \
         AND resource.id = revision.resource \
         WHERE resource.id IS NULL \
         AND NOT EXISTS (SELECT 1 FROM ended WHERE ended.revision = revision.id) \
         AND NOT EXISTS (SELECT 1 FROM unclaimed WHERE revision.id >= unclaimed.first_revision \
             AND revision.id < unclaimed.end_revision)",
    ),
    (
        "ended revisions do not exist, belong to another resource, or end before they begin",
        "SELECT count(*) FROM ended LEFT JOIN revision ON revision.id = ended.revision \
         WHERE revision.id IS NULL OR ended.until <= revision.since \
         OR ended.resource <> revision.resource OR ended.environment <> revision.environment",
    ),
    (
        "versions have no step",
        "SELECT count(*) FROM version LEFT JOIN step ON step.id = version.step \
         AND step.environment = version.environment WHERE step.id IS NULL",
    ),
    (
        "environments have a newest version with a wrong number of resources",
        "SELECT count(*) FROM version WHERE step = (SELECT max(step) FROM version AS other \
         WHERE other.environment = version.environment) AND total <> (SELECT count(*) \
         FROM resource WHERE resource.environment = version.environment AND head IS NOT NULL)",
    ),
];

pub(super) fn check(tx: &mut Tx<'_>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (problem, sql) in PROBLEMS {
        let count: i64 = tx.query_one(sql, &[])?.get(0);
        if count > 0 {
            found.push(format!("{count} {problem}"));
        }
    }
    Ok(found)
}
