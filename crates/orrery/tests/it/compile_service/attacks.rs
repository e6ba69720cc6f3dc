//! Malicious repository code: it cannot reach the server, outlive its compile, or exceed its
//! limits. Each test fails with `ORRERY_TEST_SHARED_IDENTITY=1`, without the sandbox.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use orrery_server::Isolation;
use orrery_store::{CompileRecord, CompileRequest};

use super::{World, git, wait_for};

/// A repository with a model that calls a Python function with these lines as its body. `DATA` is
/// the server's directory, `HERE` a writable one.
fn attack(world: &World, body: &str) -> Result<PathBuf> {
    let path =
        world.repository("attack", "import std\nimport attack\n\nstd::print(attack::run())\n")?;
    let module = path.join("libs/attack");
    std::fs::create_dir_all(module.join("model"))?;
    std::fs::create_dir_all(module.join("plugins"))?;
    std::fs::write(module.join("module.yml"), "name: attack\nversion: 1.0\nlicense: x\n")?;
    std::fs::write(module.join("model/_init.cf"), "")?;
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    let code = format!(
        "import glob, os, subprocess, sys, time\nfrom inmanta.plugins import plugin\n\n\
         DATA = {:?}\nHERE = os.environ.get(\"PYTHONPYCACHEPREFIX\") or glob.glob(DATA + \"/data/environments/*/bytecode\")[-1]\n\n\
         def attempt(name, function):\n    try:\n        found = function()\n    except Exception as error:\n        return name + \" held\"\n    \
         return name + (\" LEAK \" + repr(found) if found else \" held\")\n\n\
         @plugin\ndef run() -> \"string\":\n{body}",
        world.directory.path().display().to_string()
    );
    std::fs::write(module.join("plugins/__init__.py"), code)?;
    git(&path, &["add", "--all"])?;
    git(&path, &["commit", "--quiet", "--message=attack"])?;
    Ok(path)
}

fn run(world: &mut World, body: &str) -> Result<CompileRecord> {
    let repository = attack(world, body)?;
    let environment = world.environment(&repository.display().to_string(), "main")?;
    world.start()?;
    let request = CompileRequest { update: true, export: true, ..CompileRequest::default() };
    world.compile(&environment, &request)
}

pub(super) fn code_of_a_model_reaches_nothing_of_others(world: &mut World) -> Result<()> {
    // Of another environment, and of the server itself.
    let other = world.options.data.join("environments/other/project");
    std::fs::create_dir_all(&other)?;
    std::fs::write(other.join("main.cf"), "secret = 1")?;
    std::fs::write(world.path("secret.key"), "key")?;
    let own = std::process::id();
    let body = format!(
        r#"reads = [
    ("key", lambda: open(DATA + "/secret.key").read()),
    ("database", lambda: open(DATA + "/state.db", "rb").read(16)),
    ("other", lambda: open(DATA + "/data/environments/other/project/main.cf").read()),
    ("list", lambda: [one for one in os.listdir(DATA + "/data/environments") if one == "other"]),
    ("environ", lambda: [one for one in glob.glob("/proc/*/environ") if b"CARGO" in open(one, "rb").read()]),
    ("variables", lambda: [one for one in os.environ if one.startswith("CARGO")]),
    ("server", lambda: os.kill({own}, 0) or "found"),
    ("memory", lambda: open("/proc/{own}/mem", "rb") and "open"),
    ("parent", lambda: open("/proc/%d/environ" % os.getppid(), "rb").read() if os.getppid() != 1 and b"CARGO" in open("/proc/%d/environ" % os.getppid(), "rb").read() else None),
    ("home", lambda: [one for one in os.listdir("/root") if one in (".bashrc", ".ssh", ".config")]),
    ("cwd", lambda: open("../../../secret.key").read()),
]
project = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
writes = [
    ("hook", project + "/.git/hooks/post-checkout"),
    ("config", project + "/.git/config"),
    ("sources", project + "/main.cf"),
    ("data", DATA + "/data/environments/new"),
    ("virtualenv", os.path.dirname(project) + "/python/new"),
    ("sdk", os.path.dirname(sys.modules["inmanta"].__file__) + "/new.py"),
    ("temporary", "/var/tmp/orrery-attack"),
]
all = [attempt(*one) for one in reads]
for name, path in writes:
    all.append(attempt(name, lambda: open(path, "a").write("x") and name != "temporary" and path))
return "; ".join(all)"#
    );
    let done = run(world, &body)?;
    let output = world.output(&done)?;
    ensure!(output.contains("key held"), "{output}\n{done:?}");
    ensure!(!output.contains("LEAK"), "{output}");
    ensure!(output.matches("held").count() == 18, "{output}");
    ensure!(!std::path::Path::new("/var/tmp/orrery-attack").exists(), "a file was left");
    Ok(())
}

