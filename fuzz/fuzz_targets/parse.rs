//! Any text is parsed without a panic, its tree holds all of it, and what the formatter accepts it
//! leaves alone the second time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orrery_syntax::ast::FileId;
use orrery_syntax::{Interner, format, parse_file};

fuzz_target!(|text: &str| {
    let mut interner = Interner::default();
    let parsed = parse_file(text, FileId(0), &mut interner);
    if parsed.errors.is_empty()
        && let Ok(once) = format(text)
    {
        assert_eq!(format(&once).ok().as_deref(), Some(once.as_str()));
    }
});
