//! Names of Python packages: their normal form, and names in requirement lines.
//!
//! Specifiers and markers are not parsed here: pip, uv and `helper.py` evaluate them with the
//! interpreter that the packages are for. Names need nothing of a parser for PEP 508, which would
//! also refuse old specifiers that pip still accepts.

/// Start of the package name of a module.
pub const MODULE_PREFIX: &str = "inmanta-module-";

/// Normalized package name of PEP 503: case, and runs of `-`, `_` and `.`, do not matter.
pub fn normalize(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for c in name.chars() {
        if !matches!(c, '-' | '_' | '.') {
            normal.push(c.to_ascii_lowercase());
        } else if !normal.ends_with('-') {
            normal.push('-');
        }
    }
    normal
}

/// Splits a requirement line after the package name.
pub(crate) fn split_name(line: &str) -> (&str, &str) {
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c));
    line.split_at(end.unwrap_or(line.len()))
}

/// Normalized package name of a requirement.
pub(crate) fn of_requirement(line: &str) -> String {
    normalize(split_name(line).0)
}

/// Package name of a module.
pub(crate) fn of_module(module: &str) -> String {
    format!("{MODULE_PREFIX}{}", of_requirement(module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_packages_have_equal_names() {
        for name in ["a-b", "A_b", "a.B", "a__b", "a-_.b"] {
            assert_eq!(normalize(name), "a-b", "{name}");
        }
        assert_eq!(of_requirement("Py_YAML[x]>=6 ; python_version > '3'"), "py-yaml");
        assert_eq!(of_module("my_shop"), "inmanta-module-my-shop");
    }
}
