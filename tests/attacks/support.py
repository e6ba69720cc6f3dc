"""A server on loopback with temporary data, and external measurements of it."""

import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

PASSWORD = "correct horse battery staple 1"


class Failed(Exception):
    """The server did not withstand the attack."""


def check(condition, text):
    if not condition:
        raise Failed(text)


class Server:
    """A process of `orrery server` with all roles."""

    def __init__(self, orrery, soft=None, hard=None, arguments=()):
        self.data = tempfile.mkdtemp(prefix="orrery-attack-")
        self.log = open(Path(self.data) / "log", "wb")

        def limit():
            current = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft or current[0], hard or current[1]))

        command = [orrery, "server", "--data", self.data, "--listen", "127.0.0.1:0", *arguments]
        environment = dict(os.environ, ORRERY_ADMIN_PASSWORD=PASSWORD)
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=self.log, preexec_fn=limit, text=True
        )
        line = self.process.stdout.readline()
        check("listens on" in line, f"the server did not start: {line!r}; log {self.data}/log")
        self.port = int(line.strip().rsplit(":", 1)[1])
        self.token = self.call("POST", "/api/v1/login", {"name": "admin", "password": PASSWORD})[1]["token"]

    def close(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.data, ignore_errors=True)

    def memory(self, field="VmRSS"):
        """Returns the current memory in MiB, or the peak with `VmHWM`."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
        raise Failed("the server is gone")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def call(self, method, path, body=None, token=None, timeout=60, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = dict(headers or {})
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
                headers.setdefault("Content-Type", "application/json")
            if token:
                headers["Authorization"] = f"Bearer {token}"
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            try:
                return answer.status, json.loads(text)
            except ValueError:
                return answer.status, text
        finally:
            connection.close()

    def as_admin(self, method, path, body=None, timeout=60, headers=None):
        return self.call(method, path, body, self.token, timeout, headers)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def live(self, timeout=20):
        """Returns the response time of the liveness check in seconds; `None` if it fails."""
        began = time.monotonic()
        try:
            status, _ = self.call("GET", "/health/live", timeout=timeout)
        except OSError:
            return None
        return time.monotonic() - began if status == 200 else None


class Probe:
    """Polls the liveness check and records the slowest response."""

    def __init__(self, server, every=0.5):
        self.worst, self.asked, self.unanswered = 0.0, 0, 0
        self.ended = threading.Event()

        def ask():
            while not self.ended.wait(every):
                took = server.live()
                self.asked += 1
                self.unanswered += took is None
                self.worst = max(self.worst, took or 0.0)

        self.thread = threading.Thread(target=ask)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def __str__(self):
        return f"{self.asked} probes, {self.unanswered} unanswered, slowest {self.worst:.2f} s"


@contextlib.contextmanager
def serving(orrery, **options):
    server = Server(orrery, **options)
    try:
        yield server
    finally:
        server.close()
