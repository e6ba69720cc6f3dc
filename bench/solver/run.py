#!/usr/bin/env python3
"""Measure the cluster solver: sizes of 10 to 10,000 nodes, 5 to 30 services, and the worst cases of the reference.

Builds the example `solver_bench` of `orrery-cluster` and runs it. Prints a table, the ratio to each goal, and how times grow
with the number of nodes. Only Python's standard library is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOLVED_GOAL = 1.0
EXPLAINED_GOAL = 2.0
# A hundred times the nodes may cost this much more: bisection takes twice the steps.
GROWTH_MAX = 5.0
# Below this, times are noise.
GROWTH_FLOOR = 0.002
# Seconds that the reference takes for its worst cases, as measured with its own classes on one machine; "never" where it
# gives up or runs out of memory.
REFERENCE = {
    ("reference: free services", 8): 0.14,
    ("reference: free services", 10): 0.24,
    ("reference: free services", 12): 0.63,
    ("reference: free services", 14): 2.5,
    ("reference: free services", 16): 6.3,
    ("reference: free services", 30): None,
    ("reference: 4 exclusive, minima 250", 4): 8.5,
    ("reference: infeasible, 5 services", 5): 1.1,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each case; the median counts (default 3)")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only cases with TEXT in their names")
    parser.add_argument("--profile", default="dist", help="profile of Cargo to build with (default dist)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    return parser.parse_args()


def build(profile: str) -> Path:
    command = ["cargo", "build", "--quiet", "--profile", profile, "-p", "orrery-cluster", "--example", "solver_bench"]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return target / ("debug" if profile == "dev" else profile) / "examples" / "solver_bench"


def measure(binary: Path, repeat: int, part: str) -> list[dict]:
    output = subprocess.run([binary, str(repeat), part], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"


def print_table(rows: list[dict]) -> None:
    print(f"{'case':38}{'nodes':>8}{'services':>10}{'rules':>7}{'kinds':>7}  {'result':20}{'time':>13}{'reference':>12}")
    for row in rows:
        reference = REFERENCE.get((row["case"], row["services"]), "")
        if reference is None:
            reference = "never"
        elif reference != "":
            reference = milliseconds(reference)
        print(
            f"{row['case']:38}{row['nodes']:>8,}{row['services']:>10}{row['rules']:>7}{row['kinds']:>7}  "
            f"{row['result'][:19]:20}{milliseconds(row['seconds']):>13}{reference:>12}"
        )


def print_ratios(rows: list[dict]) -> bool:
    """Compares the slowest cases with the goals. Returns whether all are met."""
    solved = [row for row in rows if row["result"] == "solved"]
    explained = [row for row in rows if row["result"].startswith("explained")]
    undecided = [row for row in rows if row not in solved and row not in explained]
    met = not undecided
    print()
    for name, group, goal in [("solved", solved, SOLVED_GOAL), ("explained", explained, EXPLAINED_GOAL)]:
        if group:
            slowest = max(group, key=lambda row: row["seconds"])
            print(f"{name:12} {slowest['seconds'] / goal:.2f} of the limit of {goal:.0f} s ({slowest['case']})")
            met = met and slowest["seconds"] <= goal
    for row in undecided:
        print(f"undecided    {row['case']}: {row['result']}")
    growth = [
        (large["seconds"] / max(small["seconds"], GROWTH_FLOOR), small["case"], small["services"])
        for small in solved
        for large in solved
        if small["case"] == large["case"] and small["services"] == large["services"]
        and small["nodes"] == 100 and large["nodes"] == 10_000
    ]
    if growth:
        factor, case, services = max(growth)
        print(f"growth       {factor:.2f} times the time at 100 times the nodes (at most {GROWTH_MAX:.0f}; {case}, {services} services)")
        met = met and factor <= GROWTH_MAX
    return met


def main() -> int:
    arguments = parse_arguments()
    rows = measure(build(arguments.profile), arguments.repeat, arguments.filter)
    print_table(rows)
    met = print_ratios(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
