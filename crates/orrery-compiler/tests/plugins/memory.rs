//! A `PluginContext` without a compiler: values, a few instances and files in memory.

use std::collections::BTreeMap;

use orrery_compiler::plugins::{
    CellId, DeclaredBy, Facts, Failure, PathKind, PluginContext, PluginResult, ResourceIdentity,
    ServerEnvironmentInfo, native_plugins,
};
use orrery_compiler::project::TemplateMode;
use orrery_compiler::value::{Dict, Heap, InstanceId, Value};
use orrery_python::{repr_float, repr_str};
use serde_json::{Value as Json, json};

/// An attribute of an instance in memory.
#[derive(Clone, Copy)]
pub(crate) enum Slot {
    Value(Value),
    /// An optional relation that has no value.
    Empty,
    Unset(CellId),
}

pub(crate) struct Instance {
    pub(crate) entity: &'static str,
    /// The entities that it is an instance of.
    pub(crate) types: &'static [&'static str],
    pub(crate) slots: BTreeMap<&'static str, Slot>,
}

#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) heap: Heap,
    pub(crate) instances: Vec<Instance>,
    pub(crate) names: BTreeMap<String, InstanceId>,
    pub(crate) printed: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// Machines whose facts were requested.
    pub(crate) machines: Vec<String>,
    pub(crate) variables: BTreeMap<String, Slot>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) namespace: String,
    pub(crate) random: u8,
    pub(crate) templates: TemplateMode,
}

/// Names that exist as definitions but are not entities of the instances below.
const DEFINITIONS: [&str; 3] = ["std::port", "std::Host", "std::Resource"];

impl Memory {
    /// The instances that the recorded models begin with.
    pub(crate) fn with_prelude() -> Memory {
        let mut memory = Memory {
            namespace: "__config__".to_owned(),
            // The recordings come from the reference compiler.
            templates: TemplateMode::Lenient,
            ..Memory::default()
        };
        for (path, text) in
            [("files/a.txt", "content"), ("files/empty", ""), ("files/sub/b.txt", "b\n")]
        {
            memory.files.insert(format!("/project/{path}"), text.to_owned());
        }
        for (name, value) in
            [("ORRERY_WORD", "hello"), ("ORRERY_NUMBER", " 42 "), ("ORRERY_EMPTY", "")]
        {
            memory.environment.insert(name.to_owned(), value.to_owned());
        }
        let unix = memory.operating_system("unix", 0.0, Slot::Empty);
        let linux = memory.operating_system("linux", 0.0, Slot::Value(unix));
        memory.operating_system("freebsd", 0.0, Slot::Value(unix));
        let arch = memory.operating_system("arch", 1.5, Slot::Value(linux));
        let members = memory.heap.list(vec![arch]);
        let linux_slots = &mut memory.instances[memory.names["linux"].index()].slots;
        linux_slots.insert("member", Slot::Value(members));
        memory.host("host", "host", Value::Null, linux);
        let ip = memory.heap.str("192.0.2.1");
        memory.host("other_host", "other", ip, arch);
        let (name, value) = (memory.heap.str("r"), memory.heap.str("v"));
        let agent = memory.heap.str("internal");
        memory.instance(
            "resource",
            "std::testing::NullResource",
            &["std::testing::NullResource", "std::Resource", "std::Entity"],
            [
                ("name", Slot::Value(name)),
                ("agentname", Slot::Value(agent)),
                ("value", Slot::Value(value)),
            ],
        );
        memory
    }

    pub(crate) fn instance(
        &mut self,
        name: &str,
        entity: &'static str,
        types: &'static [&'static str],
        slots: impl IntoIterator<Item = (&'static str, Slot)>,
    ) -> Value {
        let id = InstanceId(u32::try_from(self.instances.len()).expect("few instances"));
        self.instances.push(Instance { entity, types, slots: slots.into_iter().collect() });
        self.names.insert(name.to_owned(), id);
        Value::Instance(id)
    }

