//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use orrery_compiler::files::Disk;
use orrery_compiler::project::Options;

#[derive(Parser)]
#[command(version, about = "Intent-based orchestration: models in, infrastructure out")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile a project
    Compile {
        #[arg(long, default_value = ".")]
        project: PathBuf,
        #[arg(long, default_value = "main.cf")]
        main: String,
        #[arg(long)]
        no_std: bool,
        #[arg(long)]
        report: Option<PathBuf>,
    },
}

fn main() -> std::process::ExitCode {
    let worker = std::thread::Builder::new().stack_size(256 << 20).spawn(|| run(Cli::parse()));
    let code = worker.ok().and_then(|w| w.join().ok()).unwrap_or(1);
    std::process::ExitCode::from(code)
}

fn run(cli: Cli) -> u8 {
    let Command::Compile { project, main, no_std, report } = cli.command;
    let mut options = Options::new(project);
    options.main_file = main;
    options.implicit_std = !no_std;
    let compiled = orrery_compiler::compile(&Disk, &options, report.is_some());
    print!("{}", compiled.output);
    if let Some(path) = report {
        let json = orrery_compiler::report::report(&compiled);
        if let Err(e) = std::fs::write(&path, serde_json::to_vec(&json).unwrap_or_default()) {
            eprintln!("{e}");
            return 1;
        }
    }
    match &compiled.outcome {
        Ok(summary) => {
            eprintln!("{} instances", summary.instances);
            0
        }
        Err(error) => {
            eprintln!("Error: {}", error.message(&|loc| compiled.sources.place(loc)));
            1
        }
    }
}
