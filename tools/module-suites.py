#!/usr/bin/env python3
"""Runs the test suites of published modules with the fixture of `sdk/python`.

The suites are in the source archives of the modules; they are downloaded, never kept here. What is run is the
`orrery` in ORRERY_BIN or PATH.

    tools/module-suites.py --dir ~/suites              the suites that are expected to pass
    tools/module-suites.py --dir ~/suites std          one of them

Exit code: 0 if each suite passes as many tests as are expected of it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

SDK = Path(__file__).resolve().parent.parent / "sdk" / "python" / "src"

# What each suite passes, of tests that need nothing but this machine.
EXPECTED = {"std": 125, "fs": 17, "exec": 9, "kubernetes": 1}
MODULES = ("std", "fs", "exec", "mitogen", "kubernetes")
# What the modules and their suites import. The requirements in their metadata would bring another `inmanta`.
LIBRARIES = ("pytest<9", "pytest-mock", "jinja2", "email_validator", "pydantic", "mitogen", "pyyaml", "kubernetes")


def pip(python: Path, *arguments: str) -> None:
    """Runs pip, and ends with its message if it fails."""
    subprocess.run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def prepare(directory: Path) -> Path:
    """Makes the environment that the suites run in; gives its Python."""
    python = directory / "env" / "bin" / "python"
    if not python.exists():
        venv.create(directory / "env", with_pip=True)
        pip(python, "install", *LIBRARIES)
        pip(python, "install", "--no-deps", *[f"inmanta-module-{name}" for name in MODULES])
    return python


def unpack(directory: Path, python: Path, name: str) -> Path:
    """Downloads the source archive of a module; gives the directory with its tests."""
    place = directory / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    package = f"inmanta-module-{name}"
    pip(python, "download", "--no-deps", "--no-binary", ":all:", "--dest", str(place), package)
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(place, filter="data")
    (tests,) = place.glob("*/tests")
    return tests


def run(python: Path, tests: Path) -> int:
    """Runs a suite; gives how many of its tests passed."""
    environment = {**os.environ, "PYTHONPATH": str(SDK)}
    command = [python, "-P", "-m", "pytest", "-q", "-p", "orrery_sdk.pytest_plugin", tests.name]
    done = subprocess.run(command, cwd=tests.parent, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) passed", done.stdout)
    passed = int(found[1]) if found else 0
    if done.returncode != 0:
        print(done.stdout[-8000:], done.stderr[-2000:], sep="\n")
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True, help="where to put the environment and the suites")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"among {', '.join(EXPECTED)}; all by default")
    options = parser.parse_args()
    unknown = set(options.modules) - set(EXPECTED)
    if unknown:
        parser.error(f"nothing is expected of {', '.join(sorted(unknown))}")
    options.dir.mkdir(parents=True, exist_ok=True)
    python = prepare(options.dir.resolve())
    worst = 0
    for name in options.modules or EXPECTED:
        passed = run(python, unpack(options.dir.resolve(), python, name))
        print(f"{name}: {passed} of {EXPECTED[name]}", flush=True)
        worst |= passed < EXPECTED[name]
    return worst


if __name__ == "__main__":
    sys.exit(main())
