"""The same load against Orrery and against the reference's server, on one PostgreSQL, in one run.

    python3 bench/api/run.py --orrery target/dist/orrery --reference VENV/bin/inmanta

Both servers get the same requests over HTTP on loopback:

- list: a page of 100 resources, as fast as wrk gets responses, with 4 and with 32 connections;
- get: one resource with its details, in the same ways;
- put: a version of 10,000 resources, released;
- deploy: from the moment the version of 10,000 null resources is stored and released until all are deployed.

One server runs at a time, so that neither takes the other's processors. It prints the ratios.
"""

import argparse
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

COUNT = 10_000
AGENTS = 10
CONNECTIONS = (4, 32)
# The id of one resource, as it stands in paths.
ONE = "std%3A%3Atesting%3A%3ANullResource%5Ba1%2Cname%3Dr1%5D"
PASSWORD = "correct horse battery staple 1"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Postgres:
    """A private PostgreSQL with temporary data."""

    def __init__(self, directory):
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not found:
            sys.exit("PostgreSQL is missing: install Debian's postgresql")
        self.bin = found[-1].parent
        self.directory = Path(directory)
        self.prefix = []
        if os.getuid() == 0:
            self.prefix = ["runuser", "-u", "postgres", "--"]
            os.chown(directory, pwd.getpwnam("postgres").pw_uid, -1)
        self.port = free_port()
        self.data = self.directory / "data"
        self.call("initdb", "-D", self.data, "-A", "trust", "-U", "postgres")
        options = f"-p {self.port} -k {self.directory} -c listen_addresses=127.0.0.1 -c shared_buffers=512MB -c jit=off"
        self.call("pg_ctl", "-D", self.data, "-o", options, "-w", "-l", self.directory / "log", "start")

    def call(self, program, *arguments):
        command = [*self.prefix, str(self.bin / program), *map(str, arguments)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def create(self, name):
        self.call("createdb", "-h", "127.0.0.1", "-p", self.port, "-U", "postgres", name)

    def stop(self):
        self.call("pg_ctl", "-D", self.data, "-m", "immediate", "stop")


def call(method, url, body=None, headers=None):
    """Sends a body of bytes as it is, and anything else as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers=headers or {})
    if data is not None:
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=300) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def wrk(url, headers, seconds, connections):
    """Requests per second."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", url]
    for name, value in headers.items():
        command += ["-H", f"{name}: {value}"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in out:
        sys.exit(f"{url} answers with errors:\n{out}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))


def reads(list_page, one, headers, seconds):
    """Both kinds of reads, with few and with many connections."""
    urls = {"list": list_page, "get": one}
    return {
        f"{name} ({connections})": wrk(url, headers, seconds, connections)
        for name, url in urls.items()
        for connections in CONNECTIONS
    }


def until(holds, limit=1800):
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > limit:
            sys.exit("this takes too long")
        time.sleep(0.02)


class Process:
    def __init__(self, command, directory, environment=None):
        self.log = open(Path(directory) / "server.log", "w")
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )

    def stop(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def names():
    return [(f"a{at % AGENTS}", f"r{at}") for at in range(COUNT)]


class Orrery:
    name = "Orrery"

    def __init__(self, program, postgres, directory):
        postgres.create("orrery")
        url = f"postgres://postgres@127.0.0.1:{postgres.port}/orrery"
        command = [program, "server", "--listen", "127.0.0.1:0", "--database", url, "--data", str(directory), "--log", "warn"]
        self.process = Process(command, directory, {"ORRERY_ADMIN_PASSWORD": PASSWORD})
        line = self.process.process.stdout.readline()
        self.base = line.split()[-1]
        login = call("POST", f"{self.base}/api/v1/login", {"name": "admin", "password": PASSWORD})
        self.headers = {"Authorization": f"Bearer {login['token']}"}
        project = call("POST", f"{self.base}/api/v1/projects", {"name": "p"}, self.headers)
        body = {"project": project["id"], "name": "e"}
        environment = call("POST", f"{self.base}/api/v1/environments", body, self.headers)
        self.environment = f"{self.base}/api/v1/environments/{environment['id']}"

    def put(self, value):
        resources = [
            {
                "id": f"std::testing::NullResource[{agent},name={name}]",
                "attributes": {
                    "name": name, "agentname": agent, "value": value, "int_value": 0, "fail": False,
                    "purged": False, "send_event": False, "receive_events": True,
                },
            }
            for agent, name in names()
        ]
        body = json.dumps({"resources": resources, "release": True}).encode()
        began = time.monotonic()
        call("POST", f"{self.environment}/versions", body, self.headers)
        return time.monotonic() - began

    def deployed(self):
        summary = call("GET", f"{self.environment}/resource-counts", headers=self.headers)
        return summary["by_status"].get("deployed", 0) == COUNT

    def measure(self, seconds):
        result = {}
        began = time.monotonic()
        result["put"] = self.put("a")
        until(self.deployed)
        result["deploy"] = time.monotonic() - began - result["put"]
        result["put again"] = self.put("b")
        until(self.deployed)
        list_page, one = f"{self.environment}/resources?limit=100", f"{self.environment}/resources/{ONE}"
        return {**result, **reads(list_page, one, self.headers, seconds)}


class Reference:
    name = "reference"

    def __init__(self, program, postgres, directory):
        self.program, self.directory = program, Path(directory)
        postgres.create("reference")
        port = free_port()
        transports = "".join(
            f"[{name}_rest_transport]\nport={port}\n" for name in ("client", "compiler", "cmdline", "agent")
        )
        self.config = self.directory / "server.cfg"
        self.config.write_text(
            f"[config]\nstate-dir={directory}/state\nlog-dir={directory}/logs\n"
            f"[database]\nhost=127.0.0.1\nport={postgres.port}\nname=reference\nusername=postgres\n"
            f"[server]\nbind-address=127.0.0.1\nbind-port={port}\n{transports}"
        )
        (self.directory / "logs").mkdir()
        (self.directory / "state").mkdir()
        self.base = f"http://127.0.0.1:{port}"
        self.process = Process([program, "-c", str(self.config), "server"], directory)
        until(self.answers, 60)
        project = call("PUT", f"{self.base}/api/v2/project", {"name": "p"})["data"]["id"]
        body = {"project_id": project, "name": "e"}
        self.id = call("PUT", f"{self.base}/api/v2/environment", body)["data"]["id"]
        self.headers = {"X-Inmanta-tid": self.id}

    def answers(self):
        try:
            call("GET", f"{self.base}/api/v1/serverstatus")
            return True
        except OSError:
            return False

    def export(self):
        """Its own exporter, since handlers need their code; the version is released with it."""
        project = self.directory / "project"
        project.mkdir()
        (project / "project.yml").write_text(
            "name: bench\nmodulepath: libs\ndownloadpath: libs\npip:\n  use-system-config: true\n"
        )
        (project / "main.cf").write_text(
            "import std\nimport std::testing\n"
            f"for i in std::sequence({COUNT}):\n"
            f'    std::testing::NullResource(name="r{{{{i}}}}", agentname="a{{{{i % {AGENTS}}}}}")\nend\n'
        )
        command = [self.program, "-c", str(self.config), "export", "-e", self.id]
        subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def put(self, value):
        """The same 10,000 resources, put as a client puts them."""
        version = call("POST", f"{self.base}/api/v2/reserve_version", {}, self.headers)["data"]
        resources = [
            {
                "id": f"std::testing::NullResource[{agent},name={name}],v={version}",
                "name": name, "agentname": agent, "value": value, "int_value": 0, "fail": False, "purged": False,
                "send_event": False, "receive_events": True, "managed": True, "requires": [], "version": version,
            }
            for agent, name in names()
        ]
        body = {
            "version": version, "resources": resources, "resource_state": {}, "unknowns": [], "version_info": {},
            "resource_sets": {}, "module_version_info": {},
        }
        body = json.dumps(body).encode()
        began = time.monotonic()
        call("PUT", f"{self.base}/api/v1/version", body, self.headers)
        return time.monotonic() - began

    def summary(self):
        answer = call("GET", f"{self.base}/api/v2/resource?deploy_summary=true&limit=1", headers=self.headers)
        return answer["metadata"]["deploy_summary"]["by_state"]

    def measure(self, seconds):
        result = {}
        self.export()
        # The installation of handler code is not measured: the time starts with the first deployed resource.
        until(lambda: self.summary()["deployed"] > 0)
        first, began = self.summary()["deployed"], time.monotonic()
        until(lambda: self.summary()["deployed"] == COUNT)
        result["deploy"] = (time.monotonic() - began) * COUNT / (COUNT - first)
        call("POST", f"{self.base}/api/v2/actions/environment/halt", {}, self.headers)
        result["put"] = self.put("a")
        result["put again"] = self.put("b")
        list_page, one = f"{self.base}/api/v2/resource?limit=100", f"{self.base}/api/v2/resource/{ONE}"
        return {**result, **reads(list_page, one, self.headers, seconds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--orrery", default="target/dist/orrery")
    parser.add_argument("--reference", help="the reference's program, in an environment that has it")
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    if not shutil.which("wrk"):
        sys.exit("wrk is missing: install Debian's wrk")
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        home = Path(scratch) / "postgres"
        home.mkdir()
        postgres = Postgres(home)
        try:
            peers = [(Orrery, os.path.abspath(options.orrery))]
            if options.reference:
                peers.append((Reference, os.path.abspath(options.reference)))
            for kind, program in peers:
                directory = Path(scratch) / kind.name
                directory.mkdir()
                server = kind(program, postgres, directory)
                try:
                    results[kind.name] = server.measure(options.seconds)
                finally:
                    server.process.stop()
        finally:
            postgres.stop()
    rows = [(f"{name} ({connections})", "req/s") for name in ("list", "get") for connections in CONNECTIONS]
    rows += [("put", "s"), ("put again", "s"), ("deploy", "s")]
    print(f"{'':12}" + "".join(f"{name:>14}" for name in results) + ("         ratio" if len(results) > 1 else ""))
    for row, unit in rows:
        values = [result[row] for result in results.values()]
        line = f"{row + ' ' + unit:16}" + "".join(f"{value:14.2f}" for value in values)
        if len(values) > 1:
            ratio = values[0] / values[1] if unit == "req/s" else values[1] / values[0]
            line += f"{ratio:13.1f}x"
        print(line)


if __name__ == "__main__":
    main()
