#!/usr/bin/env python3
"""Compare `orrery deploy` over SSH with Ansible and pyinfra: 20 files on each of many machines.

Cases: cold (fresh machines), no-op (all files are compliant), drift (one file of one machine was changed by hand). Whole
commands are measured, and after each all files are checked. `run.py --help` lists the choices.
"""

from __future__ import annotations

import argparse
import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "bench" / "compile"))

from measure import run_command  # noqa: E402
from targets import FILES, REST, Targets  # noqa: E402

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
CASES = ["cold", "no-op", "drift"]
GOALS = {"cold": 20.0, "no-op": 50.0, "drift": 50.0}
GOAL_TARGETS = 10
LARGE_TARGETS, LARGE_NO_OP_SECONDS = 50, 10.0
USER = pwd.getpwuid(os.getuid()).pw_name
GROUP = grp.getgrgid(os.getgid()).gr_name


class Orrery:
    name = "orrery"

    def __init__(self, binary: Path) -> None:
        self.binary = str(binary.resolve())

    def prepare(self, targets: Targets, wish: Path) -> list[str]:
        (wish / "project.yml").write_text("name: ssh\nmodulepath: libs\n")
        (wish / "libs").mkdir()
        hosts = [f"  {one.name}: {{ address: 127.0.0.1, port: {one.port}, user: {USER}, identity: {targets.identity} }}"
                 for one in targets.all]
        (wish / "inventory.yml").write_text("hosts:\n" + "\n".join(hosts) + "\n")
        rest = REST.replace("\n", "\\n")
        (wish / "main.cf").write_text(f"""\
for machine in std::sequence({len(targets.all)}):
    host = std::Host(name="target{{{{ machine }}}}", os=std::linux)
    for number in std::sequence({FILES}):
        std::File(
            host=host, path="{targets.root}/target{{{{ machine }}}}/files/service-{{{{ number }}}}.conf",
            owner="{USER}", group="{GROUP}", mode=644,
            content="# Service {{{{ number }}}}\\nshard = {{{{ number }}}}\\n{rest}",
        )
    end
end
""")
        return [self.binary, "deploy", "--project", str(wish)]

    def reset(self, wish: Path) -> None:
        shutil.rmtree(wish / "data", ignore_errors=True)
        shutil.rmtree(wish / ".orrery", ignore_errors=True)


class Peer:
    """A tool from the package index, in a virtualenv of the benchmark."""

    name = command = package = ""

    def __init__(self, environment: Path) -> None:
        self.binary = environment / "bin" / self.command
        if self.binary.exists():
            return
        print(f"installing {self.package} into {environment}", file=sys.stderr)
        if not (environment / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=300)
        subprocess.run([environment / "bin" / "pip", "install", "--quiet", self.package], check=True, timeout=900)

    def reset(self, wish: Path) -> None:
        """Peers keep nothing here between runs."""


class Ansible(Peer):
    name, command, package = "ansible", "ansible-playbook", "ansible-core"

    def prepare(self, targets: Targets, wish: Path) -> list[str]:
        python = self.binary.parent / "python"
        options = " ".join(targets.options)
        lines = [f"{one.name} ansible_host=127.0.0.1 ansible_port={one.port} ansible_user={USER} files={one.files}"
                 for one in targets.all]
        (wish / "hosts.ini").write_text("\n".join(lines) + f"\n[all:vars]\nansible_python_interpreter={python}\n")
        (wish / "ansible.cfg").write_text(f"""\
[defaults]
forks = {len(targets.all)}
[ssh_connection]
pipelining = true
ssh_args = -o ControlMaster=auto -o ControlPersist=60s {options}
""")
        rest = REST.replace("\n", "\\n")
        (wish / "play.yml").write_text(f"""\
- hosts: all
  gather_facts: false
  tasks:
    - copy:
        dest: "{{{{ files }}}}/service-{{{{ item }}}}.conf"
        content: "# Service {{{{ item }}}}\\nshard = {{{{ item }}}}\\n{rest}"
        owner: {USER}
        group: {GROUP}
        mode: "0644"
      loop: "{{{{ range({FILES}) | list }}}}"
""")
        return [str(self.binary), "--inventory", "hosts.ini", "play.yml"]


class Pyinfra(Peer):
    name, command, package = "pyinfra", "pyinfra", "pyinfra"

    def prepare(self, targets: Targets, wish: Path) -> list[str]:
        hosts = [
            (one.name, {"ssh_hostname": "127.0.0.1", "ssh_port": one.port, "ssh_user": USER, "ssh_key": str(targets.identity),
                        "ssh_known_hosts_file": str(targets.known_hosts), "files": str(one.files)})
            for one in targets.all
        ]
        (wish / "inventory.py").write_text(f"targets = {hosts!r}\n")
        (wish / "deploy.py").write_text(f"""\
from io import StringIO
from pyinfra import host
from pyinfra.operations import files

for number in range({FILES}):
    content = f"# Service {{number}}\\nshard = {{number}}\\n" + {REST!r}
    files.put(src=StringIO(content), dest=f"{{host.data.files}}/service-{{number}}.conf", user={USER!r}, group={GROUP!r}, mode="644")
""")
        return [str(self.binary), "-y", "--parallel", str(len(targets.all)), "inventory.py", "deploy.py"]


