//! Built-in modules: their model files as text. Their plugins are in `plugins`.

/// A module that is part of the binary.
#[derive(Clone, Copy, Debug)]
pub struct BuiltinModule {
    pub name: &'static str,
    pub version: &'static str,
    /// True if a Python package of this name takes precedence, because it may bring more than these
    /// entities, such as its own handlers.
    pub yields_to_installed: bool,
    /// Packages of an older major version take precedence too: they belong to another generation.
    pub oldest_major: u32,
    /// Path below the module's directory and text of every file.
    pub files: &'static [(&'static str, &'static str)],
}

macro_rules! files {
    ($module:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../modules/", $module, "/", $path)))),*]
    };
}

/// All built-in modules, sorted by name.
pub fn builtin_modules() -> &'static [BuiltinModule] {
    const MODULES: &[BuiltinModule] = &[
        BuiltinModule {
            name: "agents",
            version: "0.1.0",
            yields_to_installed: true,
            oldest_major: 0,
            files: files!("agents": "module.yml", "model/_init.cf"),
        },
        BuiltinModule {
            name: "cron",
            version: "1.0.13",
            yields_to_installed: true,
            oldest_major: 0,
            files: files!("cron": "module.yml", "model/_init.cf"),
        },
        BuiltinModule {
            name: "exec",
            version: "2.1.1",
            yields_to_installed: true,
            oldest_major: 0,
            files: files!("exec": "module.yml", "model/_init.cf"),
        },
        BuiltinModule {
            name: "http",
            version: "0.1.0",
            yields_to_installed: true,
            oldest_major: 0,
            files: files!("http": "module.yml", "model/_init.cf"),
        },
        BuiltinModule {
            name: "ip",
            version: "2.0.3",
            yields_to_installed: false,
            oldest_major: 0,
            files: files!("ip": "module.yml", "model/_init.cf", "model/services.cf"),
        },
        BuiltinModule {
            name: "net",
            version: "1.1.3",
            yields_to_installed: false,
            oldest_major: 0,
            files: files!("net": "module.yml", "model/_init.cf"),
        },
        BuiltinModule {
            name: "std",
            version: "8.7.5",
            yields_to_installed: false,
            oldest_major: 6,
            files: files!("std": "module.yml", "model/_init.cf", "model/testing.cf"),
        },
        BuiltinModule {
            name: "user",
            version: "0.1.23",
            yields_to_installed: true,
            oldest_major: 0,
            files: files!("user": "module.yml", "model/_init.cf"),
        },
    ];
    MODULES
}

/// The text of a file of a built-in module.
pub fn find(module: &str, path: &str) -> Option<&'static str> {
    let module = builtin_modules().iter().find(|other| other.name == module)?;
    module.files.iter().find(|(other, _)| *other == path).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_sorted_and_agree_with_their_metadata() {
        assert!(builtin_modules().is_sorted_by_key(|module| module.name));
        for module in builtin_modules() {
            let metadata = module.files.iter().find(|(path, _)| *path == "module.yml");
            let (_, metadata) = metadata.expect("every module has metadata");
            assert!(metadata.contains(&format!("\nname: {}\n", module.name)), "{}", module.name);
            assert!(metadata.contains(&format!("\nversion: {}\n", module.version)));
            assert!(module.files.iter().any(|(path, _)| *path == "model/_init.cf"));
        }
    }
}
