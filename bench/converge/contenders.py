"""The contenders: Orrery, its peers, and a bare loop of system calls.

Each writes its own form of the same desired state into a directory and names the command that applies it. Peers are installed on
first use: CFEngine and Puppet from the distribution, Ansible and pyinfra into a virtual environment.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import contents

USER = pwd.getpwuid(os.getuid()).pw_name
GROUP = grp.getgrgid(os.getgid()).gr_name


class Unavailable(Exception):
    """A contender that cannot be measured here; the message has the reason."""


@dataclass
class Job:
    """A wish written down: `files` is where the files go, `wish` where the contender keeps its own things."""

    files: Path
    wish: Path
    count: int

    def write(self, name: str, text: str) -> Path:
        path = self.wish / name
        path.write_text(text)
        return path


def install_from_distribution(command: str, package: str) -> str:
    found = shutil.which(command)
    if found:
        return found
    if os.getuid() != 0 or not shutil.which("apt-get"):
        raise Unavailable(f"{command} is not installed, and only root can install {package} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print(f"installing {package}", file=sys.stderr)
    command_line = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", package]
    done = subprocess.run(command_line, env=environment, capture_output=True, text=True, timeout=900)
    found = shutil.which(command)
    if done.returncode != 0 or not found:
        raise Unavailable(f"{package} cannot be installed: {done.stderr.strip()[-200:]}")
    return found


def install_from_index(environment: Path, command: str, package: str) -> str:
    found = environment / "bin" / command
    if found.exists():
        return str(found)
    print(f"installing {package} into {environment}", file=sys.stderr)
    try:
        if not (environment / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", environment], check=True, capture_output=True, timeout=300)
        subprocess.run([environment / "bin" / "pip", "install", "--quiet", package], check=True, capture_output=True,
                       timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{package} cannot be installed: {error}") from error
    return str(found)


class Orrery:
    name = "orrery"

    def __init__(self, binary: Path) -> None:
        self.binary = str(binary.resolve())

    def prepare(self, job: Job) -> list[str]:
        job.write("project.yml", "name: converge\nmodulepath: libs\n")
        (job.wish / "libs").mkdir()
        rest = contents.REST.replace("\n", "\\n")
        job.write("main.cf", f"""\
host = std::Host(name="localhost", os=std::linux)

for number in std::sequence({job.count}):
    std::File(
        host=host, path="{job.files}/service-{{{{ number }}}}.conf", owner="{USER}", group="{GROUP}", mode=644,
        content="# Service {{{{ number }}}}\\nshard = {{{{ number }}}}\\n{rest}",
    )
end
""")
        return [self.binary, "deploy", "--project", str(job.wish)]

    def compile_command(self, job: Job) -> list[str]:
        """The part before the deploy."""
        return [self.binary, "compile", "--project", str(job.wish)]


class Limit:
    name = "system calls"

    def __init__(self, binary: Path) -> None:
        self.binary = str(binary.resolve())

    def prepare(self, job: Job, task: str = "check") -> list[str]:
        return [self.binary, task, str(job.files), str(job.count)]


class CfEngine:
    name = "cf-agent"

    def __init__(self, _environment: Path) -> None:
        self.binary = install_from_distribution("cf-agent", "cfengine3")

    def prepare(self, job: Job) -> list[str]:
        promises = "\n".join(
            f'      "{job.files}/{contents.name(number)}" content => "{contents.content(number)}", perms => wanted;'
            for number in range(job.count)
        )
        policy = job.write("promises.cf", f"""\
body common control {{ bundlesequence => {{ "main" }}; }}
body perms wanted {{ mode => "644"; owners => {{ "{USER}" }}; groups => {{ "{GROUP}" }}; }}
bundle agent main
{{
  files:
{promises}
}}
""")
        policy.chmod(0o600)
        return [self.binary, "--no-lock", "--file", str(policy)]


class Puppet:
    name = "puppet apply"

    def __init__(self, _environment: Path) -> None:
        self.binary = install_from_distribution("puppet", "puppet-agent")

    def prepare(self, job: Job) -> list[str]:
        resources = "\n".join(
            f"file {{ '{job.files}/{contents.name(number)}': content => '{contents.content(number)}' }}"
            for number in range(job.count)
        )
        defaults = f"File {{ ensure => file, owner => '{USER}', group => '{GROUP}', mode => '0644', backup => false }}\n"
        manifest = job.write("site.pp", defaults + resources + "\n")
        return [self.binary, "apply", "--color=false", str(manifest)]


class Ansible:
    name = "ansible"

    def __init__(self, environment: Path) -> None:
        self.binary = install_from_index(environment, "ansible-playbook", "ansible-core")

    def prepare(self, job: Job) -> list[str]:
        rest = contents.REST.replace("\n", "\\n")
        playbook = job.write("play.yml", f"""\
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - copy:
        dest: "{job.files}/service-{{{{ item }}}}.conf"
        content: "# Service {{{{ item }}}}\\nshard = {{{{ item }}}}\\n{rest}"
        owner: {USER}
        group: {GROUP}
        mode: "0644"
      loop: "{{{{ range({job.count}) | list }}}}"
""")
        # Otherwise it searches PATH for interpreters, and may choose one that does not run.
        interpreter = f"ansible_python_interpreter={Path(self.binary).parent / 'python'}"
        return [self.binary, "--inventory", "localhost,", "--extra-vars", interpreter, str(playbook)]


class Pyinfra:
    name = "pyinfra"

    def __init__(self, environment: Path) -> None:
        self.binary = install_from_index(environment, "pyinfra", "pyinfra")

    def prepare(self, job: Job) -> list[str]:
        deploy = job.write("deploy.py", f"""\
from io import StringIO
from pyinfra.operations import files

for number in range({job.count}):
    content = f"# Service {{number}}\\nshard = {{number}}\\n" + {contents.REST!r}
    files.put(src=StringIO(content), dest=f"{job.files}/service-{{number}}.conf", user={USER!r}, group={GROUP!r}, mode="644")
""")
        return [self.binary, "-y", "@local", str(deploy)]


PEERS = {peer.name: peer for peer in (CfEngine, Puppet, Ansible, Pyinfra)}