    fn operating_system(&mut self, name: &str, version: f64, family: Slot) -> Value {
        let text = self.heap.str(name);
        let members = self.heap.list(Vec::new());
        self.instance(
            name,
            "std::OS",
            &["std::OS", "std::Entity"],
            [
                ("name", Slot::Value(text)),
                ("version", Slot::Value(Value::Float(version))),
                ("member", Slot::Value(members)),
                ("family", family),
            ],
        )
    }

    fn host(&mut self, variable: &str, name: &str, ip: Value, os: Value) -> Value {
        let text = self.heap.str(name);
        self.instance(
            variable,
            "std::Host",
            &["std::Host", "std::ManagedDevice", "std::Entity"],
            [("name", Slot::Value(text)), ("ip", Slot::Value(ip)), ("os", Slot::Value(os))],
        )
    }

    /// A recorded argument as a value.
    pub(crate) fn value(&mut self, json: &Json) -> Value {
        match json {
            Json::Null => Value::Null,
            Json::Bool(bool) => Value::Bool(*bool),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Value::Int(int),
                None => Value::Float(number.as_f64().expect("a float")),
            },
            Json::String(text) => self.heap.str(text),
            Json::Array(items) => {
                let items = items.iter().map(|item| self.value(item)).collect();
                self.heap.list(items)
            }
            Json::Object(entries) => self.special(entries).unwrap_or_else(|| {
                let mut dict = Dict::default();
                for (key, item) in entries {
                    let value = self.value(item);
                    dict.insert(self.heap.intern(key), value);
                }
                self.heap.dict(dict)
            }),
        }
    }

    fn special(&mut self, entries: &serde_json::Map<String, Json>) -> Option<Value> {
        let (key, item) = entries.iter().next()?;
        let text = item.as_str().unwrap_or_default();
        Some(match key.as_str() {
            "$instance" => Value::Instance(self.names[text]),
            "$unknown" => self.heap.unknown(None),
            "$int" => {
                let int = orrery_python::parse_int(text).expect("an integer");
                self.heap.int(int)
            }
            "$float" => Value::Float(orrery_python::parse_float(text).expect("a float")),
            _ => return None,
        })
    }

    /// Converts a value to the form of the recordings.
    pub(crate) fn json(&self, value: Value) -> Json {
        match value {
            Value::Null => Json::Null,
            Value::Bool(bool) => json!(bool),
            Value::Int(int) => json!(int),
            Value::Big(id) => json!({"$int": self.heap.big(id).to_py_str().expect("not too long")}),
            Value::Float(float) if float.is_finite() => json!(float),
            Value::Float(float) => json!({"$float": repr_float(float)}),
            Value::Str(id) => json!(self.heap.text(id)),
            Value::List(id) => self.heap.items(id).iter().map(|&item| self.json(item)).collect(),
            Value::Dict(id) => {
                let entries = self.heap.entries(id).iter();
                entries.map(|(&k, &v)| (self.heap.text(k).to_owned(), self.json(v))).collect()
            }
            Value::Unknown(_) => json!({"$unknown": true}),
            Value::Instance(id) => {
                let name = self.names.iter().find(|&(_, found)| *found == id);
                json!({"$instance": name.map(|(name, _)| name.as_str())})
            }
            Value::Other(id) => json!({"$other": self.heap.get_other(id).class}),
        }
    }

    fn slot(&self, slot: Slot, name: &str, instance: InstanceId) -> Result<Value, Failure> {
        match slot {
            Slot::Value(value) => Ok(value),
            Slot::Empty => {
                Err(Failure::Optional { relation: name.to_owned(), instance, placed: false })
            }
            Slot::Unset(cell) => Err(Failure::Unset(vec![cell])),
        }
    }
}

impl PluginContext for Memory {
    fn heap(&self) -> &Heap {
        &self.heap
    }

    fn heap_mut(&mut self) -> &mut Heap {
        &mut self.heap
    }

