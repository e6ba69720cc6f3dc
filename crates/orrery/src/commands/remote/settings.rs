//! `orrery environment setting`.

use orrery_api::{Setting, SettingUpdate};
use serde_json::Value;

use super::table::{Table, properties, yes};
use super::{print_json, read_list, show_done, show_list};
use crate::Exit;
use crate::cli::environment::SettingAction;
use crate::error::CliError;
use crate::remote::RemoteEnvironment;
use crate::style;

pub(super) fn run(
    of: &RemoteEnvironment,
    action: SettingAction,
    json: bool,
) -> Result<Exit, CliError> {
    match action {
        SettingAction::List => {
            let found = read_list(of.client.list::<Setting>(&of.path(&["settings"])), None)?;
            let table = Table::new("setting", &["NAME", "VALUE", "SET", "TYPE", "DESCRIPTION"]);
            show_list(json, &found, table, |setting| {
                let value = setting.value.to_string();
                let set = match (&setting.protected_by, setting.set) {
                    (Some(by), _) => format!("by {by}"),
                    (None, set) => yes(set).to_owned(),
                };
                let kind = setting.r#type.to_string();
                vec![setting.name.clone(), value, set, kind, setting.doc.clone()]
            })
        }
        SettingAction::Get { name } => show(&of.client.get(&of.path(&["settings", &name]))?, json),
        SettingAction::Set { name, value } => {
            // Invalid JSON is a plain string, so that strings need no quotes.
            let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
            let at = of.path(&["settings", &name]);
            print_setting(&of.client.put(&at, &SettingUpdate { value })?, json)
        }
        SettingAction::Reset { name } => {
            print_setting(&of.client.delete(&of.path(&["settings", &name]))?, json)
        }
    }
}

fn print_setting(now: &Setting, json: bool) -> Result<Exit, CliError> {
    let (name, value) = (style::sanitize(&now.name), style::sanitize(&now.value.to_string()));
    show_done(json, now, &format!("{name} is {value}"))
}

fn show(setting: &Setting, json: bool) -> Result<Exit, CliError> {
    if json {
        return print_json(setting);
    }
    properties(&[
        ("name", setting.name.clone()),
        ("value", setting.value.to_string()),
        ("default", setting.default.to_string()),
        ("type", setting.r#type.to_string()),
        ("description", setting.doc.clone()),
        ("protected", setting.protected_by.clone().unwrap_or_default()),
    ])
}
