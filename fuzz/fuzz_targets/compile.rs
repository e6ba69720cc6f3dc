//! Any bytes as main file are compiled or answered with an error, within small limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orrery_compiler::files::Memory;
use orrery_compiler::project::{Limits, Options};

fuzz_target!(|bytes: &[u8]| {
    let mut files = Memory::default();
    files.add("/p/project.yml", "name: fuzz\nmodulepath: libs\n");
    files.add("/p/main.cf", bytes);
    let mut options = Options::new("/p");
    options.limits = Limits { instances: 2_000, creation_depth: 200, ..Limits::default() };
    let compiled = orrery_compiler::compile(&files, &options);
    if let Err(error) = &compiled.outcome {
        let _ = error.message(&|loc| compiled.sources.place(loc));
    }
});
