//! Whatever a host sends, it is read without a panic, within the limits, and the kind that is found fast is
//! the one that is found slowly.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orrery_host::framing::{LINE_BYTES_MAX, Reader, kind, parse};

fuzz_target!(|bytes: &[u8]| {
    let mut reader = Reader::new(bytes);
    while let Ok(line) = reader.read_line() {
        assert!(line.len() <= LINE_BYTES_MAX && !line.contains(&b'\n'));
        let found = kind(line).ok();
        if let Ok(value) = parse::<serde_json::Value>(line) {
            let member = value.get("k").and_then(|kind| kind.as_str());
            // A member that stands twice has two values; both ways take one of them, or refuse.
            if line.windows(2).filter(|pair| pair == b"\"k").count() == 1 {
                assert_eq!(found.as_deref(), member);
            }
        }
    }
});
