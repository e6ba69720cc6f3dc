//! Documentation pages of export problems: the example of each page causes the problem with exactly
//! the documented text.

use std::fs;
use std::path::{Path, PathBuf};

use orrery_compiler::compile;
use orrery_compiler::export::export;
use orrery_compiler::files::Memory;
use orrery_compiler::project::Options;
use orrery_model::{Inventory, ResourceType};

use crate::models::NULL_FIELDS;

const PAGES: [&str; 8] = [
    "agent-not-found",
    "duplicate-resource",
    "path-collision",
    "invalid-resource-id",
    "requirement-cycle",
    "requirement-left-out",
    "several-resource-sets",
    "unserializable-field",
];

fn page(id: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("docs/diagnostics").join(format!("{id}.md"))
}

/// The contents of all fences with this word.
fn fences<'t>(text: &'t str, word: &str) -> Vec<&'t str> {
    let fence = format!("```{word}\n");
    text.split(&fence).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect()
}

#[test]
fn every_page_shows_its_problem() {
    let declarations = [
        ResourceType::new("std::testing::NullResource", "agentname", "name", NULL_FIELDS),
        ResourceType::new("exec::Run", "host.name", "command", &["environment"]),
        ResourceType::new("std::File", "host.name", "path", &[]).identified_by_path(),
        ResourceType::new("std::Directory", "host.name", "path", &[]).identified_by_path(),
        ResourceType::new("web::Site", "device.name", "name", &["root"]),
    ];
    for id in PAGES {
        let text = fs::read_to_string(page(id)).unwrap_or_else(|error| panic!("{id}: {error}"));
        let mut files = Memory::default();
        files.add("/p/project.yml", "name: test\nmodulepath: libs\n");
        // Resources that no native handler declares are defined in a module, marked as `cf`: the
        // command line could not show their problems. Cycles are refused by the command line during
        // the compile.
        let mut examples = fences(&text, "inmanta");
        examples.extend(fences(&text, "inmanta,fails,differs"));
        match (&*examples, &*fences(&text, "cf")) {
            ([main], []) => files.add("/p/main.cf", *main),
            ([], [module, main]) => {
                files.add("/p/libs/web/module.yml", "name: web\nversion: 1.0\nlicense: ASL\n");
                files.add("/p/libs/web/model/_init.cf", *module);
                files.add("/p/main.cf", *main);
            }
            _ => panic!("{id} has no example"),
        }
        let compiled = compile(&files, &Options::new("/p"));
        let model = compiled.model.as_ref().unwrap_or_else(|| panic!("{id} does not compile"));
        let exported = export(model, &compiled.sources, &declarations, &Inventory::default());
        let texts: Vec<String> = exported
            .problems
            .iter()
            .filter(|problem| problem.diagnostic_id() == id)
            .map(ToString::to_string)
            .collect();
        let shown = fences(&text, "text").first().expect("the message").trim_end();
        assert!(texts.iter().any(|text| text == shown), "{id} has {texts:?}");
    }
}
