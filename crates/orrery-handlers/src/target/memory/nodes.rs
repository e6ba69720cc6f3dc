//! File system of a machine in memory.

use std::collections::BTreeMap;

use crate::error::{Cause, TargetError, TargetVerb};
use crate::target::{FileKind, Ownership, RemovalMode, Result, Stat, split_path};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    File(Vec<u8>),
    Directory,
    Symlink(String),
    /// A device, pipe or socket.
    Special,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub content: Content,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl Node {
    fn stat(&self) -> Stat {
        let (kind, size) = match &self.content {
            Content::File(content) => (FileKind::File, content.len()),
            Content::Directory => (FileKind::Directory, 0),
            Content::Symlink(leads_to) => (FileKind::Symlink, leads_to.len()),
            Content::Special => (FileKind::Other, 0),
        };
        Stat { kind, mode: self.mode, uid: self.uid, gid: self.gid, size: size as u64 }
    }

    fn apply(&mut self, ownership: Ownership) {
        self.mode = ownership.mode.unwrap_or(self.mode);
        self.uid = ownership.uid.unwrap_or(self.uid);
        self.gid = ownership.gid.unwrap_or(self.gid);
    }
}

/// Nodes by path without links. The root always exists and has no entry.
#[derive(Debug, Default)]
pub(super) struct Nodes(BTreeMap<String, Node>);

const LINKS_MAX: usize = 40;

impl Nodes {
    pub(super) fn all(&self) -> &BTreeMap<String, Node> {
        &self.0
    }

    pub(super) fn insert(&mut self, path: &str, node: Node) {
        self.0.insert(path.to_owned(), node);
    }

