//! `std::facts`: facts of machines in models, and the resources that provide them.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_compiler::compile;
use orrery_compiler::export::{ExportResult, export};
use orrery_compiler::files::Memory;
use orrery_compiler::plugins::Facts;
use orrery_compiler::project::Options;
use orrery_model::{Inventory, MachineFacts, Resource, ResourceType};

/// Facts of the machines that were reached, by resource id.
#[derive(Debug, Default)]
struct Reached(BTreeMap<String, BTreeMap<String, String>>);

impl Reached {
    fn add(mut self, machine: &str, report: &str) -> Self {
        let id = Resource::machine_facts(machine).unwrap().id.to_string();
        let facts = MachineFacts::parse(report).to_facts();
        self.0.insert(id, facts.into_iter().map(|fact| (fact.name, fact.value)).collect());
        self
    }
}

impl Facts for Reached {
    fn fact(&self, id: &str, name: &str) -> Option<String> {
        self.0.get(id)?.get(name).cloned()
    }

    fn facts_with(&self, id: &str, probe: &str) -> Option<BTreeMap<String, String>> {
        self.0.get(id).filter(|facts| facts.contains_key(probe)).cloned()
    }
}

/// Output and export of a model.
fn exported_with(facts: Option<Reached>, model: &str) -> (String, ExportResult) {
    let mut files = Memory::default();
    files.add("p/project.yml", "name: t\nmodulepath: libs\n");
    files.add("p/main.cf", model);
    let mut options = Options::new("p");
    options.facts = facts.map(|facts| Arc::new(facts) as Arc<dyn Facts>);
    let compiled = compile(&files, &options);
    if let Err(error) = &compiled.outcome {
        panic!("{}", error.message(&|loc| compiled.sources.location(loc)));
    }
    let declarations = [
        ResourceType::new("std::File", "host.name", "path", &["content"]),
        ResourceType::new("std::MachineFacts", "name", "name", &[]),
    ];
    let model = compiled.model.as_ref().unwrap();
    let exported = export(model, &compiled.sources, &declarations, &Inventory::default());
    assert!(exported.problems.is_empty(), "{:?}", exported.problems);
    (compiled.output, exported)
}

/// Ids, with a mark for those with unknown attributes.
fn ids(exported: &ExportResult) -> Vec<String> {
    let shown = |one: &Resource| match one.flags.undefined {
        true => format!("{} undefined", one.id),
        false => one.id.to_string(),
    };
    exported.resources.iter().map(shown).collect()
}

const TWO: &str = r#"
for name in ["web1", "web2"]:
    host = std::Host(name=name, os=std::linux)
    facts = std::facts(host)
    std::print(facts)
    std::File(host=host, path="/about", content=facts["os"] + " on " + facts["arch"])
    std::File(host=host, path="/plain", content="x")
    if facts["os"] == "debian":
        std::File(host=host, path="/debian", content="x")
    else:
        std::File(host=host, path="/other", content="x")
    end
end
"#;

#[test]
fn only_what_depends_on_an_unreached_machine_is_left_out() {
    let reached = Reached::default().add("web1", "kernel Linux\nos debian\narch x86_64\n");
    let (_, exported) = exported_with(Some(reached), TWO);
    let expected = [
        "std::File[web1,path=/about]",
        "std::File[web1,path=/debian]",
        "std::File[web1,path=/plain]",
        "std::File[web2,path=/about] undefined",
        "std::File[web2,path=/plain]",
        "std::MachineFacts[web1,name=web1]",
        "std::MachineFacts[web2,name=web2]",
    ];
    assert_eq!(ids(&exported), expected);
    let about = exported.resources[0].attributes.to_object();
    assert_eq!(about["content"], "debian on x86_64");
    let facts = &exported.resources[5];
    assert_eq!(facts.source.as_ref().map(|source| source.line), Some(4), "the place of the call");
}

#[test]
fn nothing_is_known_without_a_deployment() {
    let (_, exported) = exported_with(None, TWO);
    let undefined = exported.resources.iter().filter(|one| one.flags.undefined).count();
    assert_eq!((exported.resources.len(), undefined), (6, 2));
}

#[test]
fn all_facts_are_there_with_their_types() {
    let report = "kernel Linux\nmemory_kib 2\nprocessors 4\naddress 192.0.2.1\nmount 2 1 /srv\n";
    let model = "host = std::Host(name=\"web1\", os=std::linux)\n\
                 facts = std::facts(host)\n\
                 std::print([facts[\"processors\"] + 1, facts[\"os\"], facts[\"mounts\"]])\n\
                 std::print(std::dict_keys(facts))\n\
                 std::print(std::at(facts[\"addresses\"], 0))\n";
    let (output, exported) = exported_with(Some(Reached::default().add("web1", report)), model);
    let keys = "@['addresses', 'arch', 'host_name', 'kernel', 'kernel_release', 'memory_bytes', \
                'mounts', 'os', 'os_name', 'os_version', 'processors']";
    for line in ["192.0.2.1", "@[5, null, {'path': '/srv', 'size_bytes': 2048}]", keys] {
        assert!(output.lines().any(|one| one == line), "{line} is not in {output}");
    }
    assert_eq!(ids(&exported), ["std::MachineFacts[web1,name=web1]"]);
}

/// A resource of the model and the one of a call are the same.
#[test]
fn a_machine_has_one_resource_with_its_facts() {
    let explicit = "std::MachineFacts(name=\"web1\")\n";
    let call = "std::facts(std::Host(name=\"web1\", os=std::linux))\n";
    let alone = [explicit, call].map(|model| exported_with(None, model).1.resources);
    let (_, both) = exported_with(None, &format!("{call}{call}{explicit}"));
    assert_eq!(both.resources.len(), 1);
    for resources in alone {
        assert_eq!(resources[0].id, both.resources[0].id);
        assert_eq!(resources[0].attributes.as_str(), both.resources[0].attributes.as_str());
        assert_eq!(resources[0].hash, both.resources[0].hash);
    }
}
