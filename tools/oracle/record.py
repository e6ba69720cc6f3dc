"""Records the results of the reference compiler for the cases of a corpus.

    record.py tests/language                   all cases, outcomes beside their files
    record.py tests/language/lexical.cases     one file
    record.py --new tests/language             only cases that have no outcome yet
    record.py --twice PATH                     run each case twice and list those with different outcomes

Run it with the Python of the virtualenv that setup.sh creates. The reference is imported once; each case then runs in a
separate forked child, which costs a tenth of a fresh process and still shares no state with the next case.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

from cases import Case, expected_path, format_outcomes, read_cases

SECONDS_PER_CASE = 30
BYTES_PER_CASE = 4 << 30
# What models may read from the environment; the test that compares sets the same.
ENVIRONMENT = {"CASE_WORD": "hello", "CASE_NUMBER": "42", "CASE_EMPTY": ""}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--new", action="store_true", help="keep recorded outcomes, add the missing ones")
    parser.add_argument("--twice", action="store_true", help="list cases with unstable outcomes")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--hash-seed", default="0", help="Python's; outcomes must not depend on it")
    options = parser.parse_args()
    prepare(options.hash_seed)
    started = time.monotonic()
    count = failures = 0
    for path in case_files(options.paths):
        known = {}
        if options.new and expected_path(path).exists():
            known = json.loads(expected_path(path).read_text(encoding="utf-8"))
        cases = read_cases(path)
        missing = [case for case in cases if case.name not in known]
        fresh = record_all(missing, options.jobs)
        if options.twice:
            again = record_all(missing, options.jobs)
            for name in fresh:
                if again[name] != fresh[name]:
                    print(f"{path}: {name}: not stable")
        count += len(fresh)
        for name, outcome in fresh.items():
            if outcome["status"] not in ("ok", "error"):
                failures += 1
                print(f"{path}: {name}: {outcome}")
        outcomes = {case.name: fresh.get(case.name) or known[case.name] for case in cases}
        expected_path(path).write_text(format_outcomes(outcomes), encoding="utf-8")
    print(f"{count} cases in {time.monotonic() - started:.1f} s, {failures} without an outcome")
    return 1 if failures else 0


def case_files(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.cases")) if path.is_dir() else [path]
    return found


def prepare(hash_seed: str) -> None:
    """Fixes what outcomes must not depend on, and imports what every compile needs before the first fork. std's own
    plugins stay out: they register themselves when they are imported, which has to happen in the project that uses
    them. Starts the program again if Python runs with another hash seed."""
    if os.environ.get("PYTHONHASHSEED") != hash_seed:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": hash_seed})
    for name in ("NOPE", "NOPE_XX"):
        os.environ.pop(name, None)
    os.environ |= ENVIRONMENT
    import email_validator  # noqa: F401
    import jinja2  # noqa: F401
    import pydantic  # noqa: F401

    import reference  # noqa: F401

    gc.freeze()


def record_all(cases: list[Case], jobs: int) -> dict[str, dict[str, object]]:
    """The normalised outcome of each case; `jobs` children run at a time."""
    outcomes: dict[str, dict[str, object]] = {}
    waiting = list(reversed(cases))
    running: list[Run] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(Run(waiting.pop()))
        for run in [run for run in running if run.has_ended()]:
            outcomes[run.case.name] = run.outcome()
            running.remove(run)
        time.sleep(0.002)
    return {case.name: outcomes[case.name] for case in cases}


class Run:
    """One case in a child process."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.scratch = tempfile.TemporaryDirectory(prefix="oracle-")
        self.project = Path(self.scratch.name).resolve() / "project"
        self.report = Path(self.scratch.name) / "report.json"
        self.log = Path(self.scratch.name) / "log"
        self.ending = "crash"
        self.deadline = time.monotonic() + SECONDS_PER_CASE
        self.project.mkdir()
        case.write_to(self.project)
        self.child = os.fork()
        if self.child == 0:
            run_child(self.project, self.report, self.log, "export" in case.flags)

    def has_ended(self) -> bool:
        if os.waitpid(self.child, os.WNOHANG)[0]:
            return True
        if time.monotonic() < self.deadline:
            return False
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        self.ending = "timeout"
        return True

    def outcome(self) -> dict[str, object]:
        with self.scratch:
            if not self.report.exists():
                log = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
                return {"status": self.ending, "log": log[-2000:]}
            outcome = json.loads(self.report.read_text(encoding="utf-8", errors="surrogateescape"))
            return normalise(outcome, str(self.project))


def run_child(project: Path, report: Path, log: Path, export: bool) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_AS, (BYTES_PER_CASE, BYTES_PER_CASE))
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.chdir(project)
        # The project's own virtualenv has its v2 modules.
        modules = project / "env" / "lib" / "python3.13" / "site-packages"
        if modules.is_dir():
            sys.path.insert(0, str(modules))
        import reference

        reference.compile_here(report, export)
    finally:
        os._exit(70)


def normalise(value: object, project: str) -> object:
    """Removes run-specific parts: paths of the project and of Python, and memory addresses."""
    if isinstance(value, dict):
        return {normalise(key, project): normalise(item, project) for key, item in value.items()}
    if isinstance(value, list):
        return [normalise(item, project) for item in value]
    if not isinstance(value, str):
        return value
    text = value.replace(project + "/env/lib/python3.13/site-packages", "<env>").replace(project, ".")
    text = re.sub(r"/[^\s'\":]*?/site-packages", "<site>", text)
    text = re.sub(r"\b0x[0-9a-f]{6,16}\b", "0xADDR", text)
    return re.sub(r"\b[5-7][0-9a-f]{11}\b", "ADDR", text)


if __name__ == "__main__":
    sys.exit(main())
