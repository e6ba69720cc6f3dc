//! Module metadata: `module.yml` in the module path, `setup.cfg` in a package.

use std::path::Path;

use crate::error::CompileError;
use crate::files::Files;
use crate::ini;
use crate::metadata::{self, MetadataError, MetadataReader};
use crate::pep440;
use crate::yaml::Yaml;

pub(super) struct Description {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) deprecated: bool,
    pub(super) requires: Vec<String>,
}

const PACKAGE_PREFIX: &str = "inmanta-module-";

impl Description {
    pub(super) fn of_module_path(
        files: &dyn Files,
        path: &Path,
        shown: &str,
    ) -> Result<Self, MetadataError> {
        let fields = metadata::read_yaml(files, path, shown)?;
        let mut checks = MetadataReader::new(&fields);
        let name = checks.required_text("name");
        let version = checks.required_text("version");
        if matches!(fields.get("version"), Some(Yaml::Text(_) | Yaml::Int(_) | Yaml::Float(_))) {
            check_version(&mut checks, "version", &version);
        }
        checks.required_text("license");
        checks.common();
        let deprecated = checks.boolean("deprecated", true);
        if let Some(wanted) = checks.optional_text("compiler_version") {
            // A value that is not a text has already been refused.
            if !wanted.is_empty() {
                check_version(&mut checks, "compiler_version", &wanted);
            }
        }
        let requires = checks.texts("requires");
        checks.finish(shown, "ModuleV1Metadata")?;
        Ok(Description { name, version, deprecated, requires })
    }

    pub(super) fn of_package(
        files: &dyn Files,
        path: &Path,
        shown: &str,
    ) -> Result<Self, MetadataError> {
        let text = metadata::read(files, path, shown)?;
        let syntax = |reason: String| {
            MetadataError::Content(format!("Invalid syntax in {shown}:\n{reason}"))
        };
        let options = ini::parse(&text).map_err(syntax)?;
        if !options.has_section("metadata") {
            let text = format!("Metadata file {shown} doesn't have a metadata section.");
            return Err(MetadataError::Content(text));
        }
        let mut fields = Vec::new();
        for key in [
            "name",
            "version",
            "license",
            "description",
            "deprecated",
            "freeze_recursive",
            "freeze_operator",
            "four_digit_version",
        ] {
            if let Some(value) = options.get("metadata", key) {
                check_interpolation(value).map_err(syntax)?;
                fields.push((Yaml::Text(key.into()), Yaml::Text(value.into())));
            }
        }
        let fields = Yaml::Map(fields);
        let mut checks = MetadataReader::new(&fields);
        let package = checks.required_text("name");
        let name = package.strip_prefix(PACKAGE_PREFIX).filter(|name| !name.is_empty());
        if name.is_none() && fields.get("name").is_some() {
            checks.refuse(
                "name",
                format!("The name field should follow the format \"{PACKAGE_PREFIX}<module-name>\", but it is `{package}`"),
            );
        }
        let name = name.unwrap_or_default().replace('-', "_");
        let version = checks.required_text("version");
        if fields.get("version").is_some() {
            check_version(&mut checks, "version", &version);
            if pep440::is_version(&version) && !pep440::is_base_version(&version) {
                checks.refuse(
                    "version",
                    "setup.cfg version should be a base version without tag. Use egg_info.tag_build to configure a tag",
                );
            }
        }
        checks.required_text("license");
        checks.common();
        let deprecated = checks.boolean("deprecated", false);
        checks.boolean("four_digit_version", false);
        if let Some(tag) = options.get("egg_info", "tag_build").map(str::trim)
            && !tag.is_empty()
            && !pep440::is_version(&format!("1.0.0.{}", tag.trim_start_matches('.')))
        {
            checks.refuse("version_tag", format!("Version tag {tag} is not PEP440 compliant"));
        }
        checks.finish(shown, "ModuleV2Metadata")?;
        Ok(Description { name, version, deprecated, requires: Vec::new() })
    }
}

fn check_version(checks: &mut MetadataReader<'_>, key: &str, version: &str) {
    if !pep440::is_version(version) {
        checks.refuse(key, format!("Version {version} is not PEP440 compliant"));
    }
}

/// A percent sign refers to another option in these files, unless it is doubled.
fn check_interpolation(value: &str) -> Result<(), String> {
    let mut rest = value;
    while let Some(at) = rest.find('%') {
        let after = &rest[at + 1..];
        if !after.starts_with(['%', '(']) {
            let found = orrery_python::repr_str(&rest[at..]);
            return Err(format!("'%' must be followed by '%' or '(', found: {found}"));
        }
        rest = &after[1..];
    }
    Ok(())
}

impl MetadataError {
    /// Converts to the error for a module in the module path.
    pub(super) fn of_module_path(self, name: &str, shown: &str) -> Box<CompileError> {
        let outer = match self {
            MetadataError::Content(_) => {
                format!("The module found at {shown} is not a valid V1 module")
            }
            MetadataError::Form(_) => format!("Could not load module {name}"),
        };
        CompileError::new("InvalidModuleException", outer).caused_by(self.cause())
    }

    /// Converts to the error for an installed module.
    pub(super) fn of_package(self, name: &str) -> Box<CompileError> {
        CompileError::new("InvalidModuleException", format!("Could not load module {name}"))
            .caused_by(self.cause())
    }

    fn cause(self) -> Box<CompileError> {
        CompileError::new(
            "InvalidMetadata",
            format!("inmanta.module.InvalidMetadata: {}", self.text()),
        )
    }
}
