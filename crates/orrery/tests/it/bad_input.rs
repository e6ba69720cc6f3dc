//! Malicious input and a hostile environment: every command answers clearly, in bounded time,
//! without a crash.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::{BINARY, finish};

/// Generous for a binary that is not optimised, on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

type Check = fn() -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 20] = [
        ("five megabytes of statements", many_statements),
        ("five megabytes in one line", one_long_line),
        ("five megabytes of noise", noise),
        ("a megabyte of mistakes", mistakes),
        ("five megabytes of comments and blank lines", nothing_to_read),
        ("nesting of every kind", nesting),
        ("values nested deeper than the stack", nested_values),
        ("values that hold others twice", doubled_values),
        ("long chains of parents", chains_of_parents),
        ("bytes that are no text", bytes_that_are_no_text),
        ("odd line ends and the lack of one", line_ends),
        ("endless models are stopped", endless_models),
        ("limits can be set", limits_can_be_set),
        ("a report is JSON, whatever is in it", report_is_json),
        ("a report that can not be written", report_not_written),
        ("a reader that leaves", reader_leaves),
        ("output that can not be written", output_not_written),
        ("errors on a closed standard error", closed_stderr),
        ("what happens can be followed", verbose),
        ("scripts for shells", completion),
    ];
    let trial = |(name, check): (&str, Check)| {
        Trial::test(format!("bad input: {name}"), move || {
            Ok(check().map_err(|error| format!("{error:#}"))?)
        })
    };
    checks.into_iter().map(trial).collect()
}

/// A project with a main file.
fn project(main: impl AsRef<[u8]>) -> Result<tempfile::TempDir> {
    let project = tempfile::tempdir()?;
    fs::write(project.path().join("project.yml"), "name: test\nmodulepath: libs\n")?;
    fs::write(project.path().join("main.cf"), main)?;
    Ok(project)
}

fn orrery(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(directory).env_remove("VIRTUAL_ENV");
    command.stdin(Stdio::null());
    command
}

/// Runs a command with a time limit. It must not crash.
fn run(mut command: Command) -> Result<Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // Read both while it runs: neither pipe may fill up.
    let mut stdout = child.stdout.take().context("standard output")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let mut stderr = child.stderr.take().context("standard error")?;
    let error_reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| bytes)
    });
    let status = finish(&mut child, TIME_LIMIT)?;
    let stdout = reader.join().ok().context("the reader")??;
    let stderr = error_reader.join().ok().context("the reader")??;
    let output = Output { status, stdout, stderr };
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(status.code().is_some(), "it crashed with {status}:\n{said}");
    ensure!(!said.contains("internal error"), "{said}");
    ensure!(!said.contains("panicked"), "{said}");
    Ok(output)
}

/// Compiles a main file; returns the exit code and the messages.
fn compile(main: impl AsRef<[u8]>, arguments: &[&str]) -> Result<(i32, String)> {
    let project = project(main)?;
    let output = run(orrery(project.path(), &[&["compile"], arguments].concat()))?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(said.len() < 100_000, "{} bytes were said", said.len());
    Ok((output.status.code().unwrap_or(-1), said))
}

fn refused(main: impl AsRef<[u8]>, arguments: &[&str], words: &[&str]) -> Result<()> {
    let (code, said) = compile(main, arguments)?;
    ensure!(code == 1, "exit code {code}:\n{said}");
    for word in words {
        ensure!(said.contains(word), "no {word:?} in:\n{said}");
    }
    Ok(())
}

fn accepted(main: impl AsRef<[u8]>, arguments: &[&str]) -> Result<()> {
    let (code, said) = compile(main, arguments)?;
    ensure!(code == 0, "exit code {code}:\n{said}");
    Ok(())
}

const SIZE: usize = 5_000_000;

fn many_statements() -> Result<()> {
    let line = |number: usize| format!("variable_{number} = {number} + 1\n");
    let mut text: String = (0..SIZE / 32).map(line).collect();
    accepted(&text, &[])?;
    text.push_str("x = variable_0 + \"a\"\n");
    let place = format!("./main.cf:{}:5", SIZE / 32 + 1);
    refused(&text, &[], &["error[operand-type]", &place])
}

