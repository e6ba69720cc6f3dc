//! Resources with fields computed by module code: the requests to the code, and the use of its
//! outcomes.

use orrery_compiler::compile;
use orrery_compiler::export::{
    ComputeOutcome, ComputeRequest, ComputedFields, ExportResult, ModuleCodeError, RequirementView,
    ResourceClass, ResourceCode, export_with,
};
use orrery_compiler::files::Memory;
use orrery_compiler::host::{InstanceView, SlotState};
use orrery_compiler::project::Options;
use orrery_compiler::value::Value;
use orrery_model::ResourceType;

const MODEL: &str = r#"
entity Shelf extends std::Resource:
    string name
    int height = 1
    string? note = null
end
implement Shelf using std::none
a = Shelf(name="a", height=2)
b = Shelf(name="b", note="ignore")
c = Shelf(name="c", note="fail", requires=a)
d = Shelf(name="d", requires=[a])
"#;

/// Code with outcomes that depend on the note of a shelf.
struct Shelves {
    classes: Vec<ResourceClass>,
    asked: Vec<String>,
    required: Vec<(usize, Vec<String>)>,
}

impl Shelves {
    fn new(required: Vec<(usize, Vec<String>)>) -> Self {
        let fields = ["name", "height", "label", "send_event"];
        let declaration = ResourceType {
            entity: "__config__::Shelf".into(),
            agent: "name".into(),
            id_attribute: "name".into(),
            fields: fields.map(std::borrow::Cow::from).to_vec().into(),
            parts: Vec::new().into(),
            reach: orrery_model::Reach::Outward,
            is_path: false,
        };
        let computed = vec!["label".to_owned()];
        let module = "shelf".to_owned();
        let class = ResourceClass { number: 7, declaration, module, computed, problem: None };
        Shelves { classes: vec![class], asked: Vec::new(), required }
    }
}

impl ResourceCode for Shelves {
    fn classes(&self) -> &[ResourceClass] {
        &self.classes
    }

    fn serialize(
        &mut self,
        view: &dyn InstanceView,
        items: &[ComputeRequest<'_>],
    ) -> Result<Vec<ComputeOutcome>, ModuleCodeError> {
        let answer = |item: &ComputeRequest<'_>| {
            let entity = view.program().entity(view.entity_of(item.instance));
            let text = |name: &str| {
                let slot = entity.slot_of[&view.program().interner.get(name).expect("a name")];
                match view.slot(item.instance, slot) {
                    SlotState::Value(Value::Str(id)) => view.values().text(id).to_owned(),
                    _ => String::new(),
                }
            };
            self.asked.push(format!("{}: {}", text("name"), item.fields.join(",")));
            match text("note").as_str() {
                "ignore" => ComputeOutcome::Ignored,
                "fail" => ComputeOutcome::Failed(ModuleCodeError {
                    class: "ValueError".into(),
                    message: "too high".into(),
                    field: Some("label".into()),
                    explicit: false,
                }),
                _ => ComputeOutcome::Fields(Box::new(ComputedFields {
                    fields: vec![("label".into(), format!("\"shelf {}\"", text("name")))],
                    references: Some("[1]".into()),
                    ..ComputedFields::default()
                })),
            }
        };
        Ok(items.iter().map(answer).collect())
    }

    fn adds_requirements(&self) -> bool {
        !self.required.is_empty()
    }

    fn require(
        &mut self,
        _: &dyn InstanceView,
        resources: &[RequirementView<'_>],
    ) -> Result<Vec<(usize, Vec<String>)>, ModuleCodeError> {
        self.asked.extend(resources.iter().map(|of| format!("{} {:?}", of.id, of.requires)));
        Ok(self.required.clone())
    }
}

fn exported(code: &mut Shelves) -> Result<ExportResult, ModuleCodeError> {
    let mut files = Memory::default();
    files.add("/p/project.yml", "name: test\n");
    files.add("/p/main.cf", MODEL);
    let compiled = compile(&files, &Options::new("/p"));
    let model = compiled.model.as_ref().expect("it compiles");
    export_with(model, &compiled.sources, &[], &orrery_model::Inventory::default(), code)
}

#[test]
fn code_computes_its_fields_and_no_others() {
    let mut code = Shelves::new(Vec::new());
    let found = exported(&mut code).expect("an export");
    assert_eq!(code.asked, ["a: label", "b: label", "c: label", "d: label"]);
    let ids: Vec<&str> = found.resources.iter().map(|of| of.id.as_str()).collect();
    assert_eq!(ids, ["__config__::Shelf[a,name=a]", "__config__::Shelf[d,name=d]"]);
    assert_eq!(
        found.resources[0].attributes.as_str(),
        r#"{"height":2,"label":"shelf a","mutators":[],"name":"a","references":[1],"send_event":true}"#
    );
    assert_eq!(found.unmanaged, 1);
    let problems: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "`label` of the __config__::Shelf at main.cf:10:5 cannot be exported: ValueError: too high"
        ]
    );
}

#[test]
fn code_may_change_what_resources_require() {
    let d = "__config__::Shelf[d,name=d]";
    let mut code = Shelves::new(vec![(0, vec![d.into()]), (1, vec![])]);
    let found = exported(&mut code).expect("an export");
    assert_eq!(code.asked[4..], ["__config__::Shelf[a,name=a] []".to_owned(), format!("{d} [0]")]);
    assert_eq!(found.resources[0].requires[0].as_str(), d);
    assert!(found.resources[1].requires.is_empty());
    let mut code = Shelves::new(vec![(0, vec!["x::Y[a,b=c]".into()])]);
    let error = exported(&mut code).expect_err("no such resource");
    assert!(error.to_string().contains("which is no resource"), "{error}");
}
