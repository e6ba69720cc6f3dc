//! Between what the executor speaks of and what goes over the wire.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_executor::{Order, Performed, Purpose};
use orrery_handlers::target::ContentDigest;
use orrery_handlers::{Contents, HandlerError, LocalSecrets, Reference, SecretError, Secrets};
use orrery_model::{Attributes, InvalidAttributes, Outcome, Resource, SecretText};
use uuid::Uuid;

use crate::protocol::{Answer, Command, Content, Secret, What, WireOutcome, WireResource};

impl Command {
    /// The message that asks for what an order says.
    pub fn of(order: &Order<'_>, id: Uuid, environment: Uuid, seq: u64) -> Self {
        let Order { task, epoch, contents, secrets, log_level } = order;
        let resource = task.resource;
        let remaining = task.stop.remaining();
        Command {
            id,
            environment,
            epoch: *epoch,
            seq,
            what: match task.purpose {
                Purpose::Deploy => What::Deploy,
                Purpose::DryRun => What::DryRun,
                Purpose::Facts => What::Facts,
            },
            resource: WireResource {
                id: resource.id.clone(),
                attributes: resource.attributes.as_str().to_owned(),
                version: task.version,
                requires: resource.requires.clone(),
                flags: resource.flags,
            },
            deployed_before: task.deployed_before,
            changed_dependencies: task.changed_dependencies.to_vec(),
            reason: task.reason.to_string(),
            contents: contents
                .iter()
                .map(|(digest, content)| (digest.clone(), Content(Arc::clone(content))))
                .collect(),
            secrets: secrets
                .iter()
                .map(|(name, secret)| (name.clone(), Secret(secret.clone())))
                .collect(),
            wants_announcement: task.announce.is_some(),
            deadline_ms: remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            log_level: *log_level,
        }
    }

    pub(crate) fn purpose(&self) -> Purpose {
        match self.what {
            What::Deploy => Purpose::Deploy,
            What::DryRun => Purpose::DryRun,
            What::Facts => Purpose::Facts,
        }
    }
}

impl WireResource {
    pub(crate) fn read(&self) -> Result<Resource, InvalidAttributes> {
        let attributes = Attributes::parse(&self.attributes)?;
        let mut resource = Resource::new(self.id.clone(), attributes, self.requires.clone());
        resource.flags = self.flags;
        Ok(resource)
    }
}

impl Answer {
    pub fn new(id: Uuid, performed: Performed) -> Self {
        let Performed { outcome, announced, repeated, unclear } = performed;
        let Outcome { status, change, facts, log } = outcome;
        let outcome = WireOutcome { status, change, facts, log };
        Answer { id, outcome, announced, repeated, unclear }
    }
}

impl From<Answer> for Performed {
    fn from(answer: Answer) -> Self {
        let Answer { outcome, announced, repeated, unclear, .. } = answer;
        let WireOutcome { status, change, facts, log } = outcome;
        let outcome = Outcome { status, change, facts, log };
        Performed { outcome, announced, repeated, unclear }
    }
}

/// The contents that came with a command.
pub(crate) struct Carried<'a>(pub(crate) &'a BTreeMap<String, Content>);

impl Contents for Carried<'_> {
    fn content(&self, digest: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError> {
        Ok(self.0.get(&digest.to_string()).map(|content| Arc::clone(&content.0)))
    }
}

/// The secrets that came with a command, and those of this machine.
pub(crate) struct CarriedSecrets<'a>(pub(crate) &'a BTreeMap<String, Secret>);

impl Secrets for CarriedSecrets<'_> {
    fn resolve(&self, reference: &Reference) -> Result<SecretText, SecretError> {
        let Reference::Stored(name) = reference else { return LocalSecrets.resolve(reference) };
        self.0.get(name).map(|secret| secret.0.clone()).ok_or_else(|| SecretError::Stored {
            name: name.clone(),
            reason: "the server did not send its value".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use orrery_executor::Task;
    use orrery_handlers::{Announcement, Stop};
    use orrery_model::{LogLevel, ResourceFlags, VersionNumber};

    use super::*;

    #[test]
    fn an_order_becomes_a_command_with_all_that_it_needs() {
        let id = "std::File[web1,path=/x]".parse().unwrap();
        let attributes = Attributes::parse(r#"{"path":"/x","hash":"abc"}"#).unwrap();
        let mut resource = Resource::new(id, attributes, vec!["a::B[web1,c=d]".parse().unwrap()]);
        resource.flags = ResourceFlags { report_only: true, ..ResourceFlags::default() };
        let stop = Stop::never().within(std::time::Duration::from_secs(60));
        let order = Order {
            task: Task {
                purpose: Purpose::DryRun,
                resource: &resource,
                version: VersionNumber(7),
                deployed_before: true,
                changed_dependencies: &resource.requires,
                reason: &"because",
                stop: &stop,
                announce: Some(Announcement(&|| Ok(()))),
                effects: None,
            },
            epoch: Some(3),
            contents: [("abc".to_owned(), Arc::from(&b"content"[..]))].into(),
            secrets: [("db".to_owned(), SecretText::new("hunter2"))].into(),
            log_level: LogLevel::Info,
        };
        let command = Command::of(&order, Uuid::from_u128(1), Uuid::from_u128(2), 5);
        let text = serde_json::to_string(&command).unwrap();
        let command: Command = serde_json::from_str(&text).unwrap();
        assert_eq!((command.id, command.environment), (Uuid::from_u128(1), Uuid::from_u128(2)));
        assert_eq!((command.epoch, command.seq, command.purpose()), (Some(3), 5, Purpose::DryRun));
        let read = command.resource.read().unwrap();
        assert_eq!((&read, command.resource.version), (&resource, VersionNumber(7)));
        assert_eq!(command.changed_dependencies, resource.requires);
        assert_eq!(command.reason, "because");
        assert!(command.deployed_before && command.wants_announcement);
        assert!(command.deadline_ms.is_some_and(|left| (59_000..=60_000).contains(&left)));
        assert_eq!(&*command.contents["abc"].0, b"content");
        let secrets = CarriedSecrets(&command.secrets);
        let known = secrets.resolve(&Reference::Stored("db".to_owned())).unwrap();
        assert_eq!(known.expose(), "hunter2");
        let unknown = secrets.resolve(&Reference::Stored("other".to_owned())).unwrap_err();
        assert!(unknown.to_string().contains("other"), "{unknown}");
        assert!(secrets.resolve(&Reference::Environment("PATH".to_owned())).is_ok());
    }
}
