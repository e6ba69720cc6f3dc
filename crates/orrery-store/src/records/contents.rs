//! Claims on the contents of files: which accounts and environments need them, and what is deleted because nothing does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orrery_model::Timestamp;

use crate::records::Records;
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _, Value};
use crate::{ContentHash, EnvironmentKey, Result, StoreError, values};

/// Hashes that one statement asks for.
const ASKED_AT_ONCE: usize = 200;
/// Revisions that are searched in one transaction.
const SEARCHED_AT_ONCE: i64 = 2_000;
/// How often it is noted that a content is still needed.
const TOUCHED_EVERY: Duration = Duration::from_secs(3600);
/// Contents that one collection looks at.
const COLLECTED_AT_ONCE: i64 = 10_000;

/// Where the holders that are environments begin.
const ENVIRONMENTS: [u8; 1] = [2];

/// What needs a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentHolder {
    /// Nothing that is known: contents from before claims were kept.
    Nothing,
    /// The account that uploaded it.
    Account([u8; 16]),
    /// An environment whose versions or handlers use it.
    Environment(EnvironmentKey),
}

impl ContentHolder {
    fn to_bytes(self) -> [u8; 17] {
        let mut bytes = [0; 17];
        match self {
            ContentHolder::Nothing => {}
            ContentHolder::Account(id) => {
                bytes[0] = 1;
                bytes[1..].copy_from_slice(&id);
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
            1 => Ok(ContentHolder::Account(id)),
            2 => Ok(ContentHolder::Environment(EnvironmentKey(i64::from_be_bytes(key)))),
            _ => Err(unreadable()),
        }
    }
}

/// Which contents somebody may know of.
#[derive(Clone, Debug, Default)]
pub struct ContentView {
    /// Those that this account uploaded.
    pub account: Option<[u8; 16]>,
    /// Those that these environments use; `None` for all of them.
    pub environments: Option<BTreeSet<EnvironmentKey>>,
}

impl ContentView {
    fn has(&self, holder: ContentHolder) -> bool {
        match holder {
            ContentHolder::Nothing => false,
            ContentHolder::Account(id) => self.account == Some(id),
            ContentHolder::Environment(key) => {
                self.environments.as_ref().is_none_or(|known| known.contains(&key))
            }
        }
    }
}

/// Bytes of contents that were uploaded and that no environment uses yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnusedContents {
    /// Those of one account.
    pub of_account: u64,
    pub of_all: u64,
}

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Contents that were deleted, and their bytes.
    pub deleted: u64,
    pub bytes: u64,
    /// Contents that versions turned out to refer to.
    pub in_use: u64,
}

/// Every SHA-1 that a text mentions: hexadecimal digits, forty in a row.
pub fn mentioned_hashes(text: &str) -> impl Iterator<Item = ContentHash> + '_ {
    let words = text.as_bytes().split(|byte| !byte.is_ascii_hexdigit());
    let words = words.filter(|word| word.len() == 40);
    words.filter_map(|word| ContentHash::from_hex(std::str::from_utf8(word).ok()?))
}

fn hash_of(row: &dyn Row) -> Result<ContentHash> {
    let bytes = row.blob(0)?.and_then(|bytes| <[u8; 20]>::try_from(bytes).ok());
    bytes.map(ContentHash).ok_or_else(|| StoreError::Unreadable("the hash of a file".to_owned()))
}

