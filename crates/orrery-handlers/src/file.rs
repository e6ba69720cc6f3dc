//! `std::File`: a regular file with its content, owner and permissions.

use std::borrow::Cow;
use std::sync::Arc;

use orrery_model::{AttributeDiff, ResourceId, ResourceType};
use serde::Deserialize;
use serde_json::Value;

use crate::context::{Context, changed};
use crate::error::{Cause, HandlerError, TargetError, TargetVerb};
use crate::handler::Crud;
use crate::ownership::{DesiredOwnership, Permissions};
use crate::registry::Registry;
use crate::target::{
    Algorithm, ContentDigest, ExpectedContent, FileComparison, FileKind, ReadAhead,
};

pub(crate) fn register(registry: &mut Registry) {
    let handler = Arc::new(FileHandler);
    for entity in ["std::File", "std::ConfigFile"] {
        let fields = ["content", "content_seperator", "group", "mode", "owner", "purged"];
        let declaration = ResourceType::new(entity, "host.name", "path", &fields)
            .identified_by_path()
            .with_part("prefix_content", &["sorting_key", "value"])
            .with_part("suffix_content", &["sorting_key", "value"]);
        registry.register(declaration, handler.clone());
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FileHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct File {
    /// Content, or `hash`: digest of a stored content.
    content: Option<String>,
    hash: Option<String>,
    #[serde(alias = "permissions")]
    mode: Option<Permissions>,
    owner: Option<String>,
    group: Option<String>,
    #[serde(default)]
    purged: bool,
    #[serde(default)]
    prefix_content: Vec<Part>,
    #[serde(default)]
    suffix_content: Vec<Part>,
    content_seperator: Option<String>,
}

/// A further part of the content.
#[derive(Debug, Deserialize)]
struct Part {
    sorting_key: Option<String>,
    value: String,
}

/// Desired content.
enum Content<'d> {
    Bytes(Cow<'d, str>),
    Stored(ContentDigest),
}

impl Content<'_> {
    fn expected(&self) -> ExpectedContent<'_> {
        match self {
            Content::Bytes(text) => ExpectedContent::Bytes(text.as_bytes()),
            Content::Stored(digest) => ExpectedContent::Digest(digest),
        }
    }
}

impl File {
    fn desired_ownership(&self) -> DesiredOwnership<'_> {
        DesiredOwnership::new(self.mode, self.owner.as_deref(), self.group.as_deref())
    }

    fn content(&self) -> Result<Content<'_>, HandlerError> {
        match (&self.content, &self.hash) {
            (Some(content), _) => Ok(Content::Bytes(self.with_parts(content))),
            (None, Some(hash)) => {
                let digest = hash.parse();
                Ok(Content::Stored(
                    digest.map_err(|error| HandlerError::failed(format!("{error}")))?,
                ))
            }
            (None, None) => Err(HandlerError::failed("the file has neither content nor hash")),
        }
    }

    /// Joins prefix, content and suffix parts with the separator.
    fn with_parts<'d>(&'d self, content: &'d str) -> Cow<'d, str> {
        if self.prefix_content.is_empty() && self.suffix_content.is_empty() {
            return Cow::Borrowed(content);
        }
        let sorted = |parts: &'d [Part]| {
            let mut parts: Vec<&Part> = parts.iter().collect();
            parts.sort_by_key(|part| part.sorting_key.as_deref().unwrap_or(&part.value));
            parts.into_iter().map(|part| &*part.value)
        };
        let mut all: Vec<&str> = sorted(&self.prefix_content).collect();
        all.push(content);
        all.extend(sorted(&self.suffix_content));
        Cow::Owned(all.join(self.content_seperator.as_deref().unwrap_or("\n")))
    }

    fn write(&self, context: &Context<'_>) -> Result<(), HandlerError> {
        let ownership = self.desired_ownership().resolve(context)?;
        let path = context.id().value();
        match self.content()? {
            Content::Bytes(text) => {
                context.target().write_file(path, text.as_bytes(), ownership)?;
            }
            Content::Stored(digest) => {
                context.target().write_file(path, &context.content(&digest)?, ownership)?;
            }
        }
        Ok(())
    }
}

impl Crud for FileHandler {
    type Desired = File;
    type Current = FileComparison;

    fn is_purged(desired: &File) -> bool {
        desired.purged
    }

