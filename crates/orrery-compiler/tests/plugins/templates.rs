//! `std::template` renders and fails like the reference compiler.
//!
//! A larger table, created by `tools/oracle/templates.py --random`, is compared if the environment
//! variable `ORRERY_TEMPLATE_TABLE` names it; refused templates do not count there.

use orrery_compiler::plugins::{CellId, Failure, PluginContext, native_plugins};
use orrery_compiler::project::TemplateMode;
use orrery_compiler::value::Value;
use serde_json::{Value as Json, json};

use crate::memory::{Memory, Slot, bind};

const RECORDED: &str = include_str!("../recorded/templates.json");

/// The variables that the recorded models begin with.
fn with_variables() -> Memory {
    let mut memory = Memory::with_prelude();
    let variables = json!({
        "l": [3, 1, 2], "ls": ["b", "a"], "le": [], "n": null,
        "d": {"k": 1, "l": [1, null], "n": null, "m": {"z": 2}},
        "ld": [{"a": 2}, {"a": 1}], "ll": [[1, 2], [3]],
        "o": {"$instance": "linux"}, "ol": [{"$instance": "linux"}, {"$instance": "unix"}],
        "s": "abc def", "h": {"$instance": "host"}, "oh": {"$instance": "other_host"},
        "u": {"$unknown": true}, "lu": [{"$unknown": true}], "t": true, "f": 1.5,
        "big": {"$int": "100000000000000000000"},
    });
    for (name, value) in variables.as_object().expect("an object") {
        let value = memory.value(value);
        memory.variables.insert(name.clone(), Slot::Value(value));
    }
    memory
}

/// Replaces instance numbers, which differ between machines.
fn neutral(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("::") {
        let (before, after) = rest.split_at(at + 2);
        out.push_str(before);
        let name = after.find(|c: char| !c.is_alphanumeric()).unwrap_or(after.len());
        let (name, after) = after.split_at(name);
        out.push_str(name);
        rest = after;
        let digits = after.strip_prefix(' ').unwrap_or_default();
        let others = digits.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        if name.starts_with(|c: char| c.is_uppercase()) && others.len() < digits.len() {
            out.push_str(" 0");
            rest = others;
        }
    }
    out + rest
}

fn call(memory: &mut Memory, path: &str, named: Vec<(String, Value)>) -> Json {
    let plugin = native_plugins().iter().find(|plugin| plugin.name == "std::template");
    let plugin = plugin.expect("the plugin exists");
    let path = memory.heap.str(path);
    let args = bind(memory, plugin, vec![path], named).expect("the arguments fit");
    let mut outcome = match (plugin.run)(memory, &args).map_err(Failure::without_location) {
        Ok(Value::Str(id)) => json!({"output": neutral(memory.heap().text(id))}),
        Ok(other) => json!({"output": memory.json(other)}),
        Err(Failure::Unknown(_)) => json!({"unknown": true}),
        Err(Failure::Runtime(message)) => {
            json!({"error": {"kind": "runtime", "message": message}})
        }
        Err(Failure::Python(error)) => {
            json!({"error": {"kind": error.kind, "message": neutral(&error.message)}})
        }
        Err(failure) => json!({"error": format!("{failure:?}")}),
    };
    if !memory.printed.is_empty() && outcome.get("output").is_some() {
        outcome["printed"] = json!(neutral(&(memory.printed.join("\n") + "\n")));
    }
    outcome
}

/// Keyword arguments of the recorded calls.
fn named(memory: &mut Memory, call: &str) -> Vec<(String, Value)> {
    let unknown = json!([{"$unknown": true}]);
    let given = match call {
        _ if call.contains("z=4") => json!({"z": 4}),
        _ if call.contains("y=6") => {
            json!({"y": 6, "l": [1], "i": {"$instance": "linux"}, "n": null})
        }
        _ if call.contains("range=5") => json!({"range": 5}),
        _ if call.contains("y=1") => json!({"y": 1}),
        _ if call.contains("y=[") => json!({"y": unknown}),
        _ => json!({}),
    };
    let given = given.as_object().expect("an object").clone();
    given.iter().map(|(name, value)| (name.clone(), memory.value(value))).collect()
}

fn outcome(row: &Json) -> Json {
    let mut memory = with_variables();
    if let Some(snippet) = row["snippet"].as_str() {
        memory.files.insert("/project/templates/t.j2".to_owned(), snippet.to_owned());
        return call(&mut memory, "/t.j2", Vec::new());
    }
    for (path, text) in row["files"].as_object().expect("files") {
        let path = match path.strip_prefix("libs/") {
            Some(path) => format!("/modules/{path}"),
            None => format!("/project/{path}"),
        };
        memory.files.insert(path, text.as_str().expect("a text").to_owned());
    }
    let recorded = row["call"].as_str().expect("a call");
    let path = recorded.split('"').nth(1).expect("a path");
    let named = named(&mut memory, recorded);
    call(&mut memory, path, named)
}

