//! Compiles and exports small models, with their resource types in a separate module.

use orrery_compiler::export::{ExportResult, export};
use orrery_compiler::files::Memory;
use orrery_compiler::project::Options;
use orrery_compiler::{Compilation, compile};
use orrery_model::{Inventory, Resource, ResourceType};

/// A module with an entity of every kind that the tests need.
const MODULE: &str = r"
entity Device:
    string name
    int number = 0
end
implement Device using std::none

entity Base extends std::PurgeableResource:
    string name
    dict options = {}
    list items = []
end
Base.device [1] -- Device
Base.spare [0:1] -- Device
Base.many [0:] -- Device
implement Base using std::none

entity Derived extends Base:
end
implement Derived using std::none

entity Declared extends Base:
end
implement Declared using std::none

entity Plain:
    string name
end
Plain.device [1] -- Device
implement Plain using std::none

entity Odd extends std::Resource:
    string name
end
Odd.device [1] -- Device
Odd.devices [0:] -- Device
Odd.spare [0:1] -- Device
implement Odd using std::none

entity Holder extends std::Resource:
    string name
end
Holder.device [1] -- Device
Holder.parts [0:] -- Part
implement Holder using std::none
entity Part:
    string text
    int? weight = null
end
implement Part using std::none

entity Unhandled extends std::Resource:
    string name
end
implement Unhandled using std::none
";

pub(crate) fn declarations() -> Vec<ResourceType> {
    let fields = ["items", "options"];
    vec![
        ResourceType::new("m::Base", "device.name", "name", &fields),
        ResourceType::new("m::Declared", "device.name", "name", &fields),
        ResourceType::new("m::Plain", "device.name", "name", &[]),
        ResourceType::new("m::Holder", "device.name", "name", &[])
            .with_part("parts", &["weight", "text"]),
        ResourceType::new("std::testing::NullResource", "agentname", "name", NULL_FIELDS),
    ]
}

pub(crate) const NULL_FIELDS: &[&str] = &["agentname", "fail", "int_value", "value"];

pub(crate) fn compiled(main: &str) -> Compilation {
    let mut files = Memory::default();
    files.add("/p/project.yml", "name: test\nmodulepath: libs\n");
    files.add("/p/main.cf", main);
    files.add("/p/libs/m/module.yml", "name: m\nversion: 1.0\nlicense: ASL\n");
    files.add("/p/libs/m/model/_init.cf", MODULE);
    let compiled = compile(&files, &Options::new("/p"));
    if let Err(error) = &compiled.outcome {
        panic!("{}", error.message(&|loc| compiled.sources.location(loc)));
    }
    compiled
}

pub(crate) fn exported_as(main: &str, declarations: &[ResourceType]) -> ExportResult {
    let compiled = compiled(main);
    let model = compiled.model.as_ref().expect("it compiles");
    export(model, &compiled.sources, declarations, &Inventory::default())
}

/// Exports a main file; line 1 of the file is the first line of `main`.
pub(crate) fn exported(main: &str) -> ExportResult {
    let main = format!("{main}\nimport m\nimport std::testing\n");
    exported_as(&main, &declarations())
}

impl Find for ExportResult {
    fn find(&self, id: &str) -> &Resource {
        let found = self.resources.iter().find(|resource| resource.id.as_str() == id);
        found.unwrap_or_else(|| panic!("no {id} among {:?}", self.ids()))
    }

    fn ids(&self) -> Vec<&str> {
        self.resources.iter().map(|resource| resource.id.as_str()).collect()
    }

    fn problem_texts(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }

    fn warning_texts(&self) -> Vec<String> {
        self.warnings.iter().map(ToString::to_string).collect()
    }
}

pub(crate) trait Find {
    fn find(&self, id: &str) -> &Resource;
    fn ids(&self) -> Vec<&str>;
    fn problem_texts(&self) -> Vec<String>;
    fn warning_texts(&self) -> Vec<String>;
}

/// The ids that a resource requires.
pub(crate) fn requires(resource: &Resource) -> Vec<&str> {
    resource.requires.iter().map(|id| id.as_str()).collect()
}
