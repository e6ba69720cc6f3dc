//! A complete set of documents: a web application with a database, a cache and load balancers.

use orrery_cluster::document::{Catalog, DocumentKind};

pub(crate) const SERVICES: [(&str, &str); 5] = [
    (
        "base",
        r#"{"name": "base", "provisioner": {"actions": {
            "install": {"type": "shell", "fields": {"script": "base.sh", "args": "install"}},
            "configure": {"type": "shell", "fields": {"script": "base.sh"}}}}}"#,
    ),
    (
        "postgresql",
        r#"{"name": "postgresql",
            "dependencies": {"provides": [], "conflicts": [], "install": {"requires": ["base"], "uses": []},
                             "runtime": {"requires": [], "uses": []}},
            "provisioner": {"actions": {
                "install": {"type": "shell"}, "configure": {"type": "shell"}, "initialize": {"type": "shell"},
                "start": {"type": "shell"}, "stop": {"type": "shell"}}}}"#,
    ),
    (
        "redis",
        r#"{"name": "redis", "dependencies": {"install": {"requires": ["base"]}},
            "provisioner": {"actions": {
                "install": {"type": "shell"}, "configure": {"type": "shell"}, "initialize": {"type": "shell"},
                "start": {"type": "shell"}, "stop": {"type": "shell"}}}}"#,
    ),
    (
        "app",
        r#"{"name": "app",
            "dependencies": {"install": {"requires": ["base"]}, "runtime": {"requires": ["postgresql"], "uses": ["redis"]}},
            "provisioner": {"actions": {
                "install": {"type": "shell"}, "configure": {"type": "shell"}, "initialize": {"type": "shell"},
                "start": {"type": "shell"}, "stop": {"type": "shell"}}}}"#,
    ),
    (
        "nginx",
        r#"{"name": "nginx", "dependencies": {"install": {"requires": ["base"]}, "runtime": {"requires": ["app"]}},
            "links": [{"label": "site", "url": "http://%ip.access_v4.service.nginx[0]%/"}],
            "provisioner": {"actions": {
                "install": {"type": "shell"}, "configure": {"type": "shell"}, "initialize": {"type": "shell"},
                "start": {"type": "shell"}, "stop": {"type": "shell"}}}}"#,
    ),
];

pub(crate) const TEMPLATE: &str = r#"{
  "name": "webstack",
  "label": "Web stack",
  "defaults": {
    "services": ["base", "nginx", "app", "postgresql", "redis"],
    "provider": "local",
    "imagetype": "debian12",
    "dnsSuffix": "example.org",
    "config": {"nginx": {"upstream": "%join(map(ip.service.app,'$:8080'),' ')%"}}
  },
  "compatibility": {"hardwaretypes": ["small", "large"], "imagetypes": [], "services": []},
  "constraints": {
    "size": {"min": 4, "max": 50},
    "layout": {
      "mustcoexist": [["postgresql", "redis"]],
      "cantcoexist": [["nginx", "app"], ["nginx", "postgresql"], ["app", "postgresql"]]
    },
    "services": {
      "nginx": {"hardwaretypes": ["small"], "quantities": {"min": 1, "max": 2}},
      "app": {"hardwaretypes": ["small"], "quantities": {"min": 2}},
      "postgresql": {"hardwaretypes": ["large"], "quantities": {"min": 1, "max": 1}},
      "redis": {"quantities": {"max": 1}}
    }
  },
  "administration": {"leaseduration": {"initial": "7d", "max": "30d", "step": 86400000}}
}"#;

/// The documents without templates.
pub(crate) fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let add = |catalog: &mut Catalog, kind: DocumentKind, name: &str, text: &str| {
        catalog.add(kind, &format!("{}/{name}.json", kind.directory()), text.to_owned());
    };
    let provider = r#"{"name": "local", "providertype": "proc"}"#;
    add(&mut catalog, DocumentKind::Provider, "local", provider);
    for (name, cost) in [("small", "1"), ("large", "4.5")] {
        let text = format!(
            r#"{{"name": "{name}", "providermap": {{"local": {{"flavor": "{name}", "cost": "{cost}"}}}}}}"#
        );
        add(&mut catalog, DocumentKind::HardwareType, name, &text);
    }
    let image = r#"{"name": "debian12", "providermap": {"local": {"image": "debian-12", "sshuser": "admin"}}}"#;
    add(&mut catalog, DocumentKind::ImageType, "debian12", image);
    for (name, text) in SERVICES {
        add(&mut catalog, DocumentKind::Service, name, text);
    }
    catalog
}
