#!/usr/bin/env python3
"""Measure compile and export with code in Python: 2,001 resources against the reference, and the cost of a call.

The model is probe 12 (1,000 files and 1,000 commands with the published modules fs and exec). Both sides run whole commands,
one after the other, and the best of each counts. The cost of a plugin call is the difference between a model with many
calls and the same model without: calls with plain arguments, which are batched, and calls with an instance, which are sent
one by one and request the values that they read.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
CALLS = 5_000

PLUGINS = '''\
from inmanta.plugins import plugin


@plugin
def plain(text: "string") -> "string":
    return text + "!"


@plugin
def of(thing: "calls::Thing") -> "string":
    return thing.name
'''

ENTITY = """\
entity Thing:
    string name
    string answer
end
index Thing(name)
implement Thing using std::none
"""

MODELS = {
    "no calls": 'for i in std::sequence({n}):\n    t = calls::Thing(name="{{{{ i }}}}", answer="{{{{ i }}}}!")\nend\n',
    "plain arguments": 'for i in std::sequence({n}):\n    t = calls::Thing(name="{{{{ i }}}}", answer=calls::plain("{{{{ i }}}}"))\nend\n',
    "an instance": 'for i in std::sequence({n}):\n    t = calls::Thing(name="{{{{ i }}}}")\n    t.answer = calls::of(t)\nend\n',
}


def best(command: list[str], directory: Path, repeat: int, **environment: str) -> tuple[float, str]:
    """The shortest time of a command, and its output in that run."""
    found = (float("inf"), "")
    for _ in range(repeat):
        started = time.perf_counter()
        done = subprocess.run(
            command, cwd=directory, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
        )
        elapsed = time.perf_counter() - started
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
        found = min(found, (elapsed, done.stdout))
    return found


def project(directory: Path, model: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "project.yml").write_text("name: bench\nmodulepath: libs\n")
    (directory / "libs").mkdir(exist_ok=True)
    (directory / "main.cf").write_text(model)
    return directory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orrery", default=str(TARGET / "release/orrery"), help="the binary")
    parser.add_argument("--reference", metavar="PROGRAM", help="`inmanta` of a virtualenv with fs and exec; default: no comparison")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each; the best counts (default 5)")
    arguments = parser.parse_args()
    os.environ.pop("VIRTUAL_ENV", None)
    kept = project(TARGET / "bench-host", "")
    (kept / "requirements.txt").write_text("inmanta-module-std==8.7.5\ninmanta-module-fs\ninmanta-module-exec\n")
    best([arguments.orrery, "modules", "install"], kept, 1)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        model = (REPOSITORY / "tests/probes/12_scale_2000.cf").read_text().replace("{target}", f"{scratch}/files")
        ours = project(root / "ours", model)
        (ours / ".venv").symlink_to(kept / ".venv")
        seconds, said = best([arguments.orrery, "-v", "compile", "--resources"], ours, arguments.repeat)
        messages = int(re.findall(r"messages=(\d+)", said)[-1])
        print(f"probe 12, 2,001 resources: orrery {seconds:.2f} s, {messages} messages")
        if arguments.reference:
            theirs = project(root / "theirs", model)
            command = [arguments.reference, "export", "-j", "out.json"]
            reference, _ = best(command, theirs, arguments.repeat, PYTHONHASHSEED="0")
            print(f"probe 12, 2,001 resources: reference {reference:.2f} s: {reference / seconds:.1f} times")
        times = {}
        for name, text in MODELS.items():
            calls = project(root / name.replace(" ", "-"), "import calls\n" + text.format(n=CALLS))
            module = calls / "libs/calls"
            (module / "model").mkdir(parents=True)
            (module / "plugins").mkdir()
            (module / "module.yml").write_text("name: calls\nversion: 1.0.0\nlicense: Apache-2.0\n")
            (module / "model/_init.cf").write_text(ENTITY)
            (module / "plugins/__init__.py").write_text(PLUGINS)
            times[name], _ = best([arguments.orrery, "compile"], calls, arguments.repeat)
        for name in list(MODELS)[1:]:
            cost = (times[name] - times["no calls"]) / CALLS
            print(f"a call with {name}: {cost * 1e6:.0f} µs ({CALLS / (times[name] - times['no calls']):,.0f} per second)")


if __name__ == "__main__":
    main()
