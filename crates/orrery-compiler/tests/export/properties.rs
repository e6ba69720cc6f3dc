//! Properties of all models: the text is canonical, and the same model gives the same export.

use orrery_compiler::export::export;
use orrery_model::{Attributes, Inventory};
use proptest::prelude::*;

use crate::models::{compiled, declarations};

/// A value of the language, as source text.
fn value() -> impl Strategy<Value = String> {
    let text = r"[a-z \\/\[\]{}$%,:=\u{e9}\u{1F600}]{0,8}";
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|bool| bool.to_string()),
        any::<i64>().prop_map(|int| int.to_string()),
        // The language has no exponents.
        (any::<i32>(), 0_u32..1_000_000).prop_map(|(whole, part)| format!("{whole}.{part:06}")),
        (-1.0_f64..1.0).prop_map(|float| format!("{float:.17}")),
        text.prop_map(|text| quoted(&text)),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let key = "[a-zé]{1,3}";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|entries| {
                // Reversed map order, so that sorting is required.
                let entries: Vec<String> = entries
                    .iter()
                    .rev()
                    .map(|(key, value)| format!("\"{key}\": {value}"))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }),
        ]
    })
}

fn quoted(text: &str) -> String {
    let escaped =
        text.replace('\\', "\\\\").replace('"', "\\\"").replace('{', "<").replace('}', ">");
    format!("\"{escaped}\"")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn attributes_are_canonical(items in prop::collection::vec(value(), 0..4)) {
        let model = format!(
            "import m\nd = m::Device(name=\"d\")\nm::Base(name=\"b\", device=d, items=[{0}], options={{\"k\": [{0}]}})\n",
            items.join(", ")
        );
        let compiled = compiled(&model);
        let model = compiled.model.as_ref().expect("it compiles");
        let exported = export(model, &compiled.sources, &declarations(), &Inventory::default());
        prop_assert!(exported.problems.is_empty());
        let attributes = &exported.resources[0].attributes;
        prop_assert_eq!(&Attributes::parse(attributes.as_str()).expect("it is JSON"), attributes);
    }

    /// Random requirements, duplicate ids, unmanaged and broken instances: exports are
    /// deterministic and closed under requirements.
    #[test]
    fn exports_are_the_same_twice_and_closed(
        edges in prop::collection::vec((0_usize..12, 0_usize..12), 0..14),
        names in prop::collection::vec(0_usize..30, 12),
        kinds in prop::collection::vec(0_usize..12, 12),
    ) {
        let mut main = String::from("import m\nimport std::testing\nd = m::Device(name=\"d\")\nbad = m::Device(name=\",\")\n");
        for (number, (name, kind)) in names.iter().zip(&kinds).enumerate() {
            main += &match kind {
                0 => format!("r{number} = std::testing::NullResource(name=\"{number}\", managed=false)\n"),
                1 => format!("r{number} = m::Base(name=\"{name}\", device=bad)\n"),
                _ => format!("r{number} = m::Base(name=\"{name}\", device=d)\n"),
            };
        }
        for (from, to) in &edges {
            main += &format!("r{from}.requires += r{to}\n");
        }
        let first = compiled(&main);
        let second = compiled(&main);
        let of = |compiled: &orrery_compiler::Compilation| {
            export(compiled.model.as_ref().expect("it compiles"), &compiled.sources, &declarations(), &Inventory::default())
        };
        let (one, two) = (of(&first), of(&second));
        prop_assert_eq!(&one.resources, &two.resources);
        prop_assert_eq!(&one.problems, &two.problems);
        prop_assert_eq!(&one.warnings, &two.warnings);
        prop_assert!(one.resources.is_sorted_by(|a, b| a.id < b.id));

        let exported = |id| one.resources.binary_search_by(|resource| resource.id.cmp(id)).is_ok();
        for resource in &one.resources {
            prop_assert!(resource.requires.iter().all(exported));
        }
        // Every instance is exported, unmanaged, or named by a problem.
        let left_out: usize = one.problems.iter().map(|problem| problem.resources().len()).sum();
        prop_assert!(one.resources.len() + one.unmanaged + left_out >= names.len());
        // Nothing is both exported and left out.
        for subject in one.problems.iter().flat_map(|problem| problem.resources()) {
            prop_assert!(subject.id.as_ref().is_none_or(|id| !exported(id)));
        }
    }
}
