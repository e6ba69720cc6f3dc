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
