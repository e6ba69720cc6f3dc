"""Compares random models with the reference for a given time, and stores minimized differences.

    soak.py --seed 1 --batches 20              20 batches of 100 models
    soak.py --seed 1 --minutes 60

Run it with the Python of the virtualenv that setup.sh creates. Differences are written to target/soak as a corpus
(`found.cases` with its outcomes) and as text (`found.txt`); ORRERY_CASES=target/soak runs it again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import record
from cases import Case, expected_path, format_case, format_outcomes
from generate import generate
from shrink import shrink

ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--batches", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="models in a batch")
    parser.add_argument("--shrink", type=int, default=5, help="failing models of a batch to minimize")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    record.prepare("0")
    record.SECONDS_PER_CASE = 10
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "soak"
    target.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(target / "work", options.jobs)

    found: dict[str, tuple[Case, dict[str, object], str]] = {}
    deadline = time.monotonic() + 60 * options.minutes
    compared = differing = 0
    for batch in range(options.batches):
        if time.monotonic() > deadline:
            break
        cases = generate(options.seed + batch * options.size, options.size)
        differences, outcomes = comparison.run(cases)
        compared += len(outcomes)
        differing += len(differences)
        for case in [case for case in cases if case.name in differences][: options.shrink]:
            small, outcome, text = shrink(case, comparison)
            found[case.name] = (small, outcome, text)
        write(target, found)
        counts = sum(outcome["status"] == "ok" for outcome in outcomes.values())
        print(f"batch {batch}: {len(outcomes)} models ({counts} without error), {len(differences)} differ: {' '.join(sorted(differences))}", flush=True)
    print(f"{compared} models compared, {differing} differ; see {target}/found.txt")
    return 1 if differing else 0


def write(target: Path, found: dict[str, tuple[Case, dict[str, object], str]]) -> None:
    path = target / "found.cases"
    path.write_text("".join(format_case(case) for case, _, _ in found.values()), encoding="utf-8")
    outcomes = {name: outcome for name, (_, outcome, _) in found.items()}
    expected_path(path).write_text(format_outcomes(outcomes), encoding="utf-8")
    texts = [f"{format_case(case)}\n{text}\n" for case, _, text in found.values()]
    (target / "found.txt").write_text("\n".join(texts), encoding="utf-8")


class Comparison:
    """Runs models through the reference and through Orrery's differential test."""

    def __init__(self, directory: Path, jobs: int) -> None:
        self.directory = directory
        self.jobs = jobs
        self.test = build_test()
        directory.mkdir(parents=True, exist_ok=True)

    def run(self, cases: list[Case]) -> tuple[dict[str, str], dict[str, dict[str, object]]]:
        """The differences as text, and the outcomes of all cases that the reference finished."""
        outcomes = record.record_all(cases, self.jobs)
        outcomes = {name: outcome for name, outcome in outcomes.items() if outcome["status"] in ("ok", "error") and not broke_down(outcome)}
        path = self.directory / "random.cases"
        path.write_text("".join(format_case(case) for case in cases if case.name in outcomes), encoding="utf-8")
        expected_path(path).write_text(format_outcomes(outcomes), encoding="utf-8")
        environment = {**os.environ, "ORRERY_CASES": str(self.directory), "ORRERY_CASE": "random/", "RUST_BACKTRACE": "0"}
        command = [self.test, "random/", f"--test-threads={self.jobs}"]
        for _ in range(ATTEMPTS):
            output = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout
            if "test result:" in output:
                break
            # The test reads the whole corpus, which another process may be writing.
            time.sleep(5)
        else:
            raise RuntimeError(f"the comparison did not run:\n{output}")
        blocks = re.split(r"^---- random/(\S+) ----$", output.partition("\nfailures:\n\nfailures:\n")[0], flags=re.MULTILINE)
        texts = {name: text.partition("\nmain.cf:\n")[0].strip() for name, text in zip(blocks[1::2], blocks[2::2])}
        return texts, outcomes


def broke_down(outcome: dict[str, object]) -> bool:
    """Whether the reference ended in a mistake of its own: when one listener of a relation adds to it while it passes a
    value on, a question `is defined` that listens as well is told twice, and ends the compile with a KeyError."""
    error = outcome.get("error")
    return isinstance(error, dict) and error.get("class") == "KeyError" and "IsDefinedGradual" in str(error.get("message"))


def build_test() -> str:
    """Builds the differential test and returns its executable."""
    command = ["cargo", "test", "--package", "orrery", "--test", "it", "--no-run", "--message-format=json", "--quiet"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for line in output.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "it":
            return message["executable"]
    raise RuntimeError("cargo built no test")


if __name__ == "__main__":
    sys.exit(main())
