//! Selection of instances that become resources, their ids and sets.

use orrery_model::ResourceType;

use crate::models::{Find, declarations, exported, exported_as};

#[test]
fn derived_entities_take_the_nearest_declaration() {
    let exported = exported(
        r#"
d = m::Device(name="d")
m::Derived(name="derived", device=d)
own = m::Declared(name="own", device=d)
m::Base(name="base", device=d, requires=own)
"#,
    );
    let ids = ["m::Base[d,name=base]", "m::Base[d,name=derived]", "m::Declared[d,name=own]"];
    assert_eq!(exported.ids(), ids);
    assert_eq!(exported.resources[0].requires, [exported.resources[2].id.clone()]);
}

#[test]
fn an_instance_of_two_declared_entities_is_two_resources() {
    let model = r#"
import m
entity Both extends m::Odd, m::Base:
    string name
end
implement Both using std::none
d = m::Device(name="d")
a = Both(name="a", device=d)
b = Both(name="b", device=d, requires=a)
"#;
    let mut declared = declarations();
    declared.push(ResourceType::new("m::Odd", "device.name", "name", &[]));
    let exported = exported_as(model, &declared);
    let ids = ["m::Base[d,name=a]", "m::Base[d,name=b]", "m::Odd[d,name=a]", "m::Odd[d,name=b]"];
    assert_eq!(exported.ids(), ids);
    for of_b in [1, 3] {
        let requires: Vec<&str> =
            exported.resources[of_b].requires.iter().map(|id| id.as_str()).collect();
        assert_eq!(requires, [ids[0], ids[2]]);
    }
}

#[test]
fn entities_without_a_handler_are_noted_once_with_their_count() {
    let exported = exported(
        r#"m::Unhandled(name="a")
m::Unhandled(name="b")
m::Device(name="no resource at all")
"#,
    );
    assert!(exported.resources.is_empty() && exported.problems.is_empty());
    assert_eq!(
        exported.warning_texts(),
        ["no handler for entity m::Unhandled: its 2 instances are not deployed"]
    );
    assert!(exported.warnings[0].source().is_some());
}

#[test]
fn a_model_declares_the_types_of_remote_agents() {
    let model = r#"
import agents
entity Note extends std::PurgeableResource:
    string agent
    string title
    string text = "empty"
    int? size = null
end
implement Note using std::none
agents::ResourceType(name="__config__::Note", agent="agent", id_attribute="title")
agents::ResourceType(name="__config__::Nothing", agent="agent", id_attribute="title")
first = Note(agent="web1", title="a", send_event=true)
Note(agent="web1", title="b", text="two", requires=first)
"#;
    let exported = exported_as(model, &[]);
    assert_eq!(
        exported.ids(),
        ["__config__::Note[web1,title=a]", "__config__::Note[web1,title=b]"]
    );
    let attributes: serde_json::Value =
        serde_json::from_str(exported.resources[0].attributes.as_str()).unwrap();
    let expected = serde_json::json!({
        "agent": "web1", "title": "a", "text": "empty", "size": null, "purged": false,
        "purge_on_delete": false, "send_event": true, "receive_events": true, "report_only": false,
    });
    assert_eq!(attributes, expected);
    assert_eq!(exported.resources[1].requires, [exported.resources[0].id.clone()]);
    assert_eq!(
        exported.warning_texts(),
        ["agents::ResourceType names __config__::Nothing, which is not an entity of the model"]
    );
    assert!(exported.warnings[0].source().is_some());
    // A native declaration is stronger.
    let native = [ResourceType::new("__config__::Note", "agent", "text", &[])];
    let ids = exported_as(model, &native);
    assert_eq!(ids.ids(), ["__config__::Note[web1,text=empty]", "__config__::Note[web1,text=two]"]);
}

fn id_type(kind: &str) -> (String, [ResourceType; 1]) {
    let model = format!(
        "entity T extends std::Resource:\n    {kind} id\nend\nimplement T using std::none\n\
         u = std::get_env(\"ORRERY_TEST_THAT_NOBODY_SETS\")\n"
    );
    (model, [ResourceType::new("__config__::T", "agent", "id", &[])])
}

