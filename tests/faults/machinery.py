"""Fixtures for fault injection: restartable servers, a restartable PostgreSQL, a network that can stall, a journal."""

import collections
import concurrent.futures
import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "attacks"))

import support  # noqa: E402 - from tests/attacks: requests to a server, and its resource usage
from support import Failed, check  # noqa: E402

__all__ = ["ROOT", "Failed", "Farm", "Journal", "Network", "Postgres", "Server", "check", "scratch", "until"]

PATIENCE = 120


def until(what, holds, patience=PATIENCE, pause=0.05):
    """Polls a function until it returns a true value, and returns that value."""
    end = time.monotonic() + patience
    while True:
        found = holds()
        if found:
            return found
        check(time.monotonic() < end, f"this never came: {what}")
        time.sleep(pause)


@contextlib.contextmanager
def scratch():
    directory = Path(tempfile.mkdtemp(prefix="orrery-fault-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class Server(support.Server):
    """A restartable server; its data and its token persist."""

    def __init__(self, orrery, data, arguments=()):
        self.orrery, self.data, self.arguments = orrery, str(data), list(arguments)
        self.log = open(f"{self.data}.log", "ab")
        self.process, self.token = None, None
        self.start()
        login = {"name": "admin", "password": support.PASSWORD}
        self.token = self.call("POST", "/api/v1/login", login)[1]["token"]

    def start(self):
        command = [self.orrery, "server", "--data", self.data, "--listen", "127.0.0.1:0", "--log", "warn"]
        environment = dict(os.environ, ORRERY_ADMIN_PASSWORD=support.PASSWORD)
        self.process = subprocess.Popen(
            [*command, *self.arguments], env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        line = self.process.stdout.readline()
        check("listens on" in line, f"the server did not start: {line!r}; log {self.log.name}")
        self.port = int(line.strip().rsplit(":", 1)[1])

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def restart(self):
        self.kill()
        self.start()

    def close(self):
        self.kill()
        self.log.close()

    def get(self, path):
        status, answer = self.as_admin("GET", path)
        check(status == 200, f"GET {path}: {status} {answer}")
        return answer

    def post(self, path, body):
        status, answer = self.as_admin("POST", path, body)
        check(status < 300, f"POST {path}: {status} {answer}")
        return answer


class Postgres:
    """A private PostgreSQL server in a directory."""

    def __init__(self, directory):
        self.directory = directory / "postgres"
        self.directory.mkdir()
        self.programs = self._programs()
        self.user = []
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            shutil.chown(self.directory, "postgres", "postgres")
            self.user = ["runuser", "-u", "postgres", "--"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        data = self.directory / "data"
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.directory} -c max_connections=200"
        self.control = ["pg_ctl", "-D", data, "-w", "-t", "60", "-l", self.directory / "log", "-o", options]
        self._run(*self.control, "start")

    @staticmethod
    def _programs():
        given = os.environ.get("ORRERY_POSTGRES_BIN")
        if given:
            return Path(given)
        installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
        found = installed[-1] if installed else Path(shutil.which("pg_ctl") or "").parent
        check((found / "pg_ctl").exists(), "PostgreSQL's programs are not installed")
        return found

    def _run(self, program, *arguments):
        command = [*self.user, self.programs / program, *arguments]
        done = subprocess.run(
            [str(word) for word in command], cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )
        check(done.returncode == 0, f"{program} failed: {done.stderr}")

    def restart(self, mode):
        self._run(*self.control, "-m", mode, "restart")

    def url(self, port=None):
        return f"postgres://postgres@127.0.0.1:{port or self.port}/postgres"

    def close(self):
        with contextlib.suppress(Failed):
            self._run(*self.control, "-m", "immediate", "stop")


class Network:
    """A relay to a local port that can become a black hole: it forwards no data and reports no error."""

    def __init__(self, target):
        self.target, self.stalled, self.closed, self.generation = target, False, False, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while not self.closed:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client, self.generation), daemon=True).start()

    def _wait(self, generation):
        while self.stalled and generation == self.generation:
            time.sleep(0.005)
        return generation == self.generation

    def _connect(self, client, generation):
        if not self._wait(generation):
            return client.close()
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            return client.close()
        threading.Thread(target=self._relay, args=(server, client, generation), daemon=True).start()
        self._relay(client, server, generation)

    def _relay(self, source, sink, generation):
        source.settimeout(0.05)
        try:
            while self._wait(generation):
                try:
                    block = source.recv(65536)
                except TimeoutError:
                    continue
                # Data that was read before the stall is not forwarded either.
                if not block or not self._wait(generation):
                    return
                sink.sendall(block)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def stall(self):
        self.stalled = True

    def heal(self):
        """Closes stalled connections and relays new ones."""
        self.generation += 1
        self.stalled = False

    def close(self):
        self.closed = True
        self.heal()
        self.listener.close()


class Journal:
    """Journal of the targets. A line has a name, the acting process, and nanoseconds since the epoch."""

    def __init__(self, path):
        self.path = path
        path.touch()
        self._lock = threading.Lock()
        self._read, self._entries, self._runs = 0, [], collections.Counter()

    def entries(self):
        # Reads only new lines, because callers poll many times a second.
        with self._lock, open(self.path, "rb") as stream:
            stream.seek(self._read)
            new = stream.read()
            new = new[: new.rfind(b"\n") + 1]
            self._read += len(new)
            for line in new.decode().splitlines():
                name, process, at = line.split()
                self._entries.append((name, int(process), int(at) / 1e9))
                self._runs[name] += 1
            return list(self._entries)

    def runs(self):
        self.entries()
        with self._lock:
            return self._runs.copy()

    def command(self, name, seconds, once=True):
        """Returns a command that writes a line when it begins, and its attributes."""
        text = f"sh -c 'echo {name} $PPID $(date +%s%N) >> {self.path}; sleep {seconds}'"
        return text, {
            "command": text, "creates": "", "cwd": "", "environment": {}, "once": once, "onlyif": "", "path": "", "reload": "",
            "reload_only": False, "returns": [0], "timeout": 300, "unless": "", "skip_on_fail": False, "send_event": False,
            "receive_events": True,
        }


class Farm:
    """Environments with effects that must happen once, and the checks of their results."""

    AGENTS = 4

    def __init__(self, server, journal):
        self.server, self.journal = server, journal
        self.project = server.post("/api/v1/projects", {"name": "faults"})["id"]
        self.free, self.busy = [], {}
        self.count, self.unknown, self.checked = 0, 0, 0
        self.random = random.Random(7)

    def environment(self):
        body = {"name": f"e{len(self.free) + len(self.busy)}", "project": self.project}
        path = f"/api/v1/environments/{self.server.post('/api/v1/environments', body)['id']}"
        status, answer = self.server.as_admin("PUT", f"{path}/settings/local_agents", {"value": ["a*"]})
        check(status == 200, f"local_agents: {status} {answer}")
        return path

    def sow(self, count, seconds=0.1, others=0):
        """Pushes a version with new effects to an idle environment; returns their names.

        `others` is a number of additional commands that may be repeated: the server records nothing before they begin.
        """
        environment = self.free.pop() if self.free else self.environment()
        names = {}
        resources = []
        for _ in range(count):
            self.count += 1
            name = f"x{self.count}"
            text, attributes = self.journal.command(name, round(seconds * self.random.uniform(0.2, 1.8), 3))
            identifier = f"exec::Run[a{self.count % self.AGENTS},command={text}]"
            names[identifier] = name
            resources.append({"id": identifier, "attributes": attributes})
        for at in range(others):
            text, attributes = self.journal.command(f"other{self.count}-{at}", 0.5, once=False)
            # On separate agents: on the same one, they would wait behind an effect that cannot be recorded.
            agent = f"a{self.AGENTS + at % self.AGENTS}"
            resources.append({"id": f"exec::Run[{agent},command={text}]", "attributes": attributes})
        self.busy[environment] = names
        self.server.post(f"{environment}/versions", {"resources": resources, "release": True})
        return set(names.values())

    def states(self, environment):
        found = self.server.get(f"{environment}/resources?limit=1000")["items"]
        return {item["id"]: item["status"] for item in found}

    def rests(self, environment):
        """Returns the states of the resources of an environment if all effects have ended, else None."""
        states = self.states(environment)
        names = self.busy[environment]
        ended = [states.get(identifier) in ("deployed", "failed") for identifier in names]
        return states if all(ended) else None

    def reap(self, patience=PATIENCE):
        """Waits until all effects have ended, compares them with the journal, settles unknown ones, and compares again."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            unknown = list(pool.map(lambda environment: self.reap_one(environment, patience), self.busy))
        self.unknown += sum(unknown)
        runs = self.journal.runs()
        for environment, names in self.busy.items():
            wrong = {name: runs[name] for name in names.values() if runs[name] != 1}
            check(not wrong, f"did not happen just once: {wrong}")
            self.checked += len(names)
            self.free.append(environment)
        self.busy.clear()

    def reap_one(self, environment, patience):
        """Checks and settles one environment. Returns the number of its unknown effects."""
        names = self.busy[environment]
        states = until("everything had its turn", lambda: self.rests(environment), patience, 0.2)
        runs = self.journal.runs()
        listed = {item["resource"] for item in self.server.get(f"{environment}/unknown-effects")["items"]}
        failed = {identifier for identifier in names if states[identifier] == "failed"}
        check(failed == listed, f"failed, and not listed as unknown: {sorted(failed ^ listed)[:3]}")
        for identifier, name in names.items():
            check(runs[name] <= 1, f"{name} happened {runs[name]} times")
            known = states[identifier] == "deployed"
            check(not known or runs[name] == 1, f"{name} is acknowledged, and never happened")
        for identifier in listed:
            choice = "done" if runs[names[identifier]] else "again"
            self.server.post(f"{environment}/unknown-effects/settle", {"resource": identifier, "choice": choice})
        deployed = lambda: all(self.states(environment).get(one) == "deployed" for one in names)  # noqa: E731
        until("what was decided is done", deployed, patience, 0.2)
        check(not self.server.get(f"{environment}/unknown-effects")["items"], "something is still unknown")
        return len(listed)

    def until_some(self, names, count=1):
        """Waits until at least `count` of these effects have begun."""
        have_begun = lambda: len(names & self.journal.runs().keys()) >= count  # noqa: E731
        until("some effects have begun", have_begun, PATIENCE, 0.02)

    def figures(self):
        runs = self.journal.runs()
        twice = sum(1 for name, count in runs.items() if name.startswith("x") and count > 1)
        return f"{self.checked} effects, {twice} happened twice, {self.unknown} unknown and all of them listed"
