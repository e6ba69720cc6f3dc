//! Settings of environments: one table with names, types, defaults and descriptions, and their
//! typed values.

use std::collections::BTreeMap;
use std::time::Duration;

use orrery_api::{SettingSection, SettingType};
use orrery_model::{AgentAddress, DriftPolicies, DriftPolicy};
use orrery_scheduler::{Cron, Interval, Retry, Settings};
use orrery_store::SettingRecord;
use serde_json::{Value, json};

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    Bool,
    /// Integer, zero or more.
    Integer,
    /// Number, zero or more.
    Number,
    /// Seconds as text, or a cron expression; 0 for never.
    Interval,
    /// Cron expression, or an empty text for never.
    Cron,
    /// List of names with `*` and `?` as wildcards; as a text, separated by commas or spaces.
    Patterns,
    /// Addresses by name with wildcards.
    Placements,
    /// Policies for drift by pattern of resource ids.
    DriftPolicies,
    /// One of the given values.
    Choice(&'static [&'static str]),
    /// Text in one line; may be empty.
    Text,
}

impl ValueType {
    pub fn name(self) -> SettingType {
        match self {
            ValueType::Bool => SettingType::Bool,
            ValueType::Integer => SettingType::Integer,
            ValueType::Number => SettingType::Number,
            ValueType::Interval => SettingType::Interval,
            ValueType::Cron => SettingType::Cron,
            ValueType::Patterns => SettingType::Patterns,
            ValueType::Placements => SettingType::Placements,
            ValueType::DriftPolicies => SettingType::DriftPolicies,
            ValueType::Choice(_) => SettingType::Choice,
            ValueType::Text => SettingType::Text,
        }
    }
}

/// Definition of a setting.
#[derive(Clone, Copy, Debug)]
pub struct SettingDefinition {
    pub name: &'static str,
    pub form: ValueType,
    pub section: SettingSection,
    pub doc: &'static str,
    /// Default as JSON.
    default: &'static str,
}

impl SettingDefinition {
    pub fn default(&self) -> Value {
        serde_json::from_str(self.default).unwrap_or_default()
    }
}

/// Reason for refusing a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSetting {
    #[error("there is no setting {0:?}")]
    Unknown(String),
    #[error("{name} must be {expected}: {given}")]
    Value { name: &'static str, expected: String, given: String },
}

const fn define(
    name: &'static str,
    form: ValueType,
    default: &'static str,
    section: SettingSection,
    doc: &'static str,
) -> SettingDefinition {
    SettingDefinition { name, form, section, doc, default }
}

