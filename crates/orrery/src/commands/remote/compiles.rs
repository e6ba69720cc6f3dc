//! `orrery compile request`, `list`, `show`, `queue`, `cancel`: compiles on a server.

use std::time::Duration;

use orrery_api::client::query;
use orrery_api::{
    Compile, CompileDetails, CompileOutput, CompileProblem, CompileState, NewCompile, OutputStream,
    VersionReleased,
};
use uuid::Uuid;

use super::table::{Table, moment, moment_or, properties};
use super::{print_json, read_list, show_done, show_list};
use crate::cli_things::{CompileAction, CompileRequest};
use crate::commands::deploy::on_server;
use crate::commands::trouble::{Trouble, finish};
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

const LOOK_EVERY: Duration = Duration::from_millis(300);

pub(crate) fn compile(action: CompileAction) -> Exit {
    finish(run(action))
}

fn run(action: CompileAction) -> Result<Exit, Trouble> {
    match action {
        CompileAction::Request(options) => request(options),
        CompileAction::List { limit, ask } => {
            let of = ask.in_environment()?;
            let pages = of.client.list::<Compile>(&of.path(&["compiles"]));
            list(&read_list(pages, Some(limit))?, ask.json)
        }
        CompileAction::Queue { ask } => {
            let of = ask.in_environment()?;
            let pages = of.client.list::<Compile>(&of.path(&["compiles", "queue"]));
            list(&read_list(pages, None)?, ask.json)
        }
        CompileAction::Show { id, follow, ask } => {
            let of = ask.in_environment()?;
            if follow && !ask.json {
                return self::follow(&of, id);
            }
            if follow {
                wait(&of, id, &mut |_| {})?;
            }
            let mut found: CompileDetails = of.client.get(&at(&of, id, None))?;
            while found.more {
                let more: CompileDetails = of.client.get(&at(&of, id, Some(found.next)))?;
                found.output.extend(more.output);
                (found.next, found.more) = (more.next, more.more);
            }
            show(&found, ask.json)
        }
        CompileAction::Cancel { id, ask } => {
            let of = ask.in_environment()?;
            let now: Compile = of.client.act(&of.path(&["compiles", &id.to_string(), "cancel"]))?;
            show_done(ask.json, &now, &format!("cancelled compile {id}"))
        }
    }
}

fn at(of: &RemoteEnvironment, id: Uuid, after: Option<i64>) -> String {
    let after = after.map(|place| place.to_string());
    query(&of.path(&["compiles", &id.to_string()]), &[("after", after.as_deref())])
}

fn request(options: CompileRequest) -> Result<Exit, Trouble> {
    let CompileRequest { no_update, update: _, reinstall, check, message, follow, deploy, ask } =
        options;
    let of = ask.in_environment()?;
    if of.details()?.repository.is_empty() {
        let trouble = Trouble::said(format!("{} has no repository to compile", of.place()));
        let help = "name one with `orrery environment update --repository URL`, or push what is compiled here with `orrery export`";
        return Err(trouble.help(help));
    }
    let update = !no_update;
    let new = NewCompile { update, reinstall, export: !check, message, ..NewCompile::default() };
    if deploy {
        return compile_and_deploy(&of, &new, ask.json);
    }
    let asked: Compile = of.client.post(&of.path(&["compiles"]), &new)?;
    if !follow {
        return show_done(
            ask.json,
            &asked,
            &format!(
                "the compile {} was asked for; it is {}",
                asked.id,
                style::harmless(&asked.transitioning_message)
            ),
        );
    }
    if !ask.json {
        output::say(&format!("requested compile {}", asked.id));
        return self::follow(&of, asked.id);
    }
    let details = wait(&of, asked.id, &mut |_| {})?;
    print_json(&details.compile)?;
    Ok(exit(&details))
}

