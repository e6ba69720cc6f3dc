#!/usr/bin/env python3
"""Runs the tests of the Inmanta-compatible paths with the published client: library, command line and export.

    tests/classic/run.py --orrery target/debug/orrery --dir target/classic

The client is installed from the package index into a virtual environment that is created once and reused. It needs
Python 3.13; without one the tests are skipped with a message.

Exit code: 0 if all of them pass, or are skipped.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The version that the responses were compared with.
PACKAGES = ["inmanta-core==20.1.0", "inmanta-module-std==8.7.5"]


def python_313() -> str | None:
    """An interpreter that the client runs on."""
    directories = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    if versions.is_dir():
        directories += sorted(entry / "bin" for entry in versions.iterdir())
    for directory in directories:
        program = directory / "python3.13"
        question = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            done = subprocess.run([program, "-c", question], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.stdout.strip() == "3.13":
            return str(program)
    return None


def environment(directory: Path, program: str) -> Path:
    """The interpreter of a virtualenv with the client, created if missing."""
    key = hashlib.sha256("\n".join([program, *PACKAGES]).encode()).hexdigest()[:12]
    target = directory / key
    python = target / "bin" / "python"
    if not (target / "complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run([program, "-m", "venv", target], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(install, check=True)
        (target / "complete").touch()
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orrery", type=Path, required=True)
    parser.add_argument("--dir", type=Path, default=HERE.parents[1] / "target" / "classic")
    parser.add_argument("tests", nargs="*", help="names of tests; all if none")
    arguments = parser.parse_args()
    program = python_313()
    if program is None:
        print("SKIPPED: the published client needs Python 3.13, and there is none on this machine")
        return 0
    python = environment(arguments.dir.absolute(), program)
    variables = {**os.environ, "ORRERY": str(arguments.orrery.absolute())}
    chosen = arguments.tests or ["discover", "--quiet", "--start-directory", str(HERE)]
    # Warnings about the client's own libraries are ignored.
    command = [python, "-W", "ignore::DeprecationWarning", "-m", "unittest", *chosen]
    done = subprocess.run(command, cwd=HERE, env=variables)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
