//! Broken resources and their dependents: each has a problem, the rest is exported.

use orrery_compiler::diagnostic::Diagnostic;
use orrery_compiler::export::ExportProblem;

use crate::models::{Find, exported, requires};

#[test]
fn requirements_are_those_that_became_resources() {
    let exported = exported(
        r#"d = m::Device(name="d")
a = m::Base(name="a", device=d)
b = m::Base(name="b", device=d, requires=[a, d])
c = m::Base(name="c", device=d, provides=a)
d.requires = c
e = m::Base(name="e", device=d, requires=d)
"#,
    );
    assert!(exported.problems.is_empty());
    assert_eq!(requires(exported.find("m::Base[d,name=a]")), ["m::Base[d,name=c]"]);
    assert_eq!(requires(exported.find("m::Base[d,name=b]")), ["m::Base[d,name=a]"]);
    // Requirements do not pass through instances that are not resources, and a warning reports
    // that.
    assert!(exported.find("m::Base[d,name=e]").requires.is_empty());
    assert_eq!(
        exported.warning_texts(),
        ["nothing of what m::Base[d,name=e] requires is a resource: it waits for nothing"]
    );
}

#[test]
fn requirements_are_sorted_and_there_once() {
    let exported = exported(
        r#"d = m::Device(name="d")
all = [m::Base(name="n{{i}}", device=d) for i in std::sequence(12)]
z = m::Base(name="z", device=d, requires=all)
z.requires += all
"#,
    );
    let found = requires(exported.find("m::Base[d,name=z]"));
    let mut sorted = found.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!((found.len(), found), (12, sorted));
}

#[test]
fn instances_with_one_id_are_left_out_with_their_dependents() {
    let exported = exported(
        r#"d = m::Device(name="d")
one = m::Base(name="x", device=d)
two = m::Base(name="x", device=d, items=[1])
near = m::Base(name="near", device=d, requires=two)
far = m::Base(name="far", device=d, requires=near)
free = m::Base(name="free", device=d, provides=two)
"#,
    );
    assert_eq!(exported.ids(), ["m::Base[d,name=free]"]);
    assert_eq!(
        exported.problem_texts(),
        [
            "2 instances are the resource m::Base[d,name=x]: main.cf:2:7 and main.cf:3:7",
            "m::Base[d,name=far] is left out because it requires m::Base[d,name=near], which is left \
             out because of m::Base[d,name=x]",
            "m::Base[d,name=near] is left out because it requires m::Base[d,name=x], which is left out",
        ]
    );
    let ids: Vec<&str> = exported.problems.iter().map(ExportProblem::diagnostic_id).collect();
    assert_eq!(ids, ["duplicate-resource", "requirement-left-out", "requirement-left-out"]);
    assert_eq!(exported.problems[0].resources().len(), 2);
    let shown = Diagnostic::from(&exported.problems[0]);
    assert_eq!((shown.id, shown.related.len()), (Some("duplicate-resource"), 1));
}

#[test]
fn a_cycle_is_reported_edge_by_edge_with_source_lines() {
    let exported = exported(
        r#"d = m::Device(name="d")
a = m::Base(name="a", device=d)
b = m::Base(name="b", device=d, requires=a)
c = m::Base(name="c", device=d, requires=b, provides=e)
a.requires += c
e = m::Base(name="e", device=d, provides=a)
after = m::Base(name="after", device=d, requires=e)
self_made = m::Base(name="own", device=d)
self_made.requires = self_made
free = m::Base(name="free", device=d)
"#,
    );
    assert_eq!(exported.ids(), ["m::Base[d,name=free]"]);
    let texts = exported.problem_texts();
    assert_eq!(
        texts,
        [
            "resources require each other: m::Base[d,name=a] requires m::Base[d,name=c] (main.cf:5:15), \
             m::Base[d,name=c] requires m::Base[d,name=b] (main.cf:4:42), \
             m::Base[d,name=b] requires m::Base[d,name=a] (main.cf:3:42); \
             m::Base[d,name=e] is part of such a circle too",
            "resources require each other: m::Base[d,name=own] requires m::Base[d,name=own] (main.cf:9:22)",
            "m::Base[d,name=after] is left out because it requires m::Base[d,name=e], which is left out",
        ]
    );
    assert_eq!(exported.problems[0].resources().len(), 4);
    let shown = Diagnostic::from(&exported.problems[0]);
    assert_eq!(shown.related.len(), 2);
    assert_eq!(shown.related[0].label, "m::Base[d,name=c] requires m::Base[d,name=b]");
}

#[test]
fn a_requirement_that_another_constructor_provides_is_named_there() {
    let exported = exported(
        r#"d = m::Device(name="d")
a = m::Base(name="a", device=d, provides=b)
b = m::Base(name="b", device=d, provides=a)
"#,
    );
    assert_eq!(
        exported.problem_texts(),
        [
            "resources require each other: m::Base[d,name=a] requires m::Base[d,name=b] (main.cf:3:42), \
          m::Base[d,name=b] requires m::Base[d,name=a] (main.cf:2:42)"
        ]
    );
}

#[test]
fn a_resource_in_two_sets_is_left_out() {
    let exported = exported(
        r#"a = std::testing::NullResource(name="a")
b = std::testing::NullResource(name="b")
std::ResourceSet(name="s2", resources=[a, b])
std::ResourceSet(name="s1", resources=a)
"#,
    );
    assert_eq!(exported.ids(), ["std::testing::NullResource[internal,name=b]"]);
    assert_eq!(
        exported.problem_texts(),
        ["std::testing::NullResource[internal,name=a] is part of several resource sets: s1, s2"]
    );
}

#[test]
fn a_resource_without_an_id_is_named_by_its_location() {
    let exported = exported(
        r#"d = m::Device(name="a,b")
a = m::Base(name="a", device=d)
b = m::Base(name="b", device=m::Device(name="d"), requires=a)
"#,
    );
    assert!(exported.resources.is_empty());
    assert_eq!(
        exported.problem_texts()[1],
        "m::Base[d,name=b] is left out because it requires the m::Base at main.cf:2:5, which is left out"
    );
    let shown = Diagnostic::from(&exported.problems[1]);
    assert_eq!(shown.related.len(), 1);
}
