"""One environment with a million resources: uploaded by sets, listed with filters, and one of them changed.

    python3 bench/api/million.py --orrery target/dist/orrery
    python3 bench/api/million.py --orrery target/dist/orrery --postgres

It prints the duration of each step, the slowest list responses, and the memory of the server.
"""

import argparse
import gzip
import json
import os
import tempfile
import time
import urllib.parse
import urllib.request
from datetime import datetime, timezone
from pathlib import Path

import run

FILTERS = {
    "first page": "limit=100",
    "one agent": "limit=100&agent=a77",
    "one type": "limit=100&type=std::testing::NullResource",
    "part of a value": "limit=100&value=*r123456*",
    "failed": "limit=100&status=failed",
}


class Embedded(run.Orrery):
    """On SQLite: the default of a server."""

    name = "Orrery"

    def __init__(self, program, directory, database=None):
        command = [program, "server", "--listen", "127.0.0.1:0", "--data", str(directory), "--log", "warn"]
        if database:
            command += ["--database", database]
        self.process = run.Process(command, directory, {"ORRERY_ADMIN_PASSWORD": run.PASSWORD})
        self.base = self.process.process.stdout.readline().split()[-1]
        login = run.call("POST", f"{self.base}/api/v1/login", {"name": "admin", "password": run.PASSWORD})
        self.headers = {"Authorization": f"Bearer {login['token']}"}
        project = run.call("POST", f"{self.base}/api/v1/projects", {"name": "p"}, self.headers)
        body = {"project": project["id"], "name": "e"}
        environment = run.call("POST", f"{self.base}/api/v1/environments", body, self.headers)
        self.environment = f"{self.base}/api/v1/environments/{environment['id']}"

    def put_set(self, number, size, value="a", release=True):
        resources = [
            {
                "id": f"std::testing::NullResource[a{at % 100},name=r{at}]",
                "attributes": {
                    "name": f"r{at}", "agentname": f"a{at % 100}", "value": value if at == number * size else "a",
                    "int_value": 0, "fail": False, "purged": False, "send_event": False, "receive_events": True,
                },
                "set": f"set{number}",
            }
            for at in range(number * size, (number + 1) * size)
        ]
        scope = "full" if number == 0 and value == "a" else "partial"
        body = gzip.compress(json.dumps({"resources": resources, "scope": scope, "release": release}).encode(), 1)
        headers = {**self.headers, "Content-Type": "application/json", "Content-Encoding": "gzip"}
        request = urllib.request.Request(f"{self.environment}/versions", data=body, headers=headers, method="POST")
        began = time.monotonic()
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer.read()
        return time.monotonic() - began

    def memory(self):
        status = Path(f"/proc/{self.process.process.pid}/status").read_text()
        return {name: int(status.split(f"{name}:")[1].split()[0]) // 1024 for name in ("VmRSS", "VmHWM")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--orrery", default="target/dist/orrery")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--asks", type=int, default=200, help="requests for each kind of list")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        postgres, database = None, None
        if options.postgres:
            home = Path(scratch) / "postgres"
            home.mkdir()
            postgres = run.Postgres(home)
            postgres.create("orrery")
            database = f"postgres://postgres@127.0.0.1:{postgres.port}/orrery"
        directory = Path(scratch) / "data"
        directory.mkdir()
        server = Embedded(os.path.abspath(options.orrery), directory, database)
        try:
            measure(server, options)
        finally:
            server.process.stop()
            if postgres:
                postgres.stop()


def measure(server, options):
    total = options.sets * options.size
    began = time.monotonic()
    # Larger steps at first: a version per thousand resources would be a thousand versions to process.
    step = max(1, options.sets // 100)
    slowest = 0.0
    for number in range(options.sets // step):
        slowest = max(slowest, server.put_set(number, options.size * step))
    print(f"put {total:,} resources in {options.sets // step} versions: {time.monotonic() - began:.1f} s, slowest {slowest:.2f} s")

    def settled():
        path = f"{server.environment}/resource-counts"
        return run.call("GET", path, headers=server.headers)["by_status"].get("deployed", 0) >= total

    run.until(settled)
    print(f"all deployed after {time.monotonic() - began:.1f} s")
    print("memory of the server, MiB:", server.memory())
    # Far after the first page.
    cursor = None
    for _ in range(min(50, total // 2000)):
        after = f"&after={urllib.parse.quote(cursor)}" if cursor else ""
        page = run.call("GET", f"{server.environment}/resources?limit=1000{after}", headers=server.headers)
        cursor = page.get("next")
    deep = {"deep page": f"limit=100&after={urllib.parse.quote(cursor)}"} if cursor else {}
    for name, query in {**FILTERS, **deep}.items():
        query = query.replace("[", "%5B").replace("]", "%5D").replace("*", "%2A")
        times = []
        for _ in range(options.asks):
            asked = time.monotonic()
            run.call("GET", f"{server.environment}/resources?{query}", headers=server.headers)
            times.append((time.monotonic() - asked) * 1000)
        times.sort()
        print(f"list, {name:16} median {times[len(times) // 2]:6.1f} ms, p99 {times[int(len(times) * 0.99)]:6.1f} ms")
    # One resource in a small separate set.
    for value in ("first", "second", "third"):
        resource = {
            "id": "std::testing::NullResource[a5,name=alone]", "set": "alone",
            "attributes": {
                "name": "alone", "agentname": "a5", "value": value, "int_value": 0, "fail": False, "purged": False,
                "send_event": False, "receive_events": True,
            },
        }
        began, began_at = time.monotonic(), datetime.now(timezone.utc)
        body = {"resources": [resource], "scope": "partial", "release": True}
        number = run.call("POST", f"{server.environment}/versions", body, server.headers)["number"]
        stored = time.monotonic() - began
        path = f"{server.environment}/resources/std%3A%3Atesting%3A%3ANullResource%5Ba5%2Cname%3Dalone%5D"

        def done():
            found = run.call("GET", path, headers=server.headers)
            last = found["state"].get("last_success")
            return last is not None and datetime.fromisoformat(last) >= began_at

        run.until(done)
        print(f"one change, version {number}: stored after {stored * 1000:.0f} ms, deployed after {(time.monotonic() - began) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
