#!/usr/bin/env python3
"""Runs the tests of the SDK with every Python of this machine that it supports, and the linter with one of them.

    sdk/python/check.py --dir target/sdk          virtualenvs are created and reused there

Exit code: 0 if all of them pass.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLDEST, NEWEST = 11, 15
# The linter is pinned: a newer release may have more rules.
PACKAGES = ["pytest<9", "pydantic>=2", "ruff==0.14.4"]


def pythons() -> dict[str, str]:
    """The interpreters by version, one for each."""
    found: dict[str, str] = {}
    directories = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    if versions.is_dir():
        directories += sorted(entry / "bin" for entry in versions.iterdir())
    for directory in directories:
        for minor in range(OLDEST, NEWEST + 1):
            program = directory / f"python3.{minor}"
            if f"3.{minor}" not in found and program.is_file() and version_of(program) == f"3.{minor}":
                found[f"3.{minor}"] = str(program)
    own = ".".join(map(str, sys.version_info[:2]))
    if sys.version_info >= (3, OLDEST):
        found.setdefault(own, sys.executable)
    return dict(sorted(found.items(), key=lambda item: int(item[0].split(".")[1])))


def version_of(program: Path) -> str | None:
    """The version of an interpreter; None if it does not run, such as a shim for a missing version."""
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([program, "-c", question], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment(directory: Path, version: str, program: str) -> Path:
    """Creates a virtualenv with the test requirements, unless it exists."""
    key = hashlib.sha256("\n".join([program, *PACKAGES]).encode()).hexdigest()[:12]
    target = directory / f"{version}-{key}"
    python = target / "bin" / "python"
    if not (target / "complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run([program, "-m", "venv", target], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True
        )
        (target / "complete").touch()
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=HERE.parents[1] / "target" / "sdk")
    arguments = parser.parse_args()
    found = pythons()
    if not found:
        print("there is no Python 3.11 or newer on this machine", file=sys.stderr)
        return 1
    failed = []
    for version, program in found.items():
        python = environment(arguments.dir.absolute(), version, program)
        done = subprocess.run(
            [python, "-m", "pytest", "-p", "no:cacheprovider"], cwd=HERE, stdout=subprocess.PIPE, text=True
        )
        lines = done.stdout.strip().splitlines()
        print(
            f"Python {version}: {re.sub('=+', '', lines[-1]).strip() if lines else 'no output'}", flush=True
        )
        if done.returncode != 0:
            print(done.stdout)
            failed.append(version)
    linter = [python, "-m", "ruff"]
    for check in (["check", "--quiet"], ["format", "--check", "--quiet"]):
        if (
            subprocess.run([*linter, *check, "--no-cache", "src", "tests", "check.py"], cwd=HERE).returncode
            != 0
        ):
            failed.append(f"ruff {check[0]}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
