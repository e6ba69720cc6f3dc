"""Breaks dependencies of servers during effects that must happen once. Each fault prints measurements or the broken guarantee.

    python3 tests/faults/run.py --orrery target/debug/orrery [--short] [FAULT...]
"""

import argparse
import collections
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

from machinery import ROOT, Failed, Farm, Journal, Network, Postgres, Server, check, scratch, until

# Seconds for which an owner may act after its last successful renewal, and seconds of tolerance.
PERMIT, SLACK = 10, 0.5
# Number of effects created before each kill, and of kills between comparisons with the journal.
BATCH, ROUND = 8, 50


class Place:
    """A server in a temporary directory, with its effects, on either database."""

    def __init__(self, stack, options, database, arguments=(), data=None):
        self.directory = stack.enter_context(scratch())
        self.postgres = None
        if database == "postgres":
            self.postgres = stack.enter_context(closing(Postgres(self.directory)))
            arguments = [*arguments, "--database", self.postgres.url()]
        self.server = stack.enter_context(closing(Server(options.orrery, data or self.directory / "data", arguments)))
        self.journal = Journal(self.directory / "journal")
        self.farm = Farm(self.server, self.journal)


def server_kills(options, database):
    """Kills the server (`kill -9`) during new effects; effects from before earlier kills are still in progress."""
    moments = random.Random(11)
    with ExitStack() as stack:
        place = Place(stack, options, database)
        began = time.monotonic()
        for kill in range(options.kills):
            names = place.farm.sow(BATCH)
            place.farm.until_some(names, moments.randint(1, 3))
            time.sleep(moments.uniform(0, 0.15))
            place.server.restart()
            if kill % ROUND == ROUND - 1:
                place.farm.reap()
        place.farm.reap()
        took = time.monotonic() - began
        return f"{options.kills} kills in {took:.0f} s: {place.farm.figures()}"


def database_restarts(options, _):
    """Restarts PostgreSQL under a running server, alternating between a crash and a clean restart."""
    moments = random.Random(13)
    with ExitStack() as stack:
        place = Place(stack, options, "postgres")
        began = time.monotonic()
        for restart in range(options.restarts):
            names = place.farm.sow(4 * BATCH)
            place.farm.until_some(names, moments.randint(1, BATCH))
            place.postgres.restart("immediate" if restart % 2 == 0 else "fast")
            if restart % 10 == 9:
                place.farm.reap()
        place.farm.reap()
        took = time.monotonic() - began
        return f"{options.restarts} restarts in {took:.0f} s: {place.farm.figures()}"


class Pair:
    """Two servers on one database, each with its own network, and a sequence of effects."""

    def __init__(self, stack, options):
        self.directory = stack.enter_context(scratch())
        postgres = stack.enter_context(closing(Postgres(self.directory)))
        self.networks, self.servers = [], []
        for name in ("a", "b"):
            network = stack.enter_context(closing(Network(postgres.port)))
            arguments = ["--database", postgres.url(network.port)]
            self.servers.append(stack.enter_context(closing(Server(options.orrery, self.directory / name, arguments))))
            self.networks.append(network)
        self.journal = Journal(self.directory / "journal")
        self.farm = Farm(self.servers[0], self.journal)

    def acts(self, at):
        """Returns the times at which a server began effects."""
        process = self.servers[at].process.pid
        return [when for _, parent, when in self.journal.entries() if parent == process]

    def owner(self):
        return max((0, 1), key=lambda at: max(self.acts(at), default=0))


def take_over(options, cut, restore, limit):
    with ExitStack() as stack:
        pair = Pair(stack, options)
        late = between = 0
        for _ in range(options.rounds):
            # More effects than the owner can run before its lease ends.
            names = pair.farm.sow(2 * BATCH, 1, others=Farm.AGENTS * 40)
            pair.farm.until_some(names, 2)
            owner = pair.owner()
            other = 1 - owner
            before = len(pair.acts(other))
            # The stalled server cannot respond, so requests go to the other one.
            pair.farm.server = pair.servers[other]
            cut(pair, owner)
            moment = time.time()
            until("the other server takes over", lambda: len(pair.acts(other)) > before, 60)
            restore(pair, owner)
            pair.farm.reap()
            acts = [when for when in pair.acts(owner) if when > moment]
            late += sum(1 for when in acts if when > moment + limit)
            between += len(acts)
        check(late == 0, f"{late} effects were begun after the deadline")
        return f"{options.rounds} rounds, {between} effects begun after the cut, {late} after the deadline; {pair.farm.figures()}"


