#!/usr/bin/env python3
"""Compare `orrery compile` with the reference compiler, whole command against whole command.

The script writes projects from the model shapes in `models/`, runs both compilers on each of them,
checks that both printed the same instance count, and prints wall time, CPU time, peak memory and
the ratios. The reference compiler is installed into a scratch virtual environment on first use.
Only Python's standard library is needed. `run.py --help` lists the choices.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from pathlib import Path

import projects
import reference
from measure import Outcome, own_peak_bytes, run_command

REPOSITORY = Path(__file__).resolve().parents[2]
DEFAULT_BINARY = REPOSITORY / "target" / "dist" / "orrery"
DEFAULT_WORK_DIR = REPOSITORY / "target" / "bench-compile"
SIZES = [1_000, 10_000, 30_000]
LARGE_SIZE = 1_000_000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=sorted(projects.SHAPES), default=list(projects.SHAPES))
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="N", help="instances, both compilers")
    parser.add_argument("--large", type=int, default=LARGE_SIZE, metavar="N",
                        help=f"instances, Orrery alone; 0 leaves it out (default {LARGE_SIZE})")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of Orrery; the median counts (default 5)")
    parser.add_argument("--reference-repeat", type=int, default=1, metavar="N", help="the same for the reference (default 1)")
    parser.add_argument("--orrery", type=Path, default=DEFAULT_BINARY, metavar="BINARY")
    parser.add_argument("--no-orrery", action="store_true", help="measure the reference alone")
    parser.add_argument("--reference", type=Path, metavar="COMMAND", help="an installed reference compiler to use")
    parser.add_argument("--no-reference", action="store_true", help="measure Orrery alone")
    parser.add_argument("--work-dir", type=Path, default=DEFAULT_WORK_DIR, metavar="DIR")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="limit of one run (default 600)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    arguments = parser.parse_args()
    if arguments.no_orrery and arguments.no_reference:
        parser.error("nothing to measure")
    if not arguments.no_orrery and not arguments.orrery.is_file():
        parser.error(f"{arguments.orrery} does not exist: build it with `cargo build --profile dist` or pass --no-orrery")
    return arguments


class Bench:
    """One session: the two commands, the rows measured so far, and the result of all checks."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.orrery = None if arguments.no_orrery else arguments.orrery.resolve()
        self.reference = None
        if not arguments.no_reference:
            self.reference = arguments.reference or reference.install(arguments.work_dir / "reference")
        if self.reference is None and self.orrery is None:
            raise SystemExit("nothing to measure")
        self.rows: list[dict] = []
        self.disagreements: list[str] = []

    def measure(self, title: str, project: projects.Project, with_reference: bool = True) -> None:
        """Run both compilers on one project and print a line."""
        row: dict = {"case": title, "instances": project.instances}
        limit = self.arguments.timeout
        if self.reference and with_reference:
            command = [str(self.reference), "compile"]
            row["reference"] = self.median(title, project, command, self.arguments.reference_repeat, limit)
        if self.orrery:
            command = [str(self.orrery), "compile", "--project", str(project.directory)]
            row["orrery"] = self.median(title, project, command, self.arguments.repeat, limit)
        self.rows.append(row)
        print_row(row)

    def median(self, title: str, project: projects.Project, command: list[str], runs: int, limit: float) -> Outcome:
        outcomes = []
        for _ in range(runs):
            outcome = run_command(command, project.directory, limit)
            outcomes.append(outcome)
            problem = project.problem_with(outcome)
            if problem:
                self.disagreements.append(f"{title}: {' '.join(command)}: {problem}")
                break
        return Outcome(
            wall_seconds=statistics.median(o.wall_seconds for o in outcomes),
            cpu_seconds=statistics.median(o.cpu_seconds for o in outcomes),
            peak_bytes=int(statistics.median(o.peak_bytes for o in outcomes)),
            exit_code=outcomes[-1].exit_code,
            output=outcomes[-1].output,
        )


def print_heading() -> None:
    print(f"{'':34}{'reference':^28} {'Orrery':^38} {'ratio':^16}")
    print(f"{'case':24}{'instances':>10}{'wall s':>9}{'cpu s':>9}{'peak MB':>10} "
          f"{'wall s':>10}{'cpu s':>9}{'peak MB':>10}{'µs each':>9} {'wall':>8}{'memory':>8}", flush=True)


def print_row(row: dict) -> None:
    def cells(outcome: Outcome | None, widths: tuple[int, int, int], digits: int) -> str:
        if outcome is None:
            return "".join(f"{'-':>{width}}" for width in widths)
        figures = (f"{outcome.wall_seconds:.{digits}f}", f"{outcome.cpu_seconds:.{digits}f}", f"{outcome.peak_bytes / 1e6:.1f}")
        return "".join(f"{figure:>{width}}" for figure, width in zip(figures, widths))

    slow, fast = row.get("reference"), row.get("orrery")
    ratios = f"{'-':>8}{'-':>8}"
    if slow and fast:
        ratios = f"{slow.wall_seconds / fast.wall_seconds:>7.0f}x{slow.peak_bytes / fast.peak_bytes:>7.1f}x"
    # The cost per instance shows whether the growth is linear.
    each = f"{fast.wall_seconds / row['instances'] * 1e6:>9.1f}" if fast and row["instances"] else f"{'-':>9}"
    print(f"{row['case']:24}{row['instances']:>10,}{cells(slow, (9, 9, 10), 2)} "
          f"{cells(fast, (10, 9, 10), 4)}{each} {ratios}", flush=True)


def write_json(path: Path, bench: Bench) -> None:
    def plain(row: dict) -> dict:
        return {key: value.figures() if isinstance(value, Outcome) else value for key, value in row.items()}

    report = {
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "reference": reference.VERSIONS,
        "rows": [plain(row) for row in bench.rows],
        "disagreements": bench.disagreements,
    }
    path.write_text(json.dumps(report, indent=2) + "\n")


def main() -> int:
    arguments = parse_arguments()
    arguments.work_dir.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments)
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; median of {arguments.repeat} runs of Orrery "
          f"and {arguments.reference_repeat} of the reference")
    print_heading()

    empty = projects.write_empty(arguments.work_dir / "empty")
    if bench.reference:
        # Byte code and disk caches of the reference are filled once, outside of the measurement.
        run_command([str(bench.reference), "compile"], empty.directory, arguments.timeout)
    bench.measure("empty project", empty)
    for shape in arguments.shapes:
        for size in arguments.sizes:
            project = projects.write(shape, size, arguments.work_dir / f"{shape}-{size}")
            bench.measure(shape, project)
        if arguments.large and bench.orrery:
            project = projects.write(shape, arguments.large, arguments.work_dir / f"{shape}-{arguments.large}")
            bench.measure(shape, project, with_reference=False)

    print(f"Peak memory is the child's ru_maxrss; it cannot read less than this script's own {own_peak_bytes() / 1e6:.1f} MB.")
    if arguments.json:
        write_json(arguments.json, bench)
    for line in bench.disagreements:
        print(f"FAILED {line}", file=sys.stderr)
    return 1 if bench.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
