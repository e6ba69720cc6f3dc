//! Bytes as hexadecimal text.

use std::fmt::Write as _;

/// Formats bytes as lower-case hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(to_hex(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(to_hex(&[]), "");
    }
}
