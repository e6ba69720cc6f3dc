"""Run one command and measure the whole of it: wall time, CPU time and peak memory."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Outcome:
    """The cost of one run of a command, with its standard output and standard error."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    exit_code: int
    output: str

    def figures(self) -> dict:
        return {
            "wall_seconds": round(self.wall_seconds, 6),
            "cpu_seconds": round(self.cpu_seconds, 6),
            "peak_bytes": self.peak_bytes,
        }


def run_command(command: list[str], directory: Path, limit_seconds: float) -> Outcome:
    """Run `command` in `directory`, killing it after `limit_seconds`.

    The output goes to a file, so that reading it costs the child nothing, and `wait4` gives the
    resources of this child alone.
    """
    with tempfile.TemporaryFile() as sink:
        here = os.open(".", os.O_RDONLY)
        os.chdir(directory)
        try:
            started = time.perf_counter()
            child = os.posix_spawnp(
                command[0],
                command,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, sink.fileno(), 1), (os.POSIX_SPAWN_DUP2, sink.fileno(), 2)],
            )
        finally:
            os.fchdir(here)
            os.close(here)
        alarm = threading.Timer(limit_seconds, kill_tree, (child,))
        alarm.start()
        _, status, usage = os.wait4(child, 0)
        wall_seconds = time.perf_counter() - started
        alarm.cancel()
        sink.seek(0)
        output = sink.read().decode("utf-8", errors="replace")
    return Outcome(
        wall_seconds=wall_seconds,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_bytes=usage.ru_maxrss * 1024,
        exit_code=os.waitstatus_to_exitcode(status),
        output=output,
    )


def kill_tree(process: int) -> None:
    """Kills a process and all its descendants, also those outside its group; they would disturb the next run."""
    for one in [process, *descendants(process)]:
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            pass


def descendants(process: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name of the command is in parentheses and may contain anything.
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = []
    waiting = [process]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def own_peak_bytes() -> int:
    """This process's peak. Linux counts it as the child's until the child has replaced its image,
    so it is the smallest peak that can be measured."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
