//! Any bytes as main file are compiled or answered with an error, within small limits, and there is a
//! report on either.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orrery_compiler::files::Memory;
use orrery_compiler::project::{CompileLimits, Options};

fuzz_target!(|bytes: &[u8]| {
    let mut files = Memory::default();
    files.add("/p/project.yml", "name: fuzz\nmodulepath: libs\n");
    files.add("/p/main.cf", bytes);
    let mut options = Options::new("/p");
    options.limits = CompileLimits {
        instances: 2_000,
        creation_depth: 200,
        memory_bytes: 64 << 20,
        text_bytes: 1 << 20,
    };
    let compiled = orrery_compiler::compile(&files, &options);
    let diagnostics = compiled.errors();
    assert_eq!(diagnostics.is_empty(), compiled.outcome.is_ok());
    orrery_compiler::report::write(&compiled, &mut std::io::sink()).expect("a sink takes all");
});
