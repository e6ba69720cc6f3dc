//! Whether what is stored fits together. The database looks after its own pages; this looks at what we put into them.

use super::transaction::Tx;
use crate::Result;

/// What must not be, and a query that counts where it is.
const PROBLEMS: [(&str, &str); 6] = [
    (
        "resources point to revisions that are not there, not theirs or not open",
        "SELECT count(*) FROM resource LEFT JOIN revision ON revision.id = resource.head \
         WHERE resource.head IS NOT NULL AND (revision.id IS NULL \
         OR revision.resource <> resource.id OR revision.until IS NOT NULL \
         OR revision.environment <> resource.environment)",
    ),
    (
        "resources have a revision and no digest, or the other way round",
        "SELECT count(*) FROM resource WHERE (head IS NULL) <> (digest IS NULL)",
    ),
    (
        "open revisions belong to no resource",
        "SELECT count(*) FROM revision LEFT JOIN resource ON resource.head = revision.id \
         AND resource.id = revision.resource \
         WHERE revision.until IS NULL AND resource.id IS NULL",
    ),
    ("revisions end before they begin", "SELECT count(*) FROM revision WHERE until <= since"),
    (
        "versions have no step",
        "SELECT count(*) FROM version LEFT JOIN step ON step.id = version.step \
         AND step.environment = version.environment WHERE step.id IS NULL",
    ),
    (
        "environments' newest versions do not have as many resources as they say",
        "SELECT count(*) FROM version WHERE step = (SELECT max(step) FROM version AS other \
         WHERE other.environment = version.environment) AND total <> (SELECT count(*) \
         FROM resource WHERE resource.environment = version.environment AND head IS NOT NULL)",
    ),
];

pub(super) fn check(tx: &mut Tx<'_>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (what, sql) in PROBLEMS {
        let count: i64 = tx.one(sql, &[])?.get(0);
        if count > 0 {
            found.push(format!("{count} {what}"));
        }
    }
    Ok(found)
}
