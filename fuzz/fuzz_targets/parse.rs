//! Any text is parsed without a panic, the tokens of its tree joined are the text, and what the
//! formatter accepts it leaves alone the second time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orrery_syntax::ast::FileId;
use orrery_syntax::tree::TokenId;
use orrery_syntax::{Interner, format, parse, parse_file};

fuzz_target!(|text: &str| {
    let tree = parse(text).tree;
    let count = tree.tokens().len() as u32;
    let joined: String = (0..count).map(|index| tree.token_text(TokenId(index))).collect();
    assert_eq!(joined, text);
    let mut interner = Interner::default();
    let parsed = parse_file(text, FileId(0), &mut interner);
    if parsed.errors.is_empty()
        && let Ok(once) = format(text)
    {
        assert_eq!(format(&once).ok().as_deref(), Some(once.as_str()));
    }
});
