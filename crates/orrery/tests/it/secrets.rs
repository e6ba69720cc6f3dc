//! The value of a late-bound secret reaches only its handler: the tests search for it wherever
//! something is written or shown.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::scratch_project::ScratchProject;

const MODULE: [(&str, &str); 3] = [
    ("module.yml", include_str!("vault/module.yml")),
    ("model/_init.cf", include_str!("vault/model/_init.cf")),
    ("plugins/__init__.py", include_str!("vault/plugins/__init__.py")),
];

const MODEL: &str = r#"import vault
token = vault::variable("CANARY")
for mode in ["write", "raise", "exit"]:
    vault::Thing(
        name=mode, agent="agent-{{ mode }}", mode=mode, path="{{ root }}/{{ mode }}", token=token, options={"list": [token, 1]},
    )
end
"#;

const CANARY: &str = "canary-7f3a91e5";

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("secrets: a canary is found nowhere", || {
        Ok(canary().map_err(|error| format!("{error:#}"))?)
    })]
}

fn canary() -> Result<()> {
    let mut project = ScratchProject::new(MODEL)?;
    for (name, text) in MODULE {
        project.write(&format!("libs/vault/{name}"), text)?;
    }
    project.set("CANARY", CANARY);
    let mut shown = Vec::new();
    let commands: [(i32, &[&str]); 8] = [
        (2, &["plan", "--json", "-vv"]),
        (2, &["deploy", "--json", "-vv"]),
        (0, &["log", "write", "--json", "-v"]),
        (0, &["log", "raise", "-v"]),
        (0, &["log", "exit", "-v"]),
        (0, &["facts", "write", "--json"]),
        (0, &["resources", "--json"]),
        (0, &["compile", "--resources", "--json", "-vv"]),
    ];
    for (code, command) in commands {
        let ran = project.expect(code, command)?;
        shown.push((command, ran.out + &ran.said));
    }
    // The handler has it, in the attributes of the model.
    ensure!(project.read("write")? == format!("{CANARY} {CANARY}"));
    for (command, text) in &shown {
        ensure!(!text.contains(CANARY), "{command:?} shows it:\n{text}");
    }
    ensure!(
        shown[3].1.contains("ValueError(***") || shown[3].1.contains("*** is wrong"),
        "{}",
        shown[3].1
    );
    ensure!(shown[4].1.contains("printed ***"), "{}", shown[4].1);
    // State, contents, stored code and the project itself.
    let root = project.data().parent().map(Path::to_owned).unwrap_or_default();
    for file in files(&root)? {
        if file.starts_with(project.managed("")) {
            continue;
        }
        let bytes = fs::read(&file)?;
        let found = bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes());
        ensure!(!found, "{} holds it", file.display());
    }
    Ok(())
}

/// All files below a directory.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}
