//! Virtual environments with what handlers require: made once, by one of several, and removed in the end.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use orrery_host::environments::Environments;
use orrery_host::python::Interpreter;

/// Writes a package that can be installed without any network.
fn wheel(dir: &Path) {
    let script = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/tiny_thing-1.0-py3-none-any.whl", "w") as wheel:
    info = "tiny_thing-1.0.dist-info/"
    wheel.writestr("tiny_thing.py", "answer = 42\n")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "tiny_thing.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n")
"#;
    let status = Command::new("python3").args(["-c", script]).arg(dir).status().unwrap();
    assert!(status.success());
}

#[test]
fn an_environment_is_made_once_and_removed_when_nobody_uses_it() {
    let dir = tempfile::tempdir().unwrap();
    wheel(dir.path());
    let base = Interpreter::find(None).unwrap();
    let offline = ["--no-index".to_owned(), format!("--find-links={}", dir.path().display())];
    let environments = Environments::new(dir.path().join("environments"), offline.to_vec());
    assert_eq!(environments.interpreter(&base, &[]).unwrap(), base);
    let wanted = ["tiny-thing==1.0".to_owned()];
    let made: Vec<Interpreter> = std::thread::scope(|scope| {
        let make = || environments.interpreter(&base, &wanted).unwrap();
        let threads = [scope.spawn(make), scope.spawn(make)];
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made[0], made[1]);
    let mut ask = Command::new(&made[0].program);
    let answer = ask.args(["-c", "import tiny_thing; print(tiny_thing.answer)"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "42\n");
    let error = environments.interpreter(&base, &["no-such-thing".to_owned()]).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("pip install failed for the requirements no-such-thing:"), "{error}");
    assert!(error.contains("No matching distribution"), "{error}");
    let day = Duration::from_secs(86_400);
    let made_at = std::fs::metadata(made[0].program.parent().unwrap()).unwrap().modified().unwrap();
    assert_eq!(environments.clean(day, made_at).unwrap(), 0);
    // The broken one as well.
    let later: SystemTime = made_at + 3 * day;
    assert_eq!(environments.clean(day, later).unwrap(), 2);
    assert!(!made[0].program.exists());
}