def black_hole(options, _):
    """Stalls the network between the owner of an environment and its database; another server takes over."""
    return take_over(
        options,
        lambda pair, at: pair.networks[at].stall(),
        lambda pair, at: pair.networks[at].heal(),
        PERMIT + SLACK,
    )


def frozen_owner(options, _):
    """Stops the owner of an environment (SIGSTOP) for longer than its lease; it resumes after another server has taken over."""

    def send(number):
        return lambda pair, at: os.kill(pair.servers[at].process.pid, number)

    return take_over(options, send(signal.SIGSTOP), send(signal.SIGCONT), SLACK)


def full_disk(options, _):
    """Fills the file system of the data for ten seconds while effects are due: effects that cannot be recorded wait, and none is lost."""
    if os.geteuid() != 0:
        return "left out: mounting a small file system needs root"
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        mount = directory / "mount"
        mount.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", mount], check=True)
        stack.callback(subprocess.run, ["umount", "-l", str(mount)], check=False)
        place = Place(stack, options, "sqlite", data=mount / "data")
        refused = 0
        for _ in range(options.rounds):
            names = place.farm.sow(4 * BATCH)
            place.farm.until_some(names, 2)
            fill(mount / "filling")
            # The request waits up to ten seconds for its audit entry, in case space becomes available.
            environment = next(iter(place.farm.busy))
            body = {"resources": [], "release": False}
            status, _ = place.server.as_admin("POST", f"{environment}/versions", body)
            refused += status >= 300
            (mount / "filling").unlink()
            until("a change is taken again", lambda: writable(place))
            place.farm.reap(300)
        check(refused > 0, "the disk was never full")
        return f"{options.rounds} times full, {refused} requests refused: {place.farm.figures()}"


def fill(path):
    with open(path, "wb", buffering=0) as stream:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    stream.write(b"\0" * size)
            except OSError:
                continue


def writable(place):
    environment = next(iter(place.farm.busy))
    # A deploy retries effects that could not begin earlier.
    status, _ = place.server.as_admin("POST", f"{environment}/deploy", {})
    return status < 300


def descriptors(options, database):
    """Repeatedly denies a running server further descriptors: no resource fails because of that."""
    with ExitStack() as stack:
        place = Place(stack, options, database)
        process = place.server.process.pid
        usual = resource.prlimit(process, resource.RLIMIT_NOFILE)
        for _ in range(options.rounds):
            names = place.farm.sow(4 * BATCH)
            place.farm.until_some(names, 1)
            for _ in range(4):
                resource.prlimit(process, resource.RLIMIT_NOFILE, (place.server.descriptors(), usual[1]))
                time.sleep(0.3)
                resource.prlimit(process, resource.RLIMIT_NOFILE, usual)
                time.sleep(0.1)
            place.farm.reap()
        check(place.farm.unknown == 0, f"{place.farm.unknown} effects failed or are unknown")
        return f"{4 * options.rounds} times without descriptors: {place.farm.figures()}"


MODULE = ROOT / "crates" / "orrery" / "tests" / "it" / "unrepeatable"


