//! Properties of reading documents: every text gives a result, and every problem has a location
//! inside it.

use orrery_cluster::document::{Catalog, DocumentKind, line_column};
use proptest::prelude::*;

use crate::webstack;

const YAML: &str = "\
name: é
defaults: &d
  services: [base, {name: app, config: {a: '%host.self%'}}]
  provider: \"local\"
constraints:
  layout:
    cantcoexist:
      - [base, app]
  services:
    app: {quantities: {min: 1, max: 2}}
links:
  - {label: ü, url: http://x}
again: *d
";

/// Damaged documents: pieces are cut out, doubled or replaced.
fn damaged() -> impl Strategy<Value = (bool, String)> {
    let edit = (any::<prop::sample::Index>(), 0..12_usize, ".{0,4}");
    (any::<bool>(), prop::collection::vec(edit, 0..4)).prop_map(|(is_yaml, edits)| {
        let mut text = if is_yaml { YAML } else { webstack::TEMPLATE }.to_owned();
        for (at, length, new) in edits {
            let start = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.floor_char_boundary((start + length).min(text.len()));
            text.replace_range(start..end.max(start), &new);
        }
        (is_yaml, text)
    })
}

fn check(is_yaml: bool, text: &str) -> Result<(), TestCaseError> {
    for kind in DocumentKind::ALL {
        let mut catalog = webstack::catalog();
        let name = if is_yaml { "x.yaml" } else { "x.json" };
        catalog.add(kind, name, text.to_owned());
        for problem in catalog.check() {
            let places = problem.related.iter().map(|(place, _)| place).chain([&problem.location]);
            for place in places {
                let file = catalog.file(place.file);
                prop_assert!(place.span.start <= place.span.end, "{:?}", problem);
                prop_assert!(file.text.get(place.span.clone()).is_some(), "{:?}", problem);
                let (line, column) = line_column(&file.text, place.span.start);
                prop_assert!(line >= 1 && column >= 1);
            }
        }
        for name in catalog.templates.keys() {
            let resolved = catalog.resolve(name);
            prop_assert!(!matches!(resolved, Ok(None)), "{} is lost", name);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn damaged_documents_have_problems_with_locations((is_yaml, text) in damaged()) {
        check(is_yaml, &text)?;
    }

    #[test]
    fn any_text_has_an_answer(is_yaml in any::<bool>(), text in any::<String>()) {
        check(is_yaml, &text)?;
    }
}

#[test]
fn aliases_are_bounded() {
    let mut text = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
    for (number, name) in ('b'..='z').enumerate() {
        let before = char::from(b'a' + number as u8);
        text += &format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 9].join(", "));
    }
    let mut catalog = Catalog::default();
    catalog.add(DocumentKind::Tenant, "x.yaml", text);
    let problems = catalog.check();
    assert!(problems[0].message.contains("more than 100000 values"), "{}", problems[0].message);
}
