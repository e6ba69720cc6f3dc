//! Declarations, models and documents agree.

use std::fmt::Write;

use orrery_compiler::files::Memory;
use orrery_compiler::project::Options;
use orrery_handlers::Registry;

const PAGE: &str = include_str!("../../../../docs/guide/resources.md");

/// A model with one instance of every entity that has a handler.
const INSTANCES: [(&str, &str); 16] = [
    ("cron::Cronjob", r#"host=host, name="a", user="root", schedule="@daily", command="x""#),
    ("exec::Run", r#"host=host, command=exec::in_shell("a b")"#),
    ("http::Request", r#"name="a", url="http://example.org/""#),
    ("std::AgentConfig", r#"agentname="web2", uri="local:""#),
    ("std::ConfigFile", r#"host=host, path="/c", content="x""#),
    ("std::DefaultDirectory", r#"host=host, path="/e""#),
    ("std::Directory", r#"host=host, path="/d", mode=755, owner="root", group="root""#),
    ("std::File", r#"host=host, path="/f", mode=644, owner="root", group="root", content="x""#),
    ("std::MachineFacts", r#"name="web3""#),
    ("std::Package", r#"host=host, name="a", state="latest""#),
    ("std::Service", r#"host=host, name="a", state="running", onboot=true"#),
    ("std::Symlink", r#"host=host, source="/s", target="/t""#),
    ("std::testing::NullResource", r#"name="a", value="x""#),
    ("std::testing::ScriptedResource", r#"name="b", outcome="skip", facts={"a": "b"}"#),
    ("user::Group", r#"host=host, name="a""#),
    ("user::User", r#"host=host, name="a", group="a", homedir="/home/a""#),
];

#[test]
fn every_declared_field_is_an_attribute_of_its_entity() {
    let registry = Registry::native();
    let declared: Vec<&str> = registry.declarations().map(|found| &*found.entity).collect();
    assert_eq!(declared, INSTANCES.map(|(entity, _)| entity), "an instance of each is needed");
    let mut model = String::from(
        "import cron\nimport exec\nimport http\nimport std::testing\nimport user\n\
         host = std::Host(name=\"web1\", os=std::linux)\n",
    );
    for (number, (entity, arguments)) in INSTANCES.iter().enumerate() {
        let declaration = registry.declaration(entity).unwrap();
        writeln!(model, "r{number} = {entity}({arguments})").unwrap();
        let fields = declaration.fields.iter().map(|field| &**field);
        for path in fields.chain([&*declaration.id_attribute, &*declaration.agent]) {
            writeln!(model, "std::print(r{number}.{path})").unwrap();
        }
        for part in declaration.parts.iter() {
            writeln!(model, "for part in r{number}.{}:", part.relation).unwrap();
            for attribute in part.attributes.iter() {
                writeln!(model, "    std::print(part.{attribute})").unwrap();
            }
            writeln!(model, "end").unwrap();
        }
    }
    let mut files = Memory::default();
    files.add("p/project.yml", "name: t\nmodulepath: libs\n");
    files.add("p/main.cf", model);
    let compiled = orrery_compiler::compile(&files, &Options::new("p"));
    if let Err(error) = &compiled.outcome {
        panic!("{}", error.message(&|loc| compiled.sources.location(loc)));
    }
    assert!(compiled.output.contains("sh -c \"a b\"\n"), "{}", compiled.output);
}

#[test]
fn every_resource_type_and_field_is_described() {
    for declaration in Registry::native().declarations() {
        let heading = format!("`{}`", declaration.entity);
        let section = PAGE
            .split("\n## ")
            .find(|section| section.lines().next().is_some_and(|line| line.contains(&heading)))
            .unwrap_or_else(|| panic!("{heading} has no section"));
        let parts = declaration.parts.iter().map(|part| &part.relation);
        for name in declaration.fields.iter().chain(parts).chain([&declaration.id_attribute]) {
            assert!(section.contains(&format!("`{name}`")), "{heading} lacks `{name}`");
        }
    }
}

#[test]
fn declared_fields_are_sorted_and_do_not_repeat_what_identifies() {
    for declaration in Registry::native().declarations() {
        assert!(declaration.fields.is_sorted(), "{}", declaration.entity);
        assert!(!declaration.fields.contains(&declaration.id_attribute), "{}", declaration.entity);
    }
}