    fn read(
        &self,
        desired: &File,
        context: &mut Context<'_>,
    ) -> Result<Option<FileComparison>, HandlerError> {
        let path = context.id().value();
        if desired.purged {
            let stat = context.target().stat(path)?;
            return Ok(stat.map(|stat| FileComparison { stat, same: false }));
        }
        Ok(context.target().compare(path, desired.content()?.expected())?)
    }

    fn diff(
        &self,
        desired: &File,
        current: &FileComparison,
        context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        let refuse = |cause| TargetError::new(TargetVerb::Write, context.id().value(), cause);
        let mut changes = Vec::new();
        match current.stat.kind {
            FileKind::File => {}
            FileKind::Symlink => {
                let (current, desired) = (FileKind::Symlink.as_str(), FileKind::File.as_str());
                changes.push(changed("type", current, desired));
                return Ok(changes);
            }
            FileKind::Directory => return Err(refuse(Cause::IsADirectory).into()),
            FileKind::Other => return Err(refuse(Cause::NotARegularFile).into()),
        }
        if !current.same {
            changes.push(content_change(desired, current, context)?);
        }
        desired.desired_ownership().diff(current.stat, context, &mut changes)?;
        Ok(changes)
    }

    fn create(&self, desired: &File, context: &mut Context<'_>) -> Result<(), HandlerError> {
        desired.write(context)
    }

    fn update(
        &self,
        desired: &File,
        current: &FileComparison,
        _changes: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        if !current.same {
            return desired.write(context);
        }
        let ownership = desired.desired_ownership().resolve(context)?;
        Ok(context.target().set_attributes(context.id().value(), ownership)?)
    }

    fn delete(
        &self,
        _desired: &File,
        _current: &FileComparison,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        context.target().remove_file(context.id().value())?;
        Ok(())
    }

    fn named_contents(desired: &File) -> Vec<ContentDigest> {
        match desired.content() {
            Ok(Content::Stored(digest)) if !desired.purged => vec![digest],
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    fn watched_path(id: &ResourceId) -> Option<&str> {
        Some(id.value())
    }

    fn read_ahead<'i>(id: &'i ResourceId, desired: &File) -> Option<ReadAhead<'i>> {
        let content = match desired.content() {
            _ if desired.purged => None,
            Ok(Content::Stored(digest)) => Some(digest.algorithm),
            Ok(Content::Bytes(_)) => Some(Algorithm::Sha256),
            Err(_) => None,
        };
        Some(ReadAhead { path: id.value(), content })
    }
}

/// Maximum size of a content that is shown; longer ones are shown as digests.
const SHOWN_MAX: usize = 32 * 1024;

/// Change of a content: the text if it is short and world-readable, otherwise a digest, so no
/// secret gets into a log.
fn content_change(
    desired: &File,
    current: &FileComparison,
    context: &Context<'_>,
) -> Result<AttributeDiff, HandlerError> {
    const OTHERS_READ: u32 = 0o004;
    let path = context.id().value();
    let public = current.stat.mode & OTHERS_READ != 0
        && desired.mode.is_none_or(|mode| mode.0 & OTHERS_READ != 0);
    let desired_content = desired.content()?;
    if let Content::Bytes(text) = &desired_content
        && public
        && text.len() <= SHOWN_MAX
        && current.stat.size <= SHOWN_MAX as u64
        && let Some(bytes) = context.target().read_file(path, SHOWN_MAX as u64)?
        && let Ok(found) = String::from_utf8(bytes)
    {
        return Ok(changed("content", found, text.as_ref()));
    }
    let desired_content = match desired_content {
        Content::Bytes(text) => Algorithm::Sha256.digest(text.as_bytes()),
        Content::Stored(digest) => digest,
    };
    let found = context.target().digest(path, desired_content.algorithm)?;
    let found = found.map_or(Value::Null, |digest| Value::from(digest.to_string()));
    Ok(changed("hash", found, desired_content.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_content_are_sorted_and_joined() {
        let file: File = serde_json::from_str(
            r#"{"content":"c","content_seperator":";",
                "prefix_content":[{"sorting_key":null,"value":"b"},{"sorting_key":"a","value":"z"}],
                "suffix_content":[{"sorting_key":"2","value":"x"},{"sorting_key":"1","value":"y"}]}"#,
        )
        .unwrap();
        let Ok(Content::Bytes(text)) = file.content() else { panic!("the content is given") };
        assert_eq!(text, "z;b;c;y;x");
    }
}
