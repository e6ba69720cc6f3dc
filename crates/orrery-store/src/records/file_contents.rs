//! Contents of files, by their hashes.

use rustc_hash::FxHashSet;

use crate::records::{Contents, Transactions as _};
use crate::sql::{RowExt as _, SqlExt as _, SqlValue};
use crate::{ContentHash, Result, StoreError, values};

impl Contents<'_> {
    /// The given hashes without stored content.
    ///
    /// # Errors
    /// Database errors.
    pub fn missing(&self, hashes: &[ContentHash]) -> Result<Vec<ContentHash>> {
        let bytes: Vec<&[u8]> = hashes.iter().map(|hash| &hash.0[..]).collect();
        let stored = self.query(|sql| {
            let select = format!("SELECT hash FROM file_content WHERE hash {}", sql.in_blobs("?1"));
            let mut stored: FxHashSet<Vec<u8>> = FxHashSet::default();
            sql.visit(&select, &[SqlValue::Blobs(&bytes)], &mut |row| {
                stored.extend(row.blob(0)?.map(<[u8]>::to_vec));
                Ok(())
            })?;
            Ok(stored)
        })?;
        Ok(hashes.iter().filter(|hash| !stored.contains(&hash.0[..])).copied().collect())
    }

    /// Stores contents.
    ///
    /// # Errors
    /// `ContentCollision` if another content has the same hash.
    pub fn put(&self, files: &[(ContentHash, &[u8])]) -> Result<()> {
        // In the order of hashes, so that concurrent writers of the same files wait for each other
        // and cannot deadlock. Waiting is cheaper than sending large contents again, and a request
        // may store the same contents twice.
        let mut files: Vec<&(ContentHash, &[u8])> = files.iter().collect();
        files.sort_unstable_by_key(|(hash, _)| *hash);
        self.transact_unmarked(|sql| {
            for (hash, content) in &files {
                let content = values![&hash.0, *content];
                let insert = "INSERT INTO file_content (hash, content) VALUES (?1, ?2) \
                     ON CONFLICT (hash) DO NOTHING";
                let same = "SELECT 1 FROM file_content WHERE hash = ?1 AND content = ?2";
                if sql.run(insert, content)? == 0
                    && sql.first(same, content, |row| row.int(0))?.is_none()
                {
                    return Err(StoreError::ContentCollision(hash.to_hex()));
                }
            }
            Ok(())
        })
    }

    /// The content with a hash.
    ///
    /// # Errors
    /// Database errors.
    pub fn get(&self, hash: &ContentHash) -> Result<Option<Vec<u8>>> {
        let select = "SELECT content FROM file_content WHERE hash = ?1";
        self.query(|sql| {
            let found =
                sql.first(select, values![&hash.0], |row| Ok(row.blob(0)?.map(<[u8]>::to_vec)))?;
            Ok(found.flatten())
        })
    }
}