pub(super) fn nothing_survives_a_compile(world: &mut World) -> Result<()> {
    let body = r#"script = "while :; do date +%s%N >> " + HERE + "/tick; sleep 0.02; done"
subprocess.Popen(["env", "-i", "setsid", "sh", "-c", "setsid sh -c '" + script + "' & "], start_new_session=True,
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while not os.path.exists(HERE + "/tick"):
    time.sleep(0.01)
return "started""#;
    let done = run(world, body)?;
    ensure!(world.output(&done)?.contains("started"), "{}", world.output(&done)?);
    let tick = world.bytecode().context("no directory")?.join("tick");
    let read = || std::fs::read_to_string(&tick);
    let first = read()?;
    std::thread::sleep(Duration::from_millis(500));
    ensure!(first == read()?, "it is still alive");
    Ok(())
}

pub(super) fn a_bomb_of_processes_is_contained(world: &mut World) -> Result<()> {
    let mark = format!("{}.5", 300_000 + std::process::id());
    let body = format!(
        r#"count = 0
try:
    for _ in range(3000):
        subprocess.Popen(["sleep", "{mark}"])
        count += 1
except OSError as error:
    raise Exception("stopped after %d: %s" % (count, error))
return "LEAK %d" % count"#
    );
    let failed = run(world, &body)?;
    let output = world.output(&failed)?;
    let data = failed.data.context("errors")?.to_string();
    ensure!(data.contains("stopped after") && !output.contains("LEAK"), "{data} {output}");
    ensure!(output.contains("limit of 512 processes"), "{output}");
    let counted: Vec<u32> = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&mark)
        })
        .collect();
    ensure!(counted.is_empty(), "{} are left", counted.len());
    Ok(())
}

pub(super) fn memory_of_all_processes_is_contained(world: &mut World) -> Result<()> {
    world.options.memory_max = Some(512 << 20);
    let hungry =
        "import time; x = bytearray(200 << 20); x[::4096] = b'x' * len(x[::4096]); time.sleep(20)";
    let body = format!(
        r#"children = [subprocess.Popen([sys.executable, "-c", {hungry:?}]) for _ in range(12)]
codes = [child.wait() for child in children]
if any(codes):
    raise Exception("killed")
return "LEAK""#
    );
    let failed = run(world, &body)?;
    let output = world.output(&failed)?;
    let data = failed.data.context("errors")?;
    ensure!(!output.contains("LEAK"), "{output}");
    ensure!(data["errors"][0]["category"] == "limit", "{data} {output}");
    ensure!(data.to_string().contains("--compile-memory"), "{data}");
    Ok(())
}

pub(super) fn a_full_disk_is_prevented(world: &mut World) -> Result<()> {
    world.options.disk_max = 64 << 20;
    let body = r#"for number in range(600):
    with open(HERE + "/%d" % number, "wb") as file:
        file.write(os.urandom(1 << 20))
    time.sleep(0.02)
return "LEAK""#;
    let failed = run(world, body)?;
    let data = failed.data.clone().context("errors")?;
    let output = world.output(&failed)?;
    ensure!(!output.contains("LEAK"), "{output}");
    ensure!(data["errors"][0]["category"] == "limit", "{data} {output}");
    ensure!(data.to_string().contains("64 MiB of disk"), "{data}");
    Ok(())
}

/// A link to an endless device replaces the result as soon as it exists.
pub(super) fn a_result_that_is_no_file_is_refused(world: &mut World) -> Result<()> {
    let body = r#"result = os.path.join(os.path.dirname(HERE), "compile", "result.json")
code = "import os\nwhile True:\n  try:\n    if not os.path.islink(%r):\n      os.symlink('/dev/zero', %r + '.link')\n      os.stat(%r)\n      os.rename(%r + '.link', %r)\n  except OSError:\n    try: os.unlink(%r + '.link')\n    except OSError: pass\n" % ((result,) * 6)
subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env={},
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(0.5)
return "started""#;
    let before = resident()?;
    let done = run(world, body)?;
    // It may be too late; the server must never read without end.
    if done.success != Some(true) {
        let data = done.data.context("errors")?.to_string();
        ensure!(data.contains("symbolic link"), "{data}");
    }
    ensure!(resident()? < before + (500 << 20), "the server read without end");
    wait_for("the environment is free", || Ok(Some(())))
}

/// Peak memory of this process, which is the server here.
fn resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

pub(super) fn without_a_sandbox_nothing_is_compiled(world: &mut World) -> Result<()> {
    world.options.isolation = Isolation::detect("/bin/false".as_ref(), world.directory.path());
    let failed = run(world, "return 'LEAK'")?;
    let data = failed.data.clone().context("errors")?;
    ensure!(data.to_string().contains("--unsafe-shared-identity"), "{data}");
    ensure!(!world.output(&failed)?.contains("LEAK"));
    world.stop();
    world.options.isolation = Isolation::Shared;
    let environment = world.environment(&world.path("attack").display().to_string(), "main")?;
    world.start()?;
    let request = CompileRequest { update: true, ..CompileRequest::default() };
    let done = world.compile(&environment, &request)?;
    ensure!(world.output(&done)?.contains("LEAK"), "{done:?}");
    Ok(())
}
