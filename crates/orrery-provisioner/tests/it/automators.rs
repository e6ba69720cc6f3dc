//! Automators beside `shell`: native resources, and playbooks over SSH.

use std::fs;
use std::sync::Arc;

use orrery_handlers::run::Purpose;
use orrery_model::{ChangeKind, OutcomeStatus};
use orrery_provisioner::automator::{AnsibleAutomator, ModelAutomator, PuppetAutomator};
use orrery_provisioner::plugins::Plugins;
use orrery_provisioner::provider::ProcessProvider;
use serde_json::{Value, json};

use crate::harness::{TestService, World, install_packages, log, packages, read, sha256};
use crate::machines::{Site, apart};

#[test]
fn native_resources_are_applied_repaired_and_purged() {
    let directory = tempfile::tempdir().unwrap();
    let mut plugins = Plugins::default();
    plugins.add_provider(Arc::new(ProcessProvider::new(directory.path())));
    plugins.add_automator(Arc::new(ModelAutomator::new()));
    let mut world = World::new(plugins, "process", json!({}));
    world.add_node("web-1000", 1000, &[]);
    world.automators = vec!["model"];
    world.deploy_machine("web-1000");
    let files = directory.path().join("files");
    let path = |name: &str| files.join(name).display().to_string();
    let owner = {
        let id = |option: &str| {
            let output = std::process::Command::new("id").arg(option).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        (id("-un"), id("-gn"))
    };
    let resources = |content: &str| {
        json!([
            {"type": "std::Directory", "attributes":
                {"path": files, "owner": owner.0, "group": owner.1, "mode": 755}},
            {"type": "std::File", "attributes":
                {"path": path("motd"), "content": content, "owner": owner.0, "group": owner.1, "mode": 644}},
        ])
    };
    let service = |content: &str, digest: &str| {
        let mut service = TestService::of_script("motd", "", &[]);
        for action in ["configure", "start", "stop", "remove", "install", "probe"] {
            service.actions.insert(action, ("model", json!({"resources": resources(content)})));
        }
        service.digest = digest.to_owned();
        service
    };
    let first = service("one\n", "d1");
    world.deploy_service("web-1000", &first);
    assert_eq!(read(path("motd").as_ref()), "one\n");
    assert_eq!(world.deploy_service("web-1000", &first), [ChangeKind::NoChange; 5]);
    // The probe reads the files themselves.
    fs::write(path("motd"), "changed by hand").unwrap();
    assert_eq!(world.deploy("cluster::Running", "web-1000", &first), ChangeKind::Updated);
    assert_eq!(read(path("motd").as_ref()), "one\n");
    let second = service("two\n", "d2");
    assert_eq!(world.deploy("cluster::Configured", "web-1000", &second), ChangeKind::Updated);
    assert_eq!(read(path("motd").as_ref()), "two\n");
    world.purge("cluster::Installed", "web-1000", Some(&second));
    assert!(!files.exists());
    // Nothing is applied if an entry is wrong.
    let mut wrong = first;
    let mut list = resources("x").as_array().cloned().unwrap();
    list.push(json!({"type": "std::Fil", "attributes": {}}));
    wrong.actions.insert("install", ("model", json!({"resources": list})));
    let outcome = world.run_service(Purpose::Deploy, "cluster::Installed", "web-1000", &wrong);
    assert_eq!(outcome.outcome.status, OutcomeStatus::Failed);
    assert!(log(&outcome).contains("there is no native resource std::Fil"), "{}", log(&outcome));
    assert!(!files.exists());
}

const PLAYBOOK: &str = r#"
- hosts: all
  gather_facts: false
  tasks:
    - name: write
      ansible.builtin.copy:
        dest: /var/lib/orrery-node/ansible
        content: "{{ orrery.action }} {{ orrery.node.name }} {{ greeting }}\n"
    - name: refuse
      ansible.builtin.command: "false"
      when: greeting == "bad"
"#;

#[test]
fn a_playbook_runs_against_the_node_over_ssh() {
    if install_packages("ansible-core>=2.16,<3").is_none() {
        return;
    }
    apart("a_playbook_runs_against_the_node_over_ssh", || {
        let site = Site::with_automator(Arc::new(AnsibleAutomator::new(packages())));
        let node = site.node(1000);
        site.world.deploy_machine(&node);
        let service = |greeting: &str| {
            let mut service = TestService::of_script("app", "", &[]);
            let fields = json!({"playbook": "app.yml", "variables": {"greeting": greeting}});
            service.actions.insert("configure", ("ansible", fields));
            service
        };
        let digest = sha256(PLAYBOOK.as_bytes());
        site.world.resources.0.lock().unwrap().insert(digest.clone(), PLAYBOOK.as_bytes().into());
        let deploy = |greeting: &str| {
            let service = service(greeting);
            let mut attributes =
                site.world.service_attributes(&node, "cluster::Configured", &service);
            attributes["plugin_resources"]["playbooks/app.yml"] = Value::from(&*digest);
            let name = format!("{node}/app");
            site.world.run(Purpose::Deploy, "cluster::Configured", &node, &name, &attributes)
        };
        let failed = deploy("bad");
        assert_eq!(failed.outcome.status, OutcomeStatus::Failed);
        assert!(log(&failed).contains("playbook app.yml ended with code 2"), "{}", log(&failed));
        assert!(!log(&failed).contains("PRIVATE KEY"));
        let outcome = deploy("hello");
        assert_eq!(outcome.outcome.status, OutcomeStatus::Deployed, "{}", log(&outcome));
        assert_eq!(read(&site.file(1000, "ansible")), "configure web-1000 hello\n");
    });
}

const MANIFEST: &str = r#"
file { '/var/lib/orrery-node/puppet':
  content => "${facts['orrery_action']} ${facts['orrery_node']} ${facts['orrery_config_color']}\n",
}
if $facts['orrery_config_color'] == 'none' {
  fail('there is no color')
}
"#;

/// Packages of Puppet with all that this machine lacks for them; `None` if there is no archive.
fn puppet_packages() -> Option<std::path::PathBuf> {
    let cache = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("puppet");
    fs::create_dir_all(cache.join("partial")).unwrap();
    let archives = format!("Dir::Cache::archives={}", cache.display());
    let output = std::process::Command::new("apt-get")
        .args(["-o", &archives, "-o", "APT::Sandbox::User=root", "-y", "--download-only"])
        .args(["--no-install-recommends", "install", "puppet-agent"])
        .output();
    match output {
        Ok(output) if output.status.success() => Some(cache),
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            eprintln!("skipped: puppet-agent cannot be downloaded: {errors}");
            None
        }
        Err(error) => {
            eprintln!("skipped: apt-get: {error}");
            None
        }
    }
}