fn one_long_line() -> Result<()> {
    accepted(format!("x = \"{}\"\n", "a".repeat(SIZE)), &[])?;
    let list = format!("x = [{}1]\ny = x + 1\n", "1, ".repeat(SIZE / 30));
    refused(list, &[], &["error[operand-type]", "./main.cf:2:5"])?;
    let sum = format!("x = 1{}\n", " + 1".repeat(SIZE / 4));
    refused(sum, &[], &["error[nesting-too-deep]", "…1 + 1"])?;
    let unknown = format!("x = {{{}\"z\": nothing}}\n", "\"a\": 1, ".repeat(SIZE / 80));
    refused(unknown, &[], &["error[duplicate-dict-key]"])
}

fn noise() -> Result<()> {
    // A linear congruential generator: the same noise every time.
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let printable: Vec<u8> = (0..SIZE).map(|_| 32 + next() % 95).collect();
    refused(&printable, &[], &["error"])?;
    let bytes: Vec<u8> = (0..SIZE).map(|_| next()).collect();
    refused(&bytes, &[], &["error[unreadable-file]"])?;
    refused(vec![0; SIZE], &[], &["error[syntax-error]", "has no meaning here"])?;
    for bracket in ["(", "[", "{", "if x:\n", "x.", "f(", "\"{{", "not ", "-", "entity A:\n"] {
        let (code, said) = compile(bracket.repeat(SIZE / 50 / bracket.len()), &[])?;
        ensure!(code == 1, "{bracket:?}: exit code {code}:\n{said}");
    }
    Ok(())
}

/// Thousands of syntax errors, each of which needs recovery.
fn mistakes() -> Result<()> {
    for (pattern, word) in [
        ("( end ", "found the keyword `end`"),
        ("x = [\n", "error[syntax-error]"),
        ("entity A\n", "expected `:`"),
        ("if x\n  y = (\n", "error[syntax-error]"),
        ("f(a=\"b\n", "error[syntax-error]"),
    ] {
        let text = pattern.repeat(SIZE / 5 / pattern.len());
        refused(text, &[], &[word])?;
    }
    Ok(())
}

fn nothing_to_read() -> Result<()> {
    accepted("\n".repeat(SIZE), &[])?;
    accepted("# nothing\n".repeat(SIZE / 10), &[])?;
    accepted("", &[])
}

fn nesting() -> Result<()> {
    const LEVELS: usize = 100_000;
    let around = |open: &str, inner: &str, close: &str| {
        format!("x = {}{inner}{}\n", open.repeat(LEVELS), close.repeat(LEVELS))
    };
    for text in [
        around("(", "1", ")"),
        around("[", "1", "]"),
        around("{\"a\": ", "1", "}"),
        around("not ", "true", ""),
        around("true ? 1 : ", "2", ""),
        around("f(", "1", ")"),
        around("a[", "0", "]"),
        format!("{}x = 1\n{}", "if true:\n".repeat(LEVELS), "end\n".repeat(LEVELS)),
        format!("{}x = 1\n{}", "for a in b:\n".repeat(LEVELS), "end\n".repeat(LEVELS)),
        format!("if a:\n{}end\n", "elif a:\n".repeat(LEVELS)),
        format!("x = a{}\n", ".b".repeat(LEVELS)),
    ] {
        let start: String = text.chars().take(30).collect();
        refused(text, &[], &["error[nesting-too-deep]"]).with_context(|| start)?;
    }
    Ok(())
}

