//! Claims of accounts and environments on file contents, and garbage collection of unclaimed ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orrery_model::{Timestamp, UploaderId};

use crate::records::{Contents, Transactions as _};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _, SqlValue};
use crate::{ContentHash, EnvironmentKey, Result, StoreError, values};

/// Hashes per statement.
const LOOKUP_BATCH: usize = 200;
/// Revisions searched per transaction.
const SEARCH_BATCH: i64 = 2_000;
/// Interval at which a claim is renewed.
const TOUCH_INTERVAL: Duration = Duration::from_secs(3600);
/// Contents per collection.
const COLLECTION_BATCH: i64 = 10_000;

/// Lowest encoded holder that is an environment.
const ENVIRONMENT_HOLDERS: [u8; 1] = [2];

/// Holder of a claim on a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentHolder {
    /// No known holder: contents from before claims were recorded.
    Nothing,
    /// The account that uploaded it.
    Account(UploaderId),
    /// An environment that uses it in versions or handlers.
    Environment(EnvironmentKey),
}

impl ContentHolder {
    fn to_bytes(self) -> [u8; 17] {
        let mut bytes = [0; 17];
        match self {
            ContentHolder::Nothing => {}
            ContentHolder::Account(id) => {
                bytes[0] = 1;
                bytes[1..].copy_from_slice(&id.into_bytes());
            }
            ContentHolder::Environment(key) => {
                bytes[0] = 2;
                bytes[1..9].copy_from_slice(&key.0.to_be_bytes());
            }
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let unreadable = || StoreError::Unreadable("the holder of a content".to_owned());
        let bytes: &[u8; 17] = bytes.try_into().map_err(|_| unreadable())?;
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[1..]);
        let mut key = [0; 8];
        key.copy_from_slice(&bytes[1..9]);
        match bytes[0] {
            0 => Ok(ContentHolder::Nothing),
            1 => Ok(ContentHolder::Account(UploaderId::from_bytes(id))),
            2 => Ok(ContentHolder::Environment(EnvironmentKey(i64::from_be_bytes(key)))),
            _ => Err(unreadable()),
        }
    }
}

/// Contents that a caller may know of.
#[derive(Clone, Debug, Default)]
pub struct ContentView {
    /// Contents that this account uploaded.
    pub account: Option<UploaderId>,
    /// Contents that these environments use; `None` for all environments.
    pub environments: Option<BTreeSet<EnvironmentKey>>,
}

impl ContentView {
    fn has(&self, holder: ContentHolder) -> bool {
        match holder {
            ContentHolder::Nothing => false,
            ContentHolder::Account(id) => self.account == Some(id),
            ContentHolder::Environment(key) => {
                self.environments.as_ref().is_none_or(|visible| visible.contains(&key))
            }
        }
    }
}

/// Bytes of uploaded contents that no environment uses yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnusedContents {
    /// Bytes uploaded by one account.
    pub of_account: u64,
    pub of_all: u64,
}

/// Result of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionSummary {
    /// Number and bytes of deleted contents.
    pub deleted: u64,
    pub bytes: u64,
    /// Contents that versions turned out to refer to.
    pub in_use: u64,
}

/// Length of a SHA-1 in hexadecimal digits.
const HEX_LENGTH: usize = 40;

/// Every SHA-1 that a text mentions: forty hexadecimal digits in a row.
///
/// Examines one byte of forty, and its neighbours if it is a digit: this runs over all attributes
/// of a version.
pub fn mentioned_hashes(text: &str) -> impl Iterator<Item = ContentHash> + '_ {
    let bytes = text.as_bytes();
    let is_other = |byte: &u8| !byte.is_ascii_hexdigit();
    // No digit is before this position.
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(last) = bytes.get(at + HEX_LENGTH - 1) {
            if is_other(last) {
                at += HEX_LENGTH;
                continue;
            }
            let before = bytes[at..at + HEX_LENGTH].iter().rposition(is_other);
            let start = before.map_or(at, |before| at + before + 1);
            let rest = &bytes[at + HEX_LENGTH..];
            let end = at + HEX_LENGTH + rest.iter().position(is_other).unwrap_or(rest.len());
            at = end + 1;
            if end - start == HEX_LENGTH
                && let Some(hash) = ContentHash::from_hex(&text[start..end])
            {
                return Some(hash);
            }
        }
        None
    })
}

fn hash_of(row: &dyn Row) -> Result<ContentHash> {
    let bytes = row.blob(0)?.and_then(|bytes| <[u8; 20]>::try_from(bytes).ok());
    bytes.map(ContentHash).ok_or_else(|| StoreError::Unreadable("the hash of a file".to_owned()))
}

