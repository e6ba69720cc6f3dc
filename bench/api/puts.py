"""Puts of 10,000 resources into new environments, by turns: builds of Orrery, and the reference.

    python3 bench/api/puts.py --orrery target/dist/orrery [--orrery OTHER] [--reference VENV/bin/inmanta] [--rounds 15]

A load of the machine that changes concerns all of them alike, other than in one run after the other. The servers share
one PostgreSQL, each with a database of its own, and the others are idle while one puts. The first round, in which
connections are opened, is not counted. It prints medians, the best times, and ratios of the medians.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from run import Orrery, Postgres, Reference, call, until

PAUSE = 0.2


class Database:
    """A database of a build. The server's URL ends with a name that only names the application."""

    def __init__(self, postgres, name):
        self.postgres, self.name = postgres, name
        self.port = f"{postgres.port}/{name}?application_name="

    def create(self, _):
        self.postgres.create(self.name)


class Build(Orrery):
    def __init__(self, program, postgres, directory):
        super().__init__(program, Database(postgres, directory.name), directory)

    def put_new(self, number):
        project = call("POST", f"{self.base}/api/v1/projects", {"name": f"p{number}"}, self.headers)
        body = {"project": project["id"], "name": "e"}
        environment = call("POST", f"{self.base}/api/v1/environments", body, self.headers)
        self.environment = f"{self.base}/api/v1/environments/{environment['id']}"
        time.sleep(PAUSE)
        took = self.put("a")
        until(self.deployed)
        return took


class Peer(Reference):
    """Halted environments: nothing is deployed."""

    def put_new(self, number):
        project = call("PUT", f"{self.base}/api/v2/project", {"name": f"p{number}"})["data"]["id"]
        body = {"project_id": project, "name": "e"}
        environment = call("PUT", f"{self.base}/api/v2/environment", body)["data"]["id"]
        self.headers = {"X-Inmanta-tid": environment}
        call("POST", f"{self.base}/api/v2/actions/environment/halt", {}, self.headers)
        time.sleep(PAUSE)
        return self.put("a")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--orrery", action="append", required=True, help="may be repeated")
    parser.add_argument("--reference", help="the reference's program, in an environment that has it")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    peers, times = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        home = Path(scratch) / "postgres"
        home.mkdir()
        postgres = Postgres(home)
        try:
            programs = [(Peer, options.reference, "reference")] if options.reference else []
            builds = enumerate(options.orrery, 1)
            programs += [(Build, program, f"orrery_{at}") for at, program in builds]
            for kind, program, name in programs:
                directory = Path(scratch) / name
                directory.mkdir()
                peers[name] = kind(os.path.abspath(program), postgres, directory)
            for number in range(options.rounds + 1):
                for name, peer in peers.items():
                    took = peer.put_new(number)
                    if number > 0:
                        times.setdefault(name, []).append(took)
                    time.sleep(PAUSE)
        finally:
            for peer in peers.values():
                peer.process.stop()
            postgres.stop()
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    first = next(iter(medians.values()))
    for name, median in medians.items():
        best = min(times[name])
        ratio = f"{first / median:5.1f}x as fast as the first"
        print(f"{name:12} median {median * 1000:7.1f} ms   best {best * 1000:7.1f} ms   {ratio}")


if __name__ == "__main__":
    main()
