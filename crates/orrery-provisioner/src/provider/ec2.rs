//! Provider `ec2`: machines of Amazon EC2 or of a compatible service, with boto3 in a process.

use std::path::PathBuf;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_model::SecretText;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::facts::NodeFacts;
use crate::machine_name::MachineName;
use crate::plugin::{
    FieldFormat, FieldSchema, MachineCall, MachineProvider, NodeAccess, PluginError, PluginKind,
    PluginManifest, SshLogin,
};
use crate::python_plugin::{PythonPackages, PythonPlugin};
use crate::ssh_access::SshMachineAccess;
use crate::task::MachineRecord;

const SCRIPT: &str = include_str!("ec2.py");
const REQUIREMENTS: [&str; 1] = ["boto3>=1.35,<2"];
/// Pause between looks at a machine that starts.
const PAUSE: Duration = Duration::from_secs(3);

/// Machines of EC2.
#[derive(Debug)]
pub struct Ec2Provider {
    manifest: PluginManifest,
    plugin: PythonPlugin,
    ssh: SshMachineAccess,
}

/// A machine in an answer of the plug-in.
#[derive(Clone, Debug, Deserialize)]
struct Instance {
    name: String,
    id: String,
    state: String,
    public: Option<String>,
    private: Option<String>,
}

impl Instance {
    fn is_running(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "running")
    }
}

impl Ec2Provider {
    /// Creates the provider. boto3 is installed below `directory` at the first use.
    pub fn new(directory: impl Into<PathBuf>, ssh: SshMachineAccess) -> Self {
        let (text, password) = (FieldFormat::Text, FieldFormat::Password);
        let field = FieldSchema::new;
        let manifest = PluginManifest::new(
            PluginKind::Provider,
            "ec2",
            "Amazon EC2",
            "Instances of Amazon EC2 or of a compatible service.",
        )
        .field("region", field("Region", text, "Such as eu-central-1.").or("us-east-1"))
        .field("access_key", field("Access key", text, "Id of the access key."))
        .field("secret_key", field("Secret key", password, "Secret access key.").sensitive())
        .field("session_token", field("Session token", password, "Of temporary keys.").sensitive())
        .field("endpoint", field("Endpoint", text, "Address of a compatible service."))
        .field("subnet", field("Subnet", text, "Id of the subnet.").overridable())
        .field("security_groups", field("Security groups", text, "Their ids.").overridable())
        .field("key_name", field("Key pair", text, "Name of the key pair for logins."))
        .field("identity", field("Private key", password, "That of the key pair.").sensitive())
        .field(
            "address",
            field("Address", FieldFormat::Select, "Address for logins.")
                .one_of(&["public", "private"])
                .or("public"),
        )
        .field("tags", field("Tags", FieldFormat::Json, "More tags of each instance."))
        .field("attempts", field("Attempts", FieldFormat::Number, "Of a throttled request.").or(8))
        .requires(&["access_key", "secret_key", "identity"]);
        let packages = PythonPackages::new(directory.into(), &REQUIREMENTS);
        Ec2Provider { manifest, plugin: PythonPlugin::new("ec2", SCRIPT, packages), ssh }
    }

    fn request(
        &self,
        operation: &str,
        call: &MachineCall<'_>,
        machine: &MachineName,
    ) -> Result<Value, PluginError> {
        let mut fields = call.fields.0.clone();
        // The private key is used here only.
        fields.remove("identity");
        if let Some(Value::String(tags)) = fields.get("tags") {
            let tags: Value = serde_json::from_str(tags)
                .map_err(|error| PluginError::new(format!("the field tags of ec2: {error}")))?;
            fields.insert("tags".to_owned(), tags);
        }
        let request = json!({
            "operation": operation,
            "fields": fields,
            "machine": machine.to_string(),
            "cluster": call.task.cluster,
            "node": call.task.node,
            "image": call.description().image,
            "flavor": call.description().flavor,
        });
        self.plugin.call(&request, call.stop)
    }

    fn instance(answer: &Value) -> Result<Option<Instance>, PluginError> {
        let machine = answer.get("machine").cloned().unwrap_or_default();
        serde_json::from_value(machine)
            .map_err(|error| PluginError::new(format!("the answer of ec2: {error}")))
    }

