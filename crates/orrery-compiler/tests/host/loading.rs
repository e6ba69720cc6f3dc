//! Questions to a host before the model runs.

use orrery_compiler::host::{CodeLocation, LoadError, Signature};
use orrery_compiler::value::Value;

use crate::test_host::{TestHost, message};

fn nothing() -> TestHost {
    TestHost::default().with("m::f", &[], "any", |_, _| Ok(Value::Null))
}

#[test]
fn a_host_is_asked_once_for_the_modules_that_bring_code() {
    let mut host = nothing();
    let compiled = host.compile("", "import m\nimport plain\nm::f()\nm::f()\n");
    assert_eq!(message(&compiled), "");
    assert_eq!(host.asked, [["m"]]);
    assert_eq!(host.called.borrow().len(), 2);
    assert!(compiled.warnings.iter().any(|warning| warning.message == "a warning of the host"));
}

#[test]
fn a_host_is_not_started_without_module_code() {
    let mut host = nothing();
    let compiled = host.compile("", "import plain\nstd::print(std::count([1]))\n");
    assert_eq!(compiled.output, "1\n", "{}", message(&compiled));
    assert!(host.asked.is_empty());
}

#[test]
fn code_that_does_not_load_ends_the_compile() {
    let mut host = nothing();
    let problem = "ModuleNotFoundError while loading plugin module inmanta_plugins.m: No module \
                   named 'nowhere' (./libs/m/plugins/__init__.py:1)";
    host.refuses = Some(LoadError::Code {
        module: "m".into(),
        problems: vec![problem.into()],
        location: None,
    });
    let compiled = host.compile("", "import m\n");
    assert_eq!(
        message(&compiled),
        format!("Unable to load all plug-ins for module m:\n\t{problem}")
    );
    host.refuses = Some(LoadError::Plugin("'x' has no annotation".into()));
    assert_eq!(message(&host.compile("", "import m\n")), "'x' has no annotation");
}

#[test]
fn native_plugins_go_before_those_of_the_same_name() {
    let mut host =
        TestHost::default().with("std::count", &["x: any"], "any", |_, _| Ok(Value::Int(100)));
    let compiled = host.compile("", "import m\nstd::print(std::count([1, 2]))\n");
    assert_eq!(compiled.output, "2\n", "{}", message(&compiled));
}

#[test]
fn a_plugin_of_a_namespace_that_is_not_loaded_cannot_be_called() {
    let compiled = TestHost::default()
        .with("m::sub::f", &["x: Nowhere"], "any", |_, _| Ok(Value::Null))
        .compile("", "import m\nm::sub::f()\n");
    let message = message(&compiled);
    assert!(
        message.starts_with("could not find type m::sub::f in namespace __config__"),
        "{message}"
    );
}

#[test]
fn a_name_that_the_plugins_of_a_module_lack_is_not_blamed_on_python() {
    let compiled = TestHost::default()
        .with("m::gather", &[], "any", |_, _| Ok(Value::Null))
        .compile("", "import m\nm::gahter()\n");
    let error = compiled.outcome.as_ref().expect_err("there is no such plugin");
    assert_eq!(error.help.as_deref(), Some("did you mean `m::gather`?"));
}

#[test]
fn a_plugin_and_a_type_cannot_share_a_name() {
    let compiled = TestHost::default()
        .with("m::Thing", &[], "any", |_, _| Ok(Value::Null))
        .compile("entity Thing:\nend\n", "import m\n");
    assert_eq!(
        message(&compiled),
        "Type m::Thing is already defined (original at (./libs/m/plugins/__init__.py:3)) \
         (duplicate at (./libs/m/model/_init.cf:1:8))"
    );
}

#[test]
fn a_deprecated_plugin_warns() {
    let signature = Signature {
        name: "m::old".into(),
        params: vec![],
        returns: "any".into(),
        allow_unknown: false,
        deprecated: Some("m::new".into()),
        location: Some(CodeLocation { file: "/p/libs/m/plugins/__init__.py".into(), line: 1 }),
    };
    let compiled = TestHost::default()
        .with_signature(signature, |_, _| Ok(Value::Null))
        .compile("", "import m\nm::old()\n");
    let text = "Plugin 'm::old' is deprecated. It should be replaced by 'm::new'.";
    assert!(compiled.warnings.iter().any(|warning| warning.message == text));
}
