//! Fields: serialized values, and values that cannot be serialized.

use orrery_compiler::export::{ExportProblem, Unserializable};
use orrery_model::ResourceType;

use crate::models::{Find, exported, exported_as};

#[test]
fn all_fields_are_one_object_with_sorted_keys() {
    let exported = exported(
        r#"
d = m::Device(name="d")
m::Base(name="b", device=d, options={"z": [1, 1.0, -0.0, true, null], "a": {"y": "é\n", "x": 2}}, items=["t"])
"#,
    );
    assert!(exported.problems.is_empty(), "{:?}", exported.problem_texts());
    let resource = exported.find("m::Base[d,name=b]");
    assert_eq!(
        resource.attributes.as_str(),
        concat!(
            r#"{"items":["t"],"name":"b","options":{"a":{"x":2,"y":"é\n"},"z":[1,1.0,-0.0,true,null]},"#,
            r#""purge_on_delete":false,"purged":false,"receive_events":true,"report_only":false,"#,
            r#""send_event":true}"#
        )
    );
    assert_eq!(resource.hash, resource.attributes.hash(&resource.id));
    let source = resource.source.as_ref().expect("instances have a place");
    assert_eq!(source.to_string(), "main.cf:3:1");
}

#[test]
fn numbers_keep_every_digit() {
    let exported = exported(
        r#"
d = m::Device(name="d")
m::Base(name="b", device=d, items=[123456789012345678901234567890, -9223372036854775808, 18446744073709551615, 0.1, 123456789.125])
"#,
    );
    let text = exported.find("m::Base[d,name=b]").attributes.as_str();
    let items = "[123456789012345678901234567890,-9223372036854775808,18446744073709551615,0.1,123456789.125]";
    assert!(text.contains(items), "{text}");
}