fn unsigned(number: Option<i64>) -> u64 {
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

/// Records a claim on contents, as far as they exist.
fn claim(
    sql: &mut dyn Sql,
    holder: ContentHolder,
    hashes: &BTreeSet<ContentHash>,
    now: Timestamp,
) -> Result<()> {
    let insert = "INSERT INTO content_claim (hash, holder, size, at) \
         SELECT hash, ?2, length(content), ?3 FROM file_content WHERE hash = ?1 \
         ON CONFLICT (hash, holder) DO UPDATE SET at = excluded.at";
    let holder = holder.to_bytes();
    for hash in hashes {
        sql.run(insert, values![&hash.0, &holder, now])?;
    }
    Ok(())
}

impl Contents<'_> {
    /// Records a claim on contents, as far as they exist.
    ///
    /// # Errors
    /// Database errors.
    pub fn claim(
        &self,
        holder: ContentHolder,
        hashes: &BTreeSet<ContentHash>,
        now: Timestamp,
    ) -> Result<()> {
        if hashes.is_empty() {
            return Ok(());
        }
        self.transact(|sql| {
            sql.lock_name("contents")?;
            claim(sql, holder, hashes, now)
        })
    }

    /// Records that an environment uses contents, as far as they exist. They no longer count as
    /// uploads of `account`.
    ///
    /// # Errors
    /// Database errors.
    pub fn record_use(
        &self,
        environment: EnvironmentKey,
        account: Option<UploaderId>,
        hashes: &BTreeSet<ContentHash>,
        now: Timestamp,
    ) -> Result<()> {
        if hashes.is_empty() {
            return Ok(());
        }
        let uploaded = account.map(|id| ContentHolder::Account(id).to_bytes());
        self.transact(|sql| {
            sql.lock_name("contents")?;
            claim(sql, ContentHolder::Environment(environment), hashes, now)?;
            let settle = "DELETE FROM content_claim WHERE hash = ?1 AND holder = ?2";
            for (hash, uploaded) in hashes.iter().zip(uploaded.iter().cycle()) {
                sql.run(settle, values![&hash.0, uploaded])?;
            }
            Ok(())
        })
    }

    /// Renews the claims on contents that are about to be referred to.
    ///
    /// # Errors
    /// Database errors.
    pub fn touch(&self, hashes: &BTreeSet<ContentHash>, now: Timestamp) -> Result<()> {
        let hashes: Vec<&ContentHash> = hashes.iter().collect();
        for part in hashes.chunks(LOOKUP_BATCH) {
            let places: Vec<String> = (3..part.len() + 3).map(|n| format!("?{n}")).collect();
            let update = format!(
                "UPDATE content_claim SET at = ?1 WHERE at < ?2 AND hash IN ({})",
                places.join(", ")
            );
            let mut values = vec![SqlValue::from(now), SqlValue::from(now - TOUCH_INTERVAL)];
            values.extend(part.iter().map(|hash| SqlValue::from(&hash.0)));
            self.transact(|sql| sql.run(&update, &values).map(drop))?;
        }
        Ok(())
    }

    /// The given hashes of existing, visible contents.
    ///
    /// # Errors
    /// Database errors.
    pub fn visible(
        &self,
        view: &ContentView,
        hashes: &[ContentHash],
    ) -> Result<BTreeSet<ContentHash>> {
        let claims = self.content_claims(hashes)?.into_iter();
        Ok(claims.filter(|(_, holder)| view.has(*holder)).map(|(hash, _)| hash).collect())
    }

    /// The given hashes of contents with claims, none of them visible. Contents from before
    /// claims were recorded are not among them: the next collection finds out whether they are in
    /// use.
    ///
    /// # Errors
    /// Database errors.
    pub fn foreign(
        &self,
        view: &ContentView,
        hashes: &[ContentHash],
    ) -> Result<BTreeSet<ContentHash>> {
        let (mut visible, mut claimed) = (BTreeSet::new(), BTreeSet::new());
        for (hash, holder) in self.content_claims(hashes)? {
            if view.has(holder) {
                visible.insert(hash);
            } else if holder != ContentHolder::Nothing {
                claimed.insert(hash);
            }
        }
        Ok(claimed.difference(&visible).copied().collect())
    }

    /// Claims on some contents.
    fn content_claims(&self, hashes: &[ContentHash]) -> Result<Vec<(ContentHash, ContentHolder)>> {
        let mut claims = Vec::new();
        for part in hashes.chunks(LOOKUP_BATCH) {
            let places: Vec<String> = (1..=part.len()).map(|n| format!("?{n}")).collect();
            let select = format!(
                "SELECT hash, holder FROM content_claim WHERE hash IN ({})",
                places.join(", ")
            );
            let values: Vec<SqlValue<'_>> =
                part.iter().map(|hash| SqlValue::from(&hash.0)).collect();
            claims.extend(self.query(|sql| {
                sql.all(&select, &values, |row| {
                    let holder = ContentHolder::from_bytes(row.blob(1)?.unwrap_or_default())?;
                    Ok((hash_of(row)?, holder))
                })
            })?);
        }
        Ok(claims)
    }

    /// A content that an environment uses. Contents of other holders are not available to it, even
    /// if a resource or a handler names their hash.
    ///
    /// # Errors
    /// Database errors.
    pub fn of_environment(
        &self,
        environment: EnvironmentKey,
        hash: &ContentHash,
    ) -> Result<Option<Vec<u8>>> {
        let select = "SELECT content FROM file_content WHERE hash = ?1 AND (EXISTS \
             (SELECT 1 FROM content_claim c WHERE c.hash = ?1 AND c.holder = ?2) OR NOT EXISTS \
             (SELECT 1 FROM content_claim c WHERE c.hash = ?1 AND c.holder > ?3))";
        let own = ContentHolder::Environment(environment).to_bytes();
        let nothing = ContentHolder::Nothing.to_bytes();
        let found = self.query(|sql| {
            sql.first(select, values![&hash.0, &own, &nothing], |row| {
                Ok(row.blob(0)?.map(<[u8]>::to_vec))
            })
        })?;
        Ok(found.flatten())
    }

    /// Uploaded contents that are not used yet.
    ///
    /// # Errors
    /// Database errors.
    pub fn unused(&self, account: UploaderId) -> Result<UnusedContents> {
        let own = ContentHolder::Account(account).to_bytes();
        let of_one = "SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM content_claim \
             WHERE holder = ?1";
        let of_all = "SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM content_claim \
             WHERE holder < ?1";
        self.query(|sql| {
            let of_account = sql.first(of_one, values![&own], |row| row.int(0))?;
            let of_all = sql.first(of_all, values![&ENVIRONMENT_HOLDERS], |row| row.int(0))?;
            Ok(UnusedContents { of_account: unsigned(of_account), of_all: unsigned(of_all) })
        })
    }

    /// Deletes contents that were last claimed before `before` and that no stored version nor its
    /// code refers to. Renews the claims on referenced ones.
    ///
    /// # Errors
    /// Database errors.
    pub fn collect(&self, before: Timestamp, now: Timestamp) -> Result<CollectionSummary> {
        // Contents without a known holder age from now on; references by versions are found at
        // once.
        let nothing = ContentHolder::Nothing.to_bytes();
        let new = "SELECT hash FROM file_content WHERE NOT EXISTS \
             (SELECT 1 FROM content_claim c WHERE c.hash = file_content.hash) LIMIT ?1";
        let adopt = "INSERT INTO content_claim (hash, holder, size, at) \
             SELECT hash, ?1, length(content), ?2 FROM file_content WHERE NOT EXISTS \
             (SELECT 1 FROM content_claim c WHERE c.hash = file_content.hash) \
             ON CONFLICT (hash, holder) DO NOTHING";
        let stale = "SELECT hash FROM content_claim GROUP BY hash HAVING max(at) < ?1 LIMIT ?2";
        // Uploads of contents that an environment uses expire like any other.
        let settle = "DELETE FROM content_claim WHERE at < ?1 AND holder < ?2 AND EXISTS \
             (SELECT 1 FROM content_claim c WHERE c.hash = content_claim.hash AND c.holder >= ?2)";
        let (adopted, mut unneeded) = self.transact(|sql| {
            sql.lock_name("contents")?;
            let adopted = sql.all(new, values![COLLECTION_BATCH], hash_of)?;
            sql.run(adopt, values![&nothing, now])?;
            sql.run(settle, values![before, &ENVIRONMENT_HOLDERS])?;
            let stale = sql.all(stale, values![before, COLLECTION_BATCH], hash_of)?;
            Ok((adopted, stale.into_iter().collect::<BTreeSet<ContentHash>>()))
        })?;
        let candidates: BTreeSet<ContentHash> = unneeded.iter().copied().chain(adopted).collect();
        if candidates.is_empty() {
            return Ok(CollectionSummary::default());
        }
        let mut collected = CollectionSummary::default();
        for (environment, hashes) in self.references(&candidates)? {
            collected.in_use += hashes.len() as u64;
            unneeded.retain(|hash| !hashes.contains(hash));
            self.claim(ContentHolder::Environment(environment), &hashes, now)?;
        }
        self.transact(|sql| sql.run(settle, values![before, &ENVIRONMENT_HOLDERS]).map(drop))?;
        let unneeded: Vec<ContentHash> = unneeded.into_iter().collect();
        for part in unneeded.chunks(LOOKUP_BATCH) {
            let (deleted, bytes) = self.transact(|sql| {
                sql.lock_name("contents")?;
                let (mut deleted, mut bytes) = (0, 0);
                for hash in part {
                    // Claimed again meanwhile?
                    let newest = "SELECT max(at), max(size) FROM content_claim WHERE hash = ?1";
                    let newest = sql.first(newest, values![&hash.0], |row| {
                        Ok((row.maybe_time(0)?, row.int(1).unwrap_or(0)))
                    })?;
                    let Some((Some(at), size)) = newest else { continue };
                    if at >= before {
                        continue;
                    }
                    sql.run("DELETE FROM file_content WHERE hash = ?1", values![&hash.0])?;
                    sql.run("DELETE FROM content_claim WHERE hash = ?1", values![&hash.0])?;
                    deleted += 1;
                    bytes += unsigned(Some(size));
                }
                Ok((deleted, bytes))
            })?;
            collected.deleted += deleted;
            collected.bytes += bytes;
        }
        Ok(collected)
    }

    /// Contents mentioned by versions and their code, by environment.
    fn references(
        &self,
        candidates: &BTreeSet<ContentHash>,
    ) -> Result<BTreeMap<EnvironmentKey, BTreeSet<ContentHash>>> {
        let mut found: BTreeMap<EnvironmentKey, BTreeSet<ContentHash>> = BTreeMap::new();
        // Code first: a content describes it and mentions others.
        let select = "SELECT environment, info FROM version";
        let infos =
            self.query(|sql| sql.all(select, &[], |row| Ok((row.int(0)?, row.string(1)?))))?;
        let mut described: BTreeMap<ContentHash, BTreeSet<EnvironmentKey>> = BTreeMap::new();
        for (environment, info) in infos {
            for hash in mentioned_hashes(&info) {
                described.entry(hash).or_default().insert(EnvironmentKey(environment));
            }
        }
        let content = "SELECT content FROM file_content WHERE hash = ?1";
        for (hash, environments) in described {
            let text = self.query(|sql| {
                sql.first(content, values![&hash.0], |row| {
                    // Descriptions of code are JSON objects.
                    let bytes = row.blob(0)?.filter(|bytes| bytes.first() == Some(&b'{'));
                    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
                })
            })?;
            let text = text.flatten().unwrap_or_default();
            for hash in mentioned_hashes(&text).chain([hash]).filter(|it| candidates.contains(it)) {
                for environment in &environments {
                    found.entry(*environment).or_default().insert(hash);
                }
            }
        }
        let select = "SELECT id, environment, attributes FROM revision WHERE id > ?1 \
             ORDER BY id LIMIT ?2";
        let mut after = i64::MIN;
        loop {
            let (begin, mut seen) = (after, 0);
            self.query(|sql| {
                seen = 0;
                sql.visit(select, values![begin, SEARCH_BATCH], &mut |row| {
                    seen += 1;
                    after = row.int(0)?;
                    let environment = EnvironmentKey(row.int(1)?);
                    for hash in
                        mentioned_hashes(row.str(2)?).filter(|hash| candidates.contains(hash))
                    {
                        found.entry(environment).or_default().insert(hash);
                    }
                    Ok(())
                })
            })?;
            if seen < SEARCH_BATCH {
                return Ok(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_digits_are_found_wherever_they_are() {
        let (one, other) = ("0123456789abcdef0123456789ABCDEF01234567", "f".repeat(40));
        for before in 0..85 {
            for between in 1..45 {
                let text = format!("{}{one}{}{other}", "-".repeat(before), "x".repeat(between));
                let found: Vec<_> = mentioned_hashes(&text).collect();
                let expected = [one, &*other].map(|hex| ContentHash::from_hex(hex).unwrap());
                assert_eq!(found, expected, "{text}");
            }
            let digits = "a".repeat(before);
            let found = mentioned_hashes(&format!("é{digits}é")).count();
            assert_eq!(found, usize::from(before == 40), "{digits}");
        }
    }
}