fn nested_values() -> Result<()> {
    const LEVELS: usize = 50_000;
    let mut text = String::from("d0 = {}\n");
    for level in 1..=LEVELS {
        text += &format!("d{level} = {{\"a\": d{}}}\n", level - 1);
    }
    // In a module, so that only the last one is in the report.
    let project = project(format!("import deep\nx = deep::d{LEVELS}\n"))?;
    let module = project.path().join("libs/deep");
    fs::create_dir_all(module.join("model"))?;
    fs::write(module.join("module.yml"), "name: deep\nversion: 1.0.0\nlicense: Apache-2.0\n")?;
    fs::write(module.join("model/_init.cf"), &text)?;
    let output = run(orrery(project.path(), &["compile", "--json"]))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = String::from_utf8(output.stdout)?;
    let value = format!("{{\"x\":{}{{}}{}}}", "{\"a\":".repeat(LEVELS), "}".repeat(LEVELS));
    ensure!(report.contains(&value), "the value is not in a report of {} bytes", report.len());
    let deeper: String =
        (1..=120_000).map(|level| format!("d{level} = {{\"a\": d{}}}\n", level - 1)).collect();
    refused(format!("d0 = {{}}\n{deeper}"), &[], &["error[nesting-too-deep]", "100000 levels"])
}

/// A small limit of memory and an endless text: there is one clear error.
fn doubled_values() -> Result<()> {
    let doubled = |levels: usize| {
        let twice = |level: usize| {
            let of = level - 1;
            format!("d{level} = {{\"a\": d{of}, \"b\": [d{of}]}}\n")
        };
        (1..=levels).map(twice).fold(String::from("d0 = {\"x\": 1}\n"), |all, line| all + &line)
    };
    let words = ["error[model-too-large]", "more than 256 MiB", "--max-text"];
    let uses = [
        "",
        "std::print(d60)\n",
        "x = \"{{d60}}\"\n",
        "x = \"%s\" % d60\n",
        "x = d60 == d59\n",
        "x = std::json_dumps(d60)\n",
        "x = std::template(\"/t\", d=d60)\n",
    ];
    for used in uses {
        refused(doubled(60) + used, &[], &words)?;
    }
    // Beyond the limit within one statement.
    refused(doubled(18) + &format!("std::print([{}])\n", "d18, ".repeat(200)), &[], &words)?;
    // Texts count in full where they are written.
    let limit = ["--max-text", "1"];
    let text = format!("t = \"{}\"\nl = [{}t]\n", "x".repeat(10_000), "t, ".repeat(200));
    accepted(&text, &limit)?;
    for used in ["std::print(l)\n", "x = std::json_dumps(l)\n", "x = \"{{l}}\"\n"] {
        refused(format!("{text}{used}"), &limit, &["error[model-too-large]", "more than 1 MiB"])?;
    }
    refused(doubled(18), &limit, &["error[model-too-large]", "more than 1 MiB"])?;
    accepted(doubled(10), &limit)?;
    accepted(doubled(16) + "x = d16 == d15\nstd::print(\"{{d10}}\")\n", &[])?;
    // Lists of a template are its own, and hold each other.
    let project = project("std::print(std::template(\"/t\"))\n")?;
    fs::create_dir(project.path().join("templates"))?;
    let template = "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}";
    fs::write(project.path().join("templates/t"), template)?;
    let output = run(orrery(project.path(), &["compile", "--max-text", "1"]))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("error[model-too-large]"), "{said}");
    Ok(())
}

/// Entities that inherit from each other cost by the square of their number, up to a limit.
fn chains_of_parents() -> Result<()> {
    let entity = |number: usize| match number {
        0 => "entity E0:\n    int a = 1\nend\n".to_owned(),
        _ => format!("entity E{number} extends E{}:\nend\n", number - 1),
    };
    let chain = |length: usize| (0..length).map(entity).collect::<String>();
    let used = "implement E2999 using std::none\nx = E2999()\nif x.a != 1:\n    x.a = 1\nend\n";
    accepted(format!("{}{used}", chain(3_000)), &[])?;
    let words = ["error[nesting-too-deep]", "entities inherit too much", "`__config__::E6"];
    refused(chain(100_000), &[], &words)?;
    // Children before parents, with an attribute each.
    let entity = |number: usize| {
        let parent = number + 1;
        format!("entity E{number} extends E{parent}:\n    int a{number} = 1\nend\n")
    };
    let backward: String =
        (0..50_000).map(entity).chain(["entity E50000:\nend\n".into()]).collect();
    refused(backward, &[], &words[..2])?;
    // No depth, but many repetitions.
    let wide: String = (0..20_000).map(|number| format!("    int a{number}\n")).collect();
    let child = |number: usize| format!("entity C{number} extends Wide:\nend\n");
    let children: String = (0..20_000).map(child).collect();
    refused(format!("entity Wide:\n{wide}end\n{children}"), &[], &words[..2])
}

