//! Runs the README and the guide as a reader would: every command, in the order of the page, must
//! print what the page shows. `ORRERY_BLESS=1` updates the pages with the actual output, for
//! review.

mod machines;
mod output_match;
mod page;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use similar::TextDiff;

use crate::server_commands::World;
use crate::{environments, stores};
use machines::Machines;
use page::{Page, Step};

/// Server address in the pages.
const ADDRESS: &str = "127.0.0.1:8888";
const GATEWAY: &str = "127.0.0.1:8889";
const TICKET: &str = "TOKEN";
const INVITATION: &str = "orrj_EXAMPLE";

pub(crate) fn trials() -> Result<Vec<Trial>> {
    let mut pages = vec!["README.md".to_owned(), "docs/README.md".to_owned()];
    for entry in fs::read_dir(xtask::repository_root().join("docs/guide"))? {
        pages.push(format!("docs/guide/{}", entry?.file_name().to_string_lossy()));
    }
    pages.sort();
    let trial = |name: String, postgres: bool| {
        let title = if postgres { format!("{name} on PostgreSQL") } else { name.clone() };
        Trial::test(format!("guide/{title}"), move || {
            Ok(walk(&name, postgres).map_err(|error| format!("{name}: {error:#}"))?)
        })
    };
    let mut trials: Vec<Trial> = pages.into_iter().map(|name| trial(name, false)).collect();
    ensure!(trials.len() > 15, "there are only {} pages", trials.len());
    trials.push(trial("docs/guide/server.md".to_owned(), true));
    trials.push(Trial::test("guide/outputs are compared", || {
        Ok(output_match::check_the_comparison().map_err(|error| format!("{error:#}"))?)
    }));
    Ok(trials)
}

/// Runs a page from beginning to end.
fn walk(name: &str, postgres: bool) -> Result<()> {
    let path = xtask::repository_root().join(name);
    let text = fs::read_to_string(&path)?;
    let page = Page::read(&text)?;
    let mut reader = Reader::new(postgres)?;
    for setting in &page.settings {
        reader.prepare(setting).with_context(|| setting.clone())?;
    }
    let bless = std::env::var_os("ORRERY_BLESS").is_some() && !postgres;
    let (mut differing, mut answers) = (String::new(), Vec::new());
    for step in &page.steps {
        match step {
            Step::File { path, text } => reader.write(path, text)?,
            Step::Hidden(command) => {
                let line = reader.filled_in(command)?;
                reader.world.done(&line).with_context(|| command.clone())?;
            }
            Step::Command { line, command, output } => {
                let actual = reader.run(command).with_context(|| format!("$ {command}"))?;
                if output_match::agrees(output, &actual) {
                    continue;
                }
                let (page, now) = (output.join("\n") + "\n", actual.join("\n") + "\n");
                let diff = TextDiff::from_lines(&page, &now);
                let _ = writeln!(
                    differing,
                    "line {}: $ {command}\n{}",
                    line + 1,
                    diff.unified_diff().context_radius(2)
                );
                let is_failure = |lines: &[String]| lines.iter().any(|l| l.starts_with("[exit "));
                ensure!(
                    !bless || is_failure(output) || !is_failure(&actual),
                    "a failure is not written into the page:\n{differing}"
                );
                answers.push((*line, output.len(), actual));
            }
        }
    }
    if differing.is_empty() {
        return Ok(());
    }
    if bless {
        return Ok(fs::write(&path, page::rewritten(&text, &answers))?);
    }
    bail!("(- the page, + what happens)\n{differing}")
}

/// A reader of a page: a home directory, and the machine of the page.
struct Reader {
    world: World,
    /// Stands for the home directory; `tmp` below it for `/tmp`.
    home: PathBuf,
    /// Address of the gateway and token of the last invitation.
    invitation: Option<(String, String)>,
    machines: Option<Machines>,
}

impl Reader {
    fn new(postgres: bool) -> Result<Self> {
        let world = World::new(postgres)?;
        let home = world.directory.path().canonicalize()?;
        let mut reader = Reader { world, home, invitation: None, machines: None };
        reader.world.here = reader.home.join("work");
        for directory in ["work", "tmp"] {
            fs::create_dir(reader.home.join(directory))?;
        }
        let state = reader.home.join("agent-state").display().to_string();
        reader.world.variables.push(("ORRERY_AGENT_STATE".to_owned(), state));
        Ok(reader)
    }

