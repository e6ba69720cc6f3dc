//! Measures the cost of checking many files: the handler of `std::File` against a bare loop of the
//! necessary system calls.
//!
//!     cargo run --release -p orrery-handlers --example noop_files [FILES] [BYTES]

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]
#![expect(clippy::print_stdout, reason = "the report of a measurement goes to the terminal")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use orrery_handlers::run::{HandlerRun, Purpose, RunContext};
use orrery_handlers::target::Ownership;
use orrery_handlers::{
    CancelToken, Context, LocalSecrets, LocalTarget, NoContents, Registry, Target, TargetCache,
};
use orrery_model::{
    Attributes, ChangeKind, LogLevel, OutcomeStatus, Resource, ResourceId, Timestamp, VersionNumber,
};
use rustix::fs::{Mode as Permissions, OFlags};

const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let files: usize = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let bytes: usize = arguments.next().map_or(Ok(1_000), |text| text.parse())?;

    let directory = tempfile::TempDir::new()?;
    let root = directory.path().to_str().ok_or("the temporary directory has an odd name")?;
    let line = "a line of a configuration file\n";
    let content: String = line.chars().cycle().take(bytes).collect();
    let target = LocalTarget::default();
    let ownership = Ownership { mode: Some(0o644), ..Ownership::default() };
    let mut resources = Vec::with_capacity(files);
    for number in 0..files {
        let path = format!("{root}/file{number:06}");
        target.write_file(&path, content.as_bytes(), ownership)?;
        let attributes = serde_json::json!({
            "content": content, "group": "root", "mode": 644, "owner": "root", "purged": false,
        });
        let id = ResourceId::new("std::File", "web1", "path", &path)?;
        let attributes = Attributes::parse(&attributes.to_string())?;
        resources.push((path, Resource::new(id, attributes, Vec::new())));
    }

    let registry = Registry::native();
    let handler = registry.handler("std::File").ok_or("there is no handler")?;
    let stop = CancelToken::never();
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let mut buffer = vec![0; bytes + 1];
        for (path, _) in &resources {
            let file = rustix::fs::open(&**path, OFlags::RDONLY, Permissions::empty())?;
            let stat = rustix::fs::fstat(&file)?;
            let count = rustix::io::read(&file, &mut buffer)?;
            black_box((stat.st_mode, buffer[..count] == *content.as_bytes()));
        }
        best[0] = best[0].min(begin.elapsed());

        let begin = Instant::now();
        let cache = TargetCache::new();
        let services = RunContext {
            cache: &cache,
            contents: &NoContents,
            secrets: &LocalSecrets,
            clock: &|| Timestamp(0),
            log_level: LogLevel::Info,
            server: None,
        };
        for (_, resource) in &resources {
            let run = HandlerRun {
                purpose: Purpose::Deploy,
                resource,
                version: VersionNumber(1),
                epoch: None,
                deployed_before: true,
                changed_dependencies: &[],
                reason: &"a measurement",
                stop: &stop,
                before_change: None,
                effects: None,
            };
            let mut context = Context::new(&run, &target, &services);
            let outcome = handler.run(&resource.attributes, &mut context);
            if (outcome.status, outcome.change.kind)
                != (OutcomeStatus::Deployed, ChangeKind::NoChange)
            {
                return Err(format!("{}: {outcome:?}", resource.id).into());
            }
        }
        best[1] = best[1].min(begin.elapsed());
    }
    let each = |total: Duration| total.as_secs_f64() * 1e6 / files as f64;
    println!("{files} files of {bytes} bytes, best of {ROUNDS} rounds");
    println!("system calls alone  {:8.2} µs a file", each(best[0]));
    println!("handler             {:8.2} µs a file", each(best[1]));
    println!("ratio               {:8.2}", each(best[1]) / each(best[0]));
    Ok(())
}