#[test]
fn an_unknown_makes_the_whole_field_undefined() {
    let exported = exported(
        r#"
u = std::get_env("ORRERY_TEST_THAT_NOBODY_SETS")
d = m::Device(name="d")
m::Base(name="top", device=d, purged=u)
m::Base(name="list", device=d, items=["a", u])
m::Base(name="deep", device=d, options={"k": ["a", {"x": u}]})
m::Base(name="flags", device=d, send_event=u, receive_events=u, report_only=u)
std::testing::NullResource(name="managed", managed=u)
"#,
    );
    assert!(exported.problems.is_empty());
    for (id, text) in [
        ("m::Base[d,name=top]", r#""purged":"<<undefined>>""#),
        ("m::Base[d,name=list]", r#""items":"<<undefined>>""#),
        ("m::Base[d,name=deep]", r#""options":"<<undefined>>""#),
        ("std::testing::NullResource[internal,name=managed]", r#""managed":"<<undefined>>""#),
    ] {
        let resource = exported.find(id);
        assert!(resource.flags.undefined, "{id}");
        assert!(resource.attributes.as_str().contains(text), "{:?}", resource.attributes);
    }
    // These count as not set.
    let flags = exported.find("m::Base[d,name=flags]");
    assert!(!flags.flags.undefined && !flags.flags.send_event && flags.flags.receive_events);
    assert!(flags.attributes.as_str().contains(r#""send_event":false"#));

    let unknowns: Vec<String> =
        exported.unknowns.iter().map(|u| format!("{} {}", u.resource, u.attribute)).collect();
    assert_eq!(
        unknowns,
        [
            "m::Base[d,name=deep] options",
            "m::Base[d,name=list] items",
            "m::Base[d,name=top] purged",
            "std::testing::NullResource[internal,name=managed] managed",
        ]
    );
}

#[test]
fn flags_come_from_the_model_or_have_defaults() {
    let exported = exported(
        r#"
d = m::Device(name="d")
m::Base(name="said", device=d, send_event=false, receive_events=false, report_only=true)
m::Plain(name="silent", device=d)
"#,
    );
    let said = exported.find("m::Base[d,name=said]").flags;
    assert!(!said.send_event && !said.receive_events && said.report_only && !said.undefined);
    let silent = exported.find("m::Plain[d,name=silent]");
    assert!(!silent.flags.send_event && silent.flags.receive_events && !silent.flags.report_only);
    assert_eq!(
        silent.attributes.as_str(),
        r#"{"name":"silent","receive_events":true,"report_only":false,"send_event":false}"#
    );
}

#[test]
fn unmanaged_resources_are_counted_and_not_exported() {
    let exported = exported(
        r#"
a = std::testing::NullResource(name="a", managed=false)
b = std::testing::NullResource(name="b", requires=a)
"#,
    );
    assert_eq!(exported.unmanaged, 1);
    assert_eq!(exported.ids(), ["std::testing::NullResource[internal,name=b]"]);
    assert!(exported.resources[0].requires.is_empty());
    assert!(exported.warnings.is_empty(), "{:?}", exported.warning_texts());
}

#[test]
fn parts_are_objects_in_the_order_of_the_relation() {
    let exported = exported(
        r#"
d = m::Device(name="d")
u = std::get_env("ORRERY_TEST_THAT_NOBODY_SETS")
m::Holder(name="h", device=d, parts=[m::Part(text="b"), m::Part(text="a", weight=3)])
m::Holder(name="none", device=d)
m::Holder(name="unknown", device=d, parts=[m::Part(text=u)])
"#,
    );
    let text = |id: &str| exported.find(id).attributes.as_str().to_owned();
    let parts = r#""parts":[{"text":"b","weight":null},{"text":"a","weight":3}]"#;
    assert!(text("m::Holder[d,name=h]").contains(parts), "{}", text("m::Holder[d,name=h]"));
    assert!(text("m::Holder[d,name=none]").contains(r#""parts":[]"#));
    assert!(text("m::Holder[d,name=unknown]").contains(r#""parts":"<<undefined>>""#));
}

const ODD: &str = r#"
import m
d = m::Device(name="d")
ok = m::Odd(name="ok", device=d, spare=d)
"#;

#[test]
fn a_relation_is_no_field() {
    let field = |name| [ResourceType::new("m::Odd", "device.name", "name", &[name])];
    // An empty list contains nothing that cannot be serialized.
    let exported = exported_as(ODD, &field("devices"));
    let text = exported.find("m::Odd[d,name=ok]").attributes.as_str();
    assert!(text.starts_with(r#"{"devices":[],"#), "{text}");

    let model = format!("{ODD}bad = m::Odd(name=\"bad\", device=d, devices=[d])\n");
    let exported = exported_as(&model, &field("devices"));
    assert_eq!(exported.ids(), ["m::Odd[d,name=ok]"]);
    assert_eq!(
        exported.problem_texts(),
        [
            "`devices[0]` of m::Odd[d,name=bad] cannot be exported: an instance of m::Device is no value"
        ]
    );
    assert_eq!(exported.problems[0].location().to_string(), "main.cf:5:7");
    assert_eq!(exported.problems[0].diagnostic_id(), "unserializable-field");

    let model = format!("{ODD}empty = m::Odd(name=\"empty\", device=d)\n");
    let exported = exported_as(&model, &field("spare"));
    let causes: Vec<&Unserializable> = exported
        .problems
        .iter()
        .map(|problem| match problem {
            ExportProblem::Field { cause, .. } => cause,
            other => panic!("{other}"),
        })
        .collect();
    let instance = Unserializable::Instance("m::Device".into());
    assert_eq!(causes, [&instance, &Unserializable::Empty]);
}

#[test]
fn numbers_that_json_lacks_and_deep_values_are_refused_with_their_path() {
    let mut deep = String::from("{}");
    for _ in 0..150 {
        deep = format!("{{\"k\": {deep}}}");
    }
    let exported = exported(&format!(
        r#"
d = m::Device(name="d")
m::Base(name="inf", device=d, options={{"a": [1, {{"b c": float("inf")}}]}})
m::Base(name="deep", device=d, options={deep})
m::Base(name="fine", device=d)
"#
    ));
    assert_eq!(exported.ids(), ["m::Base[d,name=fine]"]);
    let texts = exported.problem_texts();
    assert_eq!(
        texts[0],
        "`options.a[1].b c` of m::Base[d,name=inf] cannot be exported: inf is no number that JSON can hold"
    );
    assert!(texts[1].starts_with("`options.k.k"), "{}", texts[1]);
    assert!(texts[1].ends_with("it is nested more than 100 levels deep"), "{}", texts[1]);
}

#[test]
fn a_field_that_the_entity_lacks_is_noted_once() {
    let declared = [ResourceType::new("m::Odd", "device.name", "name", &["nothing", "version"])
        .with_part("devices", &["name", "colour"])];
    let model = format!("{ODD}more = m::Odd(name=\"more\", device=d)\n");
    let exported = exported_as(&model, &declared);
    assert_eq!(exported.resources.len(), 2);
    assert_eq!(
        exported.warning_texts(),
        [
            "m::Odd has no attribute `devices.colour`, which its handler can use",
            "m::Odd has no attribute `nothing`, which its handler can use",
            "m::Odd has no attribute `version`, which its handler can use",
        ]
    );
    assert!(
        exported.find("m::Odd[d,name=ok]").attributes.as_str().starts_with(r#"{"devices":[],"#)
    );
}

#[test]
fn references_leave_their_fields_and_say_where_values_go() {
    let exported = exported(
        r#"
d = m::Device(name="d")
port = std::create_int_reference(std::create_environment_reference("PORT"))
m::Base(name="b", device=d, options={"it's": ["x", std::create_secret_reference("db")]}, items=[port])
m::Base(name="plain", device=d)
"#,
    );
    assert!(exported.problems.is_empty(), "{:?}", exported.problem_texts());
    let text = exported.find("m::Base[d,name=b]").attributes.as_str();
    // Keys stay sorted: both fields are in alphabetical position.
    assert!(text.starts_with(r#"{"items":[null],"mutators":[{"args":[{"id":"m::Base[d,name=b]","#));
    assert!(text.contains(r#","options":{"it's":["x",null]},"#), "{text}");
    let object: serde_json::Value = serde_json::from_str(text).expect("attributes are JSON");
    let references = object["references"].as_array().expect("a list");
    let kinds: std::collections::BTreeSet<&str> =
        references.iter().filter_map(|reference| reference["type"].as_str()).collect();
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        ["std::Environment", "std::IntReference", "std::Secret"]
    );
    let places: Vec<&str> = object["mutators"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|mutator| mutator["args"][2]["value"].as_str())
        .collect();
    assert_eq!(places, ["items[0]", r"options.'it\'s'[1]"]);
    let plain = exported.find("m::Base[d,name=plain]").attributes.as_str();
    assert!(!plain.contains("references"), "{plain}");
}
