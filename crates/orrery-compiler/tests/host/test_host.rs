//! A host with Rust functions as plugins, and a project with one module for them.

use std::cell::RefCell;

use orrery_compiler::files::Memory;
use orrery_compiler::host::{
    CodeLocation, DefaultValue, Host, HostContext, LayeredHost, LoadError, Manifest, NativeHost,
    PluginCall, PluginParameter, Signature,
};
use orrery_compiler::load::Module;
use orrery_compiler::plugins::{Failure, ParamKind, PluginContext, PluginResult};
use orrery_compiler::project::Options;
use orrery_compiler::value::Value;
use orrery_compiler::{Compilation, compile_with};

pub(crate) type Run = fn(&mut dyn PluginContext, &PluginCall<'_>) -> PluginResult;

#[derive(Default)]
pub(crate) struct TestHost {
    plugins: Vec<(Signature, Run)>,
    pub(crate) refuses: Option<LoadError>,
    /// The modules of each question.
    pub(crate) asked: Vec<Vec<String>>,
    /// Names of the plugins that were called, in order.
    pub(crate) called: RefCell<Vec<String>>,
    /// True if it accepts batched calls.
    pub(crate) batches: bool,
    /// Size of each batch.
    pub(crate) together: RefCell<Vec<usize>>,
}

impl TestHost {
    /// Adds a plugin: its name, parameters as `name: type`, and the type of its result.
    pub(crate) fn with(self, name: &str, params: &[&str], returns: &str, run: Run) -> Self {
        let params = params.iter().map(|param| parameter(param)).collect();
        let signature = Signature {
            name: name.to_owned().into(),
            params,
            returns: returns.to_owned().into(),
            allow_unknown: false,
            deprecated: None,
            location: Some(CodeLocation { file: "/p/libs/m/plugins/__init__.py".into(), line: 3 }),
        };
        self.with_signature(signature, run)
    }

    pub(crate) fn with_signature(mut self, signature: Signature, run: Run) -> Self {
        self.plugins.push((signature, run));
        self
    }

    /// Compiles a main file that may import the module `m`.
    pub(crate) fn compile(&mut self, module: &str, main: &str) -> Compilation {
        self.compile_files(module, main, Memory::default())
    }

    /// Compiles a main file that may use the template `m/t`.
    pub(crate) fn compile_with_template(&mut self, template: &str, main: &str) -> Compilation {
        let mut files = Memory::default();
        files.add("/p/libs/m/templates/t", template);
        self.compile_files("", main, files)
    }

    fn compile_files(&mut self, module: &str, main: &str, mut files: Memory) -> Compilation {
        files.add("/p/project.yml", "name: test\nmodulepath: libs\n");
        files.add("/p/main.cf", main);
        files.add("/p/libs/m/module.yml", "name: m\nversion: 1.0\nlicense: ASL\n");
        files.add("/p/libs/m/model/_init.cf", module);
        files.add("/p/libs/m/plugins/__init__.py", "# line 1\n# line 2\ndef f(): pass\n");
        files.add("/p/libs/plain/module.yml", "name: plain\nversion: 1.0\nlicense: ASL\n");
        files.add("/p/libs/plain/model/_init.cf", "");
        compile_with(&files, &Options::new("/p"), &mut LayeredHost::new(NativeHost, self))
    }
}

/// `x: int`, `*rest: any`, `**more: int`, or `x: int = default` with one of a few defaults.
fn parameter(text: &str) -> PluginParameter {
    let (name, rest) = text.split_once(": ").expect("a name and a type");
    let (ty, default) = match rest.split_once(" = ") {
        None => (rest, DefaultValue::Required),
        Some((ty, "null")) => (ty, DefaultValue::Null),
        Some((ty, "kept")) => (ty, DefaultValue::HostOwned),
        Some((ty, "'text'")) => (ty, DefaultValue::Str("text".into())),
        Some((ty, "[1.5]")) => (ty, DefaultValue::List(vec![DefaultValue::Float(1.5)])),
        Some((_, other)) => panic!("no default {other}"),
    };
    let (kind, name) = match name.strip_prefix("**") {
        Some(name) => (ParamKind::VarKeyword, name),
        None => match name.strip_prefix('*') {
            Some(name) => (ParamKind::VarPositional, name),
            None => (ParamKind::Normal, name),
        },
    };
    PluginParameter { name: name.to_owned().into(), ty: ty.to_owned().into(), default, kind }
}

impl Host for TestHost {
    fn can_load(&self, module: &Module) -> bool {
        module.code.is_some()
    }

    fn load(&mut self, modules: &[Module]) -> Result<Manifest, LoadError> {
        self.asked.push(modules.iter().map(|module| module.name.clone()).collect());
        if let Some(error) = &self.refuses {
            return Err(error.clone());
        }
        let plugins = self.plugins.iter().map(|(signature, _)| signature.clone()).collect();
        Ok(Manifest {
            plugins,
            warnings: vec!["a warning of the host".into()],
            ..Manifest::default()
        })
    }

    fn can_batch(&self, _: u32) -> bool {
        self.batches
    }

    fn call_many(
        &self,
        calls: &[PluginCall<'_>],
        context: &mut dyn HostContext,
    ) -> Vec<PluginResult> {
        self.together.borrow_mut().push(calls.len());
        calls.iter().map(|call| self.call(call, context)).collect()
    }

    fn call(&self, call: &PluginCall<'_>, context: &mut dyn HostContext) -> PluginResult {
        let (signature, run) = &self.plugins[call.plugin as usize];
        self.called.borrow_mut().push(signature.name.to_string());
        run(context, call)
    }
}

/// A plugin that reads an attribute of its first argument.
pub(crate) fn read(
    context: &mut dyn PluginContext,
    call: &PluginCall<'_>,
    name: &str,
) -> PluginResult {
    let Value::Instance(instance) = call.args[0] else {
        return Err(Failure::Plugin("no instance".into()));
    };
    let found = context.attribute(instance, name)?;
    found.ok_or_else(|| Failure::python("AttributeError", name))
}

/// The error message of a compile, complete.
pub(crate) fn message(compiled: &Compilation) -> String {
    match &compiled.outcome {
        Ok(_) => String::new(),
        Err(error) => error.message(&|loc| compiled.sources.location(loc)),
    }
}