fn bytes_that_are_no_text() -> Result<()> {
    refused(
        b"x = 1\ny = \"\xff\"\n",
        &[],
        &["error[unreadable-file]", "0xff", "line 2 of ./main.cf"],
    )?;
    refused(b"x = 1\ny = \"\xe9", &[], &["unexpected end of data"])?;
    refused("x = \"\u{202e}\" + 1\n", &[], &["error[operand-type]"])?;
    let project = project(b"x = \xc3\x28")?;
    for command in ["parse", "fmt"] {
        let output = run(orrery(project.path(), &[command, "main.cf"]))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1) && said.contains("unreadable-file"), "{said}");
    }
    ensure!(fs::read(project.path().join("main.cf"))? == b"x = \xc3\x28", "fmt changed it");
    Ok(())
}

fn line_ends() -> Result<()> {
    accepted("x = 1\r\ny = 2\rz = 3", &[])?;
    refused("x = 1\r\ny = 2\rz = 3 + \"a\"", &[], &["./main.cf:3:5"])?;
    refused("entity A:", &[], &["error[syntax-error]", "is not closed: expected `end`"])
}

fn endless_models() -> Result<()> {
    let model = |body: &str| {
        format!(
            "entity A:\n    int n\n    string s = \"x\"\nend\nimplementation i for A:\n    {body}\nend\n\
             implement A using i\nA(n=0)\n"
        )
    };
    let chain = "Construct(A) made by __config__::A (instantiated at ./main.cf:6)";
    refused(
        model("A(n=n + 1)"),
        &[],
        &["error[model-too-large]", "does not end", chain, "--max-depth"],
    )?;
    let two = "entity B:\nend\nimplementation j for B:\n    A(n=1)\nend\nimplement B using j\n";
    refused(model("B()") + two, &[], &["B (instantiated at", "A (instantiated at"])?;
    let doubling = model("A(n=n + 1)\n    A(n=n + 2)");
    refused(
        doubling,
        &["--max-instances", "100000"],
        &["error[model-too-large]", "100000 instances"],
    )?;
    let texts = model("A(n=n + 1, s=s + s)");
    refused(texts, &["--max-memory", "64"], &["error[model-too-large]", "64 MiB", "made by"])?;
    let lists = "entity L:\n    int[] l\nend\nimplementation i for L:\n    L(l=[l, l])\nend\n\
                 implement L using i\nL(l=[1])\n";
    refused(lists, &["--max-memory", "64"], &["error[model-too-large]", "--max-memory"])
}

fn limits_can_be_set() -> Result<()> {
    let countdown = "entity A:\n    int n\nend\nimplementation i for A:\n    A(n=n - 1)\nend\n\
                     implement A using i when n > 0\nimplement A using std::none when n == 0\n";
    let deep = format!("{countdown}A(n=6000)\n");
    refused(&deep, &["--max-depth", "5000"], &["5001 deep"])?;
    accepted(&deep, &[])?;
    refused(&deep, &["--max-depth", "6000", "--max-instances", "100"], &["more than 100 instances"])
}

