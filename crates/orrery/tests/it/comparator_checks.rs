//! Tests of the comparator: what it treats as equal, and what it must detect.

use libtest_mimic::{Failed, Trial};
use serde_json::{Map, Value, json};

use crate::compare::{differences, normalise};
use crate::corpus::parse_cases;

type Check = fn() -> Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 10] = [
        ("ids and the order of instances mean nothing", ids_mean_nothing),
        ("a different attribute is seen", attribute_is_seen),
        ("a different graph with equal attributes is seen", graph_is_seen),
        ("the order of relations counts and is named", order_is_named),
        ("instances that no variable leads to are compared", unreached_are_compared),
        ("integers and floats are told apart", numbers_are_told_apart),
        ("errors of one place may come in any order", tied_errors),
        ("place and class of errors count", places_count),
        ("addresses and places in std are made equal", addresses),
        ("cases with bundles and flags are read", cases_are_read),
    ];
    checks
        .into_iter()
        .map(|(name, check)| Trial::test(format!("comparator: {name}"), check))
        .collect()
}

fn require(holds: bool, otherwise: impl Into<String>) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(otherwise.into().into()) }
}

fn ok_report(model: Value) -> Value {
    json!({"status": "ok", "stdout": "", "warnings": [], "model": model})
}

fn error_report(message: &str, line: u32, class: &str) -> Value {
    json!({"status": "error", "stdout": "", "warnings": [], "error": {
        "message": message, "text": message, "file": "./main.cf", "line": line, "column": null,
        "class": class,
    }})
}

fn instance(id: &str, number: i64, next: &[&str]) -> Value {
    json!({"id": id, "type": "m::A", "attributes": {"n": number}, "relations": {"next": next}})
}

fn ids_mean_nothing() -> Result<(), Failed> {
    let one = ok_report(json!({"variables": {"a": {"$instance": "i0"}}, "instances": [
        instance("i0", 1, &["i1", "i2"]), instance("i1", 2, &[]), instance("i2", 2, &["i0"]),
    ]}));
    let other = ok_report(json!({"variables": {"a": {"$instance": "z"}}, "instances": [
        instance("y", 2, &["z"]), instance("x", 2, &[]), instance("z", 1, &["x", "y"]),
    ]}));
    let found = differences(&one, &other);
    require(found.is_empty(), found)
}

fn attribute_is_seen() -> Result<(), Failed> {
    let model =
        |number| ok_report(json!({"variables": {}, "instances": [instance("i", number, &[])]}));
    let found = differences(&model(1), &model(2));
    require(found.contains("-    n = 1") && found.contains("+    n = 2"), found)
}

fn graph_is_seen() -> Result<(), Failed> {
    // Two rings of two against one ring of four: every instance looks the same from close by.
    let ring = |order: [&str; 4]| {
        let ids = ["i0", "i1", "i2", "i3"];
        let rings: Vec<Value> =
            ids.iter().zip(order).map(|(id, next)| instance(id, 1, &[next])).collect();
        ok_report(json!({"variables": {"a": {"$instance": "i0"}}, "instances": rings}))
    };
    let found = differences(&ring(["i1", "i0", "i3", "i2"]), &ring(["i1", "i2", "i3", "i0"]));
    require(found.starts_with("model:"), found)
}

fn order_is_named() -> Result<(), Failed> {
    let model = |next: &[&str]| {
        ok_report(json!({"variables": {}, "instances": [
            instance("i0", 1, next), instance("i1", 2, &[]), instance("i2", 3, &[]),
        ]}))
    };
    let found = differences(&model(&["i1", "i2"]), &model(&["i2", "i1"]));
    require(found.starts_with("model (order of relations only)"), found)
}

fn unreached_are_compared() -> Result<(), Failed> {
    let model = |numbers: &[i64]| {
        let listed: Vec<Value> =
            numbers.iter().map(|number| instance(&format!("i{number}"), *number, &[])).collect();
        ok_report(json!({"variables": {"x": 1}, "instances": listed}))
    };
    let found = differences(&model(&[1, 2, 3]), &model(&[3, 1, 2]));
    require(found.is_empty(), found)?;
    require(!differences(&model(&[1, 2]), &model(&[1])).is_empty(), "a missing instance")
}

fn numbers_are_told_apart() -> Result<(), Failed> {
    let model = |value: Value| ok_report(json!({"variables": {"x": value}, "instances": []}));
    require(!differences(&model(json!(1)), &model(json!(1.0))).is_empty(), "1 and 1.0")?;
    require(!differences(&model(json!(0.0)), &model(json!(-0.0))).is_empty(), "0.0 and -0.0")?;
    require(!differences(&model(json!(1)), &model(json!(true))).is_empty(), "1 and true")
}

fn tied_errors() -> Result<(), Failed> {
    let several = |blocks: [&str; 3]| {
        let mut message = "Reported 3 errors".to_owned();
        for (number, block) in blocks.iter().enumerate() {
            message += &format!("\nerror {number}:\n  {block}");
        }
        error_report(&message, 1, "MultiException")
    };
    let first = several(["a is not set", "b is not set", "c (m.cf:1)"]);
    let found = differences(&first, &several(["b is not set", "a is not set", "c (m.cf:1)"]));
    require(found.is_empty(), found)?;
    let swapped = several(["c (m.cf:1)", "a is not set", "b is not set"]);
    require(!differences(&first, &swapped).is_empty(), "errors of different places swapped")
}

fn places_count() -> Result<(), Failed> {
    let report = error_report("bad", 3, "TypingException");
    let found = differences(&report, &error_report("bad", 4, "RuntimeException"));
    require(found.contains("error.line: expected 3, got 4"), found.clone())?;
    require(found.contains("error.class: expected TypingException, got RuntimeException"), found)
}

fn addresses() -> Result<(), Failed> {
    for (one, other) in [
        ("@m::A 7f11fca7e3b0\n", "@m::A ADDR\n"),
        ("<X object at 0x7f8d05fa17f0>", "<X object at 0xADDR>"),
        (
            "std::OS (instantiated at <site>/inmanta_plugins/std/model/_init.cf:267)",
            "std::OS (instantiated at std/model/_init.cf:12:3)",
        ),
    ] {
        require(normalise(one) == normalise(other), format!("{one} and {other}"))?;
    }
    require(normalise("1234567890123") == "1234567890123", "a number is no address")
}

fn cases_are_read() -> Result<(), Failed> {
    let text = "=== +lib\n--- libs/m/module.yml\nname: m\n=== one +lib noeol\nx = 1\n\n=== two\ny\n--- a/b\nz\n";
    let outcomes: Map<String, Value> = [("one", json!(1)), ("two", json!(2))]
        .map(|(name, outcome)| (name.to_owned(), outcome))
        .into_iter()
        .collect();
    let cases = parse_cases("area", text, &outcomes).map_err(|error| format!("{error:#}"))?;
    require(cases.len() == 2 && cases[0].id() == "area/one", "two cases")?;
    require(cases[0].files["libs/m/module.yml"] == "name: m\n", "the bundle's file")?;
    require(cases[0].files["main.cf"] == "x = 1\n\n", "empty lines are kept")?;
    require(cases[0].has_flag("noeol") && cases[1].files["a/b"] == "z\n", "flags and files")?;
    require(parse_cases("area", "=== three\n", &outcomes).is_err(), "an outcome is missing")
}
