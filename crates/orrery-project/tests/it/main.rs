//! Tests of the public interface: projects in temporary directories, compiled and exported.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use orrery_compiler::diagnostic::Severity;
use orrery_compiler::plugins::{Facts, ServerEnvironmentInfo};
use orrery_project::{
    CompiledProject, DeployingMachine, ExportMode, FactSnapshot, FactSource, FoundProject,
    MAIN_FILE, ProjectRequest, ServerContext, UnknownValue, collect_contents, compile,
};

/// A host and a file on it.
const FILE: &str = "h = std::Host(name=\"localhost\", os=std::linux)\n\
                    std::File(host=h, path=\"/tmp/a\", content=\"a\")\n";

fn project(files: &[(&str, &str)]) -> (tempfile::TempDir, FoundProject) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let project = FoundProject::find(Some(dir.path()), MAIN_FILE).unwrap();
    (dir, project)
}

fn exporting() -> ProjectRequest {
    let export = ExportMode::Resources(DeployingMachine::This);
    ProjectRequest { export, ..ProjectRequest::default() }
}

fn ids(compiled: &CompiledProject) -> Vec<String> {
    let resources = compiled.exported.iter().flat_map(|exported| &exported.resources);
    resources.map(|resource| resource.id.to_string()).collect()
}

#[test]
fn a_project_is_compiled_and_exported() {
    let described = "name: shop\norrery:\n    local_agents: [\"web*\"]\n";
    let (_dir, project) = project(&[("project.yml", described), ("main.cf", FILE)]);
    let compiled = compile(project, exporting());
    assert!(compiled.errors().is_empty(), "{:?}", compiled.errors());
    assert_eq!(ids(&compiled), ["std::File[localhost,path=/tmp/a]"]);
    assert_eq!((&*compiled.name, compiled.declared_name.as_deref()), ("shop", Some("shop")));
    assert_eq!(compiled.local_agents, ["web*"]);
    assert_eq!((compiled.left_out(), compiled.undeployable()), (0, 0));
    assert!(compiled.unknowns().is_empty() && compiled.export_error.is_none());
}

#[test]
fn output_and_errors_of_a_broken_model_are_values() {
    let model = "std::print(\"hello\")\nx = 1\nx = 2\n";
    let (_dir, project) = project(&[("project.yml", "name: broken\n"), ("main.cf", model)]);
    let compiled = compile(project, exporting());
    assert!(compiled.exported.is_none() && compiled.compiled.outcome.is_err());
    let [error] = &compiled.errors()[..] else { panic!("{:?}", compiled.errors()) };
    assert_eq!((error.severity, error.id), (Severity::Error, Some("double-assignment")));
}

#[test]
fn an_invalid_description_is_an_error_of_the_compile() {
    let (_dir, project) = project(&[("project.yml", "name: [\n"), ("main.cf", FILE)]);
    assert_eq!(project.declared_name(), None);
    let compiled = compile(project, exporting());
    assert_eq!(compiled.errors().len(), 1);
    assert!(compiled.exported.is_none());
}

#[test]
fn a_main_file_is_a_project_without_a_description() {
    let (dir, project) = project(&[("main.cf", FILE)]);
    let compiled = compile(project, exporting());
    assert_eq!(ids(&compiled).len(), 1);
    assert_eq!(compiled.declared_name, None);
    let path = dir.path().canonicalize().unwrap();
    assert_eq!(compiled.name, path.file_name().unwrap().to_string_lossy());
}

#[test]
fn a_missing_directory_is_an_error_and_a_result() {
    let error = FoundProject::find(Some(Path::new("/nonexistent")), MAIN_FILE).unwrap_err();
    let compiled = CompiledProject::not_found(error);
    assert_eq!(compiled.errors()[0].message, "no such directory: /nonexistent");
    assert!(ids(&compiled).is_empty());
}

#[test]
fn the_description_is_read_once() {
    let (dir, project) = project(&[("project.yml", "name: shop\n"), ("main.cf", FILE)]);
    std::fs::write(dir.path().join("project.yml"), "name: [\n").unwrap();
    let compiled = compile(project, exporting());
    assert!(compiled.errors().is_empty(), "{:?}", compiled.errors());
    assert_eq!(compiled.name, "shop");
}

