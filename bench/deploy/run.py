#!/usr/bin/env python3
"""Measure `orrery deploy` on resources that do nothing, which leaves the overhead of Orrery itself.

Whole commands with a store on disk. The time to compile is that of `orrery compile` on the same model, and is taken off to get
the time of the deploy: export, storing the version, scheduling, running handlers, recording results. Afterwards the version is
read back and compared with the model, and all resources must be deployed. `run.py --help` lists the choices.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "bench" / "compile"))

from measure import Outcome, run_command  # noqa: E402

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
GOAL_PER_SECOND = 50_000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--resources", type=int, default=100_000, metavar="N", help="number of resources (default 100,000)")
    parser.add_argument("--agents", nargs="+", type=int, default=[100, 1], metavar="N", help="number of agents (default 100, and 1)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each; the best counts (default 3)")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="limit of one run (default 600)")
    parser.add_argument("--profile", default="dist", help="profile of Cargo to build with (default dist)")
    parser.add_argument("--state-in", type=Path, metavar="DIR", help="directory of the state (default: the temporary directory)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    return parser.parse_args()


def build(profile: str) -> tuple[Path, Path]:
    for what in (["-p", "orrery"], ["-p", "orrery-store", "--example", "read_back"]):
        subprocess.run(["cargo", "build", "--quiet", "--profile", profile, *what], cwd=REPOSITORY, check=True)
    return TARGET / profile / "orrery", TARGET / profile / "examples" / "read_back"


def write_project(directory: Path, agents: int, each: int) -> None:
    (directory / "libs").mkdir(parents=True)
    (directory / "project.yml").write_text("name: deploy\nmodulepath: libs\n")
    (directory / "main.cf").write_text(f"""\
import std::testing

for agent in std::sequence({agents}):
    for number in std::sequence({each}):
        std::testing::NullResource(
            agentname="agent{{{{ agent }}}}", name="null{{{{ number }}}}", value="value {{{{ number }}}} of {{{{ agent }}}}",
            int_value=number,
        )
    end
end
""")


def expected(agents: int, each: int) -> dict[str, dict]:
    """The expected version, computed from the same loops."""
    resources = {}
    for agent in range(agents):
        for number in range(each):
            name = f"std::testing::NullResource[agent{agent},name=null{number}]"
            resources[name] = {"value": f"value {number} of {agent}", "int_value": number, "fail": False, "purged": False}
    return resources


def check(orrery: Path, read_back: Path, project: Path, agents: int, each: int) -> list[str]:
    """Errors in the store after a deploy."""
    wanted = expected(agents, each)
    wrong = []
    lines = subprocess.run([read_back, project / "data" / "deploy" / "state.db"], check=True, capture_output=True, text=True).stdout
    for line in lines.splitlines():
        found = json.loads(line)
        attributes = wanted.pop(found["id"], None)
        if attributes is None:
            wrong.append(f"{found['id']} is not wanted, or is there twice")
        elif any(found["attributes"].get(name) != value for name, value in attributes.items()):
            wrong.append(f"{found['id']} has other attributes: {found['attributes']}")
    wrong.extend(f"{name} is missing" for name in wanted)
    command = [orrery, "status", "--json", "--project", project]
    statuses = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["statuses"]
    if {name: count for name, count in statuses.items() if count} != {"deployed": agents * each}:
        wrong.append(f"the states are {statuses}")
    return wrong


def best(runs: list[Outcome]) -> dict:
    return {
        "wall_seconds": min(run.wall_seconds for run in runs),
        "cpu_seconds": min(run.cpu_seconds for run in runs),
        "peak_bytes": max(run.peak_bytes for run in runs),
    }


def measure(arguments: argparse.Namespace, orrery: Path, read_back: Path, agents: int) -> dict:
    each = arguments.resources // agents
    cases: dict[str, list[Outcome]] = {"compile": [], "first": [], "again": []}
    wrong: list[str] = []
    for _ in range(arguments.repeat):
        with tempfile.TemporaryDirectory(prefix="deploy-", dir=arguments.state_in) as scratch:
            project = Path(scratch) / "project"
            write_project(project, agents, each)
            for case, command in (("compile", "compile"), ("first", "deploy"), ("again", "deploy")):
                outcome = run_command([str(orrery), command, "--project", str(project)], project, arguments.timeout)
                if outcome.exit_code != 0:
                    raise SystemExit(f"orrery {command} ended with {outcome.exit_code}:\n{outcome.output[-1000:]}")
                cases[case].append(outcome)
            wrong = check(orrery, read_back, project, agents, each)
        if wrong:
            break
    return {"agents": agents, "resources": agents * each, "wrong": wrong, **{case: best(runs) for case, runs in cases.items()}}


def print_row(row: dict) -> bool:
    """Prints the figures, and returns whether the goal is met."""
    compiling = row["compile"]
    print(f"{row['resources']:,} resources of {row['agents']} agents; compile "
          f"{compiling['wall_seconds']:.2f} s ({compiling['cpu_seconds']:.2f} s cpu)")
    speed = 0.0
    for case in ("first", "again"):
        run = row[case]
        wall, cpu = (run[what] - compiling[what] for what in ("wall_seconds", "cpu_seconds"))
        speed = speed or row["resources"] / wall
        print(f"  deploy, {case + ' time' if case == 'first' else 'nothing changes':<16} whole command {run['wall_seconds']:.2f} s"
              f"   without compile {wall:.2f} s, {cpu:.2f} s cpu   {row['resources'] / wall:>9,.0f} /s"
              f"   peak {run['peak_bytes'] / 1e6:.0f} MB")
    print(f"  read back: {'equal, all deployed' if not row['wrong'] else 'DIFFERENT'}", flush=True)
    for line in row["wrong"][:5]:
        print(f"    {line}")
    return speed >= GOAL_PER_SECOND and not row["wrong"]


def main() -> int:
    arguments = parse_arguments()
    orrery, read_back = build(arguments.profile)
    rows = []
    met = True
    for agents in arguments.agents:
        row = measure(arguments, orrery, read_back, agents)
        rows.append(row)
        met &= print_row(row)
    print(f"the goal of {GOAL_PER_SECOND:,} resources per second without compile: {'met' if met else 'missed'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
