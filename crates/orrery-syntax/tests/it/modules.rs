//! Real models: every `.cf` file below the directory that `ORRERY_MODULES_DIR` names parses and
//! survives formatting. `tools/fetch-modules.py` fills such a directory. Without the variable the
//! models of this repository's own modules are checked, if it has any.

use std::path::{Path, PathBuf};

use crate::{formatted, valid};

fn models_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            models_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "cf") {
            found.push(path);
        }
    }
}

#[test]
fn real_models_parse_and_survive_formatting() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules");
    let directory = std::env::var_os("ORRERY_MODULES_DIR").map_or(own, PathBuf::from);
    let mut models = Vec::new();
    models_below(&directory, &mut models);
    models.sort();
    for path in &models {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        valid(&text);
        formatted(&text);
    }
    println!("{} models checked", models.len());
}
