"""A server for tests: the real program, on this machine, with temporary data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
PASSWORD = "Correct-Horse-9"
# Generous: the machine may be busy with other tests.
PATIENCE = 60.0


class Server:
    """A running `orrery server`; ends with `stop`."""

    def __init__(self) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="orrery-classic-"))
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("ORRERY_", "INMANTA_"))
        }
        variables["ORRERY_ADMIN_PASSWORD"] = PASSWORD
        log = (self.data / "log").open("wb")
        self.process = subprocess.Popen(
            [os.environ["ORRERY"], "server", "--listen", "127.0.0.1:0", "--data", self.data / "data"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        line = self.process.stdout.readline()
        if "listens on" not in line:
            self.stop()
            raise RuntimeError(f"the server did not start: {line}")
        self.address = line.split()[-1]
        self.port = int(self.address.rsplit(":", 1)[1])
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        code, _, answer = self.call("POST", "/api/v2/login", {"username": "admin", "password": PASSWORD})
        if code != 200:
            self.stop()
            raise RuntimeError(f"nobody can log in: {answer}")
        self.token = answer["data"]["token"]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.data, ignore_errors=True)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        environment: str | None = None,
        token: str | None = None,
    ) -> tuple[int, dict[str, str], dict]:
        """A request without the client, for requests that it would not send."""
        headers = {}
        token = token or getattr(self, "token", None)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if environment:
            headers["X-Inmanta-tid"] = environment
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, content, headers, method=method)
        try:
            answer = urllib.request.urlopen(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            text = answer.read()
            return answer.status, dict(answer.headers), json.loads(text) if text else {}


class ClassicTest(unittest.TestCase):
    """Tests of one file share a server; each has its own environments."""

    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def until(self, question, wanted=True):
        """Polls until the response is the expected one."""
        end = time.monotonic() + PATIENCE
        while True:
            answer = question()
            if answer == wanted:
                return answer
            if time.monotonic() > end:
                log = (self.server.data / "log").read_text(errors="replace")[-4000:]
                self.fail(f"it is {answer!r} and not {wanted!r}; the server's log ends:\n{log}")
            time.sleep(0.1)
