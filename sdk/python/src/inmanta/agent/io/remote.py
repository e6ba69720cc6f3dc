"""Files and programs of another machine, through the ssh client and a remote Python.

The client starts Python, which gets the text of `local.py` and a loop around it, and then answers requests:
lines of JSON, with bytes as base64.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
from typing import Any

from inmanta.agent.io import local
from inmanta.resources import HostNotFoundException

_CONNECT_TIMEOUT_S = 20

# Reads the length of a program and the program from its input, and executes it.
_BOOTSTRAP = "import sys;i=sys.stdin.buffer;exec(compile(i.read(int(i.readline())),'orrery-io','exec'))"

_LOOP = """
import base64 as _base64, json as _json, sys as _sys

def _open(value):
    if isinstance(value, dict) and "$bytes" in value:
        return _base64.b64decode(value["$bytes"])
    return value

def _shut(value):
    if isinstance(value, bytes):
        return {"$bytes": _base64.b64encode(value).decode("ascii")}
    return value

def _serve():
    io, requests, answers = LocalIO(), _sys.stdin.buffer, _sys.stdout.buffer
    _sys.stdout = _sys.stderr
    answers.write(b'{"ready":true}\\n')
    answers.flush()
    for line in iter(requests.readline, b""):
        request = _json.loads(line.decode("utf-8"))
        try:
            arguments = [_open(value) for value in request["args"]]
            named = {name: _open(value) for name, value in request["kwargs"].items()}
            answer = {"value": _shut(getattr(io, request["method"])(*arguments, **named))}
        except Exception as error:
            answer = {"class": type(error).__name__, "text": str(error)}
        answers.write(_json.dumps(answer).encode("utf-8") + b"\\n")
        answers.flush()

_serve()
"""


class RemoteException(Exception):
    """A failure on the remote machine. `exception_type` is the name of its class there."""

    def __init__(self, message: str, exception_type: str = "Exception") -> None:
        super().__init__(message)
        self.exception_type = exception_type


class SshIO(local.IOBase):
    """A machine that the ssh client can log in to, without a password and without checking its host key."""

    def __init__(
        self,
        host: str,
        user: str = "root",
        port: int | None = None,
        python: str = "python3",
        retries: int = 10,
        retry_wait: float = 30,
        ssh: tuple[str, ...] = ("ssh",),
    ) -> None:
        self.host = host
        self.user = user
        self._lock = threading.Lock()
        self._process = self._connect(_command(ssh, host, user, port, python), retries, retry_wait)

    def _connect(self, command: list[str], retries: int, retry_wait: float) -> subprocess.Popen[bytes]:
        reason = ""
        for attempt in range(max(1, retries)):
            if attempt:
                time.sleep(retry_wait)
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            program = _program()
            try:
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(b"%d\n" % len(program) + program)
                process.stdin.flush()
                if process.stdout.readline() == b'{"ready":true}\n':
                    # Its output is not read from now on, and must not block it.
                    threading.Thread(target=_drain, args=(process,), daemon=True).start()
                    return process
            except OSError:
                pass
            reason = _end(process)
        raise HostNotFoundException(self.host, self.user, reason or "the connection ended at once")

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        request = {
            "method": method,
            "args": [_shut(value) for value in args],
            "kwargs": {name: _shut(value) for name, value in kwargs.items()},
        }
        with self._lock:
            assert self._process.stdin is not None and self._process.stdout is not None
            try:
                self._process.stdin.write(json.dumps(request).encode("utf-8") + b"\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except OSError as error:
                raise RemoteException(f"the connection to {self.host} broke: {error}") from error
        if not line:
            raise RemoteException(f"the connection to {self.host} has ended", "ConnectionError")
        answer = json.loads(line)
        if "class" in answer:
            raise RemoteException(f"{answer['class']}: {answer['text']}", answer["class"])
        value = answer["value"]
        return base64.b64decode(value["$bytes"]) if isinstance(value, dict) and "$bytes" in value else value

    def is_remote(self) -> bool:
        """True: this is a remote machine."""
        return True

    def close(self) -> None:
        """Ends the connection."""
        _end(self._process)

    def hash_file(self, path: str) -> str:
        """The SHA-1 of the content of a file."""
        return self._call("hash_file", path)

    def run(
        self,
        command: str,
        arguments: list[str] = [],
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
    ) -> tuple[str, str, int]:
        """Runs a program on the machine."""
        return tuple(self._call("run", command, arguments, env, cwd, timeout))

    def read_binary(self, path: str) -> bytes:
        """The content of a file."""
        return self._call("read_binary", path)

    def file_exists(self, path: str) -> bool:
        """True if the path exists, even as a dangling link."""
        return self._call("file_exists", path)

    def readlink(self, path: str) -> str:
        """The target of a link."""
        return self._call("readlink", path)

    def symlink(self, source: str, target: str) -> None:
        """Creates a link `target` that points to `source`."""
        self._call("symlink", source, target)

    def is_symlink(self, path: str) -> bool:
        """True if it is a link; it must exist."""
        return self._call("is_symlink", path)

    def file_stat(self, path: str) -> dict[str, int | str]:
        """Owner, group and permissions."""
        return self._call("file_stat", path)

    def remove(self, path: str) -> None:
        """Removes a file."""
        self._call("remove", path)

    def put(self, path: str, content: bytes) -> None:
        """Writes a file."""
        self._call("put", path, content)

    def chown(self, path: str, user: str | None = None, group: str | None = None) -> None:
        """Changes the owner and the group."""
        self._call("chown", path, user, group)

    def chmod(self, path: str, permissions: str) -> None:
        """Changes the permissions."""
        self._call("chmod", path, permissions)

    def mkdir(self, path: str) -> None:
        """Creates a directory."""
        self._call("mkdir", path)

    def rmdir(self, path: str) -> None:
        """Removes a directory with its content."""
        self._call("rmdir", path)


def _command(ssh: tuple[str, ...], host: str, user: str, port: int | None, python: str) -> list[str]:
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": os.devnull,
        "LogLevel": "ERROR",
        "ConnectTimeout": str(_CONNECT_TIMEOUT_S),
        "ServerAliveInterval": "15",
    }
    words = list(ssh)
    for name, value in options.items():
        words += ["-o", f"{name}={value}"]
    if port is not None:
        words += ["-p", str(port)]
    # One word for the remote shell; the program contains no quotes of this kind.
    return [*words, f"{user}@{host}", f'{python} -u -c "{_BOOTSTRAP}"']


def _program() -> bytes:
    import inspect

    return (inspect.getsource(local) + _LOOP).encode("utf-8")


def _shut(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    return value


def _drain(process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None
    try:
        while process.stderr.read(4096):
            pass
    except (OSError, ValueError):
        # It was closed meanwhile.
        pass


def _end(process: subprocess.Popen[bytes]) -> str:
    """Ends the client; returns its error output."""
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            pass
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    text = b""
    if process.stderr is not None and not process.stderr.closed:
        try:
            text = process.stderr.read() or b""
        except (OSError, ValueError):
            pass
        process.stderr.close()
    if process.stdout is not None:
        process.stdout.close()
    return text.decode("utf-8", "replace").strip()