PEERS = {peer.name: peer for peer in (Ansible, Pyinfra)}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orrery", type=Path, default=TARGET / "release" / "orrery", metavar="FILE", help="program to measure")
    parser.add_argument("--targets", nargs="+", type=int, default=[10, 50], metavar="N", help="numbers of machines")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--peers-in", type=Path, default=TARGET / "bench-ssh" / "peers", metavar="DIR", help="virtualenv of the peers")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of Orrery and of the logins; the best counts")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="limit of one run (default 300)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    return parser.parse_args()


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.rows: list[dict] = []
        self.failed = False

    def note(self, count: int, name: str, case: str, wall: float | None, cpu: float | None = None, text: str = "") -> None:
        self.rows.append({"targets": count, "name": name, "case": case, "wall_seconds": wall, "cpu_seconds": cpu, "note": text})
        shown = text if wall is None else f"{wall:9.3f} s" + (f"  cpu {cpu:8.3f} s" if cpu is not None else "")
        print(f"{count:4} targets  {name:10} {case:6} {shown}", flush=True)

    def measure(self, contender, targets: Targets, repeat: int) -> None:
        count = len(targets.all)
        targets.clear()
        with tempfile.TemporaryDirectory(prefix="wish-", dir=targets.root) as scratch:
            wish = Path(scratch)
            command = contender.prepare(targets, wish)
            for case in CASES:
                walls, cpus = [], []
                for number in range(repeat):
                    if case == "cold":
                        targets.clear()
                        contender.reset(wish)
                    elif case == "drift":
                        targets.all[count // 2].spoil(number)
                    outcome = run_command(command, wish, self.arguments.timeout)
                    if outcome.exit_code < 0 and outcome.wall_seconds >= self.arguments.timeout:
                        self.note(count, contender.name, case, None, text=f"> {self.arguments.timeout:.0f} s, stopped")
                        return
                    wrong = targets.problems()
                    if outcome.exit_code != 0 or wrong:
                        self.failed = True
                        tail = "\n".join([*wrong[:3], *outcome.output.splitlines()[-8:]])
                        self.note(count, contender.name, case, None, text=f"failed: exit code {outcome.exit_code}\n{tail}")
                        return
                    walls.append(outcome.wall_seconds)
                    cpus.append(outcome.cpu_seconds)
                self.note(count, contender.name, case, min(walls), min(cpus))

    def wall(self, count: int, name: str, case: str) -> float | None:
        return next((row["wall_seconds"] for row in self.rows
                     if (row["targets"], row["name"], row["case"]) == (count, name, case)), None)

    def goals_met(self) -> bool:
        met = not self.failed
        for count in self.arguments.targets:
            for case in CASES:
                own = self.wall(count, "orrery", case)
                peers = [time for name in PEERS if (time := self.wall(count, name, case)) is not None]
                bare = self.wall(count, "ssh true", "login")
                if own is None:
                    met = False
                    continue
                line = f"{count:4} targets  {case:6} {own / bare:6.2f} x the bare logins"
                if peers:
                    ratio = min(peers) / own
                    line += f", faster peer / Orrery {ratio:7.1f}"
                    if count == GOAL_TARGETS:
                        met &= ratio >= GOALS[case]
                        line += f" (goal {GOALS[case]:.0f}: {'met' if ratio >= GOALS[case] else 'MISSED'})"
                if count == LARGE_TARGETS and case == "no-op":
                    met &= own <= LARGE_NO_OP_SECONDS
                    line += f" (goal {LARGE_NO_OP_SECONDS:.0f} s: {'met' if own <= LARGE_NO_OP_SECONDS else 'MISSED'})"
                print(line)
        return met


def main() -> int:
    arguments = parse_arguments()
    bench = Bench(arguments)
    peers = [PEERS[name](arguments.peers_in) for name in arguments.peers]
    for count in arguments.targets:
        with tempfile.TemporaryDirectory(prefix="bench-ssh-") as scratch, Targets(count, Path(scratch)) as targets:
            os.environ["HOME"] = str(targets.home)
            os.environ.pop("SSH_AUTH_SOCK", None)
            bench.note(count, "ssh true", "login", min(targets.bare_seconds() for _ in range(arguments.repeat)))
            bench.measure(Orrery(arguments.orrery), targets, arguments.repeat)
            for peer in peers:
                bench.measure(peer, targets, 1)
    met = bench.goals_met()
    if arguments.json:
        arguments.json.write_text(json.dumps(bench.rows, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
