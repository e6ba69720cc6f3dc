//! Plugins that depend on the outside world: passwords, time, references.

use orrery_compiler::plugins::{Failure, PluginContext, native_plugins};
use orrery_compiler::value::Value;

use crate::memory::{Memory, bind};

const FILE: &str = "/project/data/std/passwordfile.txt";

fn call(memory: &mut Memory, name: &str, args: &[Value]) -> Result<Value, Failure> {
    let plugin = native_plugins().iter().find(|plugin| plugin.name == name);
    let plugin = plugin.expect("the plugin exists");
    let args = bind(memory, plugin, args.to_vec(), Vec::new())?;
    (plugin.run)(memory, &args).map_err(Failure::without_location)
}

fn text(memory: &mut Memory, name: &str, args: &[&str]) -> Result<String, String> {
    let args: Vec<Value> = args.iter().map(|arg| memory.heap.str(arg)).collect();
    match call(memory, name, &args) {
        Ok(Value::Str(id)) => Ok(memory.heap().text(id).to_owned()),
        Err(Failure::Python(error)) => Err(error.message),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn a_generated_password_stays_the_same() {
    let mut memory = Memory::with_prelude();
    let first = text(&mut memory, "std::generate_password", &["web"]).expect("a password");
    assert_eq!(first.len(), 20);
    assert!(first.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_eq!(memory.files[FILE], format!("web={first}\n"));
    assert_eq!(text(&mut memory, "std::generate_password", &["web"]).as_ref(), Ok(&first));
    assert_eq!(text(&mut memory, "std::password", &["web"]), Ok(first));
}

#[test]
fn a_length_of_nothing_gives_an_empty_password() {
    let mut memory = Memory::with_prelude();
    let id = memory.heap.str("abc");
    let password = call(&mut memory, "std::generate_password", &[id, Value::Int(-1)]);
    assert!(matches!(password, Ok(Value::Str(id)) if memory.heap().text(id).is_empty()));
    assert_eq!(memory.files[FILE], "abc=\n");
}

#[test]
fn hand_written_password_files_are_accepted() {
    let mut memory = Memory::with_prelude();
    let written = "manual= a b = c \n\ndup=1\ndup=2\nx=\n  sp = z\nfinal=nonl";
    memory.files.insert(FILE.to_owned(), written.to_owned());
    for (id, password) in [("manual", "a b = c"), ("dup", "2"), ("sp", "z"), ("final", "nonl")] {
        assert_eq!(text(&mut memory, "std::password", &[id]), Ok(password.to_owned()));
    }
    let missing = format!("Password x does not exist in file {FILE}");
    assert_eq!(text(&mut memory, "std::password", &["x"]), Err(missing));
    memory.files.insert(FILE.to_owned(), "no equals sign\n".to_owned());
    let broken = text(&mut memory, "std::password", &["x"]);
    assert_eq!(broken, Err("substring not found".to_owned()));
}

#[test]
fn an_id_with_an_equals_sign_is_refused() {
    let mut memory = Memory::with_prelude();
    for plugin in ["std::password", "std::generate_password"] {
        let refused = text(&mut memory, plugin, &["a=b"]);
        assert_eq!(refused, Err("The password id cannot contain =".to_owned()));
    }
}

#[test]
fn the_time_is_in_whole_seconds() {
    let mut memory = Memory::with_prelude();
    let time = call(&mut memory, "std::timestamp", &[]);
    assert!(matches!(time, Ok(Value::Int(1_800_000_000))));
}

#[test]
fn an_absent_variable_is_unknown_with_a_warning() {
    let mut memory = Memory::with_prelude();
    let name = memory.heap.str("ORRERY_ABSENT");
    let value = call(&mut memory, "std::get_env", &[name]);
    assert!(matches!(value, Ok(Value::Unknown(_))));
    let warning = "Environment variable ORRERY_ABSENT doesn't exist, returning \
                   Unknown(source='ORRERY_ABSENT') instead";
    assert_eq!(memory.warnings, [warning]);
}

#[test]
fn references_to_the_same_thing_are_equal() {
    let mut memory = Memory::with_prelude();
    let [a, b] = ["A", "B"].map(|name| memory.heap.str(name));
    let mut reference = |argument| {
        call(&mut memory, "std::create_environment_reference", &[argument]).expect("a reference")
    };
    let (first, second, other) = (reference(a), reference(a), reference(b));
    assert!(memory.heap().equal(first, second));
    assert!(!memory.heap().equal(first, other));
    let Value::Other(id) = first else { panic!("a reference is carried") };
    assert_eq!(memory.heap().get_other(id).reference.as_deref(), Some("string"));
    let resource = Value::Instance(memory.names["resource"]);
    let fact =
        call(&mut memory, "std::create_fact_reference", &[resource, a]).expect("a reference");
    let shown =
        "FactReference[resource_id=std::testing::NullResource[internal,name=r],fact_name=A]";
    assert_eq!(memory.proxy_str(fact), shown);
}

#[test]
fn a_boot_script_of_an_agent_has_quoted_values_and_no_malformed_ones() {
    let mut memory = Memory::with_prelude();
    let digest = "0".repeat(64);
    let values = ["gw:8889", "orrj_a.b", &digest, "/opt/my agent"];
    let script = text(&mut memory, "agents::install_script", &values).expect("a script");
    assert!(script.starts_with("#!/bin/sh\n"), "{script}");
    assert!(script.contains("source='/opt/my agent'") && script.contains(&digest), "{script}");
    let refused = text(&mut memory, "agents::install_script", &["gw:8889", "orrj_a.b", "12"]);
    assert!(refused.unwrap_err().contains("64 hexadecimal digits"));
}