#[test]
fn ids_are_texts_as_python_writes_them() {
    for (kind, value, text) in [
        ("string", r#""x]y=z,""#, "x]y=z,"),
        ("int", "5", "5"),
        ("int", "123456789012345678901234567890", "123456789012345678901234567890"),
        ("float", "1.0", "1.0"),
        ("float", "10000000000000000000.0", "1e+19"),
        ("bool", "true", "True"),
        ("string?", "null", "None"),
    ] {
        let (model, mut declared) = id_type(kind);
        let model = model.replace("    id", "").replace("end\n", "    string agent = \"a\"\nend\n");
        declared[0].agent = "agent".into();
        let exported = exported_as(&format!("{model}T(id={value})\n"), &declared);
        assert_eq!(exported.ids(), [format!("__config__::T[a,id={text}]")], "{kind}");
        // An identifying attribute with this name is part of the id only.
        assert!(!exported.resources[0].attributes.as_str().contains("\"id\""));
    }
}

#[test]
fn an_invalid_id_is_a_problem() {
    for (kind, value, problem) in [
        ("list", r#"["a"]"#, "`id` is of the type list, not a text or a number"),
        ("dict", "{}", "`id` is of the type dict, not a text or a number"),
        ("string", r#""""#, "the identifying attribute `id` is empty"),
    ] {
        let (model, declared) = id_type(kind);
        let model = model.replace("end\n", "    string agent = \"a\"\nend\n");
        let exported = exported_as(&format!("{model}T(id={value})\n"), &declared);
        assert!(exported.resources.is_empty());
        let expected = format!("the __config__::T at main.cf:7:1 cannot be identified: {problem}");
        assert_eq!(exported.problem_texts(), [expected]);
        assert_eq!(exported.problems[0].diagnostic_id(), "invalid-resource-id");
    }
    let declared = [ResourceType::new("m::Odd", "device.name", "colour", &[])];
    let model = "import m\nm::Odd(name=\"a\", device=m::Device(name=\"d\"))\n";
    assert_eq!(
        exported_as(model, &declared).problem_texts(),
        ["the m::Odd at main.cf:2:1 cannot be identified: m::Odd has no attribute `colour`"]
    );
}

#[test]
fn an_agent_is_found_along_its_path() {
    let model = r#"import m
d = m::Device(name="d", number=3)
e = m::Device(name="e")
m::Odd(name="one", device=d, devices=[d], spare=d)
m::Odd(name="two", device=d, devices=[d, e])
"#;
    let with = |agent| exported_as(model, &[ResourceType::new("m::Odd", agent, "name", &[])]);
    let device = with("device.name");
    assert_eq!(device.ids(), ["m::Odd[d,name=one]", "m::Odd[d,name=two]"]);
    let own = with("name");
    assert_eq!(own.ids(), ["m::Odd[one,name=one]", "m::Odd[two,name=two]"]);
    for (path, good, problem) in [
        ("devices.name", 1, "`devices` leads to 2 instances, not to one"),
        ("spare.name", 1, "`spare` of the m::Odd has no value"),
        ("device.nothing", 0, "m::Device has no attribute `nothing`"),
        ("nothing", 0, "m::Odd has no attribute `nothing`"),
        ("name.name", 0, "`name` is no instance, and has no attributes"),
        ("device.number", 0, "it leads to a value of the type int, not to a text"),
        ("device", 0, "it leads to a value of the type Instance, not to a text"),
    ] {
        let exported = with(path);
        assert_eq!((exported.resources.len(), exported.problems.len()), (good, 2 - good), "{path}");
        let last = exported.problem_texts().pop().unwrap_or_default();
        let expected = format!(
            "the agent of the m::Odd at main.cf:5:1 cannot be found along `{path}`: {problem}"
        );
        assert_eq!(last, expected);
        assert_eq!(exported.problems[0].diagnostic_id(), "agent-not-found");
    }
}

#[test]
fn an_agent_needs_a_name_without_commas() {
    for name in ["a,b", ""] {
        let exported = exported(&format!("m::Base(name=\"x\", device=m::Device(name=\"{name}\"))"));
        assert!(exported.resources.is_empty());
        let texts = exported.problem_texts();
        assert!(texts[0].contains("cannot be the name of an agent"), "{texts:?}");
    }
}

#[test]
fn a_resource_with_an_unknown_identity_is_reported_and_does_not_block_others() {
    let exported = exported(
        r#"u = std::get_env("ORRERY_TEST_THAT_NOBODY_SETS")
d = m::Device(name="d")
a = m::Base(name=u, device=d)
b = m::Base(name="b", device=m::Device(name=u))
c = m::Base(name="c", device=d, requires=[a, b])
"#,
    );
    assert!(exported.problems.is_empty());
    assert_eq!(exported.ids(), ["m::Base[d,name=c]"]);
    let mut texts = exported.warning_texts();
    texts.sort();
    assert_eq!(texts.len(), 3);
    assert_eq!(texts[0], "a m::Base is not deployed: its id or agent is not known yet");
    assert!(texts[2].starts_with("m::Base[d,name=c] does not wait for something"), "{texts:?}");
}

#[test]
fn sets_name_their_members() {
    let exported = exported(
        r#"a = std::testing::NullResource(name="a")
b = std::testing::NullResource(name="b", managed=false)
c = std::testing::NullResource(name="c")
u = std::testing::NullResource(name="u")
std::ResourceSet(name="s1", resources=[a, b])
std::ResourceSet(name="s2")
std::ResourceSet(name=std::get_env("ORRERY_TEST_THAT_NOBODY_SETS"), resources=[u])
"#,
    );
    let sets: Vec<Option<&str>> =
        exported.resources.iter().map(|resource| resource.set.as_deref()).collect();
    assert_eq!(sets, [Some("s1"), None, None]);
    let mut texts = exported.warning_texts();
    texts.sort();
    assert_eq!(
        texts,
        [
            "a std::testing::NullResource is part of the resource set s1 and not exported",
            "the name of a resource set is not known: its resources are in no set",
        ]
    );
}
