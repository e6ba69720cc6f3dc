//! Invocation of pip for a project, from its settings.

use std::process::Command;

use orrery_model::PipSettings;

/// Environment variables of package sources, removed if only the project's index applies.
const SOURCE_VARIABLES: [&str; 5] =
    ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_PRE"];

/// Returns true if packages come only from the project's index. A project without an index uses the
/// machine's configuration.
fn uses_only_project_index(settings: &PipSettings) -> bool {
    let names_index = settings.index_url.is_some() || !settings.extra_index_url.is_empty();
    names_index && !settings.use_system_config
}

/// Arguments of `pip install`.
pub fn arguments(settings: &PipSettings) -> Vec<String> {
    let mut arguments = Vec::new();
    if let Some(url) = &settings.index_url {
        arguments.extend(["--index-url".to_owned(), url.clone()]);
    }
    for url in &settings.extra_index_url {
        arguments.extend(["--extra-index-url".to_owned(), url.clone()]);
    }
    if settings.pre == Some(true) {
        arguments.push("--pre".to_owned());
    }
    arguments
}

/// Returns the variables that enable or disable pip's own configuration; those without a value are
/// removed. Environment variables for proxies, certificates and caches always apply: they belong to
/// the machine.
pub fn variables(settings: &PipSettings) -> Vec<(&'static str, Option<&'static str>)> {
    if uses_only_project_index(settings) {
        let removed = SOURCE_VARIABLES.into_iter().map(|name| (name, None));
        return std::iter::once(("PIP_CONFIG_FILE", Some("/dev/null"))).chain(removed).collect();
    }
    if settings.pre == Some(false) { vec![("PIP_PRE", Some("0"))] } else { Vec::new() }
}

/// Sets these variables for a command.
pub fn configure<'c>(command: &'c mut Command, settings: &PipSettings) -> &'c mut Command {
    for (name, value) in variables(settings) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_arguments_and_variables() {
        let text = r#"{"index-url": "https://one.example", "extra_index_url": ["https://two.example"], "pre": true}"#;
        let mut settings: PipSettings = serde_json::from_str(text).unwrap();
        let wanted = [
            "--index-url",
            "https://one.example",
            "--extra-index-url",
            "https://two.example",
            "--pre",
        ];
        assert_eq!(arguments(&settings), wanted);
        let variables = |settings: &PipSettings| -> Vec<(String, Option<String>)> {
            let mut command = Command::new("true");
            configure(&mut command, settings);
            let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
            command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect()
        };
        let alone = variables(&settings);
        assert!(alone.contains(&("PIP_CONFIG_FILE".to_owned(), Some("/dev/null".to_owned()))));
        assert!(alone.contains(&("PIP_INDEX_URL".to_owned(), None)));
        settings.use_system_config = true;
        assert!(variables(&settings).is_empty());
        let said = PipSettings { pre: Some(false), ..PipSettings::default() };
        assert_eq!(variables(&said), [("PIP_PRE".to_owned(), Some("0".to_owned()))]);
        assert!(variables(&PipSettings::default()).is_empty());
        assert!(arguments(&PipSettings::default()).is_empty());
    }
}
