//! Macros: the recorded facts, and cases that they do not cover.

use std::collections::BTreeMap;

use orrery_cluster::macros::{MacroContext, MacroError, Node, check, expand, expand_value};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cases;

fn nodes(context: &Value) -> Vec<Node> {
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let node = |node: &Value| {
        let addresses = node["ipaddresses"].as_object().into_iter().flatten();
        let address = |(kind, ip): (&String, &Value)| Some((kind.clone(), ip.as_str()?.to_owned()));
        Node {
            id: node["id"].as_str().unwrap_or_default().to_owned(),
            number: node["nodenum"].as_u64().unwrap_or_default(),
            hostname: node["hostname"].as_str().map(str::to_owned),
            addresses: addresses.filter_map(address).collect(),
            services: list(&node["services"]),
        }
    };
    let mut nodes: Vec<Node> =
        context["nodes"].as_array().into_iter().flatten().map(node).collect();
    // The facts were recorded with the nodes in the order of their ids.
    nodes.sort_by(|one, other| one.id.cmp(&other.id));
    nodes
}

#[test]
fn the_recorded_facts_hold() {
    let file = cases::read("ORRERY_MACRO_CASES", "macro_cases.json");
    let nodes = nodes(&file["context"]);
    let this = nodes.iter().find(|node| Some(node.id.as_str()) == file["context"]["self"].as_str());
    let owner = file["context"]["owner"].as_str().unwrap_or_default();
    let context = MacroContext { owner, nodes: &nodes, this };
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in file["cases"].as_array().expect("a list of cases") {
        count += 1;
        let input = case["input"].as_str().expect("a text");
        let actual = match expand(input, &context) {
            Ok(Some(output)) => json!({"output": output, "changed": true}),
            Ok(None) => json!({"output": input, "changed": false}),
            Err(error) => {
                let class = match error {
                    MacroError::Syntax { .. } => "SyntaxException",
                    _ => "IncompleteClusterException",
                };
                json!({"error": class, "message": error.to_string()})
            }
        };
        if actual != case["expected"] {
            wrong.push(format!("{} {input}: {actual}, expected {}", case["id"], case["expected"]));
        }
    }
    assert!(count > 0, "no cases");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn node(number: u64, services: &[&str]) -> Node {
    let address = format!("10.0.0.{number}");
    Node {
        id: format!("n{number}"),
        number,
        hostname: Some(format!("h{number}")),
        addresses: BTreeMap::from([("bind_v4".to_owned(), address)]),
        services: services.iter().map(|name| (*name).to_owned()).collect(),
    }
}

#[test]
fn values_are_expanded_inside_lists_and_objects() {
    let nodes = [node(2, &["app"]), node(1, &["app", "db"])];
    let context = MacroContext { owner: "ada", nodes: &nodes, this: Some(&nodes[0]) };
    let config = json!({
        "%host.self%": ["%host.self%", 7, null, {"all": "%join(map(ip.service.app,'$:80'),' ')%"}],
        "me": "%instance.self.service.app% of %num.service.app%",
    });
    assert_eq!(
        expand_value(&config, &context),
        Ok(json!({
            "%host.self%": ["h2", 7, null, {"all": "10.0.0.2:80 10.0.0.1:80"}],
            "me": "2 of 2",
        }))
    );
}

#[test]
fn macro_errors_have_a_location() {
    let text = "é %host.self% %hots.self%";
    let Err(MacroError::Syntax { message, start, end }) = check(text) else {
        panic!("the mistake is not found");
    };
    assert_eq!(
        (message.as_str(), &text[start..end]),
        ("'hots.self' is not a valid macro name", "%hots.self%")
    );
    for bad in [
        "%join(host.self,'a'%",
        "%join(host.self,'a)%",
        "%host.service.a[1%",
        "%host.self x%",
        "%map(host.self)%",
    ] {
        assert!(matches!(check(bad), Err(MacroError::Syntax { .. })), "{bad}");
    }
    for good in ["", "100%", "%%", "%%%%", "%", "%% %host.self% %%", "%ip.x.self%"] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
    let huge = "%host.service.a[99999999999999999999]%";
    assert!(matches!(check(huge), Err(MacroError::Syntax { .. })));
}

#[test]
fn texts_for_no_node_have_no_self() {
    let nodes = [node(1, &["app"])];
    let context = MacroContext { owner: "ada", nodes: &nodes, this: None };
    assert_eq!(expand("%host.self%", &context), Ok(None));
    assert_eq!(expand("%ip.service.app[0]%", &context), Ok(Some("10.0.0.1".to_owned())));
    assert_eq!(expand("%host.service.none[4]%", &context), Ok(None));
}

proptest! {
    #[test]
    fn any_text_expands_or_gives_an_error(
        text in r#"(%|join\(|map\(|host\.|ip\.|self|service\.|app|,|'|"|\)|\[|\]|[0-9]|é|\$|.){0,12}"#,
    ) {
        let nodes = [node(1, &["app"])];
        let context = MacroContext { owner: "ada", nodes: &nodes, this: Some(&nodes[0]) };
        match expand(&text, &context) {
            Ok(Some(_)) => prop_assert!(text.matches('%').count() >= 2),
            Ok(None) | Err(MacroError::UnknownFact { .. } | MacroError::TooFewNodes { .. }) => {}
            Err(MacroError::Syntax { start, end, .. }) => {
                let place = text.get(start..end);
                prop_assert!(place.is_some_and(|m| m.starts_with('%') && m.ends_with('%')));
            }
        }
    }
}