#[test]
fn nothing_is_exported_unless_requested_or_cyclic() {
    let (_dir, plain) = project(&[("main.cf", FILE)]);
    let compiled = compile(plain, ProjectRequest::default());
    assert!(compiled.exported.is_none() && compiled.errors().is_empty());
    let cyclic = "h = std::Host(name=\"localhost\", os=std::linux)\n\
                  a = std::File(host=h, path=\"/tmp/a\", content=\"a\", requires=b)\n\
                  b = std::File(host=h, path=\"/tmp/b\", content=\"b\", requires=a)\n";
    let (_dir, cyclic) = project(&[("main.cf", cyclic)]);
    let compiled = compile(cyclic, ProjectRequest::default());
    assert_eq!(compiled.cycles().len(), 1);
}

/// Facts of nothing.
#[derive(Debug)]
struct NoFacts;

impl Facts for NoFacts {
    fn fact(&self, _: &str, _: &str) -> Option<String> {
        None
    }

    fn facts_with(&self, _: &str, _: &str) -> Option<BTreeMap<String, String>> {
        None
    }
}

/// A file with the value of a fact.
const FACT: &str = "h = std::Host(name=\"localhost\", os=std::linux)\n\
                    a = std::File(host=h, path=\"/tmp/a\", content=\"a\")\n\
                    std::File(host=h, path=\"/tmp/b\", content=std::getfact(a, \"size\"))\n";

#[test]
fn missing_facts_are_unknown_values() {
    let (_dir, project) = project(&[("main.cf", FACT)]);
    let facts = FactSource::Deployed(Arc::new(NoFacts));
    let compiled = compile(project, ProjectRequest { facts, ..exporting() });
    let fact_of = Some("std::File[localhost,path=/tmp/a]".parse().unwrap());
    assert_eq!(compiled.unknowns(), [UnknownValue { name: "content".to_owned(), fact_of }]);
}

#[test]
fn a_server_provides_facts_and_learns_of_the_missing_ones() {
    let files = tempfile::tempdir().unwrap();
    let resource = "std::File[localhost,path=/tmp/a]".to_owned();
    let compile_with = |known: FactSnapshot| {
        let known = Arc::new(known);
        let server = ServerContext {
            side: ServerEnvironmentInfo {
                environment: "00000000-0000-4000-8000-000000000000".to_owned(),
                environment_name: "test".to_owned(),
                host: "localhost".to_owned(),
                port: 1,
                tls: false,
                ca: String::new(),
            },
            files: files.path().to_owned(),
            known: Arc::clone(&known),
        };
        let (_dir, project) = project(&[("main.cf", FACT)]);
        let facts = FactSource::Server(server);
        (compile(project, ProjectRequest { facts, ..exporting() }), known.unknowns())
    };
    let (compiled, missed) = compile_with(FactSnapshot::default());
    assert_eq!((missed[0].name.as_str(), missed[0].resource.as_ref()), ("size", Some(&resource)));
    assert_eq!(compiled.unknowns().len(), 1);
    let known = FactSnapshot::new([(Some(resource), "size".to_owned(), "7".to_owned())]);
    let (compiled, missed) = compile_with(known);
    assert!(missed.is_empty() && compiled.unknowns().is_empty());
}

#[test]
fn contents_are_collected_under_their_hashes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("own-id"), "hello\n").unwrap();
    std::fs::write(dir.path().join(".hidden"), "x").unwrap();
    let found = collect_contents(dir.path(), None).unwrap();
    let hash = "f572d396fae9206628714fb2ce00f72e94f2258f".to_owned();
    assert_eq!(found.files.get("own-id"), Some(&hash));
    assert_eq!(found.contents.into_iter().collect::<Vec<_>>(), [(hash.clone(), 6)]);
    assert_eq!(std::fs::read(dir.path().join(hash)).unwrap(), b"hello\n");
}
