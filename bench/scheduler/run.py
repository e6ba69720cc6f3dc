#!/usr/bin/env python3
"""Measure the scheduler alone: throughput, memory for each resource, and the cost of one change at growing sizes.

Builds the example `throughput` of `orrery-scheduler` and runs it in a separate process for each size. Prints the figures,
the ratio to each goal, and how the cost of a change grows. Only Python's standard library is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SIZES = [10_000, 100_000, 1_000_000]
AGENTS = 1_000
TASKS_PER_SECOND_GOAL = 1_000_000
BYTES_GOAL = 400
# A change may cost this much more at the largest size than at the smallest: caches are finite, scans are not allowed.
GROWTH_MAX = 5.0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="N", help="numbers of resources")
    parser.add_argument("--agents", type=int, default=AGENTS, metavar="N", help=f"agents, at most (default {AGENTS})")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each size; the median counts (default 3)")
    parser.add_argument("--profile", default="dist", help="profile of Cargo to build with (default dist)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    return parser.parse_args()


def build(profile: str) -> Path:
    command = ["cargo", "build", "--quiet", "--profile", profile, "-p", "orrery-scheduler", "--example", "throughput"]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return target / profile / "examples" / "throughput"


def measure(binary: Path, resources: int, agents: int, repeat: int) -> dict:
    """The median of each figure over some runs."""
    runs = []
    for _ in range(repeat):
        output = subprocess.run([binary, str(resources), str(agents)], check=True, capture_output=True, text=True).stdout
        runs.append(json.loads(output))
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def print_table(rows: list[dict]) -> None:
    columns = ["resources", "agents", "load", "deploy/s", "repair/s", "unchanged", "recover", "bytes", "one change"]
    print("".join(f"{column:>12}" for column in columns))
    for row in rows:
        size = row["resources"]
        cells = [
            f"{size:,.0f}",
            f"{row['agents']:,.0f}",
            f"{row['load_seconds'] * 1e9 / size:,.0f} ns",
            f"{size / row['deploy_seconds']:,.0f}",
            f"{size / row['repair_seconds']:,.0f}",
            f"{row['unchanged_seconds'] * 1e9 / size:,.0f} ns",
            f"{row['recover_seconds'] * 1e9 / size:,.0f} ns",
            f"{row['bytes_per_resource']:,.0f}",
            f"{row['change_microseconds']:.2f} us",
        ]
        print("".join(f"{cell:>12}" for cell in cells))


def print_ratios(rows: list[dict]) -> bool:
    """Compares the largest size with the goals. Returns whether all are met."""
    smallest, largest = min(rows, key=lambda row: row["resources"]), max(rows, key=lambda row: row["resources"])
    speed = largest["resources"] / largest["deploy_seconds"] / TASKS_PER_SECOND_GOAL
    memory = largest["bytes_per_resource"] / BYTES_GOAL
    growth = largest["change_microseconds"] / smallest["change_microseconds"]
    sizes = largest["resources"] / smallest["resources"]
    print(f"\ntasks per second     {speed:.2f} of the goal (at least 1)")
    print(f"bytes per resource   {memory:.2f} of the limit (at most 1)")
    print(f"one change           {growth:.2f} times the cost at {sizes:,.0f} times the size (at most {GROWTH_MAX:.0f})")
    return speed >= 1 and memory <= 1 and growth <= GROWTH_MAX


def main() -> int:
    arguments = parse_arguments()
    binary = build(arguments.profile)
    rows = [measure(binary, size, min(arguments.agents, max(1, size // 10)), arguments.repeat) for size in arguments.sizes]
    print_table(rows)
    met = print_ratios(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