    /// Prepares the preconditions of a page.
    fn prepare(&mut self, setting: &str) -> Result<()> {
        let (word, rest) = setting.split_once(' ').unwrap_or((setting, ""));
        match word {
            // The repository, where the page starts.
            "repository" => {
                let examples = self.world.here.join("examples");
                copy(&xtask::repository_root().join("examples"), &examples)
            }
            // A server with the environment shop/live, which the reader administers.
            "server" => self.world.settle(rest),
            // Machines that SSH reaches with the reader's key.
            "machines" => {
                self.machines = Some(Machines::start(&self.home)?);
                self.world.variables.push(("SSH_AUTH_SOCK".to_owned(), String::new()));
                Ok(())
            }
            // A new project of `orrery new`, and its directory.
            "project" => {
                self.world.done(&format!("orrery new {rest}"))?;
                self.world.here.push(rest);
                self.move_models_here()
            }
            // A project with a state of `stores.rs`.
            "deployment" => {
                let project = self.world.here.join("project");
                fs::create_dir(&project)?;
                fs::write(project.join("project.yml"), "name: shop\n")?;
                fs::write(project.join("main.cf"), "")?;
                self.world.here = project.clone();
                stores::create(rest, &project.join("data/deploy/state.db"))
            }
            // A local package index.
            "packages" => {
                let wheels = self.home.join("wheels");
                environments::write_packages(&wheels)?;
                let wheels = wheels.display().to_string();
                let variables = [
                    ("PIP_CONFIG_FILE", "/dev/null"),
                    ("PIP_NO_INDEX", "1"),
                    ("PIP_FIND_LINKS", &wheels),
                    ("ORRERY_UV", "0"),
                ];
                self.world.variables.extend(variables.map(|(k, v)| (k.to_owned(), v.to_owned())));
                Ok(())
            }
            other => bail!("there is no setting {other}"),
        }
    }

    /// Replaces the page's paths by the real ones.
    fn filled_in(&self, text: &str) -> Result<String> {
        let mut text = match &self.machines {
            Some(machines) => machines.filled_in(text),
            None => text.to_owned(),
        };
        if let Some((gateway, token)) = &self.invitation {
            text = text.replace(GATEWAY, gateway).replace(INVITATION, token);
        }
        if let Ok(url) = self.world.url() {
            text = text.replace(ADDRESS, url.trim_start_matches("http://"));
        }
        if let Some(ticket) = self.world.bootstrap_token() {
            text = text.replace(TICKET, ticket);
        }
        Ok(text.replace("/tmp/", &self.tmp()))
    }

    /// Replaces real paths in output by those of the page.
    fn render_page_text(&mut self, text: &str) -> String {
        if let Some((_, rest)) = text.split_once("orrery agent join ") {
            let mut words = rest.split_whitespace();
            if let (Some(gateway), Some(token)) = (words.next(), words.next()) {
                self.invitation = Some((gateway.to_owned(), token.to_owned()));
            }
        }
        let text = text.replace(&self.tmp(), "/tmp/");
        let mut text = text.replace(&*self.home.to_string_lossy(), "/home/ada");
        if let Some(machines) = &self.machines {
            text = machines.render(&text);
        }
        if let Some((gateway, token)) = &self.invitation {
            text = text.replace(gateway, GATEWAY).replace(token, INVITATION);
        }
        if let Ok(url) = self.world.url() {
            text = text.replace(url.trim_start_matches("http://"), ADDRESS);
        }
        if let Some(ticket) = self.world.bootstrap_token() {
            text = text.replace(ticket, TICKET);
        }
        text
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.world.here.join(path);
        fs::create_dir_all(path.parent().context("a file has a directory")?)?;
        Ok(fs::write(path, self.filled_in(text)?)?)
    }

    /// Runs a command of the page; returns its output lines.
    fn run(&mut self, command: &str) -> Result<Vec<String>> {
        let line = self.filled_in(command)?;
        let (text, code) = if let Some(directory) = line.strip_prefix("cd ") {
            self.world.here = self.world.here.join(directory).canonicalize()?;
            (String::new(), 0)
        } else if let Some(options) = line.strip_prefix("orrery server") {
            (self.world.start(false, options)?, 0)
        } else if line.starts_with("orrery agent run") {
            let printed = self.world.start_agent(&line)?;
            self.until_connected()?;
            (printed, 0)
        } else {
            self.world.run(&line)?
        };
        self.move_models_here()?;
        let mut lines: Vec<String> =
            self.render_page_text(&text).lines().map(str::to_owned).collect();
        // Exit code 2 means pending changes, which the output shows as well.
        if code != 0 && code != 2 {
            lines.push(format!("[exit {code}]"));
        }
        Ok(lines)
    }

    /// An agent connects shortly after it reports its start.
    fn until_connected(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.world.run("orrery agent remotes")?.0.contains(" connected ") {
            ensure!(Instant::now() < end, "the agent never connected");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn tmp(&self) -> String {
        format!("{}/tmp/", self.home.display())
    }

    /// Lets new projects manage files below the reader's own directory.
    fn move_models_here(&self) -> Result<()> {
        let here = &self.world.here;
        let below = fs::read_dir(here)?.flatten().map(|entry| entry.path());
        for directory in below.chain([here.clone()]) {
            let model = directory.join("main.cf");
            let Ok(text) = fs::read_to_string(&model) else { continue };
            if !text.contains(&self.tmp()) && text.contains("/tmp/") {
                fs::write(&model, text.replace("/tmp/", &self.tmp()))?;
            }
        }
        Ok(())
    }
}

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
