//! Converts between the types of runs and those of the wire.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_handlers::run::{Purpose, RemoteCommand, RunOutcome};
use orrery_handlers::target::ContentDigest;
use orrery_handlers::{
    CancelToken, Contents, HandlerError, LocalSecrets, SecretError, SecretSource, Secrets, Target,
    resolve_on_target,
};
use orrery_model::{Attributes, InvalidAttributes, Outcome, Resource, SecretText};
use uuid::Uuid;

use crate::protocol::{
    CodeReference, Command, CommandKind, CommandResult, WireContent, WireOutcome, WireResource,
    WireSecret,
};

impl Command {
    /// Builds the message for a remote command.
    pub fn new(command: &RemoteCommand<'_>, id: Uuid, environment: Uuid, seq: u64) -> Self {
        let RemoteCommand { run, contents, secrets, log_level, code } = command;
        let resource = run.resource;
        let remaining = run.stop.remaining();
        Command {
            id,
            environment,
            epoch: run.epoch,
            seq,
            what: match run.purpose {
                Purpose::Deploy => CommandKind::Deploy,
                Purpose::DryRun => CommandKind::DryRun,
                Purpose::Facts => CommandKind::Facts,
            },
            resource: WireResource {
                id: resource.id.clone(),
                attributes: resource.attributes.as_str().to_owned(),
                version: run.version,
                requires: resource.requires.clone(),
                flags: resource.flags,
            },
            deployed_before: run.deployed_before,
            changed_dependencies: run.changed_dependencies.to_vec(),
            reason: run.reason.to_string(),
            contents: contents
                .iter()
                .map(|(digest, content)| (digest.clone(), WireContent(Arc::clone(content))))
                .collect(),
            secrets: secrets
                .iter()
                .map(|(name, secret)| (name.clone(), WireSecret(secret.clone())))
                .collect(),
            code: code.as_ref().map(|code| CodeReference {
                manifest: code.digest.clone(),
                environment: code.portable.environment().to_owned(),
            }),
            unknown_effect: code.is_some() && run.effects.is_some_and(|gate| gate.is_unknown),
            wants_announcement: run.before_change.is_some(),
            deadline_ms: remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            log_level: *log_level,
        }
    }

    pub(crate) fn purpose(&self) -> Purpose {
        match self.what {
            CommandKind::Deploy => Purpose::Deploy,
            CommandKind::DryRun => Purpose::DryRun,
            CommandKind::Facts => Purpose::Facts,
        }
    }
}

impl WireResource {
    pub(crate) fn to_resource(&self) -> Result<Resource, InvalidAttributes> {
        let attributes = Attributes::parse(&self.attributes)?;
        let mut resource = Resource::new(self.id.clone(), attributes, self.requires.clone());
        resource.flags = self.flags;
        Ok(resource)
    }
}

impl CommandResult {
    pub fn new(id: Uuid, run_outcome: RunOutcome) -> Self {
        let RunOutcome { outcome, announced, repeated, unclear } = run_outcome;
        let Outcome { status, change, facts, log } = outcome;
        let outcome = WireOutcome { status, change, facts, log };
        CommandResult { id, outcome, announced, unclear, repeated }
    }
}

impl From<CommandResult> for RunOutcome {
    fn from(result: CommandResult) -> Self {
        let CommandResult { outcome, announced, repeated, unclear, .. } = result;
        let WireOutcome { status, change, facts, log } = outcome;
        let outcome = Outcome { status, change, facts, log };
        RunOutcome { outcome, announced, repeated, unclear }
    }
}

/// Contents that came with a command.
pub(crate) struct CommandContents<'a>(pub(crate) &'a BTreeMap<String, WireContent>);

impl Contents for CommandContents<'_> {
    fn content(&self, digest: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError> {
        Ok(self.0.get(&digest.to_string()).map(|content| Arc::clone(&content.0)))
    }
}

/// Secrets that came with a command, and those of this machine.
pub(crate) struct CommandSecrets<'a> {
    pub(crate) sent: &'a BTreeMap<String, WireSecret>,
    /// Target through which a policy allows to read the machine's.
    pub(crate) confined: Option<(&'a dyn Target, &'a CancelToken)>,
}

impl Secrets for CommandSecrets<'_> {
    fn resolve(&self, reference: &SecretSource) -> Result<SecretText, SecretError> {
        let SecretSource::Stored(name) = reference else {
            return match self.confined {
                Some((target, stop)) => resolve_on_target(reference, target, stop),
                None => LocalSecrets.resolve(reference),
            };
        };
        self.sent.get(name).map(|secret| secret.0.clone()).ok_or_else(|| SecretError::Stored {
            name: name.clone(),
            reason: "the server did not send its value".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use orrery_handlers::BeforeChange;
    use orrery_handlers::run::HandlerRun;
    use orrery_model::{LogLevel, ResourceFlags, VersionNumber};

    use super::*;

    #[test]
    fn a_remote_command_becomes_a_message_with_all_its_inputs() {
        let id = "std::File[web1,path=/x]".parse().unwrap();
        let attributes = Attributes::parse(r#"{"path":"/x","hash":"abc"}"#).unwrap();
        let mut resource = Resource::new(id, attributes, vec!["a::B[web1,c=d]".parse().unwrap()]);
        resource.flags = ResourceFlags { report_only: true, ..ResourceFlags::default() };
        let stop = CancelToken::never().within(std::time::Duration::from_secs(60));
        let command = RemoteCommand {
            run: HandlerRun {
                purpose: Purpose::DryRun,
                resource: &resource,
                version: VersionNumber(7),
                epoch: Some(3),
                deployed_before: true,
                changed_dependencies: &resource.requires,
                reason: &"because",
                stop: &stop,
                before_change: Some(BeforeChange(&|| Ok(()))),
                effects: None,
            },
            contents: [("abc".to_owned(), Arc::from(&b"content"[..]))].into(),
            secrets: [("db".to_owned(), SecretText::new("hunter2"))].into(),
            log_level: LogLevel::Info,
            code: None,
        };
        let command = Command::new(&command, Uuid::from_u128(1), Uuid::from_u128(2), 5);
        let text = serde_json::to_string(&command).unwrap();
        let command: Command = serde_json::from_str(&text).unwrap();
        assert_eq!((command.id, command.environment), (Uuid::from_u128(1), Uuid::from_u128(2)));
        assert_eq!((command.epoch, command.seq, command.purpose()), (Some(3), 5, Purpose::DryRun));
        let read = command.resource.to_resource().unwrap();
        assert_eq!((&read, command.resource.version), (&resource, VersionNumber(7)));
        assert_eq!(command.changed_dependencies, resource.requires);
        assert_eq!(command.reason, "because");
        assert!(command.deployed_before && command.wants_announcement);
        assert!(command.deadline_ms.is_some_and(|left| (59_000..=60_000).contains(&left)));
        assert_eq!(&*command.contents["abc"].0, b"content");
        let secrets = CommandSecrets { sent: &command.secrets, confined: None };
        let known = secrets.resolve(&SecretSource::Stored("db".to_owned())).unwrap();
        assert_eq!(known.expose(), "hunter2");
        let unknown = secrets.resolve(&SecretSource::Stored("other".to_owned())).unwrap_err();
        assert!(unknown.to_string().contains("other"), "{unknown}");
        assert!(secrets.resolve(&SecretSource::Environment("PATH".to_owned())).is_ok());
    }
}
