"""The compiler as a child of the test: it uses the test process as its host.

So tests can replace functions of the module, set breakpoints in its plugins and inspect its state.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from orrery_sdk import PROTOCOL_VERSION
from orrery_sdk.compiling.host import CompileHost
from orrery_sdk.session import Session
from orrery_sdk.wire import Closed, Message, Wire

BINARY_VARIABLE = "ORRERY_BIN"
_PATIENCE = 10.0


class CoreNotFound(Exception):
    """There is no `orrery` to run."""

    def __init__(self) -> None:
        super().__init__(
            f"the program `orrery` is not there: put it into a directory of PATH, or its path into {BINARY_VARIABLE}"
        )


class CoreDied(Exception):
    """The compiler ended before it reported a result."""


def find_binary() -> str:
    """The program that compiles."""
    found = os.environ.get(BINARY_VARIABLE) or shutil.which("orrery")
    if not found:
        raise CoreNotFound()
    return found


class Core:
    """One compile. The model can be queried until it is closed."""

    def __init__(self, project: str, refs: Mapping[object, object], options: list[str]) -> None:
        mine, theirs = socket.socketpair()
        # Not a pipe, which would fill up while the compiler waits for its host.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        command = [
            find_binary(), "compile", "--project", project, "--resources", "--python-env", sys.prefix,
            "--serve-host", *options,
        ]  # fmt: skip
        with theirs:
            self._process = subprocess.Popen(
                command,
                cwd=project,
                # The conversation is on its standard input: the one descriptor that needs no number.
                stdin=theirs.fileno(),
                stdout=self._output,
                stderr=subprocess.STDOUT,
            )
        self._wire = Wire(mine)
        self._refs = refs
        self.host: CompileHost | None = None

    def compile(self) -> Message:
        """Hosts the compile; returns the message `compiled`."""
        try:
            self._wire.send(
                {
                    "k": "hello",
                    "protocol": PROTOCOL_VERSION,
                    "language": "python",
                    "version": sys.version.split()[0],
                    "pid": os.getpid(),
                }
            )
            init = self._wire.receive()
            while init["k"] != "init":
                if init["k"] == "compiled":
                    # The compile failed before any code ran.
                    return init
                init = self._wire.receive()
            session = Session.from_init(init)
            session.install()
            self.host = CompileHost(self._wire, session, self._refs)
            self.host.load()
            return self.host.serve_compile()
        except Closed:
            raise CoreDied(self._last_words()) from None

    def _last_words(self) -> str:
        try:
            status = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._output.seek(0)
        said = self._output.read().decode("utf-8", "replace").strip()
        return f"the compiler has ended with status {status} before it was done:\n{said}"

    def close(self) -> None:
        """Ends the compiler."""
        self._wire.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()


@contextlib.contextmanager
def working_directory(directory: str) -> Iterator[None]:
    """Changes to the project directory, as code expects during a compile."""
    before = os.getcwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
