"""SSH targets on the loopback interface: one private sshd for each, with its own keys, home, cache and files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FILES = 20
REST = (
    "listen = 127.0.0.1\nworkers = 4\ntimeout = 30\nlog = /var/log/service/current\n"
    "user = service\ngroup = service\nretry = always\nlimits = none\ncolour = blue\n"
)


def content(number: int) -> str:
    return f"# Service {number}\nshard = {number}\n{REST}"


def keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


class Target:
    """One sshd. `SetEnv` gives its sessions a home and a cache of their own, so that nothing is shared between targets."""

    def __init__(self, name: str, root: Path, port: int, identity: Path) -> None:
        self.name, self.port, self.identity = name, port, identity
        self.own = root / name
        self.files = self.own / "files"
        self.own.mkdir()
        self.clear()
        keygen(self.own / "host_key")
        (self.own / "config").write_text(f"""\
Port {port}
ListenAddress 127.0.0.1
HostKey {self.own}/host_key
AuthorizedKeysFile {identity}.pub
SetEnv HOME={self.own}/home XDG_CACHE_HOME={self.own}/home/.cache
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PrintMotd no
MaxStartups 200
Subsystem sftp internal-sftp
""")
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        with open(self.own / "log", "w") as log:
            self.process = subprocess.Popen([sshd, "-D", "-e", "-f", self.own / "config"], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, start_new_session=True)

    def wait(self) -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"sshd of {self.name} does not start: {(self.own / 'log').read_text()}")

    def known_hosts_line(self) -> str:
        kind, key = (self.own / "host_key.pub").read_text().split()[:2]
        return f"[127.0.0.1]:{self.port} {kind} {key}\n"

    def clear(self) -> None:
        """A fresh machine: no files, no home, nothing uploaded."""
        for path in (self.files, self.own / "home"):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()

    def problems(self) -> list[str]:
        found = []
        for number in range(FILES):
            path = self.files / f"service-{number}.conf"
            try:
                if path.read_text() != content(number):
                    found.append(f"{path}: another content")
                elif path.stat().st_mode & 0o7777 != 0o644:
                    found.append(f"{path}: other permissions")
            except OSError as error:
                found.append(str(error))
        return found

    def spoil(self, round_number: int) -> None:
        (self.files / f"service-{(FILES // 2 + 7 * round_number) % FILES}.conf").write_text("changed by hand\n")

    def stop(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        self.process.wait()


class Targets:
    """All targets of one measurement, below one scratch directory."""

    def __init__(self, count: int, root: Path) -> None:
        self.root = root
        self.identity = root / "identity"
        self.all: list[Target] = []
        keygen(self.identity)
        if os.getuid() == 0:
            # Place of sshd's unprivileged processes; the package's service creates it.
            Path("/run/sshd").mkdir(exist_ok=True)
        for number, port in enumerate(free_ports(count)):
            self.all.append(Target(f"target{number}", root, port, self.identity))

    def __enter__(self) -> Targets:
        try:
            for target in self.all:
                target.wait()
        except BaseException:
            self.__exit__()
            raise
        home = self.root / "client"
        (home / ".ssh").mkdir(parents=True)
        known = home / ".ssh" / "known_hosts"
        known.write_text("".join(target.known_hosts_line() for target in self.all))
        # OpenSSH reads the home of the account, not HOME: it gets the file by its options.
        self.options = ["-F", "none", "-o", f"UserKnownHostsFile={known}", "-o", f"IdentityFile={self.identity}",
                        "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
        self.home, self.known_hosts = home, known
        return self

    def __exit__(self, *_: object) -> None:
        for target in self.all:
            target.stop()

    def clear(self) -> None:
        for target in self.all:
            target.clear()

    def problems(self) -> list[str]:
        return [problem for target in self.all for problem in target.problems()]

    def bare_seconds(self) -> float:
        """Time of `ssh true` on all targets at once: what the handshakes cost."""

        def login(target: Target) -> None:
            command = ["ssh", *self.options, "-p", str(target.port), "127.0.0.1", "true"]
            subprocess.run(command, check=True, capture_output=True, timeout=300)

        started = time.perf_counter()
        with ThreadPoolExecutor(len(self.all)) as pool:
            list(pool.map(login, self.all))
        return time.perf_counter() - started


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
