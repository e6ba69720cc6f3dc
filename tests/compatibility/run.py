#!/usr/bin/env python3
"""Installs published modules with `orrery modules install`, compiles an import of each, runs their own test
suites with Orrery's fixture, and writes a table of the results. See README.md.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as ElementTree

import published

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BEGIN, END = "<!-- modules: begin -->", "<!-- modules: end -->"
SUITE_SECONDS_MAX = 1200


@dataclasses.dataclass
class Suite:
    """The test results of a module."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    # The reason for a missing result.
    problem: str | None = None
    failures: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Result:
    """The results of one module."""

    module: published.Module
    group: str
    compiled: bool = False
    problem: str | None = None
    suite: Suite | None = None

    @property
    def is_good(self) -> bool:
        if self.module.impossible:
            return True
        enough = self.suite is None or self.suite.passed >= self.module.tests_min
        return self.compiled and enough


class Machine:
    """Runs the tests in a directory that is reused between runs."""

    def __init__(self, orrery: pathlib.Path, work: pathlib.Path):
        self.orrery = orrery.resolve()
        self.work = work.resolve()
        self.work.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        variables = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        variables["PATH"] = f"{self.orrery.parent}{os.pathsep}{variables.get('PATH', '')}"
        variables["ORRERY_BIN"] = str(self.orrery)
        return variables

    def project(self, group: published.Group) -> pathlib.Path:
        return self.work / group.name.replace(" ", "-")

    def install(self, group: published.Group, modules: list[published.Module]) -> str | None:
        """Creates the virtualenv of a group; returns the error."""
        project = self.project(group)
        (project / "libs").mkdir(parents=True, exist_ok=True)
        (project / "project.yml").write_text("name: compatibility\nmodulepath: libs\n")
        (project / "main.cf").write_text("")
        lines = [f"{module.package}=={module.version}" for module in modules]
        lines += [*group.requirements, "pytest<9", "pytest-asyncio", "pytest-timeout"]
        lines += sorted({line for module in modules for line in module.test_requirements})
        (project / "requirements.txt").write_text("\n".join(lines) + "\n")
        command = [self.orrery, "modules", "install", "--json", "--python", group.python]
        if (project / ".venv").exists() and not self.has_python(project / ".venv", group.python):
            command.append("--rebuild")
        done = subprocess.run(command, cwd=project, env=self.environment(), capture_output=True, text=True)
        if done.returncode == 0:
            return None
        try:
            error = json.loads(done.stdout)["error"]
            return "\n".join(filter(None, [error["message"], error["details"]]))
        except (json.JSONDecodeError, KeyError):
            return done.stdout + done.stderr

    @staticmethod
    def has_python(environment: pathlib.Path, version: str) -> bool:
        return (environment / "lib" / f"python{version}").is_dir()

    def compile(self, group: published.Group, module: published.Module) -> str | None:
        """Compiles an import of a module; returns the error."""
        project = self.project(group)
        main = project / f"import_{module.name}.cf"
        main.write_text(f"import {module.name}\n")
        command = [self.orrery, "compile", "--json", "--main", main.name, "--python-env", project / ".venv"]
        done = subprocess.run(command, cwd=project, env=self.environment(), capture_output=True, text=True)
        if done.returncode == 0:
            return None
        try:
            return json.loads(done.stdout)["error"]["message"]
        except (json.JSONDecodeError, KeyError, TypeError):
            return (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"

    def source(self, group: published.Group, module: published.Module) -> pathlib.Path | None:
        """The source archive of a module, unpacked; None if there is no archive."""
        archives = self.work / "archives"
        stem = f"{module.package.replace('-', '_')}-{module.version}"
        unpacked = self.work / "sources" / stem
        if unpacked.exists():
            return unpacked
        python = self.project(group) / ".venv/bin/python"
        command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        command += ["--dest", archives, f"{module.package}=={module.version}"]
        subprocess.run(command, env=self.environment(), capture_output=True, text=True)
        found = [path for path in archives.glob("*.tar.gz") if normal(path.name) == normal(f"{stem}.tar.gz")]
        if not found:
            return None
        with tarfile.open(found[0]) as archive:
            top = archive.getnames()[0].split("/")[0]
            archive.extractall(unpacked.parent, filter="data")
        if unpacked.name != top:
            (unpacked.parent / top).rename(unpacked)
        restore_layout(unpacked, module.name)
        return unpacked

    def test(self, group: published.Group, module: published.Module) -> Suite | None:
        """Runs the tests of a module; None if it has none."""
        source = self.source(group, module)
        if source is None or not any((source / "tests").glob("**/test_*.py")):
            return None
        report = source / "report.xml"
        report.unlink(missing_ok=True)
        environment = self.environment()
        virtual = self.project(group) / ".venv"
        environment["VIRTUAL_ENV"] = str(virtual)
        environment["PATH"] = f"{virtual / 'bin'}{os.pathsep}{environment['PATH']}"
        command = [self.project(group) / ".venv/bin/python", "-m", "pytest", "tests", "-q", "--timeout=300"]
        command += ["--continue-on-collection-errors", "-p", "no:cacheprovider", f"--junit-xml={report}"]
        try:
            done = subprocess.run(
                command, cwd=source, env=environment, capture_output=True, text=True, timeout=SUITE_SECONDS_MAX
            )
        except subprocess.TimeoutExpired:
            return Suite(problem=f"it did not end within {SUITE_SECONDS_MAX} s")
        (source / "output.txt").write_text(done.stdout + done.stderr)
        if not report.exists():
            return Suite(problem=last_line(done.stdout + done.stderr))
        return read_report(report.read_text())


    def new_module(self) -> str | None:
        """Writes a module, installs it and runs its tests; returns the error."""
        directory = self.work / "new_module"
        shutil.rmtree(directory, ignore_errors=True)
        steps = [
            (self.work, [self.orrery, "module", "new", "new_module"]),
            (directory, [self.orrery, "modules", "install"]),
            (directory, [directory / ".venv/bin/pytest", "-q"]),
        ]
        for place, command in steps:
            done = subprocess.run(command, cwd=place, env=self.environment(), capture_output=True, text=True)
            if done.returncode != 0:
                return done.stdout + done.stderr
        return None


def normal(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def restore_layout(source: pathlib.Path, module: str) -> None:
    """Archives have the models inside the package; in a working copy they are beside setup.cfg."""
    package = source / "inmanta_plugins" / module
    for name in ("model", "templates", "files"):
        if (package / name).is_dir() and not (source / name).exists():
            shutil.copytree(package / name, source / name)


def read_report(text: str) -> Suite:
    """Counts the results in a pytest report."""
    suite = Suite()
    uncollected = 0
    for case in ElementTree.fromstring(text).iter("testcase"):
        reasons = [child for child in case if child.tag in ("failure", "error")]
        if reasons:
            suite.failed += 1
            message = (reasons[0].get("message") or "").splitlines()
            first = message[0] if message else "no message"
            if first == "collection failure":
                uncollected += 1
                # The message is empty; the exception is after the last `E`.
                raised = [line[1:].strip() for line in (reasons[0].text or "").splitlines() if line.startswith("E ")]
                first = raised[-1] if raised else first
            suite.failures.append(f"{case.get('name')}: {first}")
        elif any(child.tag == "skipped" for child in case):
            suite.skipped += 1
        else:
            suite.passed += 1
    if suite.failed and suite.failed == uncollected and not suite.passed:
        causes = sorted({failure.split(": ", 1)[1] for failure in suite.failures})
        suite.problem = "; ".join(causes).replace("; ModuleNotFoundError: No module named ", ", ")
    return suite


def table(results: list[Result]) -> str:
    """The results as a readable table."""
    lines = ["| module | version | environment | `import` | its own tests |", "|---|---|---|---|---|"]
    for result in results:
        compiled = "compiles" if result.compiled else f"no: {one_line(result.module.impossible or cause(result.problem))}"
        cells = [result.module.name, result.module.version, result.group, compiled, in_words(result.suite)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def cause(problem: str | None) -> str:
    """The innermost reason of an error, without the local path."""
    return last_line(problem or "").split(" (reported in ")[0]


def one_line(text: str | None) -> str:
    line = " ".join((text or "").split()).replace("|", "\\|")
    return line if len(line) <= 160 else line[:159] + "…"


def in_words(suite: Suite | None) -> str:
    if suite is None:
        return "–"
    if suite.problem:
        return f"do not run: {one_line(suite.problem)}"
    total = suite.passed + suite.failed + suite.skipped
    skipped = f", {suite.skipped} skipped" if suite.skipped else ""
    return f"{suite.passed} of {total} pass{skipped}"


def write_into(path: pathlib.Path, text: str) -> None:
    """Replaces the text between the two markers of a page."""
    page = path.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def check_group(machine: Machine, group: published.Group, names: set[str] | None, suites: set[str] | None) -> list[Result]:
    """Installs, compiles and tests the modules of one group that are selected."""
    modules = [module for module in group.modules if names is None or module.name in names]
    possible = [module for module in modules if not module.impossible]
    if not modules:
        return []
    say(f"{group.name}: installing {len(possible)} modules")
    problem = machine.install(group, possible)
    results = []
    for module in modules:
        result = Result(module, group.name)
        results.append(result)
        if module.impossible:
            continue
        result.problem = problem or machine.compile(group, module)
        result.compiled = result.problem is None
        if problem is None and module.has_tests and (suites is None or module.name in suites):
            result.suite = machine.test(group, module)
        mark = "ok  " if result.is_good else "FAIL"
        say(f"  {mark} {module.name} {module.version}: {result.problem or 'compiles'}; tests: {in_words(result.suite)}")
        for failure in result.suite.failures if result.suite else []:
            say(f"       {failure[:300]}")
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orrery", type=pathlib.Path, required=True, help="the binary")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/compatibility", help="kept between runs")
    parser.add_argument("--quick", action="store_true", help="a few modules only")
    parser.add_argument("--module", action="append", help="this module; may be repeated")
    parser.add_argument("--no-suites", action="store_true", help="only install and compile")
    parser.add_argument(
        "--accept-config-licence",
        action="store_true",
        help="also those that need the module `config`, which has its own licence",
    )
    parser.add_argument("--write", type=pathlib.Path, help="a page to write the table into")
    options = parser.parse_args()
    started = time.monotonic()
    names = set(options.module) if options.module else set(published.QUICK) if options.quick else None
    suites: set[str] | None = set(published.QUICK_SUITES) if options.quick else None
    if options.no_suites:
        suites = set()
    machine = Machine(options.orrery, options.work)
    results = []
    bad = []
    if options.module is None and not options.no_suites:
        problem = machine.new_module()
        say(f"a new module: {problem or 'its tests pass'}")
        bad += ["a new module"] if problem else []
    for group in published.GROUPS:
        if group.needs_licence and not options.accept_config_licence:
            say(f"{group.name}: left out; --accept-config-licence includes it")
            continue
        if options.quick and group is not published.NOW:
            continue
        results += check_group(machine, group, names, suites)
    print(table(results))
    if options.write:
        write_into(options.write, table(results))
    bad += [result.module.name for result in results if not result.is_good]
    say(f"{len(results)} modules in {time.monotonic() - started:.0f} s; not as wanted: {', '.join(bad) or 'none'}")
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main())
