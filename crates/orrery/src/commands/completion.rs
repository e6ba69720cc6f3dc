//! `orrery completion`: shell completion scripts.

use clap::{CommandFactory, ValueHint};

use crate::cli::{Cli, Completion, Shell};
use crate::{Exit, output};

pub(crate) fn run(options: &Completion) -> Exit {
    let shell = match options.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(&Cli::command()), "orrery", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = with_names(options.shell, &script, &cluster_commands());
    if output::print(|out| out.write_all(script.as_bytes())) { Exit::Done } else { Exit::Error }
}

/// Commands of `orrery cluster` whose first argument is a cluster.
fn cluster_commands() -> Vec<String> {
    let command = Cli::command();
    let Some(cluster) = command.find_subcommand("cluster") else { return Vec::new() };
    let names_cluster = |command: &&clap::Command| {
        let mut first = command.get_positionals();
        first.next().is_some_and(|argument| argument.get_id() == "cluster")
    };
    let commands = cluster.get_subcommands().filter(names_cluster);
    commands.map(|command| command.get_name().to_owned()).collect()
}

/// Adds names of clusters and templates, which `orrery complete-names` reads from the server.
fn with_names(shell: Shell, script: &str, commands: &[String]) -> String {
    match shell {
        Shell::Bash => format!("{script}{}", BASH.replace("@COMMANDS@", &commands.join("|"))),
        Shell::Fish => format!("{script}{}", FISH.replace("@COMMANDS@", &commands.join(" "))),
        Shell::Zsh => {
            let mut lines: Vec<String> = Vec::new();
            for line in script.lines() {
                let names = if line.starts_with("':cluster -- ") {
                    "_orrery_clusters"
                } else if line.starts_with("':template -- ") || line.starts_with("'--template=[") {
                    "_orrery_templates"
                } else {
                    ""
                };
                // An argument ends with its action, which is empty for names.
                lines.push(match line.strip_suffix(":' \\") {
                    Some(start) if !names.is_empty() => format!("{start}:{names}' \\"),
                    _ => line.to_owned(),
                });
            }
            let head = lines.iter().position(|line| !line.starts_with('#')).unwrap_or(0);
            lines.insert(head, ZSH.to_owned());
            lines.join("\n") + "\n"
        }
    }
}

const BASH: &str = r#"
_orrery_with_names() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" kind=""
    case "$cur:$prev" in
        -*) ;;
        *:--template) kind=templates ;;
        *) if [ "$COMP_CWORD" -eq 3 ] && [ "${COMP_WORDS[1]}" = cluster ]; then
            case "$prev" in
                @COMMANDS@) kind=clusters ;;
                solve) kind=templates ;;
            esac
        fi ;;
    esac
    if [ -n "$kind" ]; then
        COMPREPLY=($(compgen -W "$(orrery complete-names "$kind" 2>/dev/null)" -- "$cur"))
    else
        _orrery "$@"
    fi
}
complete -F _orrery_with_names -o bashdefault -o default orrery
"#;

const FISH: &str = r#"
function __orrery_third
    set -l words (commandline -opc)
    test (count $words) -eq 3; and test "$words[2]" = cluster; and contains -- "$words[3]" $argv
end
complete -c orrery -n "__orrery_third @COMMANDS@" -f -a "(orrery complete-names clusters 2>/dev/null)"
complete -c orrery -n "__orrery_third solve" -f -a "(orrery complete-names templates 2>/dev/null)"
complete -c orrery -n "__fish_seen_subcommand_from cluster" -l template -x -a "(orrery complete-names templates 2>/dev/null)"
"#;

const ZSH: &str = r#"
_orrery_clusters() {
    local -a names; names=(${(f)"$(orrery complete-names clusters 2>/dev/null)"}); compadd -a names
}
_orrery_templates() {
    local -a names; names=(${(f)"$(orrery complete-names templates 2>/dev/null)"}); compadd -a names
}
"#;

/// Removes hidden commands, and file completion where no file is expected.
fn offered(command: &clap::Command) -> clap::Command {
    // Leaked: the process ends soon.
    let name: &'static str = command.get_name().to_owned().leak();
    let mut offered = clap::Command::new(name);
    if let Some(about) = command.get_about() {
        offered = offered.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        let version: &'static str = version.to_owned().leak();
        offered = offered.version(version);
    }
    for alias in command.get_visible_aliases() {
        let alias: &'static str = alias.to_owned().leak();
        offered = offered.visible_alias(alias);
    }
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let argument = match argument.get_value_hint() {
            // Arguments with paths have a hint; all others are names, numbers and texts.
            ValueHint::Unknown if argument.get_action().takes_values() => {
                argument.clone().value_hint(ValueHint::Other)
            }
            _ => argument.clone(),
        };
        offered = offered.arg(argument);
    }
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    offered.subcommands(shown.map(self::offered))
}