/// Compiles, and waits until what it makes is deployed.
fn compile_and_deploy(
    of: &RemoteEnvironment,
    new: &NewCompile,
    json: bool,
) -> Result<Exit, Trouble> {
    let mut failed = None;
    let deployed = on_server::release(of, json, || {
        let asked: Compile = of.client.post(&of.path(&["compiles"]), new)?;
        let details = if json {
            wait(of, asked.id, &mut |_| {})?
        } else {
            output::say(&format!("requested compile {}", asked.id));
            heard(of, asked.id)?
        };
        let Some(version) = details.compile.version else {
            failed = Some(details);
            return Err(Trouble::said("the compile made no version"));
        };
        let at = of.path(&["versions", &version.to_string(), "release"]);
        let made: VersionReleased = of.client.post(&at, &on_server::DEPLOY_ALONG)?;
        Ok((version, made.operation))
    });
    match failed {
        Some(details) if json => {
            print_json(&details)?;
            Ok(exit(&details))
        }
        Some(details) => Ok(exit(&details)),
        None => deployed,
    }
}

fn word(compile: &Compile) -> &'static str {
    match compile.state {
        CompileState::Queued => "queued",
        CompileState::Running => "running",
        CompileState::Succeeded => "succeeded",
        CompileState::Failed => "failed",
        CompileState::Cancelled => "cancelled",
    }
}

fn list(found: &[Compile], json: bool) -> Result<Exit, Trouble> {
    let headings = ["ID", "STATE", "REQUESTED", "ENDED", "VERSION", "MESSAGE"];
    show_list(json, found, Table::new("compile", &headings), |compile| {
        let message = compile.metadata.get("message").and_then(|text| text.as_str());
        vec![
            compile.id.to_string(),
            word(compile).to_owned(),
            moment(&compile.requested),
            moment_or(compile.completed.as_ref(), "-"),
            compile.version.map_or_else(|| "-".to_owned(), |version| version.to_string()),
            message.unwrap_or_default().to_owned(),
        ]
    })
}

fn exit(details: &CompileDetails) -> Exit {
    match details.compile.state {
        CompileState::Failed | CompileState::Cancelled => Exit::Pending,
        _ => Exit::Done,
    }
}

fn version_text(compile: &Compile) -> String {
    let unchanged = if compile.unchanged { " (unchanged)" } else { "" };
    compile.version.map(|version| format!("{version}{unchanged}")).unwrap_or_default()
}

fn show(found: &CompileDetails, json: bool) -> Result<Exit, Trouble> {
    if json {
        return print_json(found);
    }
    let compile = &found.compile;
    properties(&[
        ("compile", compile.id.to_string()),
        ("state", word(compile).to_owned()),
        ("requested", moment(&compile.requested)),
        ("started", moment_or(compile.started.as_ref(), "")),
        ("ended", moment_or(compile.completed.as_ref(), "")),
        ("version", version_text(compile)),
        ("served by", compile.substitute.map(|id| id.to_string()).unwrap_or_default()),
    ])?;
    let mut text = String::new();
    for stage in &found.stages {
        let name = style::heading(&style::harmless(&stage.name));
        let end = match (stage.returncode, &stage.completed) {
            (Some(0), _) => style::good("done"),
            (Some(code), _) => style::error(&format!("ended with {code}")),
            (None, Some(_)) => "ended".to_owned(),
            (None, None) => style::help("running"),
        };
        text += &format!("\n{name}  {end}\n");
        let mut lines = Lines::default();
        let mut add = |line: &str| text += &format!("  {}\n", style::harmless(line));
        for piece in found.output.iter().filter(|piece| piece.stage == stage.position) {
            lines.hear(piece, &mut add);
        }
        lines.end(&mut add);
    }
    if !output::print_styled(&text) {
        return Ok(Exit::Error);
    }
    let written: String = found.output.iter().map(|piece| piece.text.as_str()).collect();
    tell_problems(found.errors.iter().filter(|problem| !is_in_output(problem, &written)));
    Ok(Exit::Done)
}

/// Output comes in pieces that end anywhere; people read lines.
#[derive(Default)]
struct Lines {
    /// The lines that have begun, of the output and of the errors.
    begun: [String; 2],
}

impl Lines {
    fn hear(&mut self, piece: &CompileOutput, tell: &mut dyn FnMut(&str)) {
        let begun = &mut self.begun[usize::from(piece.stream == OutputStream::Err)];
        *begun += &piece.text;
        let Some(end) = begun.rfind('\n') else { return };
        let rest = begun.split_off(end + 1);
        begun.lines().for_each(tell);
        *begun = rest;
    }

    /// Nothing more comes.
    fn end(&mut self, tell: &mut dyn FnMut(&str)) {
        for begun in &mut self.begun {
            if !begun.is_empty() {
                tell(&std::mem::take(begun));
            }
        }
    }
}

