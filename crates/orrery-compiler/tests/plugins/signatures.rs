//! Names, parameters, defaults and types of all plugins equal those of the reference compiler.

use orrery_compiler::plugins::{NativePlugin, ParamDefault, ParamKind, native_plugins};
use serde_json::{Value as Json, json};

const RECORDED: &str = include_str!("../recorded/signatures.json");

/// Plugins that only Orrery has.
const OWN: [&str; 5] = [
    "agents::install_script",
    "std::create_command_reference",
    "std::create_file_reference",
    "std::create_secret_reference",
    "std::facts",
];

fn description(plugin: &NativePlugin) -> Json {
    let params: Vec<Json> = plugin
        .params
        .iter()
        .map(|param| {
            let kind = match param.kind {
                ParamKind::Normal => "normal",
                ParamKind::VarPositional => "var_positional",
                ParamKind::KeywordOnly => "keyword_only",
                ParamKind::VarKeyword => "var_keyword",
            };
            let mut described = json!({"name": param.name, "type": param.ty, "kind": kind});
            let default = match param.default {
                ParamDefault::Required => None,
                ParamDefault::Null => Some(Json::Null),
                ParamDefault::Bool(bool) => Some(json!(bool)),
                ParamDefault::Int(int) => Some(json!(int)),
                ParamDefault::Str(text) => Some(json!(text)),
                ParamDefault::Strs(texts) => Some(json!(texts)),
            };
            if let Some(default) = default {
                described["default"] = default;
            }
            described
        })
        .collect();
    json!({
        "name": plugin.name,
        "params": params,
        "returns": plugin.returns,
        "allow_unknown": plugin.allow_unknown,
        "deprecated": plugin.deprecated,
    })
}

#[test]
fn every_plugin_has_the_signature_of_the_reference_compiler() {
    let recorded: Vec<Json> = serde_json::from_str(RECORDED).expect("recorded signatures are JSON");
    // The module `exec` is not part of the recordings.
    let recordable = native_plugins()
        .iter()
        .filter(|plugin| !plugin.name.starts_with("exec::") && !OWN.contains(&plugin.name));
    let ours: Vec<Json> = recordable.map(description).collect();
    let missing: Vec<&Json> = recorded.iter().filter(|row| !ours.contains(row)).collect();
    assert!(missing.is_empty(), "missing or different: {missing:#?}");
    assert_eq!(ours.len(), recorded.len(), "plugins that the reference does not have");
}

#[test]
fn plugins_are_sorted_by_name_without_repetition() {
    assert!(native_plugins().windows(2).all(|pair| pair[0].name < pair[1].name));
}