/// All settings, by name.
pub const DEFINITIONS: [SettingDefinition; 22] = [
    define(
        "agent_placements",
        ValueType::Placements,
        "{}",
        SettingSection::Agent,
        "Addresses of agents by name, with * and ? as wildcards: local: is the machine on which the server runs handlers, \
         ssh://user@host:port another machine, none: no machine. {agent} in an address is the agent's name. The most specific \
         name applies, before addresses of the model, the inventory, remote agents and local_agents.",
    ),
    define(
        "allow_push",
        ValueType::Bool,
        "false",
        SettingSection::Environment,
        "Accepts pushed versions in an environment with a repository. Only administrators can change this.",
    ),
    define(
        "auto_deploy",
        ValueType::Bool,
        "true",
        SettingSection::Deploy,
        "Releases each version when it is stored.",
    ),
    define(
        "auto_full_compile",
        ValueType::Cron,
        r#""""#,
        SettingSection::Compiler,
        "Schedule of full compiles, as a cron expression in UTC. Empty: never.",
    ),
    define(
        "autostart_agent_deploy_interval",
        ValueType::Interval,
        r#""600""#,
        SettingSection::Agent,
        "Interval for retrying resources that are not compliant: seconds after their last run at the latest (and up to a tenth \
         earlier, to spread retries), or a cron expression in UTC. 0: never.",
    ),
    define(
        "autostart_agent_repair_interval",
        ValueType::Interval,
        r#""86400""#,
        SettingSection::Agent,
        "Interval for repairs, which verify every resource: seconds after its last run, or a cron expression in UTC. 0: never.",
    ),
    define(
        "autostart_on_start",
        ValueType::Bool,
        "true",
        SettingSection::Agent,
        "For compatibility: environments are always active when a server starts.",
    ),
    define(
        "available_versions_to_keep",
        ValueType::Integer,
        "100",
        SettingSection::Storage,
        "Number of versions to keep in addition to the deployed one.",
    ),
    define(
        "commit_status",
        ValueType::Choice(&["off", "github", "gitlab", "gitea"]),
        r#""off""#,
        SettingSection::Compiler,
        "Forge that receives the status of compiled commits: off, github, gitlab or gitea.",
    ),
    define(
        "commit_status_secret",
        ValueType::Text,
        r#""commit-status-token""#,
        SettingSection::Compiler,
        "Name of the secret with the token for commit_status.",
    ),
    define(
        "commit_status_url",
        ValueType::Text,
        r#""""#,
        SettingSection::Compiler,
        "Base URL of the forge's API. Empty: derived from the address of the repository.",
    ),
    define(
        "drift_policies",
        ValueType::DriftPolicies,
        "{}",
        SettingSection::Agent,
        "Reaction to changes of deployed resources that no deploy made, by resource id, with * and ? as wildcards: heal repairs \
         them, report only shows them, ask shows them and adds a notification. A requested deploy or repair repairs all of them. \
         The most specific pattern applies. Default: heal.",
    ),
    define(
        "environment_metrics_retention",
        ValueType::Integer,
        "336",
        SettingSection::Storage,
        "Retention of metrics in hours. 0: unlimited.",
    ),
    define(
        "local_agents",
        ValueType::Patterns,
        "[]",
        SettingSection::Agent,
        "Agents that are the machine on which the server runs handlers: names, with * and ? as wildcards. Their \
         files, commands and other machine resources are applied there, as for localhost, internal and the host's own name.",
    ),
    define(
        "notification_retention",
        ValueType::Integer,
        "365",
        SettingSection::Storage,
        "Retention of notifications in days.",
    ),
    define(
        "park_after_attempts",
        ValueType::Integer,
        "0",
        SettingSection::Scheduler,
        "Number of consecutive failures after which a resource is parked, with a notification: it is not retried until a deploy, \
         a repair or a new desired state requests it. 0: never, it is retried at each deploy interval.",
    ),
    define(
        "protected_environment",
        ValueType::Bool,
        "false",
        SettingSection::Environment,
        "Protects the environment from being cleared, destroyed or deleted. Only administrators can change this.",
    ),
    define(
        "recompile_backoff",
        ValueType::Number,
        "0.1",
        SettingSection::Compiler,
        "Minimum time between two compiles in seconds.",
    ),
    define(
        "repository_poll_interval",
        ValueType::Number,
        "60.0",
        SettingSection::Compiler,
        "Interval in seconds for polling the branch of the repository; a new commit is compiled. 0: never.",
    ),
    define(
        "reset_deploy_progress_on_start",
        ValueType::Bool,
        "false",
        SettingSection::Scheduler,
        "Ignores the recorded states of resources when the environment is loaded, and deploys everything again.",
    ),
    define(
        "resource_action_logs_retention",
        ValueType::Integer,
        "7",
        SettingSection::Storage,
        "Retention of resource logs in days.",
    ),
    define(
        "server_compile",
        ValueType::Bool,
        "true",
        SettingSection::Compiler,
        "Allows compiles on the server. Otherwise, requests to compile have no effect.",
    ),
];

/// True if only administrators may change the setting.
pub fn is_for_administrators(name: &str) -> bool {
    matches!(name, "allow_push" | "protected_environment")
}

pub fn definition(name: &str) -> Result<&'static SettingDefinition, InvalidSetting> {
    let found = DEFINITIONS.iter().find(|definition| definition.name == name);
    found.ok_or_else(|| InvalidSetting::Unknown(name.to_owned()))
}

/// Limits of a list of patterns: each is matched against every agent.
const PATTERNS_MAX: usize = 1_000;
const PATTERN_BYTES_MAX: usize = 255;