/// Whether the output of a compile has shown a problem: by its id, or in the words that are kept of it.
fn is_in_output(problem: &CompileProblem, written: &str) -> bool {
    let has_id = problem.id.as_ref().is_some_and(|id| written.contains(&format!("error[{id}]")));
    has_id || written.contains(problem.message.lines().next().unwrap_or_default())
}

fn tell_problems<'a>(problems: impl Iterator<Item = &'a CompileProblem>) {
    for problem in problems {
        let message = style::harmless(&problem.message);
        output::say(&format!("{}: {message}", style::error("error")));
        if let Some(location) = &problem.location {
            let place = format!("{}:{}", location.uri, location.range.start.line + 1);
            output::say(&format!("  --> {}", style::harmless(&place)));
        }
        if let Some(source) = &problem.source {
            output::say(&format!("   | {}", style::harmless(source)));
        }
        if let Some(help) = &problem.help {
            output::say(&format!("{}: {}", style::help("help"), style::harmless(help)));
        }
    }
}

/// Waits for the end of a compile; what it writes is handed on as it comes.
fn wait(
    of: &RemoteEnvironment,
    id: Uuid,
    heard: &mut dyn FnMut(&CompileDetails),
) -> Result<CompileDetails, Trouble> {
    let mut after = None;
    loop {
        let found: CompileDetails = of.client.get(&at(of, id, after))?;
        heard(&found);
        after = Some(found.next);
        let over = !matches!(found.compile.state, CompileState::Queued | CompileState::Running);
        match (found.more, over) {
            (true, _) => {}
            (false, true) => return Ok(found),
            (false, false) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn follow(of: &RemoteEnvironment, id: Uuid) -> Result<Exit, Trouble> {
    Ok(exit(&heard(of, id)?))
}

/// Waits for the end of a compile, and tells how it goes.
fn heard(of: &RemoteEnvironment, id: Uuid) -> Result<CompileDetails, Trouble> {
    let mut stage = None;
    let mut waits_for = "waiting for its turn".to_owned();
    let mut written = String::new();
    let mut lines = Lines::default();
    let mut say = |line: &str| output::say(&format!("  {}", style::harmless(line)));
    let details = wait(of, id, &mut |found| {
        let now = &found.compile.transitioning_message;
        if found.compile.state == CompileState::Queued && *now != waits_for {
            waits_for.clone_from(now);
            output::say(&format!("it is {}", style::harmless(now)));
        }
        for piece in &found.output {
            if stage != Some(piece.stage) {
                lines.end(&mut say);
                stage = Some(piece.stage);
                let name = found.stages.iter().find(|stage| stage.position == piece.stage);
                if let Some(name) = name {
                    output::say(&style::heading(&style::harmless(&name.name)));
                }
            }
            written += &piece.text;
            lines.hear(piece, &mut say);
        }
    })?;
    lines.end(&mut say);
    // A compiler that ran tells its errors itself, with more of the model around them.
    tell_problems(details.errors.iter().filter(|problem| !is_in_output(problem, &written)));
    let end = match (details.compile.state, details.compile.version) {
        (CompileState::Failed, _) => style::error("the compile failed"),
        (_, Some(version)) if details.compile.unchanged => {
            format!("{}: version {version} is still current", style::good("unchanged"))
        }
        (_, Some(version)) => format!("{}: version {version}", style::good("compiled")),
        (_, None) => style::good("compiled"),
    };
    output::say(&end);
    Ok(details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_lines_are_put_together() {
        let piece =
            |stream, text: &str| CompileOutput { id: 0, stage: 0, stream, text: text.to_owned() };
        let mut told = Vec::new();
        let mut tell = |line: &str| told.push(line.to_owned());
        let mut lines = Lines::default();
        lines.hear(&piece(OutputStream::Out, "one\ntw"), &mut tell);
        lines.hear(&piece(OutputStream::Err, "bad\nwor"), &mut tell);
        lines.hear(&piece(OutputStream::Out, "o\n"), &mut tell);
        lines.hear(&piece(OutputStream::Err, "se"), &mut tell);
        lines.end(&mut tell);
        assert_eq!(told, ["one", "bad", "two", "worse"]);
    }
}