    /// Resolves links in the parent directories, and in the last component if `follow`. `Err` for a
    /// loop; `Ok(None)` if a parent is missing or not a directory.
    fn resolve(&self, path: &str, follow: bool) -> std::result::Result<Option<String>, Cause> {
        let mut pending: Vec<String> =
            path.split('/').rev().filter(is_step).map(str::to_owned).collect();
        let mut resolved = String::new();
        let mut links = 0;
        while let Some(part) = pending.pop() {
            if part == ".." {
                resolved.truncate(resolved.rfind('/').unwrap_or(0));
                continue;
            }
            let parent = resolved.len();
            resolved.push('/');
            resolved.push_str(&part);
            let last = pending.is_empty();
            match self.0.get(&resolved).map(|node| &node.content) {
                Some(Content::Symlink(leads_to)) if !last || follow => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Cause::TooManyLinks);
                    }
                    resolved.truncate(if leads_to.starts_with('/') { 0 } else { parent });
                    let parts = leads_to.split('/').rev().filter(is_step);
                    pending.extend(parts.map(str::to_owned));
                }
                Some(Content::Directory) => {}
                Some(_) | None if last => {}
                Some(_) | None => return Ok(None),
            }
        }
        Ok(Some(resolved))
    }

    /// Returns the node of a path, with its resolved path.
    fn find(
        &self,
        operation: TargetVerb,
        path: &str,
        follow: bool,
    ) -> Result<Option<(String, &Node)>> {
        let resolved =
            self.resolve(path, follow).map_err(|cause| TargetError::new(operation, path, cause))?;
        Ok(resolved.and_then(|resolved| {
            let node = self.0.get(&resolved)?;
            Some((resolved, node))
        }))
    }

    /// Resolves the path of a new node; its parent must exist.
    fn resolve_parent(&self, operation: TargetVerb, path: &str) -> Result<String> {
        let error = |cause| TargetError::new(operation, path, cause);
        let (directory, name) = split_path(path);
        if directory == "/" {
            return Ok(format!("/{name}"));
        }
        match self.find(operation, directory, true)? {
            Some((resolved, Node { content: Content::Directory, .. })) => {
                Ok(format!("{resolved}/{name}"))
            }
            Some(_) => Err(error(Cause::NotADirectory)),
            None => Err(error(Cause::ParentMissing)),
        }
    }

    pub(super) fn stat(&self, path: &str, follow: bool) -> Result<Option<Stat>> {
        Ok(self.find(TargetVerb::Stat, path, follow)?.map(|(_, node)| node.stat()))
    }

    pub(super) fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let error = |cause| Err(TargetError::new(TargetVerb::Read, path, cause));
        match self.find(TargetVerb::Read, path, false)?.map(|(_, node)| &node.content) {
            None => Ok(None),
            Some(Content::File(content)) if content.len() as u64 > limit => {
                error(Cause::TooLarge { limit })
            }
            Some(Content::File(content)) => Ok(Some(content.clone())),
            Some(Content::Directory) => error(Cause::IsADirectory),
            Some(Content::Symlink(_) | Content::Special) => error(Cause::NotARegularFile),
        }
    }

    pub(super) fn write(&mut self, path: &str, content: &[u8], ownership: Ownership) -> Result<()> {
        let error = |cause| Err(TargetError::new(TargetVerb::Write, path, cause));
        let place = self.resolve_parent(TargetVerb::Write, path)?;
        let mut node = match self.0.get(&place) {
            Some(Node { content: Content::Directory, .. }) => return error(Cause::IsADirectory),
            Some(Node { content: Content::Special, .. }) => return error(Cause::NotARegularFile),
            Some(old @ Node { content: Content::File(_), .. }) => old.clone(),
            Some(Node { content: Content::Symlink(_), .. }) | None => {
                Node { content: Content::Directory, mode: 0o600, uid: 0, gid: 0 }
            }
        };
        node.content = Content::File(content.to_vec());
        node.apply(ownership);
        self.0.insert(place, node);
        Ok(())
    }

    pub(super) fn set_attributes(&mut self, path: &str, ownership: Ownership) -> Result<()> {
        let error = |cause| Err(TargetError::new(TargetVerb::SetAttributes, path, cause));
        let Some((resolved, _)) = self.find(TargetVerb::SetAttributes, path, false)? else {
            return error(Cause::NotFound);
        };
        match self.0.get_mut(&resolved) {
            Some(Node { content: Content::Symlink(_) | Content::Special, .. }) | None => {
                error(Cause::NotARegularFile)
            }
            Some(node) => {
                node.apply(ownership);
                Ok(())
            }
        }
    }

    pub(super) fn make_directory(&mut self, path: &str, ownership: Ownership) -> Result<()> {
        let place = self.resolve_parent(TargetVerb::MakeDirectory, path)?;
        if self.0.contains_key(&place) {
            let cause = Cause::Io(std::io::ErrorKind::AlreadyExists.into());
            return Err(TargetError::new(TargetVerb::MakeDirectory, path, cause));
        }
        let mut node = Node { content: Content::Directory, mode: 0o755, uid: 0, gid: 0 };
        node.apply(ownership);
        self.0.insert(place, node);
        Ok(())
    }

    pub(super) fn make_symlink(&mut self, path: &str, leads_to: &str) -> Result<()> {
        let error = |cause| Err(TargetError::new(TargetVerb::MakeSymlink, path, cause));
        let place = self.resolve_parent(TargetVerb::MakeSymlink, path)?;
        match self.0.get(&place).map(|node| &node.content) {
            None | Some(Content::Symlink(_)) => {}
            Some(Content::Directory) => return error(Cause::IsADirectory),
            Some(_) => return error(Cause::NotASymlink),
        }
        let content = Content::Symlink(leads_to.to_owned());
        self.0.insert(place, Node { content, mode: 0o777, uid: 0, gid: 0 });
        Ok(())
    }

    pub(super) fn read_link(&self, path: &str) -> Result<Option<String>> {
        match self.find(TargetVerb::ReadLink, path, false)?.map(|(_, node)| &node.content) {
            None => Ok(None),
            Some(Content::Symlink(leads_to)) => Ok(Some(leads_to.clone())),
            Some(_) => Err(TargetError::new(TargetVerb::ReadLink, path, Cause::NotASymlink)),
        }
    }

    pub(super) fn remove_file(&mut self, path: &str) -> Result<bool> {
        match self.find(TargetVerb::Remove, path, false)? {
            None => Ok(false),
            Some((_, Node { content: Content::Directory, .. })) => {
                Err(TargetError::new(TargetVerb::Remove, path, Cause::IsADirectory))
            }
            Some((resolved, _)) => {
                self.0.remove(&resolved);
                Ok(true)
            }
        }
    }

    pub(super) fn remove_directory(&mut self, path: &str, tree: RemovalMode) -> Result<bool> {
        let error = |cause| Err(TargetError::new(TargetVerb::Remove, path, cause));
        let resolved = match self.find(TargetVerb::Remove, path, false)? {
            None => return Ok(false),
            Some((resolved, Node { content: Content::Directory, .. })) => resolved,
            Some(_) => return error(Cause::NotADirectory),
        };
        let below = format!("{resolved}/");
        if tree == RemovalMode::OnlyIfEmpty && self.0.keys().any(|other| other.starts_with(&below))
        {
            return error(Cause::NotEmpty);
        }
        self.0.retain(|other, _| *other != resolved && !other.starts_with(&below));
        Ok(true)
    }

    pub(super) fn list(&self, path: &str) -> Result<Vec<String>> {
        let error = |cause| Err(TargetError::new(TargetVerb::List, path, cause));
        let resolved = match self.find(TargetVerb::List, path, true)? {
            None => return error(Cause::NotFound),
            Some((resolved, Node { content: Content::Directory, .. })) => resolved,
            Some(_) => return error(Cause::NotADirectory),
        };
        let below = format!("{resolved}/");
        let names = self.0.keys().filter_map(|other| other.strip_prefix(&below));
        Ok(names.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }
}

/// Returns true if a path component is not empty or `.`.
fn is_step(part: &&str) -> bool {
    !part.is_empty() && *part != "."
}