/// Validates a value and converts it to its stored form.
pub fn check(definition: &SettingDefinition, value: &Value) -> Result<Value, InvalidSetting> {
    let wrong = |expected: &str| InvalidSetting::Value {
        name: definition.name,
        expected: expected.to_owned(),
        given: value.to_string().chars().take(200).collect(),
    };
    match definition.form {
        ValueType::Bool => match value {
            Value::Bool(_) => Ok(value.clone()),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(json!(true)),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(json!(false)),
            _ => Err(wrong("true or false")),
        },
        ValueType::Integer => {
            let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
            let number = number.and_then(|number| u32::try_from(number).ok());
            number.map(|number| json!(number)).ok_or_else(|| wrong("a whole number, 0 or more"))
        }
        ValueType::Number => {
            let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
            // A year, which bounds additions to times.
            let number = number.filter(|number| (0.0..=31_536_000.0).contains(number));
            number.map(|number| json!(number)).ok_or_else(|| wrong("a number, 0 or more"))
        }
        ValueType::Interval => {
            let text = match value {
                Value::String(text) => text.trim().to_owned(),
                Value::Number(number) if number.is_u64() => number.to_string(),
                _ => return Err(wrong("a number of seconds as text, or a cron expression")),
            };
            match text.parse::<Interval>() {
                Ok(_) => Ok(json!(text)),
                Err(error) => {
                    Err(wrong(&format!("a number of seconds or a cron expression ({error})")))
                }
            }
        }
        ValueType::Cron => {
            let text = value.as_str().ok_or_else(|| wrong("a cron expression, or empty"))?.trim();
            if text.is_empty() {
                return Ok(json!(""));
            }
            match text.parse::<Cron>() {
                Ok(_) => Ok(json!(text)),
                Err(error) => Err(wrong(&format!("a cron expression ({error})"))),
            }
        }
        ValueType::Patterns => {
            let given: Option<Vec<&str>> = match value {
                Value::String(text) => Some(text.split([',', ' ']).collect()),
                Value::Array(items) => items.iter().map(Value::as_str).collect(),
                _ => None,
            };
            let given = given.ok_or_else(|| wrong("a list of agent names"))?;
            let patterns: Vec<&str> =
                given.into_iter().map(str::trim).filter(|pattern| !pattern.is_empty()).collect();
            let is_long = patterns.iter().any(|pattern| pattern.len() > PATTERN_BYTES_MAX);
            if is_long || patterns.len() > PATTERNS_MAX {
                return Err(wrong(&format!(
                    "at most {PATTERNS_MAX} agent names of at most {PATTERN_BYTES_MAX} bytes each"
                )));
            }
            Ok(json!(patterns))
        }
        ValueType::Placements => check_placements(value).map_err(|reason| wrong(&reason)),
        ValueType::DriftPolicies => check_drift_policies(value).map_err(|reason| wrong(&reason)),
        ValueType::Choice(words) => match value.as_str().map(str::trim) {
            Some(text) if words.contains(&text) => Ok(json!(text)),
            _ => Err(wrong(&format!("one of {}", words.join(", ")))),
        },
        ValueType::Text => match value.as_str().map(str::trim) {
            Some(text) if text.chars().count() <= TEXT_MAX && !text.contains(char::is_control) => {
                Ok(json!(text))
            }
            _ => Err(wrong("a text in one line")),
        },
    }
}

/// Validates addresses of agents by pattern; returns what is expected otherwise.
fn check_placements(value: &Value) -> Result<Value, String> {
    let Value::Object(entries) = value else {
        return Err(
            r#"a mapping of agent names to addresses, such as {"web*": "ssh://deploy@{agent}"}"#
                .to_owned(),
        );
    };
    if entries.len() > PATTERNS_MAX
        || entries.keys().any(|name| name.is_empty() || name.len() > PATTERN_BYTES_MAX)
    {
        return Err(format!(
            "at most {PATTERNS_MAX} agent names of 1 to {PATTERN_BYTES_MAX} bytes each"
        ));
    }
    let mut checked = BTreeMap::new();
    for (name, address) in entries {
        let address = address.as_str().map(str::trim);
        let address = address.filter(|address| !address.is_empty());
        let address = address.ok_or_else(|| format!("a mapping with an address for {name}"))?;
        if let Err(error) = address.replace("{agent}", "agent").parse::<AgentAddress>() {
            return Err(format!("a mapping with an address for {name} ({error})"));
        }
        checked.insert(name, address);
    }
    Ok(json!(checked))
}

