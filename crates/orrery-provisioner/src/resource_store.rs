//! Stores of plug-in resources: contents by digest, separate for each tenant.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orrery_base::hex::to_hex;
use sha2::{Digest as _, Sha256};

use crate::plugin::{PluginError, PluginResources};

/// Contents that administrators upload. Contents do not change, so writing one twice is harmless.
pub trait PluginResourceStore: PluginResources {
    /// Stores a content; returns its SHA-256 in hexadecimal digits.
    ///
    /// # Errors
    /// If it is not stored.
    fn put(&self, tenant: &str, content: &[u8]) -> Result<String, PluginError>;

    /// Removes a content. No content is a success.
    ///
    /// # Errors
    /// If it may still be there.
    fn delete(&self, tenant: &str, digest: &str) -> Result<(), PluginError>;
}

/// Checks the form of a digest, which becomes a part of a path.
///
/// # Errors
/// If it is no SHA-256 in lower-case hexadecimal digits.
pub(crate) fn check_digest(digest: &str) -> Result<(), PluginError> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digest.len() == 64 && digest.bytes().all(is_digit) {
        return Ok(());
    }
    Err(PluginError::new(format!("{digest:?} is no SHA-256")))
}

/// Checks that a content is the wanted one.
pub(crate) fn check_content(digest: &str, content: Vec<u8>) -> Result<Arc<[u8]>, PluginError> {
    if to_hex(&Sha256::digest(&content)) == digest {
        return Ok(content.into());
    }
    Err(PluginError::new(format!("the stored plug-in resource {digest} is damaged"))
        .with_hint("upload it again"))
}

/// Name of a tenant as a part of a path: other characters than letters and digits are encoded.
pub(crate) fn tenant_path(tenant: &str) -> String {
    let mut path = String::from("tenant-");
    for byte in tenant.bytes() {
        match byte.is_ascii_alphanumeric() {
            true => path.push(char::from(byte)),
            false => path.push_str(&format!("_{byte:02x}")),
        }
    }
    path
}

/// Files below a directory: `TENANT/XX/DIGEST`.
#[derive(Clone, Debug)]
pub struct LocalResourceStore {
    directory: PathBuf,
}

impl LocalResourceStore {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        LocalResourceStore { directory: directory.into() }
    }

    fn path(&self, tenant: &str, digest: &str) -> Result<PathBuf, PluginError> {
        check_digest(digest)?;
        Ok(self.directory.join(tenant_path(tenant)).join(&digest[..2]).join(digest))
    }
}

fn failed(path: &Path, error: &io::Error) -> PluginError {
    PluginError::io(format!("use the plug-in resource {}", path.display()), error)
}

impl PluginResources for LocalResourceStore {
    fn content(&self, tenant: &str, digest: &str) -> Result<Option<Arc<[u8]>>, PluginError> {
        let path = self.path(tenant, digest)?;
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, &error)),
            Ok(content) => check_content(digest, content).map(Some),
        }
    }
}

impl PluginResourceStore for LocalResourceStore {
    fn put(&self, tenant: &str, content: &[u8]) -> Result<String, PluginError> {
        let digest = to_hex(&Sha256::digest(content));
        let path = self.path(tenant, &digest)?;
        let write = || -> io::Result<()> {
            let directory = path.parent().unwrap_or(&self.directory);
            fs::create_dir_all(directory)?;
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.write_all(content)?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            // The name is durable with its directory.
            fs::File::open(directory)?.sync_all()
        };
        write().map_err(|error| failed(&path, &error))?;
        Ok(digest)
    }

    fn delete(&self, tenant: &str, digest: &str) -> Result<(), PluginError> {
        let path = self.path(tenant, digest)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path, &error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_separate_by_tenant_and_checked() {
        let directory = tempfile::tempdir().unwrap();
        let store = LocalResourceStore::new(directory.path());
        let digest = store.put("shop", b"#!/bin/sh\n").unwrap();
        assert_eq!(store.put("shop", b"#!/bin/sh\n").unwrap(), digest);
        assert_eq!(&*store.content("shop", &digest).unwrap().unwrap(), b"#!/bin/sh\n");
        assert_eq!(store.content("other", &digest).unwrap(), None);
        for wrong in ["", "../../etc/passwd", &digest.to_uppercase()] {
            assert!(store.content("shop", wrong).is_err(), "{wrong}");
        }
        fs::write(store.path("shop", &digest).unwrap(), "changed").unwrap();
        let error = store.content("shop", &digest).unwrap_err();
        assert!(error.message.contains("damaged"), "{error}");
        store.delete("shop", &digest).unwrap();
        store.delete("shop", &digest).unwrap();
        assert_eq!(store.content("shop", &digest).unwrap(), None);
    }

    #[test]
    fn names_of_tenants_cannot_leave_the_directory_or_collide() {
        assert_eq!(tenant_path("../x"), "tenant-_2e_2e_2fx");
        assert_ne!(tenant_path("a_2e"), tenant_path("a."));
    }
}
