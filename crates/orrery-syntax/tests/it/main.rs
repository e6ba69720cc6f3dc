//! Tests of the crate as its users see it.

mod errors;
mod formatting;
mod limits;
mod locations;
mod lowering;
mod modules;
mod properties;
mod recovery;
mod tokens;

use orrery_syntax::ast::{File, FileId, Loc};
use orrery_syntax::{Interner, LineIndex, ParsedFile, SyntaxError, parse_file};

/// Parses a text for the compiler.
fn parsed(text: &str) -> (ParsedFile, Interner) {
    let mut interner = Interner::default();
    let parsed = parse_file(text, FileId(0), &mut interner);
    (parsed, interner)
}

/// Parses a text that must be without errors.
fn valid(text: &str) -> (File, Interner) {
    let (parsed, interner) = parsed(text);
    assert_eq!(parsed.errors, vec![], "in {text}");
    (parsed.file, interner)
}

/// Formats a location as messages do: `line` or `line:column`.
fn location(text: &str, loc: Loc) -> String {
    let (line, column) = LineIndex::new(text).line_col(loc.start);
    if loc.column { format!("{line}:{column}") } else { line.to_string() }
}

/// Returns the first error, with its class and location.
fn first_error(text: &str) -> String {
    let (parsed, _) = parsed(text);
    parsed.errors.first().map_or_else(|| "none".to_owned(), |error| render_error(text, error))
}

fn render_error(text: &str, error: &SyntaxError) -> String {
    let mut rendered = format!("{}: {}", error.class, error.message);
    if let Some(statement) = &error.reported_in {
        rendered += &format!(" in {statement}");
    }
    rendered += &format!(" @ {}", location(text, error.loc));
    if let Some(first) = error.duplicate_of {
        rendered += &format!(" first {}", location(text, first));
    }
    rendered
}

/// Returns the typed tree as text, without locations and with names for symbols: formatting must
/// not change it.
fn shape(file: &File, interner: &Interner) -> String {
    let debug = format!("{file:?}");
    let mut shape = String::with_capacity(debug.len());
    let mut rest = &debug[..];
    while let Some(position) = rest.find(['L', 'S']) {
        shape.push_str(&rest[..position]);
        rest = &rest[position..];
        if let Some(after) = rest.strip_prefix("Loc { ") {
            rest = after.split_once('}').map_or("", |(_, rest)| rest);
            shape.push('@');
        } else if let Some((number, after)) =
            rest.strip_prefix("Symbol(").and_then(|after| after.split_once(')'))
            && let Ok(number) = number.parse()
        {
            shape.push_str(interner.text(orrery_syntax::Symbol(number)));
            rest = after;
        } else {
            shape.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    shape.push_str(rest);
    shape
}

/// Formats a text and checks that this changes nothing but layout, and nothing the second time.
fn formatted(text: &str) -> String {
    let formatted = orrery_syntax::format(text)
        .unwrap_or_else(|errors| panic!("can not be parsed: {errors:?}\n{text}"));
    let (before, names_before) = parsed(text);
    let (after, names_after) = parsed(&formatted);
    let errors = |parsed: &ParsedFile| -> Vec<String> {
        parsed.errors.iter().map(|error| error.message.clone()).collect()
    };
    assert_eq!(errors(&before), errors(&after), "errors of\n{text}\nformatted\n{formatted}");
    assert_eq!(
        shape(&before.file, &names_before),
        shape(&after.file, &names_after),
        "meaning of\n{text}\nformatted\n{formatted}"
    );
    let again = orrery_syntax::format(&formatted).expect("what was formatted can be parsed");
    assert_eq!(again, formatted, "formatting\n{text}");
    formatted
}
