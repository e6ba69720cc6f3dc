//! The differential suite: compiles every case of the language corpus and compares the report with
//! that of the reference compiler. One test per case; `tests/language/README.md` describes how to
//! select and add cases.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "long tests report what they measured"
)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

mod adopted;
mod advised_remedies;
mod bad_input;
mod cluster_server;
mod clusters;
mod comparator_checks;
mod compare;
mod compile_service;
mod corpus;
mod crashes;
mod delayed_proxy;
mod deploys;
mod documents;
mod drift;
mod effects;
mod environments;
mod exports;
mod failures;
mod fencing;
mod guide;
mod handler_effects;
mod hosts;
mod inspection;
mod install_script;
mod isolation;
mod known_differences;
mod liveness;
mod locking;
mod machine_facts;
mod machines;
mod messages;
mod models;
mod module_updates;
mod offered_types;
mod over_ssh;
mod own_machine;
mod pages;
mod plans;
mod project_binding;
mod pruning;
mod python_agents;
mod recovery;
mod remote_agents;
mod resource_examples;
mod scratch_project;
mod secrets;
mod separate_machines;
mod server_code;
mod server_commands;
mod server_details;
mod server_handlers;
mod server_kills;
mod server_packages;
mod server_reports;
mod server_safety;
mod server_traces;
mod sessions;
mod stores;
mod unknown_effects;

use corpus::{Case, CaseList};
use known_differences::KnownDifferences;

const BINARY: &str = env!("CARGO_BIN_EXE_orrery");

const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Variables that the recorder sets as well, for models that read the environment.
const ENVIRONMENT: [(&str, &str); 3] =
    [("CASE_WORD", "hello"), ("CASE_NUMBER", "42"), ("CASE_EMPTY", "")];

fn main() -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    // A dot per case, and the differences at the end: there are many cases.
    arguments.quiet |= arguments.format.is_none();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/language");
    let mut cases = corpus::read_directory(&corpus)?;
    let lists = Arc::new(Lists {
        differs: CaseList::read(&corpus.join("differs.list"))?,
        own: KnownDifferences::read(&corpus.join("differs.expected.json"))?,
    });
    let mut trials = comparator_checks::trials();
    trials.extend(compile_service::trials());
    trials.extend(exports::trials());
    trials.extend(server_commands::trials());
    trials.extend(plans::trials());
    trials.extend(server_details::trials());
    trials.extend(advised_remedies::trials());
    trials.extend(server_code::trials());
    trials.extend(server_reports::trials());
    trials.extend(server_handlers::trials());
    trials.extend(server_packages::trials());
    trials.extend(handler_effects::trials());
    trials.extend(isolation::trials());
    trials.extend(pages::trials(&cases)?);
    trials.push(lists_name_existing_cases(&lists, &cases));
    for directory in std::env::var_os("ORRERY_CASES").iter().flat_map(std::env::split_paths) {
        cases.extend(corpus::read_directory(&directory)?);
    }
    if let Ok(wanted) = std::env::var("ORRERY_CASE") {
        cases.retain(|case| case.id().contains(&wanted));
    }
    let differing = cases.iter().filter(|case| lists.differs.reason(case).is_some()).count();
    let compared = cases.len() - differing;
    trials.extend(cases.into_iter().map(|case| {
        let lists = Arc::clone(&lists);
        Trial::test(case.id(), move || Ok(check(&case, &lists).map_err(|e| format!("{e:#}"))?))
    }));
    trials.extend(documents::trials(compile_project)?);
    trials.extend(sessions::trials()?);
    trials.extend(guide::trials()?);
    trials.extend(messages::trials()?);
    trials.extend(bad_input::trials());
    trials.extend(cluster_server::trials());
    trials.extend(clusters::trials()?);
    trials.extend(inspection::trials());
    trials.extend(deploys::trials());
    trials.extend(machines::trials());
    trials.extend(machine_facts::trials());
    trials.extend(separate_machines::trials());
    trials.extend(recovery::trials());
    trials.extend(over_ssh::trials());
    trials.extend(environments::trials());
    trials.extend(locking::trials());
    trials.extend(module_updates::trials());
    trials.extend(failures::trials());
    trials.extend(crashes::trials());
    trials.extend(secrets::trials());
    trials.extend(hosts::trials());
    trials.extend(python_agents::trials());
    trials.extend(remote_agents::trials());
    trials.extend(offered_types::trials());
    trials.extend(install_script::trials());
    trials.extend(liveness::trials());
    trials.extend(drift::trials());
    trials.extend(adopted::trials());
    trials.extend(pruning::trials());
    trials.extend(resource_examples::trials());
    trials.extend(project_binding::trials());
    trials.extend(effects::trials());
    trials.extend(unknown_effects::trials());
    trials.extend(fencing::trials());
    trials.extend(server_kills::trials());
    trials.extend(server_safety::trials());
    trials.extend(own_machine::trials());
    trials.extend(server_traces::trials());
    let conclusion = libtest_mimic::run(&arguments, trials);
    lists.own.write(|id| lists.differs.names(id))?;
    eprintln!("{compared} cases are to agree with the reference, {differing} differ on purpose\n");
    Ok(conclusion.exit_code())
}