    fn attribute(&mut self, instance: InstanceId, name: &str) -> Result<Option<Value>, Failure> {
        match self.instances[instance.index()].slots.get(name).copied() {
            Some(slot) => self.slot(slot, name, instance).map(Some),
            None => Ok(None),
        }
    }

    fn entity_name(&self, instance: InstanceId) -> String {
        self.instances[instance.index()].entity.to_owned()
    }

    fn describe(&self, instance: InstanceId) -> String {
        format!("{} (instantiated at /main.cf:1)", self.entity_name(instance))
    }

    fn is_of_type(&mut self, value: Value, type_name: &str) -> Result<bool, Failure> {
        let is_known = DEFINITIONS.contains(&type_name)
            || self.instances.iter().any(|instance| instance.types.contains(&type_name));
        match value {
            _ if !is_known => Err(Failure::python("KeyError", type_name)),
            Value::Instance(id) => Ok(self.instances[id.index()].types.contains(&type_name)),
            Value::Int(port) => Ok(type_name == "std::port" && (0..65536).contains(&port)),
            _ => Ok(false),
        }
    }

    fn repr(&self, value: Value) -> String {
        match value {
            Value::Null => "null".to_owned(),
            Value::Bool(bool) => if bool { "True" } else { "False" }.to_owned(),
            Value::Int(int) => int.to_string(),
            Value::Big(id) => self.heap.big(id).to_py_str().expect("not too long"),
            Value::Float(float) => repr_float(float),
            Value::Str(id) => repr_str(self.heap.text(id)),
            Value::List(id) => {
                let items: Vec<String> =
                    self.heap.items(id).iter().map(|&item| self.repr(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Dict(id) => {
                let entries: Vec<String> = self
                    .heap
                    .entries(id)
                    .iter()
                    .map(|(&k, &v)| format!("{}: {}", self.repr(Value::Str(k)), self.repr(v)))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
            Value::Instance(id) => format!("{} {:x}", self.entity_name(id), id.0),
            Value::Unknown(_) => "<unknown>".to_owned(),
            Value::Other(id) => self.heap.get_other(id).repr.clone(),
        }
    }

    fn proxy_str(&self, value: Value) -> String {
        match value {
            Value::Null => "None".to_owned(),
            Value::Str(id) => self.heap.text(id).to_owned(),
            Value::List(_) | Value::Dict(_) | Value::Instance(_) => {
                format!("@{}", self.repr(value))
            }
            other => self.repr(other),
        }
    }

    fn print(&mut self, text: &str) {
        self.printed.push(text.to_owned());
    }

    fn warn(&mut self, text: &str) {
        self.warnings.push(text.to_owned());
    }

    fn variable(&mut self, name: &str) -> Result<Option<Value>, Failure> {
        match self.variables.get(name).copied() {
            Some(slot) => self.slot(slot, name, InstanceId(0)).map(Some),
            None => Ok(None),
        }
    }

    fn variable_names(&self) -> Vec<String> {
        self.variables.keys().cloned().collect()
    }

    fn attribute_names(&self, instance: InstanceId) -> Vec<String> {
        self.instances[instance.index()].slots.keys().map(|name| (*name).to_owned()).collect()
    }

    fn template_mode(&self) -> TemplateMode {
        self.templates
    }

    fn show_path(&self, path: &str) -> String {
        path.to_owned()
    }

    fn call(&mut self, plugin: &str, args: &[Value]) -> PluginResult {
        let found = native_plugins().iter().find(|native| native.name == plugin);
        let found = found.ok_or_else(|| Failure::python("KeyError", plugin))?;
        let args = bind(self, found, args.to_vec(), Vec::new())?;
        (found.run)(self, &args)
    }

    fn has_plugin(&self, plugin: &str) -> bool {
        native_plugins().iter().any(|native| native.name == plugin)
    }

    fn caller_namespace(&self) -> String {
        self.namespace.clone()
    }

    fn module_dir(&self, module: &str) -> Option<String> {
        matches!(module, "std" | "m").then(|| format!("/modules/{module}"))
    }

    fn project_dir(&self) -> String {
        "/project".to_owned()
    }

    fn file_kind(&self, path: &str) -> PathKind {
        let below = format!("{}/", path.trim_end_matches('/'));
        if self.files.contains_key(path) {
            PathKind::File
        } else if self.files.keys().any(|file| file.starts_with(&below)) {
            PathKind::Directory
        } else {
            PathKind::Missing
        }
    }

    fn read_text(&self, path: &str) -> Result<String, String> {
        self.files.get(path).cloned().ok_or_else(|| format!("no file {path}"))
    }

    fn list_dir(&self, path: &str) -> Result<Vec<String>, String> {
        let below = format!("{}/", path.trim_end_matches('/'));
        let names = self.files.keys().filter_map(|file| file.strip_prefix(&below));
        Ok(names.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect())
    }

    fn write_text(&mut self, path: &str, text: &str) -> Result<(), String> {
        self.files.insert(path.to_owned(), text.to_owned());
        Ok(())
    }

    fn facts(&self) -> Option<&dyn Facts> {
        None
    }

    fn request_machine_facts(&mut self, machine: &str) {
        self.machines.push(machine.to_owned());
    }

    fn server(&self) -> Option<&ServerEnvironmentInfo> {
        None
    }

    fn identity(&self, instance: InstanceId) -> Option<ResourceIdentity> {
        let entity = self.entity_name(instance);
        (entity == "std::testing::NullResource").then(|| ResourceIdentity {
            entity,
            agent: "agentname".to_owned(),
            attribute: "name".to_owned(),
            computed: false,
            declared: DeclaredBy::Program,
        })
    }

    fn environment_variable(&self, name: &str) -> Option<String> {
        self.environment.get(name).cloned()
    }

    fn now(&self) -> f64 {
        1_800_000_000.25
    }

    fn random_bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| {
                self.random = self.random.wrapping_mul(31).wrapping_add(17);
                self.random
            })
            .collect()
    }
}

/// Puts arguments into the order of the parameters, as the evaluator does.
pub(crate) fn bind(
    memory: &mut Memory,
    plugin: &orrery_compiler::plugins::NativePlugin,
    positional: Vec<Value>,
    named: Vec<(String, Value)>,
) -> Result<Vec<Value>, Failure> {
    use orrery_compiler::plugins::{ParamDefault, ParamKind};
    let mut positional = positional.into_iter();
    let mut named = named;
    let mut bound = Vec::new();
    for param in plugin.params {
        let value = match param.kind {
            ParamKind::VarPositional => {
                let rest = positional.by_ref().collect();
                memory.heap.list(rest)
            }
            ParamKind::VarKeyword => {
                let mut dict = Dict::default();
                for (name, value) in named.drain(..) {
                    dict.insert(memory.heap.intern(&name), value);
                }
                memory.heap.dict(dict)
            }
            ParamKind::Normal | ParamKind::KeywordOnly => {
                let by_name = named.iter().position(|(name, _)| name == param.name);
                match (positional.next(), by_name, param.default) {
                    (Some(value), _, _) => value,
                    (None, Some(at), _) => named.remove(at).1,
                    (None, None, ParamDefault::Null) => Value::Null,
                    (None, None, ParamDefault::Bool(bool)) => Value::Bool(bool),
                    (None, None, ParamDefault::Int(int)) => Value::Int(int),
                    (None, None, ParamDefault::Str(text)) => memory.heap.str(text),
                    (None, None, ParamDefault::Strs(texts)) => {
                        let texts = texts.iter().map(|text| memory.heap.str(text)).collect();
                        memory.heap.list(texts)
                    }
                    (None, None, ParamDefault::Required) => {
                        return Err(Failure::python("TypeError", param.name));
                    }
                }
            }
        };
        bound.push(value);
    }
    Ok(bound)
}