/// Validates policies for drift by pattern; returns what is expected otherwise.
fn check_drift_policies(value: &Value) -> Result<Value, String> {
    let words = DriftPolicy::ALL.map(DriftPolicy::as_str).join(", ");
    let Value::Object(entries) = value else {
        return Err(format!(
            r#"a mapping of resource ids to {words}, such as {{"std::File[db*": "report"}}"#
        ));
    };
    if entries.len() > PATTERNS_MAX
        || entries.keys().any(|pattern| pattern.is_empty() || pattern.len() > TEXT_MAX)
    {
        return Err(format!("at most {PATTERNS_MAX} patterns of 1 to {TEXT_MAX} bytes each"));
    }
    let mut checked = BTreeMap::new();
    for (pattern, policy) in entries {
        let known = DriftPolicy::ALL.into_iter().map(DriftPolicy::as_str);
        let policy = policy
            .as_str()
            .map(str::trim)
            .and_then(|given| known.into_iter().find(|known| *known == given));
        let policy =
            policy.ok_or_else(|| format!("a mapping with one of {words} for {pattern}"))?;
        checked.insert(pattern, policy);
    }
    Ok(json!(checked))
}

/// Maximum length of a text in characters.
const TEXT_MAX: usize = 2048;

/// Typed settings of an environment.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentSettings {
    pub allow_push: bool,
    pub auto_deploy: bool,
    pub auto_full_compile: Option<Cron>,
    /// Kind of forge that receives commit statuses, or `off`.
    pub commit_status: String,
    /// Name of the secret with the token for it.
    pub commit_status_secret: String,
    /// Base URL of its API; empty for the default.
    pub commit_status_url: String,
    pub deploy_interval: Interval,
    pub repair_interval: Interval,
    pub autostart_on_start: bool,
    pub available_versions_to_keep: u32,
    /// `None` for unlimited.
    pub metrics_retention: Option<Duration>,
    pub notification_retention: Duration,
    /// `None` for never.
    pub park_after_attempts: Option<u32>,
    pub protected_environment: bool,
    pub recompile_backoff: Duration,
    /// `None` if the branch is not polled.
    pub poll_interval: Option<Duration>,
    pub reset_deploy_progress_on_start: bool,
    pub action_logs_retention: Duration,
    pub server_compile: bool,
    /// Patterns of agents that are the machine on which handlers run.
    pub local_agents: Vec<String>,
    /// Addresses by pattern of agents.
    pub agent_placements: BTreeMap<String, String>,
    /// Reactions to drift.
    pub drift_policies: DriftPolicies,
}

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

impl EnvironmentSettings {
    /// From stored records; missing or unreadable values have their defaults.
    pub fn from_records(records: &[SettingRecord]) -> Self {
        let values = records.iter().map(|record| (record.name.as_str(), &record.value));
        Self::from_values(&values.collect())
    }

    /// From values by name.
    pub fn from_map(values: &BTreeMap<String, Value>) -> Self {
        Self::from_values(&values.iter().map(|(name, value)| (name.as_str(), value)).collect())
    }

    fn from_values(values: &BTreeMap<&str, &Value>) -> Self {
        let of = |name: &str| {
            let Ok(definition) = definition(name) else { return Value::Null };
            let given = values.get(name).and_then(|value| check(definition, value).ok());
            given.unwrap_or_else(|| definition.default())
        };
        let flag = |name| of(name).as_bool().unwrap_or_default();
        let count = |name| of(name).as_u64().unwrap_or_default();
        let text = |name| of(name).as_str().unwrap_or_default().to_owned();
        let interval = |name| text(name).parse().unwrap_or(Interval::Off);
        let metrics = count("environment_metrics_retention");
        let seconds = |name| of(name).as_f64().unwrap_or_default();
        let poll = seconds("repository_poll_interval");
        EnvironmentSettings {
            allow_push: flag("allow_push"),
            auto_deploy: flag("auto_deploy"),
            auto_full_compile: text("auto_full_compile").parse().ok(),
            commit_status: text("commit_status"),
            commit_status_secret: text("commit_status_secret"),
            commit_status_url: text("commit_status_url"),
            deploy_interval: interval("autostart_agent_deploy_interval"),
            repair_interval: interval("autostart_agent_repair_interval"),
            autostart_on_start: flag("autostart_on_start"),
            available_versions_to_keep: u32::try_from(count("available_versions_to_keep"))
                .unwrap_or(u32::MAX),
            metrics_retention: (metrics > 0).then(|| Duration::from_secs(metrics * HOUR)),
            notification_retention: Duration::from_secs(count("notification_retention") * DAY),
            park_after_attempts: u32::try_from(count("park_after_attempts"))
                .ok()
                .filter(|attempts| *attempts > 0),
            protected_environment: flag("protected_environment"),
            recompile_backoff: Duration::from_secs_f64(seconds("recompile_backoff")),
            poll_interval: (poll > 0.0).then(|| Duration::from_secs_f64(poll)),
            reset_deploy_progress_on_start: flag("reset_deploy_progress_on_start"),
            action_logs_retention: Duration::from_secs(
                count("resource_action_logs_retention") * DAY,
            ),
            server_compile: flag("server_compile"),
            local_agents: serde_json::from_value(of("local_agents")).unwrap_or_default(),
            agent_placements: serde_json::from_value(of("agent_placements")).unwrap_or_default(),
            drift_policies: serde_json::from_value(of("drift_policies")).unwrap_or_default(),
        }
    }
}