#[test]
fn a_manifest_of_puppet_is_applied_on_the_node() {
    if std::path::Path::new("/usr/bin/puppet").exists() {
        eprintln!("skipped: this machine has Puppet, which nodes would find");
        return;
    }
    if puppet_packages().is_none() {
        return;
    }
    apart("a_manifest_of_puppet_is_applied_on_the_node", || {
        let cache = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("puppet");
        let mut site = Site::with_automator(Arc::new(PuppetAutomator::new()));
        let node = site.node(1000);
        site.world.deploy_machine(&node);
        let digest = sha256(MANIFEST.as_bytes());
        site.world.resources.0.lock().unwrap().insert(digest.clone(), MANIFEST.as_bytes().into());
        site.world.plugin_resources.insert("manifests/app.pp".to_owned(), digest);
        let mut service = TestService::of_script("app", "", &[]);
        service.actions.insert("configure", ("puppet", json!({"manifest": "app.pp"})));
        // The real tool is installed on the node only.
        let install = format!("DEBIAN_FRONTEND=noninteractive dpkg -i {}/*.deb", cache.display());
        service.actions.insert("install", ("shell", json!({"script": install})));
        let configure = |site: &mut Site, color: &str| {
            let config = json!({"app": {"color": color}});
            site.world.config = config.as_object().cloned().unwrap();
            site.world.run_service(Purpose::Deploy, "cluster::Configured", &node, &service)
        };
        let missing = configure(&mut site, "red");
        assert!(log(&missing).contains("install the package puppet-agent"), "{}", log(&missing));
        site.world.deploy("cluster::Installed", &node, &service);
        let failed = configure(&mut site, "none");
        assert_eq!(failed.outcome.status, OutcomeStatus::Failed);
        assert!(log(&failed).contains("there is no color"), "{}", log(&failed));
        let outcome = configure(&mut site, "red");
        assert_eq!(outcome.outcome.status, OutcomeStatus::Deployed, "{}", log(&outcome));
        assert_eq!(read(&site.file(1000, "puppet")), "configure web-1000 red\n");
        assert!(!std::path::Path::new("/usr/bin/puppet").exists(), "it is on this machine");
    });
}
