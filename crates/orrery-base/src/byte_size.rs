//! Sizes in bytes: settings give them in MiB, messages show them.

/// Bytes of a kibibyte.
pub const KIB: u64 = 1 << 10;
/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;

/// Returns the bytes of a number of MiB, at most `u64::MAX`.
pub fn from_mib(mib: u64) -> u64 {
    mib.saturating_mul(MIB)
}

/// Formats a limit in whole MiB, or in whole KiB below one MiB.
pub fn format_limit(bytes: u64) -> String {
    if bytes >= MIB { format!("{} MiB", bytes / MIB) } else { format!("{} KiB", bytes / KIB) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_in_the_larger_unit_that_fits() {
        assert_eq!(format_limit(from_mib(100)), "100 MiB");
        assert_eq!(format_limit(MIB - 1), "1023 KiB");
        assert_eq!(from_mib(u64::MAX), u64::MAX);
    }
}
