#!/usr/bin/env python3
"""Measure handlers in Python: how many operations per second, on one agent and on many.

A module with a handler that finds everything compliant is deployed with `orrery deploy`, whole commands. The time of the same
project with one resource for each agent is taken off: starting processes, loading code, compiling. What is left is the price
of one more operation: its message, the thread of its agent, five lines of log, its report, recording the result.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "bench" / "compile"))

from measure import Outcome, run_command  # noqa: E402

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))

MODEL = """\
import std

entity Thing extends std::PurgeableResource:
    string name
    string agent
    string value
end
index Thing(agent, name)
implement Thing using std::none
"""

PLUGINS = """\
from inmanta.agent.handler import CRUDHandler, provider
from inmanta.resources import PurgeableResource, resource


@resource("idle::Thing", agent="agent", id_attribute="name")
class Thing(PurgeableResource):
    fields = ("name", "value")


@provider("idle::Thing", name="thing")
class Handler(CRUDHandler):
    def read_resource(self, ctx, resource):
        ctx.debug("reads %(name)s", name=resource.name)
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--resources", type=int, default=5_000, metavar="N", help="number of resources (default 5,000)")
    parser.add_argument("--agents", nargs="+", type=int, default=[1, 50], metavar="N", help="number of agents (default 1, and 50)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each; the best counts (default 3)")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="limit of one run (default 600)")
    parser.add_argument("--profile", default="dist", help="profile of Cargo to build with (default dist)")
    return parser.parse_args()


def write_project(directory: Path, agents: int, each: int) -> None:
    module = directory / "libs" / "idle"
    (module / "model").mkdir(parents=True)
    (module / "plugins").mkdir()
    (module / "module.yml").write_text("name: idle\nversion: 1.0.0\nlicense: Apache 2.0\n")
    (module / "model" / "_init.cf").write_text(MODEL)
    (module / "plugins" / "__init__.py").write_text(PLUGINS)
    (directory / "project.yml").write_text("name: host\nmodulepath: libs\n")
    (directory / "main.cf").write_text(f"""\
import idle

for agent in std::sequence({agents}):
    for number in std::sequence({each}):
        idle::Thing(agent="agent{{{{ agent }}}}", name="thing{{{{ number }}}}", value="value {{{{ number }}}}")
    end
end
""")


def deploy(orrery: Path, agents: int, each: int, arguments: argparse.Namespace) -> Outcome:
    """The best of several deploys without previous state."""
    best: Outcome | None = None
    for _ in range(arguments.repeat):
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch)
            write_project(directory, agents, each)
            outcome = run_command([str(orrery), "deploy"], directory, arguments.timeout)
        if outcome.exit_code != 0:
            sys.exit(f"the deploy failed: {outcome}")
        if best is None or outcome.wall_seconds < best.wall_seconds:
            best = outcome
    assert best is not None
    return best


def main() -> int:
    arguments = parse_arguments()
    build = ["cargo", "build", "--quiet", "--profile", arguments.profile, "-p", "orrery"]
    subprocess.run(build, cwd=REPOSITORY, check=True)
    orrery = TARGET / ("debug" if arguments.profile == "dev" else arguments.profile) / "orrery"
    print(f"{'agents':>8} {'resources':>10} {'start':>9} {'deploy':>9} {'operations/s':>13}")
    for agents in arguments.agents:
        each = max(2, arguments.resources // agents)
        start = deploy(orrery, agents, 1, arguments)
        whole = deploy(orrery, agents, each, arguments)
        rate = agents * (each - 1) / max(whole.wall_seconds - start.wall_seconds, 1e-9)
        print(f"{agents:>8} {agents * each:>10} {start.wall_seconds:>8.2f}s {whole.wall_seconds:>8.2f}s {rate:>13,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