/// The stack that a render may need.
const STACK_BYTES: usize = 10 << 20;

fn on_a_large_stack(work: fn()) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    thread.expect("a thread").join().expect("what was done there succeeds");
}

#[test]
fn recorded_templates_have_the_outcome_of_the_reference_compiler() {
    on_a_large_stack(compare_recorded_templates);
}

fn compare_recorded_templates() {
    let table = match std::env::var_os("ORRERY_TEMPLATE_TABLE") {
        Some(path) => std::fs::read_to_string(path).expect("the table that was asked for"),
        None => RECORDED.to_owned(),
    };
    let rows: Vec<Json> = serde_json::from_str(&table).expect("recorded templates are JSON");
    let is_random = table != RECORDED;
    let mut different = Vec::new();
    for mut row in rows {
        let ours = outcome(&row);
        if is_random && ours["error"].as_str().is_some_and(|error| error.starts_with("Plugin(")) {
            continue;
        }
        let entries = row.as_object_mut().expect("an object");
        let shown = [entries.remove("snippet"), entries.remove("call"), entries.remove("files")];
        let recorded = Json::Object(entries.clone());
        if ours != recorded {
            different.push(format!("{shown:?}\n    recorded {recorded}\n    ours     {ours}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

#[test]
fn a_value_that_is_not_there_yet_ends_the_render() {
    let mut memory = with_variables();
    memory.variables.insert("late".to_owned(), Slot::Unset(CellId(7)));
    let text = "{{ s }}{{ late }}".to_owned();
    memory.files.insert("/project/templates/t.j2".to_owned(), text);
    let outcome = call(&mut memory, "/t.j2", Vec::new());
    assert_eq!(outcome["error"], json!("Unset([CellId(7)])"));
}

#[test]
fn python_only_features_are_refused_by_name_and_line() {
    let refused = [
        ("\n{{ l | random }}", "the filter `random` at line 2"),
        ("{{ l.append(1) }}", "the attribute `append` of a JinjaSequenceProxy at line 1"),
        ("{% autoescape true %}{% endautoescape %}", "automatic escaping at line 1"),
        ("{{ s.encode() }}", "the attribute `encode` of a str at line 1"),
    ];
    for (text, what) in refused {
        let mut memory = with_variables();
        memory.files.insert("/project/templates/t.j2".to_owned(), text.to_owned());
        let outcome = call(&mut memory, "/t.j2", Vec::new());
        let message = format!("this template needs the Python host: it uses {what}");
        // Another host may support it.
        let failure = Failure::NeedsOtherHost(Box::new(Failure::Plugin(message)));
        assert_eq!(outcome["error"], json!(format!("{failure:?}")));
    }
}

#[test]
fn deep_templates_end_in_an_error_not_in_the_stack() {
    on_a_large_stack(render_deep_templates);
}

fn render_deep_templates() {
    let deep = |open: &str, middle: &str, close: &str, count: usize| {
        format!("{}{middle}{}", open.repeat(count), close.repeat(count))
    };
    let count = 20_000;
    let templates = [
        format!("{{{{ {} }}}}", deep("(", "1", ")", count)),
        format!("{{{{ {} }}}}", deep("[", "1", "]", count)),
        format!("{{{{ {}1 }}}}", "-".repeat(count)),
        format!("{{{{ {}1 }}}}", "not ".repeat(count)),
        format!("{{{{ 1{} }}}}", " + 1".repeat(count)),
        format!("{{{{ 1{} }}}}", " and 1".repeat(count)),
        format!("{{{{ s{} }}}}", ".a".repeat(count)),
        format!("{{{{ s{} }}}}", "|upper".repeat(count)),
        format!("{{{{ s{} }}}}", "[0]".repeat(count)),
        format!("{{{{ s{} }}}}", "()".repeat(count)),
        format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(count)),
        deep("{% if t %}", "x", "{% endif %}", count),
        deep("{% for x in l %}", "x", "{% endfor %}", 5_000),
        deep("{% block a %}", "x", "{% endblock %}", 5_000),
        format!(
            "{{% macro m() %}}{}{{% endmacro %}}{{{{ m() }}}}",
            deep("{% if t %}", "{{ m() }}", "{% endif %}", 50)
        ),
        "{% if t %}".repeat(count),
        "{{".repeat(count),
        "{%".repeat(count),
    ];
    for template in templates {
        let mut memory = with_variables();
        let shown: String = template.chars().take(40).collect();
        memory.files.insert("/project/templates/t.j2".to_owned(), template);
        let outcome = call(&mut memory, "/t.j2", Vec::new());
        assert!(outcome["error"].is_object(), "{shown}: {outcome}");
    }
    // Templates within the depth limit are rendered.
    let fine = [
        (format!("{{{{ {} }}}}", deep("(", "1", ")", 40)), "1"),
        (format!("{{{{ 0{} }}}}", " + 1".repeat(400)), "400"),
        (deep("{% if t %}", "x", "{% endif %}", 150), "x"),
        (deep("{% for x in ['a'] %}", "{{ x }}", "{% endfor %}", 150), "a"),
    ];
    for (template, expected) in fine {
        let mut memory = with_variables();
        memory.files.insert("/project/templates/t.j2".to_owned(), template);
        assert_eq!(call(&mut memory, "/t.j2", Vec::new()), json!({"output": expected}));
    }
}

/// Renders with undeclared attributes as errors: the text, or the location of the failure.
fn strictly(files: &[(&str, &str)]) -> Result<String, String> {
    let mut memory = with_variables();
    memory.templates = TemplateMode::Strict;
    for (path, text) in files {
        memory.files.insert(format!("/project/templates/{path}"), (*text).to_owned());
    }
    let plugin = native_plugins().iter().find(|plugin| plugin.name == "std::template");
    let plugin = plugin.expect("the plugin exists");
    let path = memory.heap.str(&format!("/{}", files[0].0));
    let args = bind(&mut memory, plugin, vec![path], Vec::new()).expect("the arguments fit");
    match (plugin.run)(&mut memory, &args) {
        Ok(Value::Str(id)) => Ok(memory.heap().text(id).to_owned()),
        Err(Failure::InFile(of)) => {
            let location =
                of.location.map(|location| format!("{}:{} ", location.path, location.line));
            let location = location.unwrap_or_default().replace("/project/templates/", "");
            let help = of.explanation.help.unwrap_or_default();
            Err(format!("[{}] {location}{} ({help})", of.id, of.explanation.headline))
        }
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn an_attribute_that_an_entity_does_not_declare_is_an_error_at_its_line() {
    let wrong =
        "[undefined-in-template] t.j2:2 `std::Host` has no attribute `nmae` (did you mean `name`?)";
    for use_of_it in ["{{ h.nmae }}", "{{ h.nmae | upper }}", "{% if h.nmae %}x{% endif %}"] {
        let text = format!("one\n{use_of_it}");
        assert_eq!(strictly(&[("t.j2", &text)]), Err(wrong.to_owned()), "{text}");
    }
    // A test is not a use, and optional relations may be empty.
    let asked = "{{ h.nmae is defined }} {{ h.nmae | default('none') }}";
    assert_eq!(strictly(&[("t.j2", asked)]), Ok("False none".to_owned()));
}

#[test]
fn errors_of_templates_name_the_file_and_line_where_they_are() {
    let cases: [(&[(&str, &str)], &str); 6] = [
        (
            &[("t.j2", "a\n{% for x in l %}\n{{ x }}\n")],
            "[template-error] t.j2:2 `{% for %}` is not closed: the template ends without `{% endfor %}` ()",
        ),
        (
            &[("t.j2", "a\n\n{{ s | uper }}")],
            "[template-error] t.j2:3 a template has no filter `uper` (did you mean `upper`?)",
        ),
        (
            &[("t.j2", "{% include '/part.j2' %}"), ("part.j2", "\n\n{{ nothing.here }}")],
            "[undefined-in-template] part.j2:3 `nothing` is not defined in this template ()",
        ),
        (
            &[("t.j2", "a\n{% include '/prat.j2' %}"), ("part.j2", "")],
            "[template-not-found] t.j2:2 template `/prat.j2` not found (did you mean `/part.j2`?)",
        ),
        (
            &[
                ("t.j2", "{% extends '/base.j2' %}\n{% block b %}\n{{ s + 1 }}{% endblock %}"),
                ("base.j2", "{% block b %}{% endblock %}"),
            ],
            "[template-error] t.j2:3 cannot render the template: can only concatenate str (not \"int\") to str (TypeError) ()",
        ),
        (
            &[
                ("t.j2", "{% from '/m.j2' import m %}\n\n{{ m(1) }}"),
                ("m.j2", "\n{% macro m(x) %}\n{{ x.y.z }}{% endmacro %}"),
            ],
            "[template-error] m.j2:3 cannot render the template: 'int object' has no attribute 'y' ()",
        ),
    ];
    for (files, expected) in cases {
        assert_eq!(strictly(files), Err(expected.to_owned()), "{files:?}");
    }
}