    fn facts(call: &MachineCall<'_>, instance: &Instance) -> NodeFacts {
        let wants_private = call.fields.text("address").as_deref() == Some("private");
        let access = match wants_private {
            true => instance.private.clone(),
            false => instance.public.clone().or_else(|| instance.private.clone()),
        };
        let addresses = [("access_v4", access), ("bind_v4", instance.private.clone())];
        let addresses =
            addresses.into_iter().filter_map(|(kind, address)| Some((kind.to_owned(), address?)));
        NodeFacts {
            incarnation: Some(call.name.incarnation),
            provider_id: Some(instance.id.clone()),
            addresses: addresses.collect(),
            ssh_port: Some(22),
            ssh_user: Some(call.description().ssh_user.clone()),
            ..NodeFacts::default()
        }
    }

    fn login(call: &MachineCall<'_>, facts: &NodeFacts) -> Result<SshLogin, PluginError> {
        let host = facts.access_address().ok_or_else(|| {
            PluginError::new(format!("the instance of {} has no address yet", call.name))
        })?;
        Ok(SshLogin {
            host: host.to_owned(),
            port: 22,
            user: call.description().ssh_user.clone(),
            identity: SecretText::new(call.fields.text("identity").unwrap_or_default()),
            host_key: call.facts().ssh_host_key.clone(),
        })
    }
}

impl MachineProvider for Ec2Provider {
    fn manifest(&self) -> &PluginManifest {
        &self.manifest
    }

    fn create(&self, call: &MachineCall<'_>) -> Result<NodeFacts, PluginError> {
        let answer = self.request("create", call, call.name)?;
        let instance = Ec2Provider::instance(&answer)?
            .ok_or_else(|| PluginError::new("the answer of ec2 has no machine"))?;
        Ok(Ec2Provider::facts(call, &instance))
    }

    fn confirm(&self, call: &MachineCall<'_>, wait: Duration) -> Result<NodeFacts, PluginError> {
        let deadline = monotonic() + wait;
        loop {
            let answer = self.request("find", call, call.name)?;
            let instance = Ec2Provider::instance(&answer)?
                .ok_or_else(|| PluginError::new(format!("there is no instance {}", call.name)))?;
            let facts = Ec2Provider::facts(call, &instance);
            if instance.state == "running" && facts.access_address().is_some() {
                let login = Ec2Provider::login(call, &facts)?;
                let left = deadline.saturating_duration_since(monotonic());
                let key = self.ssh.confirm(&call.task.machine, &login, left, call.stop)?;
                return Ok(NodeFacts { ssh_host_key: Some(key), ..facts });
            }
            if monotonic() + PAUSE > deadline || call.stop.sleep(PAUSE).is_some() {
                let text = format!("the instance {} is {}", call.name, instance.state);
                return Err(PluginError::new(text));
            }
        }
    }

    fn delete(&self, call: &MachineCall<'_>, machine: &MachineName) -> Result<(), PluginError> {
        self.request("delete", call, machine)?;
        self.ssh.disconnect(&machine.to_string());
        Ok(())
    }

    fn list(&self, call: &MachineCall<'_>) -> Result<Vec<MachineRecord>, PluginError> {
        let answer = self.request("list", call, call.name)?;
        let machines = answer.get("machines").cloned().unwrap_or_default();
        let machines: Vec<Instance> = serde_json::from_value(machines)
            .map_err(|error| PluginError::new(format!("the answer of ec2: {error}")))?;
        let of_node = |machine: &Instance| {
            machine.name.parse::<MachineName>().is_ok_and(|name| name.is_same_node(call.name))
        };
        let record = |machine: Instance| MachineRecord {
            is_running: machine.is_running(),
            name: machine.name,
            provider_id: Some(machine.id),
        };
        Ok(machines.into_iter().filter(of_node).map(record).collect())
    }

    fn access(&self, call: &MachineCall<'_>) -> Result<NodeAccess, PluginError> {
        let login = Ec2Provider::login(call, call.facts())?;
        self.ssh.access(&call.task.machine, login)
    }
}
