//! The engine answers like Jinja2: each line of `recorded.jsonl` is a template with its answer.
//!
//! Templates over values of a model are tested in `orrery-compiler`.

mod no_model;

use std::rc::Rc;

use orrery_jinja::{TemplateError, TemplateSource, check, parse, render};
use serde_json::Value as Json;

use no_model::NoModel;

const RECORDED: &str = include_str!("recorded.jsonl");

/// Templates that need Jinja2 itself: this engine refuses them by name.
const REFUSED: [&str; 13] = [
    "{{ 'ǆ'.title() }}",
    "{{ s.expandtabs() }}",
    "{{ l | pprint }}",
    "{{ [1] | random }}",
    "{{ 25 | round(-1) }}",
    "{{ h | striptags }}",
    "{{ d | tojson(indent=2) }}",
    "{{ 'http://x.y' | urlize }}",
    "{{ 'well-known words' | wordwrap(6) }}",
    "{{ lipsum }}",
    "{% autoescape true %}{{ h }}{% endautoescape %}",
    "{{ ('<b>' | safe) + '<' }}",
    "{{ ('<b>' | safe) | upper }}",
];

/// The stack that a render may need.
const STACK_BYTES: usize = 10 << 20;

/// The answer of this engine: the text, or the class and message of the error.
fn answer(model: &mut NoModel, text: &str) -> Result<String, TemplateError> {
    let source = Rc::new(TemplateSource { path: "/t.j2".to_owned(), text: text.to_owned() });
    let template = parse(&source)?;
    check(&template, model)?;
    render(model, &template, "/t.j2").map_err(|failed| failed.error)
}

fn text<'j>(row: &'j Json, key: &str) -> &'j str {
    row[key].as_str().unwrap_or_else(|| panic!("{key} is a text of {row}"))
}

/// Compares one recorded row: the difference, or `None`.
fn compare(prelude: &str, row: &Json) -> Option<String> {
    let template = text(row, "template");
    let others = row["others"].as_object().into_iter().flatten();
    let others =
        others.map(|(path, text)| (path.clone(), text.as_str().expect("a text").to_owned()));
    let mut model = NoModel::new(others.collect());
    let ours = match answer(&mut model, &format!("{prelude}{template}")) {
        Ok(output) => format!("output {output:?}"),
        Err(TemplateError::Python(error)) => format!("{}: {}", error.kind, error.message),
        Err(TemplateError::Undefined(message)) => {
            format!("jinja2.exceptions.UndefinedError: {message}")
        }
        Err(TemplateError::Syntax(error, _)) => format!("{}: {}", error.kind, error.message),
        Err(refused @ TemplateError::Unsupported { .. }) if REFUSED.contains(&template) => {
            assert!(refused.to_string().contains("needs the Python host"));
            return None;
        }
        Err(other) => format!("{other:?}"),
    };
    let theirs = match row.get("output") {
        Some(output) => format!("output {:?}", output.as_str().expect("a text")),
        None => format!("{}: {}", text(row, "error"), text(row, "message")),
    };
    (ours != theirs).then(|| format!("{template}\n    jinja2 {theirs}\n    ours   {ours}"))
}

fn compare_all() {
    let mut lines = RECORDED.lines().map(serde_json::from_str::<Json>);
    let head = lines.next().expect("a head").expect("the head is JSON");
    assert!(text(&head, "jinja2").starts_with("3.1."), "{head}");
    let prelude = text(&head, "prelude");
    let rows: Vec<Json> = lines.map(|row| row.expect("a row is JSON")).collect();
    let different: Vec<String> = rows.iter().filter_map(|row| compare(prelude, row)).collect();
    assert!(rows.len() > 600, "{} rows", rows.len());
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

#[test]
fn recorded_templates_have_the_answer_of_jinja2() {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(compare_all);
    thread.expect("a thread").join().expect("all answers are equal");
}