struct Lists {
    differs: CaseList,
    own: KnownDifferences,
}

/// Compiles a case and compares. An intended difference must match the recorded one.
fn check(case: &Case, lists: &Lists) -> Result<()> {
    let actual = compile(case)?;
    let found = compare::differences(&case.expected, &actual);
    match lists.differs.reason(case) {
        Some(reason) if found.is_empty() => {
            bail!("agrees, but is listed in differs.list ({reason}): remove it there")
        }
        Some(_) => lists.own.check(case, &actual),
        None if !found.is_empty() => bail!("{found}\nmain.cf:\n{}", numbered(case)),
        _ => Ok(()),
    }
}

fn numbered(case: &Case) -> String {
    let main = case.files.get("main.cf").map_or("", String::as_str);
    (1..).zip(main.lines().take(60)).map(|(number, line)| format!("{number:4} {line}\n")).collect()
}

/// Compiles a case in its own project.
fn compile(case: &Case) -> Result<Value> {
    let scratch = tempfile::tempdir()?;
    let project = scratch.path().canonicalize()?.join("project");
    fs::create_dir(&project)?;
    case.write_to(&project)?;
    let environment = project.join("env");
    if case.has_flag("python") && environment.is_dir() {
        make_runnable(&environment)?;
    }
    let arguments: &[&str] = if case.has_flag("export") { &["--resources"] } else { &[] };
    report_on(&project, arguments)
}

/// Adds this machine's Python to a virtualenv that has only packages.
fn make_runnable(environment: &Path) -> Result<()> {
    let question = "import sys; print(sys.executable); print('%d.%d.%d' % sys.version_info[:3])";
    let output = Command::new("python3").args(["-c", question]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let (executable, version) = text.trim().split_once('\n').context("python3 does not run")?;
    fs::create_dir_all(environment.join("bin"))?;
    std::os::unix::fs::symlink(executable, environment.join("bin/python"))?;
    let home = Path::new(executable).parent().unwrap_or(Path::new("/usr/bin"));
    let config = format!("home = {}\nversion = {version}\n", home.display());
    Ok(fs::write(environment.join("pyvenv.cfg"), config)?)
}

/// Runs the binary in a project and reads its report.
fn compile_project(project: &Path) -> Result<Value> {
    report_on(project, &[])
}

fn report_on(project: &Path, arguments: &[&str]) -> Result<Value> {
    let scratch = tempfile::tempdir()?;
    let report = scratch.path().join("report.json");
    let log = scratch.path().join("log");
    let log_file = fs::File::create(&log)?;
    let mut command = Command::new(BINARY);
    command.arg("compile").args(arguments).arg("--report").arg(&report).current_dir(project);
    command.env_remove("NOPE").env_remove("NOPE_XX").envs(ENVIRONMENT);
    command.stdin(Stdio::null()).stdout(log_file.try_clone()?).stderr(log_file);
    let environment = project.join("env");
    if environment.is_dir() {
        command.env("VIRTUAL_ENV", environment);
    } else {
        command.env_remove("VIRTUAL_ENV");
    }
    let ending = run(command)?;
    let text = fs::read_to_string(&report).with_context(|| {
        let log = fs::read_to_string(&log).unwrap_or_default();
        format!("no report; it ended with {ending} and said:\n{log}")
    })?;
    let text = relative_to(&text, project);
    serde_json::from_str(&text).with_context(|| format!("the report is no JSON:\n{text}"))
}

/// Makes paths in a report relative to the project. They need no JSON escapes.
fn relative_to(text: &str, project: &Path) -> String {
    let packages = project.join("env/lib/python3.13/site-packages");
    text.replace(&*packages.to_string_lossy(), "<env>").replace(&*project.to_string_lossy(), ".")
}

fn run(mut command: Command) -> Result<String> {
    let mut child = command.spawn().context("starting the binary")?;
    Ok(finish(&mut child, TIME_LIMIT)?.to_string())
}

/// Waits for a process, with a time limit.
fn finish(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("not done after {} s", limit.as_secs());
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn lists_name_existing_cases(lists: &Arc<Lists>, cases: &[Case]) -> Trial {
    let mut strays: Vec<String> = Vec::new();
    strays.extend(lists.differs.strays(cases).into_iter().map(str::to_owned));
    let own = lists.own.strays(|id| lists.differs.names(id));
    strays.extend(own.into_iter().map(str::to_owned));
    Trial::test("the lists name existing cases", move || {
        if strays.is_empty() { Ok(()) } else { Err(format!("no such case: {strays:?}").into()) }
    })
}
