//! Runs every check of the repository on the repository.

use xtask::{
    TextFile, Violation, contributing, documents, layers, module_cycles, names, prose, purity,
    read_repository, repository_root, sources, translation,
};

fn files() -> Vec<TextFile> {
    let files = read_repository(&repository_root()).expect("the repository can be read");
    assert!(files.iter().any(|file| file.path == "xtask/tests/tidy.rs"), "this file was not found");
    files
}

#[track_caller]
fn assert_none(violations: &[Violation]) {
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} violations:\n  {}", lines.len(), lines.join("\n  "));
}

#[test]
fn dependencies_point_down() {
    let packages = layers::read_packages(&repository_root()).expect("cargo metadata");
    assert!(packages.iter().any(|package| package.name == "xtask"), "{packages:?}");
    assert_none(&layers::check(&packages));
}

#[test]
fn pure_crates_do_no_io() {
    assert_none(&purity::check(&files(), &purity::EXCEPTIONS));
}

#[test]
fn modules_form_no_new_cycles() {
    assert_none(&module_cycles::check(&files(), module_cycles::LIMITS));
}

#[test]
fn apis_only_translate() {
    assert_none(&translation::check(&files()));
}

#[test]
fn sources_are_tidy() {
    assert_none(&sources::check(&files()));
}

#[test]
fn documents_are_tidy() {
    assert_none(&documents::check(&files()));
}

#[test]
fn the_book_lists_every_page() {
    assert_none(&documents::check_summary(&files()));
}

#[test]
fn diagnostics_have_pages() {
    assert_none(&documents::check_diagnostics(&files()));
}

/// The page of guarantees names tests; each must be a function of some crate.
#[test]
fn guarantees_name_tests_that_exist() {
    let files = files();
    let page = files.iter().find(|file| file.path == "docs/reference/guarantees.md");
    let page = page.expect("the page of guarantees");
    let named = page.text.split('`').skip(1).step_by(2).filter(|name| {
        name.len() > 12 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    });
    let sources: Vec<&TextFile> = files
        .iter()
        .filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs"))
        .collect();
    let missing: Vec<&str> = named
        .filter(|name| {
            let definition = format!("fn {name}(");
            !sources.iter().any(|file| file.text.contains(&definition))
        })
        .collect();
    assert!(missing.is_empty(), "no test has these names: {missing:?}");
}

/// Public types that share a name, each with its reason.
const SHARED_TYPE_NAMES: [(&str, &str); 12] = [
    ("Attribute", TREE_AND_PROGRAM),
    ("Entity", TREE_AND_PROGRAM),
    ("Expr", TREE_AND_PROGRAM),
    ("ExprKind", TREE_AND_PROGRAM),
    ("Implement", TREE_AND_PROGRAM),
    ("Implementation", TREE_AND_PROGRAM),
    ("Index", TREE_AND_PROGRAM),
    ("Stmt", TREE_AND_PROGRAM),
    ("Typedef", TREE_AND_PROGRAM),
    ("Result", "the usual alias with the crate's error"),
    ("RenderError", "of a text template, and of the resources of a cluster"),
    ("User", "an account of a machine, and one of the API"),
];
const TREE_AND_PROGRAM: &str = "the same construct in the typed tree and in the program";

#[test]
fn names_are_those_of_the_glossary() {
    let files = files();
    let glossary = files.iter().find(|file| file.path == "GLOSSARY.md").expect("the glossary");
    let banned = names::banned_names(&glossary.text);
    assert!(banned.contains("pulse"), "{banned:?}");
    assert_none(&names::check_banned(&files, &banned));
}

#[test]
fn a_public_type_name_occurs_once() {
    assert_none(&names::check_duplicates(&files(), &SHARED_TYPE_NAMES));
}

#[test]
fn comments_and_documents_name_components() {
    let files = files();
    assert_none(&prose::check_person_words(&files));
    assert_none(&prose::check_openings(&files));
}

#[test]
fn contributing_lists_every_crate() {
    assert_none(&contributing::check(&files()));
}

/// The tour through the code names a file and a function in each step.
#[test]
fn the_tour_names_functions_that_exist() {
    let files = files();
    let page = files.iter().find(|file| file.path == "docs/architecture.md");
    let page = page.expect("the page of the architecture");
    let steps: Vec<(&str, &str)> = page
        .text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|code| code.split_once(".rs:"))
        .filter(|(path, _)| path.starts_with("orrery"))
        .collect();
    assert!((10..=25).contains(&steps.len()), "{} steps", steps.len());
    for (path, function) in steps {
        let path = format!("crates/{path}.rs");
        let source = files.iter().find(|file| file.path == path);
        let source = source.unwrap_or_else(|| panic!("there is no {path}"));
        let named = [format!("fn {function}("), format!("fn {function}<")];
        assert!(named.iter().any(|name| source.text.contains(name)), "{path} has no {function}");
    }
}
