"""A fake core for tests of the handlers role: starts a real host process and talks to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent.parent / "src"
PATIENCE_S = 30.0

Message = dict[str, Any]


class Outcome:
    """The outcome of one operation."""

    def __init__(self, report: Message, lines: list[list[Any]]) -> None:
        self.report = report
        self.lines = lines
        self.state: str = report["state"]
        self.change: str = report["change"]

    def texts(self, level: str | None = None) -> list[str]:
        """The texts of the log."""
        return [line[3] for line in self.lines if level is None or line[2] == level]

    def everything(self) -> str:
        """All sent data, as text."""
        return json.dumps([self.report, self.lines], ensure_ascii=False)


class HostGone(Exception):
    """The host has closed the connection."""


class HandlerHost:
    """A host process in the role `handlers`."""

    def __init__(self, modules: dict[str, Path], **init: Any) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._stream = ours.makefile("rb")
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the host
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "ORRERY_HOST_FD": str(theirs.fileno())}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "orrery_sdk"],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            env=environment,
        )
        theirs.close()
        ours.settimeout(PATIENCE_S)
        self.hello = self.receive()
        self._numbers = 0
        self._other: list[Message] = []
        self._lines: dict[int, list[list[Any]]] = {}
        self._reports: dict[int, Message] = {}
        self.send(
            {
                "k": "init",
                "role": "handlers",
                "project": "/nowhere",
                "modules": [
                    {
                        "name": name,
                        "package": f"inmanta_plugins.{name}",
                        "code": str(code),
                        "root": str(code.parent),
                    }
                    for name, code in modules.items()
                ],
                **init,
            }
        )
        self.loaded = self.receive()

    def send(self, message: Message) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Message:
        line = self._stream.readline()
        if not line.endswith(b"\n"):
            raise HostGone(f"the host ended with status {self.process.wait(PATIENCE_S)}: {self.printed()}")
        return json.loads(line)

    def start(self, resource: Message, **members: Any) -> int:
        """Starts an operation; returns its number."""
        self._numbers += 1
        agent = resource["id"].split("[")[1].split(",")[0]
        message = {"k": "op", "c": self._numbers, "op": "deploy", "agent": agent, "uri": "local:"}
        self.send({**message, "resource": resource, "level": "debug", **members})
        return self._numbers

    def wait(self, number: int) -> Outcome:
        """Waits for the report of an operation."""
        while number not in self._reports:
            self._take(self.receive())
        lines = self._lines.pop(number, [])
        report = self._reports.pop(number)
        assert [line[0] for line in lines] == list(range(1, report["lines"] + 1)), (
            "lines are missing or out of order"
        )
        return Outcome(report, lines)

    def run(self, resource: Message, **members: Any) -> Outcome:
        """Runs an operation to completion."""
        return self.wait(self.start(resource, **members))

    def wait_for_line(self, number: int, text: str) -> None:
        """Waits for a log line of an operation."""
        while not any(text in line[3] for line in self._lines.get(number, [])):
            assert number not in self._reports, f"the operation ended without logging {text!r}"
            self._take(self.receive())

    def wait_for(self, kind: str) -> Message:
        """Waits for a message of another kind."""
        while True:
            for position, message in enumerate(self._other):
                if message["k"] == kind:
                    return self._other.pop(position)
            self._take(self.receive())

    def _take(self, message: Message) -> None:
        if message["k"] == "log":
            assert len(message["lines"]) <= 64
            self._lines.setdefault(message["c"], []).extend(message["lines"])
        elif message["k"] == "report":
            self._reports[message["c"]] = message
        else:
            self._other.append(message)

    def printed(self) -> str:
        """The output of the process so far."""
        self.output.seek(0)
        return self.output.read().decode("utf-8", "replace")

    def memory_kib(self) -> int:
        """Resident memory of the process."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0])

    def close(self) -> None:
        self._stream.close()
        self._socket.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()

    def __enter__(self) -> HandlerHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_module(directory: Path, name: str, code: str) -> dict[str, Path]:
    """Writes a module with this code; returns its entry for `init`."""
    package = directory / name / "plugins"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(textwrap.dedent(code))
    return {name: package}


def resource(identifier: str, **fields: Any) -> Message:
    """A resource in its exported form."""
    return {
        "id": identifier,
        "requires": [],
        "send_event": False,
        "receive_events": True,
        "report_only": False,
        "references": [],
        "mutators": [],
        "purged": False,
        "purge_on_delete": False,
        **fields,
    }


def wait_until(condition: Any, what: str) -> None:
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.01)
