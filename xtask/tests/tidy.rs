//! Runs every check of the repository on the repository.

use xtask::{TextFile, Violation, documents, layers, read_repository, repository_root, sources};

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
