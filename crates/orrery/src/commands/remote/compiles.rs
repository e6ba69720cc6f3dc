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
use crate::cli::compile::{CompileAction, CompileRequest};
use crate::commands::deploy::on_server;
use crate::error::{CliError, finish};
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

const LOOK_EVERY: Duration = Duration::from_millis(300);

pub(crate) fn compile(action: CompileAction) -> Exit {
    finish(run(action))
}

fn run(action: CompileAction) -> Result<Exit, CliError> {
    match action {
        CompileAction::Request(options) => request(options),
        CompileAction::List { limit, args } => {
            let of = args.in_environment()?;
            let pages = of.client.list::<Compile>(&of.path(&["compiles"]));
            list(&read_list(pages, Some(limit))?, args.json)
        }
        CompileAction::Queue { args } => {
            let of = args.in_environment()?;
            let pages = of.client.list::<Compile>(&of.path(&["compiles", "queue"]));
            list(&read_list(pages, None)?, args.json)
        }
        CompileAction::Show { id, follow, args } => {
            let of = args.in_environment()?;
            if follow && !args.json {
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
            show(&found, args.json)
        }
        CompileAction::Cancel { id, args } => {
            let of = args.in_environment()?;
            let now: Compile =
                of.client.post_empty(&of.path(&["compiles", &id.to_string(), "cancel"]))?;
            show_done(args.json, &now, &format!("cancelled compile {id}"))
        }
    }
}

fn at(of: &RemoteEnvironment, id: Uuid, after: Option<i64>) -> String {
    let after = after.map(|place| place.to_string());
    query(&of.path(&["compiles", &id.to_string()]), &[("after", after.as_deref())])
}

fn request(options: CompileRequest) -> Result<Exit, CliError> {
    let CompileRequest { no_update, update: _, reinstall, check, message, follow, deploy, args } =
        options;
    let of = args.in_environment()?;
    if of.details()?.repository.is_empty() {
        let error = CliError::new(format!("{} has no repository to compile", of.display_name()));
        let help = "set one with `orrery environment update --repository URL`, or upload a local compile with `orrery export`";
        return Err(error.help(help));
    }
    let update = !no_update;
    let new = NewCompile { update, reinstall, export: !check, message, ..NewCompile::default() };
    if deploy {
        return compile_and_deploy(&of, &new, args.json);
    }
    let requested: Compile = of.client.post(&of.path(&["compiles"]), &new)?;
    if !follow {
        return show_done(
            args.json,
            &requested,
            &format!(
                "requested compile {}: {}",
                requested.id,
                style::sanitize(&requested.transitioning_message)
            ),
        );
    }
    if !args.json {
        output::print_status(&format!("requested compile {}", requested.id));
        return self::follow(&of, requested.id);
    }
    let details = wait(&of, requested.id, &mut |_| {})?;
    print_json(&details.compile)?;
    Ok(exit(&details))
}

/// Compiles and waits until the version is deployed.
fn compile_and_deploy(
    of: &RemoteEnvironment,
    new: &NewCompile,
    json: bool,
) -> Result<Exit, CliError> {
    let mut failed = None;
    let deployed = on_server::release(of, json, || {
        let requested: Compile = of.client.post(&of.path(&["compiles"]), new)?;
        let details = if json {
            wait(of, requested.id, &mut |_| {})?
        } else {
            output::print_status(&format!("requested compile {}", requested.id));
            follow_output(of, requested.id)?
        };
        let Some(version) = details.compile.version else {
            failed = Some(details);
            return Err(CliError::new("the compile produced no version"));
        };
        let at = of.path(&["versions", &version.to_string(), "release"]);
        let created: VersionReleased = of.client.post(&at, &on_server::DEPLOY_ALONG)?;
        Ok((version, created.operation))
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

fn state_word(compile: &Compile) -> &'static str {
    match compile.state {
        CompileState::Queued => "queued",
        CompileState::Running => "running",
        CompileState::Succeeded => "succeeded",
        CompileState::Failed => "failed",
        CompileState::Cancelled => "cancelled",
    }
}

fn list(found: &[Compile], json: bool) -> Result<Exit, CliError> {
    let headings = ["ID", "STATE", "REQUESTED", "ENDED", "VERSION", "MESSAGE"];
    show_list(json, found, Table::new("compile", &headings), |compile| {
        let message = compile.metadata.get("message").and_then(|text| text.as_str());
        vec![
            compile.id.to_string(),
            state_word(compile).to_owned(),
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

fn show(found: &CompileDetails, json: bool) -> Result<Exit, CliError> {
    if json {
        return print_json(found);
    }
    let compile = &found.compile;
    properties(&[
        ("compile", compile.id.to_string()),
        ("state", state_word(compile).to_owned()),
        ("requested", moment(&compile.requested)),
        ("started", moment_or(compile.started.as_ref(), "")),
        ("ended", moment_or(compile.completed.as_ref(), "")),
        ("version", version_text(compile)),
        ("served by", compile.substitute.map(|id| id.to_string()).unwrap_or_default()),
    ])?;
    let mut text = String::new();
    for stage in &found.stages {
        let name = style::heading(&style::sanitize(&stage.name));
        let end = match (stage.returncode, &stage.completed) {
            (Some(0), _) => style::good("done"),
            (Some(code), _) => style::error(&format!("ended with {code}")),
            (None, Some(_)) => "ended".to_owned(),
            (None, None) => style::help("running"),
        };
        text += &format!("\n{name}  {end}\n");
        let mut lines = LineBuffer::default();
        let mut add = |line: &str| text += &format!("  {}\n", style::sanitize(line));
        for piece in found.output.iter().filter(|piece| piece.stage == stage.position) {
            lines.push(piece, &mut add);
        }
        lines.end(&mut add);
    }
    if !output::print_styled(&text) {
        return Ok(Exit::Error);
    }
    let written: String = found.output.iter().map(|piece| piece.text.as_str()).collect();
    print_problems(found.errors.iter().filter(|problem| !is_in_output(problem, &written)));
    Ok(Exit::Done)
}

/// Reassembles lines from output chunks.
#[derive(Default)]
struct LineBuffer {
    /// Incomplete lines of standard output and standard error.
    begun: [String; 2],
}

impl LineBuffer {
    fn push(&mut self, piece: &CompileOutput, tell: &mut dyn FnMut(&str)) {
        let begun = &mut self.begun[usize::from(piece.stream == OutputStream::Err)];
        *begun += &piece.text;
        let Some(end) = begun.rfind('\n') else { return };
        let rest = begun.split_off(end + 1);
        begun.lines().for_each(tell);
        *begun = rest;
    }

    /// Flushes incomplete lines.
    fn end(&mut self, tell: &mut dyn FnMut(&str)) {
        for begun in &mut self.begun {
            if !begun.is_empty() {
                tell(&std::mem::take(begun));
            }
        }
    }
}

/// True if the output already contains the problem, by id or message.
fn is_in_output(problem: &CompileProblem, written: &str) -> bool {
    let has_id = problem.id.as_ref().is_some_and(|id| written.contains(&format!("error[{id}]")));
    has_id || written.contains(problem.message.lines().next().unwrap_or_default())
}

fn print_problems<'a>(problems: impl Iterator<Item = &'a CompileProblem>) {
    for problem in problems {
        let message = style::sanitize(&problem.message);
        output::print_status(&format!("{}: {message}", style::error("error")));
        if let Some(location) = &problem.location {
            let place = format!("{}:{}", location.uri, location.range.start.line + 1);
            output::print_status(&format!("  --> {}", style::sanitize(&place)));
        }
        if let Some(source) = &problem.source {
            output::print_status(&format!("   | {}", style::sanitize(source)));
        }
        if let Some(help) = &problem.help {
            output::print_status(&format!("{}: {}", style::help("help"), style::sanitize(help)));
        }
    }
}

/// Waits for a compile and passes its output on.
fn wait(
    of: &RemoteEnvironment,
    id: Uuid,
    follow_output: &mut dyn FnMut(&CompileDetails),
) -> Result<CompileDetails, CliError> {
    let mut after = None;
    loop {
        let found: CompileDetails = of.client.get(&at(of, id, after))?;
        follow_output(&found);
        after = Some(found.next);
        let over = !matches!(found.compile.state, CompileState::Queued | CompileState::Running);
        match (found.more, over) {
            (true, _) => {}
            (false, true) => return Ok(found),
            (false, false) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn follow(of: &RemoteEnvironment, id: Uuid) -> Result<Exit, CliError> {
    Ok(exit(&follow_output(of, id)?))
}

/// Waits for a compile and prints its progress.
fn follow_output(of: &RemoteEnvironment, id: Uuid) -> Result<CompileDetails, CliError> {
    let mut stage = None;
    let mut waits_for = "queued".to_owned();
    let mut written = String::new();
    let mut lines = LineBuffer::default();
    let mut say = |line: &str| output::print_status(&format!("  {}", style::sanitize(line)));
    let details = wait(of, id, &mut |found| {
        let now = &found.compile.transitioning_message;
        if found.compile.state == CompileState::Queued && *now != waits_for {
            waits_for.clone_from(now);
            output::print_status(&format!("it is {}", style::sanitize(now)));
        }
        for piece in &found.output {
            if stage != Some(piece.stage) {
                lines.end(&mut say);
                stage = Some(piece.stage);
                let name = found.stages.iter().find(|stage| stage.position == piece.stage);
                if let Some(name) = name {
                    output::print_status(&style::heading(&style::sanitize(&name.name)));
                }
            }
            written += &piece.text;
            lines.push(piece, &mut say);
        }
    })?;
    lines.end(&mut say);
    // The compiler has printed its own errors, with more context.
    print_problems(details.errors.iter().filter(|problem| !is_in_output(problem, &written)));
    let end = match (details.compile.state, details.compile.version) {
        (CompileState::Failed, _) => style::error("the compile failed"),
        (_, Some(version)) if details.compile.unchanged => {
            format!("{}: version {version} is still current", style::good("unchanged"))
        }
        (_, Some(version)) => format!("{}: version {version}", style::good("compiled")),
        (_, None) => style::good("compiled"),
    };
    output::print_status(&end);
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
        let mut lines = LineBuffer::default();
        lines.push(&piece(OutputStream::Out, "one\ntw"), &mut tell);
        lines.push(&piece(OutputStream::Err, "bad\nwor"), &mut tell);
        lines.push(&piece(OutputStream::Out, "o\n"), &mut tell);
        lines.push(&piece(OutputStream::Err, "se"), &mut tell);
        lines.end(&mut tell);
        assert_eq!(told, ["one", "bad", "two", "worse"]);
    }
}
