//! Exports of the reference compiler for the same models, field by field: recorded answers of
//! inmanta-core 20.1.0 with std 8.7.5.

use serde_json::{Value, json};

use crate::models::{Find, exported};

/// A resource in the reference compiler's form, without parts that Orrery does not use.
fn in_reference_form(resource: &orrery_model::Resource) -> Value {
    let mut object = resource.attributes.to_object();
    let requires: Vec<&str> = resource.requires.iter().map(|id| id.as_str()).collect();
    object.insert("requires".into(), json!(requires));
    object.insert("id".into(), json!(format!("{},v=0", resource.id)));
    Value::Object(object)
}

fn null(name: &str, changes: &[(&str, Value)]) -> Value {
    let mut object = json!({
        "send_event": true, "receive_events": true, "report_only": false, "managed": true,
        "purged": false, "purge_on_delete": false, "name": name, "agentname": "internal",
        "fail": false, "value": "", "int_value": 0, "requires": [],
        "id": format!("std::testing::NullResource[internal,name={name}],v=0"),
    });
    for (key, value) in changes {
        object[key] = value.clone();
    }
    object
}

#[track_caller]
fn same(model: &str, expected: &[Value]) {
    let exported = exported(model);
    assert!(exported.problems.is_empty(), "{:?}", exported.problem_texts());
    let found: Vec<Value> = exported.resources.iter().map(in_reference_form).collect();
    assert_eq!(found, expected);
}

#[test]
fn requirements_sets_and_unmanaged_resources() {
    same(
        r#"
a = std::testing::NullResource(name="a")
b = std::testing::NullResource(name="b", managed=false)
c = std::testing::NullResource(name="c", requires=b)
e = std::testing::NullResource(name="e", requires=[a, b])
std::ResourceSet(name="s1", resources=[a, b])
std::ResourceSet(name="s2", resources=[b])
std::ResourceSet(name="s3")
"#,
        &[
            null("a", &[]),
            null("c", &[]),
            null("e", &[("requires", json!(["std::testing::NullResource[internal,name=a]"]))]),
        ],
    );
}

#[test]
fn undefined_resources_are_still_required() {
    same(
        r#"
a = std::testing::NullResource(name="a", managed=std::get_env("ORRERY_TEST_THAT_NOBODY_SETS"))
b = std::testing::NullResource(name="b", requires=a)
"#,
        &[
            null("a", &[("managed", json!("<<undefined>>"))]),
            null("b", &[("requires", json!(["std::testing::NullResource[internal,name=a]"]))]),
        ],
    );
}

#[test]
fn unknown_values_and_sets() {
    same(
        r#"
u = std::get_env("ORRERY_TEST_THAT_NOBODY_SETS")
a = std::testing::NullResource(name="a", value=u, int_value=u, send_event=u, purged=true)
std::ResourceSet(name=u, resources=a)
std::testing::NullResource(name=u)
std::testing::NullResource(name="x", agentname=u)
std::testing::NullResource(name="z", value="é \"quoted\"", int_value=-3, agentname="other")
"#,
        &[
            null(
                "a",
                &[
                    ("value", json!("<<undefined>>")),
                    ("int_value", json!("<<undefined>>")),
                    ("send_event", json!(false)),
                    ("purged", json!(true)),
                ],
            ),
            null(
                "z",
                &[
                    ("value", json!("é \"quoted\"")),
                    ("int_value", json!(-3)),
                    ("agentname", json!("other")),
                    ("id", json!("std::testing::NullResource[other,name=z],v=0")),
                ],
            ),
        ],
    );
}