fn unsigned(number: Option<i64>) -> u64 {
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

/// Notes that something needs contents, as far as they are there.
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

impl Records<'_> {
    /// Notes that something needs contents, as far as they are there.
    ///
    /// # Errors
    /// Those of the database.
    pub fn claim_contents(
        &self,
        holder: ContentHolder,
        hashes: &BTreeSet<ContentHash>,
        now: Timestamp,
    ) -> Result<()> {
        if hashes.is_empty() {
            return Ok(());
        }
        self.change(|sql| {
            sql.claim("contents")?;
            claim(sql, holder, hashes, now)
        })
    }

    /// Notes that an environment uses contents, as far as they are there. They do not count as uploads of `account` any more.
    ///
    /// # Errors
    /// Those of the database.
    pub fn use_contents(
        &self,
        environment: EnvironmentKey,
        account: Option<&[u8; 16]>,
        hashes: &BTreeSet<ContentHash>,
        now: Timestamp,
    ) -> Result<()> {
        if hashes.is_empty() {
            return Ok(());
        }
        let uploaded = account.map(|id| ContentHolder::Account(*id).to_bytes());
        self.change(|sql| {
            sql.claim("contents")?;
            claim(sql, ContentHolder::Environment(environment), hashes, now)?;
            let settle = "DELETE FROM content_claim WHERE hash = ?1 AND holder = ?2";
            for (hash, uploaded) in hashes.iter().zip(uploaded.iter().cycle()) {
                sql.run(settle, values![&hash.0, uploaded])?;
            }
            Ok(())
        })
    }

    /// Notes that contents are still needed, as somebody is about to refer to them.
    ///
    /// # Errors
    /// Those of the database.
    pub fn touch_contents(&self, hashes: &BTreeSet<ContentHash>, now: Timestamp) -> Result<()> {
        let hashes: Vec<&ContentHash> = hashes.iter().collect();
        for part in hashes.chunks(ASKED_AT_ONCE) {
            let places: Vec<String> = (3..part.len() + 3).map(|n| format!("?{n}")).collect();
            let update = format!(
                "UPDATE content_claim SET at = ?1 WHERE at < ?2 AND hash IN ({})",
                places.join(", ")
            );
            let mut values = vec![Value::from(now), Value::from(now - TOUCHED_EVERY)];
            values.extend(part.iter().map(|hash| Value::from(&hash.0)));
            self.change(|sql| sql.run(&update, &values).map(drop))?;
        }
        Ok(())
    }

    /// Those of the hashes whose content is there, and which the view has.
    ///
    /// # Errors
    /// Those of the database.
    pub fn known_contents(
        &self,
        view: &ContentView,
        hashes: &[ContentHash],
    ) -> Result<BTreeSet<ContentHash>> {
        let claims = self.content_claims(hashes)?.into_iter();
        Ok(claims.filter(|(_, holder)| view.has(*holder)).map(|(hash, _)| hash).collect())
    }

    /// Those of the hashes whose content something needs, but nothing that the view has. Contents from before claims were kept are not
    /// among them: whether they are in use is found out by the next collection.
    ///
    /// # Errors
    /// Those of the database.
    pub fn foreign_contents(
        &self,
        view: &ContentView,
        hashes: &[ContentHash],
    ) -> Result<BTreeSet<ContentHash>> {
        let (mut known, mut claimed) = (BTreeSet::new(), BTreeSet::new());
        for (hash, holder) in self.content_claims(hashes)? {
            if view.has(holder) {
                known.insert(hash);
            } else if holder != ContentHolder::Nothing {
                claimed.insert(hash);
            }
        }
        Ok(claimed.difference(&known).copied().collect())
    }

    /// What needs some contents.
    fn content_claims(&self, hashes: &[ContentHash]) -> Result<Vec<(ContentHash, ContentHolder)>> {
        let mut claims = Vec::new();
        for part in hashes.chunks(ASKED_AT_ONCE) {
            let places: Vec<String> = (1..=part.len()).map(|n| format!("?{n}")).collect();
            let select = format!(
                "SELECT hash, holder FROM content_claim WHERE hash IN ({})",
                places.join(", ")
            );
            let values: Vec<Value<'_>> = part.iter().map(|hash| Value::from(&hash.0)).collect();
            claims.extend(self.look(|sql| {
                sql.all(&select, &values, |row| {
                    let holder = ContentHolder::from_bytes(row.blob(1)?.unwrap_or_default())?;
                    Ok((hash_of(row)?, holder))
                })
            })?);
        }
        Ok(claims)
    }

    /// A content that an environment uses. What others need is not there for it, even if a resource or a handler names its hash.
    ///
    /// # Errors
    /// Those of the database.
    pub fn content_in(
        &self,
        environment: EnvironmentKey,
        hash: &ContentHash,
    ) -> Result<Option<Vec<u8>>> {
        let select = "SELECT content FROM file_content WHERE hash = ?1 AND (EXISTS \
             (SELECT 1 FROM content_claim c WHERE c.hash = ?1 AND c.holder = ?2) OR NOT EXISTS \
             (SELECT 1 FROM content_claim c WHERE c.hash = ?1 AND c.holder > ?3))";
        let own = ContentHolder::Environment(environment).to_bytes();
        let nothing = ContentHolder::Nothing.to_bytes();
        let found = self.look(|sql| {
            sql.first(select, values![&hash.0, &own, &nothing], |row| {
                Ok(row.blob(0)?.map(<[u8]>::to_vec))
            })
        })?;
        Ok(found.flatten())
    }

    /// What was uploaded and is not used yet.
    ///
    /// # Errors
    /// Those of the database.
    pub fn unused_contents(&self, account: &[u8; 16]) -> Result<UnusedContents> {
        let own = ContentHolder::Account(*account).to_bytes();
        let of_one = "SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM content_claim \
             WHERE holder = ?1";
        let of_all = "SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM content_claim \
             WHERE holder < ?1";
        self.look(|sql| {
            let of_account = sql.first(of_one, values![&own], |row| row.int(0))?;
            let of_all = sql.first(of_all, values![&ENVIRONMENTS], |row| row.int(0))?;
            Ok(UnusedContents { of_account: unsigned(of_account), of_all: unsigned(of_all) })
        })
    }

    /// Deletes contents that were last needed before `before`, and that no version that is kept refers to, nor the code of one. Those that are
    /// referred to count as needed now.
    ///
    /// # Errors
    /// Those of the database.
    pub fn collect_contents(&self, before: Timestamp, now: Timestamp) -> Result<Collected> {
        // Those that nothing is known of have their time from now on; whether versions refer to them is found out at once.
        let nothing = ContentHolder::Nothing.to_bytes();
        let new = "SELECT hash FROM file_content WHERE NOT EXISTS \
             (SELECT 1 FROM content_claim c WHERE c.hash = file_content.hash) LIMIT ?1";
        let adopt = "INSERT INTO content_claim (hash, holder, size, at) \
             SELECT hash, ?1, length(content), ?2 FROM file_content WHERE NOT EXISTS \
             (SELECT 1 FROM content_claim c WHERE c.hash = file_content.hash) \
             ON CONFLICT (hash, holder) DO NOTHING";
        let stale = "SELECT hash FROM content_claim GROUP BY hash HAVING max(at) < ?1 LIMIT ?2";
        // An upload of what an environment uses ends like any other.
        let settle = "DELETE FROM content_claim WHERE at < ?1 AND holder < ?2 AND EXISTS \
             (SELECT 1 FROM content_claim c WHERE c.hash = content_claim.hash AND c.holder >= ?2)";
        let (adopted, mut unneeded) = self.change(|sql| {
            sql.claim("contents")?;
            let adopted = sql.all(new, values![COLLECTED_AT_ONCE], hash_of)?;
            sql.run(adopt, values![&nothing, now])?;
            sql.run(settle, values![before, &ENVIRONMENTS])?;
            let stale = sql.all(stale, values![before, COLLECTED_AT_ONCE], hash_of)?;
            Ok((adopted, stale.into_iter().collect::<BTreeSet<ContentHash>>()))
        })?;
        let wanted: BTreeSet<ContentHash> = unneeded.iter().copied().chain(adopted).collect();
        if wanted.is_empty() {
            return Ok(Collected::default());
        }
        let mut collected = Collected::default();
        for (environment, hashes) in self.references(&wanted)? {
            collected.in_use += hashes.len() as u64;
            unneeded.retain(|hash| !hashes.contains(hash));
            self.claim_contents(ContentHolder::Environment(environment), &hashes, now)?;
        }
        self.change(|sql| sql.run(settle, values![before, &ENVIRONMENTS]).map(drop))?;
        let unneeded: Vec<ContentHash> = unneeded.into_iter().collect();
        for part in unneeded.chunks(ASKED_AT_ONCE) {
            let (deleted, bytes) = self.change(|sql| {
                sql.claim("contents")?;
                let (mut deleted, mut bytes) = (0, 0);
                for hash in part {
                    // Needed again meanwhile?
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

    /// Which of some contents are mentioned by versions and their code, by environment.
    fn references(
        &self,
        wanted: &BTreeSet<ContentHash>,
    ) -> Result<BTreeMap<EnvironmentKey, BTreeSet<ContentHash>>> {
        let mut found: BTreeMap<EnvironmentKey, BTreeSet<ContentHash>> = BTreeMap::new();
        // Code first: it is described by a content, which mentions others.
        let select = "SELECT environment, info FROM version";
        let infos =
            self.look(|sql| sql.all(select, &[], |row| Ok((row.int(0)?, row.string(1)?))))?;
        let mut described: BTreeMap<ContentHash, BTreeSet<EnvironmentKey>> = BTreeMap::new();
        for (environment, info) in infos {
            for hash in mentioned_hashes(&info) {
                described.entry(hash).or_default().insert(EnvironmentKey(environment));
            }
        }
        let content = "SELECT content FROM file_content WHERE hash = ?1";
        for (hash, environments) in described {
            let text = self.look(|sql| {
                sql.first(content, values![&hash.0], |row| {
                    // Descriptions of code are JSON objects.
                    let bytes = row.blob(0)?.filter(|bytes| bytes.first() == Some(&b'{'));
                    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
                })
            })?;
            let text = text.flatten().unwrap_or_default();
            for hash in mentioned_hashes(&text).chain([hash]).filter(|it| wanted.contains(it)) {
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
            self.look(|sql| {
                seen = 0;
                sql.visit(select, values![begin, SEARCHED_AT_ONCE], &mut |row| {
                    seen += 1;
                    after = row.int(0)?;
                    let environment = EnvironmentKey(row.int(1)?);
                    for hash in mentioned_hashes(row.str(2)?).filter(|hash| wanted.contains(hash)) {
                        found.entry(environment).or_default().insert(hash);
                    }
                    Ok(())
                })
            })?;
            if seen < SEARCHED_AT_ONCE {
                return Ok(found);
            }
        }
    }
}
