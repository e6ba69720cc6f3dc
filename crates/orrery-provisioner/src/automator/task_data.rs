//! Data of a task for scripts: a JSON file, and environment variables.

use serde_json::{Map, Value, json};

use crate::plugin::ActionRun;

/// Data of the task, as scripts read it from the file in `ORRERY_TASK`.
pub(super) fn task_data(run: &ActionRun<'_>) -> Value {
    let (task, description) = (run.task, &run.task.description);
    json!({
        "task": task.id,
        "action": run.action.as_str(),
        "service": run.service,
        "cluster": {"id": task.cluster, "name": description.cluster_name},
        "config": run.config.0,
        "node": {
            "name": task.node,
            "machine": task.machine,
            "number": description.number,
            "incarnation": description.incarnation,
            "hostname": description.hostname,
            "addresses": task.facts.addresses,
            "port_base": task.facts.port_base,
            "hardwaretype": description.hardwaretype,
            "imagetype": description.imagetype,
        },
    })
}

/// Variables of scripts. Simple values of the service's own configuration are among them, as
/// `ORRERY_CONFIG_NAME`.
pub(super) fn environment(run: &ActionRun<'_>, task_file: &str) -> Vec<(String, String)> {
    let (task, description) = (run.task, &run.task.description);
    let address = |address: Option<&str>| address.unwrap_or_default().to_owned();
    let mut variables: Vec<(String, String)> = [
        ("ORRERY_TASK", task_file.to_owned()),
        ("ORRERY_ACTION", run.action.as_str().to_owned()),
        ("ORRERY_SERVICE", run.service.unwrap_or_default().to_owned()),
        ("ORRERY_CLUSTER", task.cluster.clone()),
        ("ORRERY_CLUSTER_NAME", description.cluster_name.clone()),
        ("ORRERY_NODE", task.node.clone()),
        ("ORRERY_NODE_NUMBER", description.number.to_string()),
        ("ORRERY_INCARNATION", description.incarnation.to_string()),
        ("ORRERY_HOSTNAME", description.hostname.clone()),
        ("ORRERY_ACCESS_IP", address(task.facts.access_address())),
        ("ORRERY_BIND_IP", address(task.facts.bind_address())),
        ("ORRERY_PORT_BASE", task.facts.port_base.map_or_else(String::new, |p| p.to_string())),
        ("ORRERY_NODE_DIR", run.access.home.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let own = run.service.and_then(|service| run.config.get(service)).and_then(Value::as_object);
    variables.extend(own.into_iter().flat_map(config_variables));
    variables.extend(run.access.environment.iter().cloned());
    variables
}

fn config_variables(config: &Map<String, Value>) -> impl Iterator<Item = (String, String)> {
    config.iter().filter_map(|(name, value)| {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return None,
        };
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        // The system has no variables with zero bytes.
        (!value.contains('\0')).then(|| (format!("ORRERY_CONFIG_{name}"), value))
    })
}
