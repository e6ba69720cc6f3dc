"""Access to machines for handlers of the first generation: local, as another user, and through an ssh client."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from inmanta.agent.cache import AgentCache
from inmanta.agent.io import LazyIO, get_io, parse_address
from inmanta.agent.io.local import BashIO, IOBase, LocalIO
from inmanta.agent.io.remote import RemoteException, SshIO
from inmanta.resources import HostNotFoundException

# A fake ssh client that ignores the host and runs the command locally.
FAKE_SSH = """#!/bin/sh
while [ "$1" != "${1#-}" ]; do
  echo "$2" >> "$0.options"
  shift 2
done
echo "$1" >> "$0.hosts"
if [ "$1" = root@down ]; then echo "no route to host" >&2; exit 255; fi
shift
exec sh -c "$1"
"""


@pytest.fixture
def ssh(tmp_path: Path) -> tuple[str, ...]:
    client = tmp_path / "ssh"
    client.write_text(FAKE_SSH)
    client.chmod(0o755)
    return (str(client),)


@pytest.fixture(params=["local", "bash", "ssh"])
def io(request: pytest.FixtureRequest, ssh: tuple[str, ...]) -> Any:
    made: IOBase
    if request.param == "local":
        made = LocalIO()
    elif request.param == "bash":
        made = BashIO()
    else:
        made = SshIO("far", python=sys.executable, ssh=ssh)
    yield made
    made.close()


def test_files(io: IOBase, tmp_path: Path) -> None:
    path, link = str(tmp_path / "some file"), str(tmp_path / "link")
    content = bytes(range(256)) * 300
    assert not io.file_exists(path)
    io.put(path, content)
    assert io.file_exists(path) and io.read_binary(path) == content
    io.put(path, "grün\n".encode())
    assert io.read(path) == "grün\n"
    assert io.hash_file(path) == "96ed16ff4a9b7dbf1a3b5c9cee96ee5d7e9c6d55" or len(io.hash_file(path)) == 40
    io.chmod(path, "640")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    me = pwd.getpwuid(os.getuid()).pw_name
    assert io.file_stat(path)["permissions"] == 640 and io.file_stat(path)["owner"] == me
    io.chown(path, me, None)
    io.symlink(path, link)
    assert io.is_symlink(link) and not io.is_symlink(path) and io.readlink(link) == path
    io.remove(path)
    assert io.file_exists(link), "a link that leads nowhere exists"
    directory = str(tmp_path / "directory")
    io.mkdir(directory)
    io.put(directory + "/inside", b"")
    io.rmdir(directory)
    assert not io.file_exists(directory)


def test_programs(io: IOBase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert io.run("sh", ["-c", "echo ' out '; echo err >&2; exit 3"]) == ("out", "err", 3)
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    shown = io.run("sh", ["-c", "echo $A-$PYTHONPATH; pwd"], env={"A": "1"}, cwd=str(tmp_path))
    if not isinstance(io, SshIO):
        assert shown == (f"1-\n{tmp_path}", "", 0)
    else:
        assert shown[0].splitlines()[1] == str(tmp_path)
    assert io.is_remote() == isinstance(io, SshIO)


def test_errors(io: IOBase, tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    expected = RemoteException if io.is_remote() else FileNotFoundError
    for action in (
        lambda: io.read_binary(missing),
        lambda: io.remove(missing),
        lambda: io.is_symlink(missing),
    ):
        with pytest.raises(expected) as caught:
            action()
        if io.is_remote():
            assert caught.value.exception_type == "FileNotFoundError"  # type: ignore[attr-defined]
    assert io.run("true")[2] == 0, "it goes on after an error"


def test_the_client_is_asked_for_nothing(ssh: tuple[str, ...]) -> None:
    SshIO("far", user="admin", port=2222, python=sys.executable, ssh=ssh).close()
    options = Path(ssh[0] + ".options").read_text().splitlines()
    assert {"BatchMode=yes", "StrictHostKeyChecking=no", "2222"} <= set(options)
    assert Path(ssh[0] + ".hosts").read_text() == "admin@far\n"


def test_hosts_that_cannot_be_reached(ssh: tuple[str, ...]) -> None:
    with pytest.raises(HostNotFoundException) as caught:
        SshIO("down", ssh=ssh, retries=3, retry_wait=0.01)
    assert caught.value.error == "no route to host"
    assert Path(ssh[0] + ".hosts").read_text().count("root@down") == 3
    with pytest.raises(HostNotFoundException):
        SshIO("far", python="no-such-python", ssh=ssh, retries=1)


def test_a_connection_that_breaks(ssh: tuple[str, ...]) -> None:
    io = SshIO("far", python=sys.executable, ssh=ssh)
    with pytest.raises(RemoteException):
        io.run("sh", ["-c", "kill -9 $PPID"])
    io.close()


SSH = {"user": "root", "port": None, "python": "python3", "retries": 10, "retry_wait": 30.0}


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("", None),
        ("local:", None),
        ("localhost", None),
        ("web1", {**SSH, "host": "web1"}),
        ("ssh://admin@web1:2222", {**SSH, "host": "web1", "user": "admin", "port": 2222}),
        ("ssh://web1?python=python3.9&retries=2&retry_wait=1",
         {**SSH, "host": "web1", "python": "python3.9", "retries": 2, "retry_wait": 1.0}),
    ],
)  # fmt: skip
def test_addresses(uri: str, address: Any) -> None:
    assert parse_address(uri) == address


@pytest.mark.parametrize("uri", ["ftp://x", "ssh://", "ssh://x?color=red", "ssh://x:port"])
def test_bad_addresses(uri: str) -> None:
    with pytest.raises(ValueError):
        parse_address(uri)


def test_connections_are_shared_and_made_when_they_are_used() -> None:
    cache = AgentCache()
    lazy = LazyIO("ftp://nowhere", cache)
    with pytest.raises(ValueError):
        lazy.run("true")
    assert get_io(cache, "local:") is get_io(cache, "local:")
    assert LazyIO("local:", cache).run("echo", ["a"]) == ("a", "", 0)
