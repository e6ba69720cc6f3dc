//! Intents for tests.

use std::collections::BTreeMap;

use orrery_cluster::document::Service;
use orrery_cluster::intent::{ClusterIntent, IntentNode};
use serde_json::json;

/// A cluster without nodes.
pub(crate) fn empty(services: BTreeMap<String, Service>) -> ClusterIntent {
    let hardware = json!({"name": "small", "providermap": {"local": {"flavor": "s1"}}});
    let image = json!({"name": "debian", "providermap": {"local": {"image": "debian-12"}}});
    let intent = json!({
        "cluster": "71",
        "name": "web",
        "owner": "ada",
        "template": {"name": "web"},
        "template_revision": 1,
        "provider": {"name": "local", "providertype": "sim", "provisioner": {"z": 1, "a": "b\"c"}},
        "services": services,
        "hardware_types": {"small": hardware},
        "image_types": {"debian": image},
        "config": {},
        "dns_suffix": "local",
        "nodes": {},
        "next_number": 1000,
    });
    serde_json::from_value(intent).expect("an intent")
}

/// A node without services.
pub(crate) fn node(number: u64) -> IntentNode {
    IntentNode {
        number,
        incarnation: 1,
        hostname: format!("web71-{number}.local"),
        hardwaretype: "small".to_owned(),
        imagetype: "debian".to_owned(),
        flavor: "s1".to_owned(),
        image: "debian-12".to_owned(),
        ssh_user: "root".to_owned(),
        services: BTreeMap::new(),
    }
}
