#!/usr/bin/env python3
"""Compare `orrery deploy` with its peers and with bare system calls: many small files on this machine.

Three cases for each contender and size: cold (no file exists), no-op (all are compliant) and drift (one was changed by
hand). Whole commands are measured, and after each the files are checked. `run.py --help` lists the choices.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "bench" / "compile"))

import contenders  # noqa: E402
import contents  # noqa: E402
from contenders import Job, Limit, Orrery, Unavailable  # noqa: E402
from measure import Outcome, run_command  # noqa: E402

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
SIZES = [1_000, 10_000]
CASES = ["cold", "no-op", "drift"]
PEER_GOAL = 10.0
LIMIT_GOAL = 5.0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="N", help="numbers of files")
    parser.add_argument("--peers", nargs="*", choices=list(contenders.PEERS), default=list(contenders.PEERS))
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of Orrery and the loop; the best counts (default 5)")
    parser.add_argument("--peer-repeat", type=int, default=1, metavar="N", help="the same for the peers (default 1)")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="limit of one run (default 600)")
    parser.add_argument("--profile", default="dist", help="profile of Cargo to build with (default dist)")
    parser.add_argument("--files-in", type=Path, metavar="DIR", help="directory of the files (default: the temporary directory)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    return parser.parse_args()


def build(profile: str) -> tuple[Path, Path]:
    for what in (["-p", "orrery"], ["-p", "orrery-handlers", "--example", "bare_files"]):
        subprocess.run(["cargo", "build", "--quiet", "--profile", profile, *what], cwd=REPOSITORY, check=True)
    return TARGET / profile / "orrery", TARGET / profile / "examples" / "bare_files"


class Best:
    """The best of some runs: the shortest wall time, and the least CPU time."""

    def __init__(self) -> None:
        self.wall = self.cpu = float("inf")
        self.peak = 0

    def add(self, outcome: Outcome) -> None:
        self.wall = min(self.wall, outcome.wall_seconds)
        self.cpu = min(self.cpu, outcome.cpu_seconds)
        self.peak = max(self.peak, outcome.peak_bytes)

    def figures(self) -> dict:
        return {"wall_seconds": self.wall, "cpu_seconds": self.cpu, "peak_bytes": self.peak}


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.rows: list[dict] = []
        self.broken: list[str] = []

    def run(self, name: str, case: str, job: Job, command: list[str], best: Best) -> bool:
        """Runs a command once, checks the files, and returns whether it was in time and correct."""
        outcome = run_command(command, job.wish, self.arguments.timeout)
        if outcome.exit_code < 0 and outcome.wall_seconds >= self.arguments.timeout:
            return False
        wrong = contents.problems(job.files, job.count)
        if outcome.exit_code != 0 or wrong:
            tail = "\n".join([*wrong, *outcome.output.splitlines()[-5:]])
            self.broken.append(f"{name}, {job.count} files, {case}: exit code {outcome.exit_code}\n{tail}")
            return False
        best.add(outcome)
        return True

    def measure(self, contender, count: int, repeat: int) -> None:
        with tempfile.TemporaryDirectory(prefix="converge-", dir=self.arguments.files_in) as scratch:
            job = Job(files=Path(scratch) / "files", wish=Path(scratch) / "wish", count=count)
            job.files.mkdir()
            job.wish.mkdir()
            command = contender.prepare(job)
            for case in CASES:
                best = Best()
                if not self.measure_case(contender, case, job, command, repeat, best):
                    limit = f"> {self.arguments.timeout:.0f} s" if not self.is_broken(contender.name, count) else "failed"
                    print_row({"name": contender.name, "count": count, "case": case, "note": limit})
                    return
                self.note(contender.name, count, case, best)
            if isinstance(contender, Orrery):
                best = Best()
                for _ in range(repeat):
                    best.add(run_command(contender.compile_command(job), job.wish, self.arguments.timeout))
                self.note("orrery compile", count, "no-op", best)

    def hopeless(self, name: str, count: int) -> str | None:
        """The reason to skip a peer at this size: it was too slow with fewer files, even at half the time per file."""
        tried = [row for row in self.rows if row["name"] == name and row["case"] == CASES[0] and row["count"] < count]
        for row in tried:
            expected = row["wall_seconds"] * count / row["count"]
            if expected > 2 * self.arguments.timeout:
                return f"{row['count']:,} files took {row['wall_seconds']:.0f} s, so {count:,} would take about {expected / 60:.0f} min"
        return None

    def is_broken(self, name: str, count: int) -> bool:
        return any(text.startswith(f"{name}, {count} files") for text in self.broken)

    def measure_case(self, contender, case: str, job: Job, command: list[str], repeat: int, best: Best) -> bool:
        is_limit = isinstance(contender, Limit)
        if is_limit:
            command = contender.prepare(job, "write" if case == "cold" else "check")
        for number in range(repeat):
            if case == "cold" and number > 0:
                self.start_over(job)
            # Writing one file costs nothing compared to reading all: for the bare calls both cases are the same.
            if case == "drift" and not is_limit:
                contents.spoil(job.files, job.count, number)
            if not self.run(contender.name, case, job, command, best):
                return False
        return True

    @staticmethod
    def start_over(job: Job) -> None:
        """Removes all files and state."""
        shutil.rmtree(job.files)
        job.files.mkdir()
        shutil.rmtree(job.wish / "data", ignore_errors=True)

    def note(self, name: str, count: int, case: str, best: Best) -> None:
        row = {"name": name, "count": count, "case": case, **best.figures()}
        self.rows.append(row)
        print_row(row)

    def find(self, name: str, count: int, case: str) -> dict | None:
        return next((row for row in self.rows if (row["name"], row["count"], row["case"]) == (name, count, case)), None)

    def print_ratios(self) -> bool:
        """Compares Orrery with the fastest peer and with the limit. Returns whether the goals are met."""
        met = not self.broken
        print(f"\n{'':<8}{'':<8}{'fastest peer':>22}{'peer / orrery':>16}{'orrery / calls':>16}{'without compile':>17}{'cpu / calls':>13}")
        for count in self.arguments.sizes:
            for case in CASES:
                ours = self.find(Orrery.name, count, case)
                limit = self.find(Limit.name, count, case)
                if ours is None or limit is None:
                    met = False
                    continue
                peers = [row for peer in self.arguments.peers if (row := self.find(peer, count, case))]
                fastest = min(peers, key=lambda row: row["wall_seconds"], default=None)
                faster = fastest["wall_seconds"] / ours["wall_seconds"] if fastest else None
                over = ours["wall_seconds"] / limit["wall_seconds"]
                compiling = self.find("orrery compile", count, "no-op")
                without = (ours["wall_seconds"] - (compiling or {}).get("wall_seconds", 0)) / limit["wall_seconds"]
                busy = ours["cpu_seconds"] / limit["cpu_seconds"] if limit["cpu_seconds"] else float("nan")
                print(f"{count:<8,}{case:<8}{fastest['name'] if fastest else '-':>22}"
                      f"{f'{faster:.1f}' if faster else '-':>16}{over:>16.1f}{without:>17.1f}{busy:>13.1f}")
                if case != "cold":
                    met &= faster is None or faster >= PEER_GOAL
                    met &= count != 10_000 or over <= LIMIT_GOAL
        print(f"\nthe goals (no-op and drift: {PEER_GOAL:.0f} times as fast as the fastest peer, at most {LIMIT_GOAL:.0f} times"
              f" the bare calls at 10,000): {'met' if met else 'missed'}")
        return met


def print_row(row: dict) -> None:
    figures = row.get("note") or (
        f"{row['wall_seconds'] * 1e3:>10.1f} ms wall {row['cpu_seconds'] * 1e3:>10.1f} ms cpu {row['peak_bytes'] / 1e6:>7.0f} MB"
    )
    print(f"{row['count']:<8,}{row['case']:<8}{row['name']:<16}{figures}", flush=True)


def main() -> int:
    arguments = parse_arguments()
    orrery, bare_files = build(arguments.profile)
    bench = Bench(arguments)
    for count in arguments.sizes:
        bench.measure(Limit(bare_files), count, arguments.repeat)
        bench.measure(Orrery(orrery), count, arguments.repeat)
        for name in arguments.peers:
            try:
                if reason := bench.hopeless(name, count):
                    raise Unavailable(reason)
                bench.measure(contenders.PEERS[name](TARGET / "bench-converge" / "peers"), count, arguments.peer_repeat)
            except Unavailable as error:
                print(f"{count:<8,}{'':<8}{name:<16}left out: {error}", flush=True)
    met = bench.print_ratios()
    for text in bench.broken:
        print(f"\nwrong: {text}", file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps(bench.rows, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