fn report_is_json() -> Result<()> {
    let main = "s = \"quote \\\" tab \\t nul \\0 bell \\a \u{1d11e} \u{7f}\"\nbig = 2 ** 100\n\
                small = -0.0\nhuge = float(\"inf\")\nnan = float(\"nan\")\nlong = 1e-7\n\
                d = {\"$instance\": 1, \"\": [1, 2.0, true, null]}\nstd::print(s)\n";
    let main = main.replace("1e-7", "float(\"1e-7\")");
    let project = project(main)?;
    let report = project.path().join("report.json");
    let output = run(orrery(project.path(), &["compile", "--json", "--report", "report.json"]))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(output.stdout == fs::read(&report)?, "the report in the file is another one");
    let text = String::from_utf8(output.stdout)?;
    let report: Value = serde_json::from_str(&text)?;
    let variables = &report["model"]["variables"];
    ensure!(text.contains("\"big\":1267650600228229401496703205376,"), "{text}");
    ensure!(text.contains("\"small\":-0.0,"), "{text}");
    ensure!(variables["huge"]["$float"] == "inf" && variables["nan"]["$float"] == "nan", "{text}");
    ensure!(variables["d"]["$$instance"] == 1, "{text}");
    ensure!(text.contains("\"\":[1,2.0,true,null]"), "{text}");
    let printed = report["stdout"].as_str().context("stdout")?;
    ensure!(printed.trim_end() == variables["s"].as_str().context("s")?, "{text}");
    Ok(())
}

fn report_not_written() -> Result<()> {
    let project = project("std::print(\"hello\")\n")?;
    for (path, reason) in [("no/such/report.json", "No such file"), (".", "directory")] {
        let output = run(orrery(project.path(), &["compile", "--report", path]))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "exit code {:?}", output.status.code());
        ensure!(said.contains(&format!("could not write the report to {path}")), "{said}");
        ensure!(said.contains(reason), "{said}");
        ensure!(output.stdout == b"hello\n", "the model's output is gone");
    }
    Ok(())
}

/// As `orrery … | head -c 1` does.
fn reader_leaves() -> Result<()> {
    let project = project("for n in std::sequence(20000):\n    std::print(f\"line {n}\")\nend\n")?;
    for arguments in
        [&["compile"][..], &["compile", "--json"], &["--help"], &["completion", "bash"]]
    {
        let mut command = orrery(project.path(), arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut stdout = child.stdout.take().context("standard output")?;
        stdout.read_exact(&mut [0])?;
        drop(stdout);
        let status = finish(&mut child, TIME_LIMIT)?;
        let mut said = String::new();
        child.stderr.take().context("standard error")?.read_to_string(&mut said)?;
        ensure!(status.code() == Some(0), "{arguments:?}: {status}\n{said}");
        ensure!(!said.contains("error"), "{arguments:?}: {said}");
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn output_not_written() -> Result<()> {
    let project = project("std::print(\"hello\")\n")?;
    let full = fs::OpenOptions::new().write(true).open("/dev/full")?;
    let mut command = orrery(project.path(), &["compile"]);
    let output = command.stdout(full).stderr(Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}: {said}", output.status);
    ensure!(said.contains("could not write the output"), "{said}");
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn output_not_written() -> Result<()> {
    Ok(())
}

fn closed_stderr() -> Result<()> {
    let project = project("x = y\n")?;
    let mut child = orrery(project.path(), &["compile"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    drop(child.stderr.take());
    let status = finish(&mut child, TIME_LIMIT)?;
    ensure!(status.code() == Some(1), "{status}");
    Ok(())
}

fn verbose() -> Result<()> {
    let project = project("x = 1\n")?;
    let output = run(orrery(project.path(), &["-v", "compile"]))?;
    let said = String::from_utf8_lossy(&output.stderr);
    for step in ["found the project", "loaded", "evaluated", "compiled 7 instances"] {
        ensure!(said.contains(step), "no {step:?} in:\n{said}");
    }
    Ok(())
}

fn completion() -> Result<()> {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(orrery(Path::new("."), &["completion", shell]))?;
        let script = String::from_utf8(output.stdout)?;
        for word in ["compile", "max-instances", "report"] {
            ensure!(script.contains(word), "{shell}: no {word}");
        }
    }
    let bash = orrery(Path::new("."), &["completion", "bash"]).output()?.stdout;
    let Ok(mut shell) =
        Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()
    else {
        // Without bash, completion cannot be tested.
        return Ok(());
    };
    shell.stdin.take().context("standard input")?.write_all(&bash)?;
    let output = shell.wait_with_output()?;
    if !output.status.success() {
        bail!("bash: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