impl EnvironmentSettings {
    /// Returns the settings for the scheduler.
    pub fn scheduling(&self) -> Settings {
        Settings {
            deploy_interval: self.deploy_interval.clone(),
            repair_interval: self.repair_interval.clone(),
            retry: Retry { attempts_max: self.park_after_attempts, ..Retry::default() },
            ..Settings::default()
        }
    }
}

impl Default for EnvironmentSettings {
    fn default() -> Self {
        Self::from_values(&BTreeMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_keep_their_form() {
        for definition in &DEFINITIONS {
            assert_eq!(check(definition, &definition.default()), Ok(definition.default()));
        }
        let settings = EnvironmentSettings::default();
        assert!(settings.auto_deploy && settings.server_compile);
        assert_eq!(settings.deploy_interval, Interval::Every(Duration::from_secs(600)));
        assert_eq!(settings.auto_full_compile, None);
        assert_eq!(settings.metrics_retention, Some(Duration::from_secs(336 * 3600)));
    }

    #[test]
    fn values_are_validated_and_normalized() {
        let of = |name: &str, value: Value| check(definition(name).unwrap(), &value);
        assert_eq!(of("auto_deploy", json!("False")), Ok(json!(false)));
        assert!(of("auto_deploy", json!(1)).is_err());
        assert_eq!(of("autostart_agent_deploy_interval", json!(30)), Ok(json!("30")));
        assert_eq!(
            of("autostart_agent_repair_interval", json!(" 0 3 * * * ")),
            Ok(json!("0 3 * * *"))
        );
        assert!(of("autostart_agent_repair_interval", json!("sometimes")).is_err());
        assert!(of("autostart_agent_repair_interval", json!(-1)).is_err());
        assert!(of("recompile_backoff", json!(-0.5)).is_err());
        assert!(of("recompile_backoff", json!("inf")).is_err());
        assert_eq!(of("recompile_backoff", json!("2.5")), Ok(json!(2.5)));
        assert!(of("available_versions_to_keep", json!(1.5)).is_err());
        assert_eq!(of("auto_full_compile", json!("")), Ok(json!("")));
        assert!(of("auto_full_compile", json!("* *")).is_err());
        assert_eq!(of("local_agents", json!("web1, lab-* x")), Ok(json!(["web1", "lab-*", "x"])));
        assert_eq!(of("local_agents", json!([" a ", ""])), Ok(json!(["a"])));
        assert!(of("local_agents", json!([1])).is_err());
        assert!(of("local_agents", json!({})).is_err());
        assert!(of("local_agents", json!(["x".repeat(256)])).is_err());
        let placements =
            json!({"web*": " ssh://deploy@{agent}:22 ", "db1": "none:", "x": "local:"});
        let checked = json!({"db1": "none:", "web*": "ssh://deploy@{agent}:22", "x": "local:"});
        assert_eq!(of("agent_placements", placements), Ok(checked));
        for wrong in [
            json!("x"),
            json!({"a": 1}),
            json!({"a": ""}),
            json!({"": "none:"}),
            json!({"a": "ftp://x"}),
        ] {
            assert!(of("agent_placements", wrong.clone()).is_err(), "{wrong}");
        }
        assert_eq!(of("commit_status", json!(" gitlab ")), Ok(json!("gitlab")));
        assert!(of("commit_status", json!("elsewhere")).is_err());
        assert!(of("commit_status_url", json!("a\nb")).is_err());
        assert!(definition("nothing").is_err());
    }
}