def killed_hosts(options, _):
    """Kills the processes that run Python handlers (`kill -9`) during effects that the handlers declare."""
    count, agents = 12 * options.rounds + 24, 4
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        repository, journal = directory / "repository", directory / "journal"
        (repository / "libs").mkdir(parents=True)
        subprocess.run(["cp", "-r", str(MODULE), str(repository / "libs")], check=True)
        (repository / "project.yml").write_text("name: faults\nmodulepath: libs\n")
        lines = [f'unrepeatable::Effect(name="e{at}", agent="a{at % agents}", journal="{journal}")' for at in range(count)]
        (repository / "main.cf").write_text("import unrepeatable\n" + "\n".join(lines) + "\n")
        git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
        for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "start"]):
            subprocess.run([*git, *words], cwd=repository, check=True)
        server = stack.enter_context(closing(Server(options.orrery, directory / "data", ["--allow-local-repositories"])))
        project = server.post("/api/v1/projects", {"name": "faults"})["id"]
        body = {"name": "e", "project": project, "repository": str(repository), "branch": "main"}
        environment = f"/api/v1/environments/{server.post('/api/v1/environments', body)['id']}"
        server.post(f"{environment}/compiles", {"update": True})

        def entries():
            text = journal.read_text() if journal.exists() else ""
            return [(words[1], int(words[2])) for words in map(str.split, text.splitlines()) if words[0] == "done"]

        def states():
            return server.get(f"{environment}/resource-counts")["by_status"]

        def rested():
            found = states()
            return found.get("deployed", 0) + found.get("failed", 0) == count

        kills = 0
        while kills < options.rounds * 2 and len(entries()) < count:
            before = len(entries())
            until("some more happen", lambda b=before: len(entries()) > b + 1 or rested(), 120, 0.01)
            if rested():
                break
            for process in {process for _, process in entries()[-agents:]}:
                try:
                    os.kill(process, signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass

        until("everything had its turn", rested, 300, 0.2)
        runs = collections.Counter(name for name, _ in entries())
        twice = [name for name, number in runs.items() if number > 1]
        check(not twice, f"happened twice: {twice}")
        listed = server.get(f"{environment}/unknown-effects")["items"]
        failed = states().get("failed", 0)
        check(failed == len(listed), f"{failed} failed, and {len(listed)} are listed as unknown")
        check(states().get("deployed", 0) <= len(runs), "something is acknowledged that never happened")
        return f"{kills} processes killed: {count} effects, 0 happened twice, {len(listed)} unknown and all of them listed"


BOTH = ("sqlite", "postgres")
FAULTS = {
    "server_kills": (server_kills, BOTH),
    "database_restarts": (database_restarts, ("postgres",)),
    "black_hole": (black_hole, ("postgres",)),
    "frozen_owner": (frozen_owner, ("postgres",)),
    "full_disk": (full_disk, ("sqlite",)),
    "descriptors": (descriptors, BOTH),
    "killed_hosts": (killed_hosts, ("sqlite",)),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {name:18} {fault.__doc__}" for name, (fault, _) in FAULTS.items()),
    )
    parser.add_argument("--orrery", default="target/debug/orrery")
    parser.add_argument("--short", action="store_true", help="a few of each, below 30 s each")
    parser.add_argument("--kills", type=int, help="kills of the server (1000; 12 with --short)")
    parser.add_argument("--restarts", type=int, help="restarts of the database (100; 3 with --short)")
    parser.add_argument("--rounds", type=int, help="rounds of the other faults (10; 1 with --short)")
    parser.add_argument("--database", choices=BOTH, help="only this database")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"any of {', '.join(FAULTS)}; all of them if none is named")
    options = parser.parse_args()
    unknown = [name for name in options.faults if name not in FAULTS]
    if unknown:
        parser.error(f"there is no fault {unknown[0]!r}; known are {', '.join(FAULTS)}")
    usual = {"kills": (12, 1000), "restarts": (3, 100), "rounds": (1, 10)}
    for name, (short, full) in usual.items():
        if getattr(options, name) is None:
            setattr(options, name, short if options.short else full)
    options.orrery = str(Path(options.orrery).resolve())
    failed = 0
    for name in options.faults or FAULTS:
        fault, databases = FAULTS[name]
        for database in databases:
            if options.database not in (None, database):
                continue
            began = time.monotonic()
            try:
                word, text = "held   ", fault(options, database)
            except Failed as error:
                failed += 1
                word, text = "BROKEN ", error
            print(f"{word} {name}/{database} ({time.monotonic() - began:.0f} s): {text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
