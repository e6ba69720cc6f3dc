"""Files and programs of one machine.

This file is also sent over ssh connections and run on the remote machine. So it imports only the
standard library, and works with Python 3.7.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
from typing import Any, Dict, List, Optional, Tuple, Union


class IOBase:
    """File and program operations, local or remote."""

    def is_remote(self) -> bool:
        """True if this is another machine."""
        raise NotImplementedError()

    def close(self) -> None:
        """Ends the connection, if there is one."""

    def hash_file(self, path: str) -> str:
        """The SHA-1 of the content of a file."""
        raise NotImplementedError()

    def run(
        self,
        command: str,
        arguments: List[str] = [],
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Tuple[str, str, int]:
        """Runs a program, without a shell; returns its stripped output and errors, and its exit status."""
        raise NotImplementedError()

    def read(self, path: str) -> str:
        """The content of a file, as text."""
        return self.read_binary(path).decode("utf-8")

    def read_binary(self, path: str) -> bytes:
        """The content of a file."""
        raise NotImplementedError()

    def file_exists(self, path: str) -> bool:
        """True if the path exists, even as a dangling link."""
        raise NotImplementedError()

    def readlink(self, path: str) -> str:
        """The target of a link."""
        raise NotImplementedError()

    def symlink(self, source: str, target: str) -> None:
        """Creates a link `target` that points to `source`."""
        raise NotImplementedError()

    def is_symlink(self, path: str) -> bool:
        """True if it is a link; it must exist."""
        raise NotImplementedError()

    def file_stat(self, path: str) -> Dict[str, Union[int, str]]:
        """Owner, group, and permissions: the octal digits as a number, 644 for rw-r--r--."""
        raise NotImplementedError()

    def remove(self, path: str) -> None:
        """Removes a file."""
        raise NotImplementedError()

    def put(self, path: str, content: bytes) -> None:
        """Writes a file."""
        raise NotImplementedError()

    def chown(self, path: str, user: Optional[str] = None, group: Optional[str] = None) -> None:
        """Changes the owner and the group."""
        raise NotImplementedError()

    def chmod(self, path: str, permissions: str) -> None:
        """Changes the permissions, given as octal digits."""
        raise NotImplementedError()

    def mkdir(self, path: str) -> None:
        """Creates a directory."""
        raise NotImplementedError()

    def rmdir(self, path: str) -> None:
        """Removes a directory with its content."""
        raise NotImplementedError()


class LocalIO(IOBase):
    """This machine."""

    def is_remote(self) -> bool:
        """False: this is the local machine."""
        return False

    def hash_file(self, path: str) -> str:
        """The SHA-1 of the content of a file."""
        digest = hashlib.sha1()
        with open(path, "rb") as stream:
            for chunk in iter(lambda: stream.read(65536), b""):
                digest.update(chunk)
        return digest.hexdigest()

    def run(
        self,
        command: str,
        arguments: List[str] = [],
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Tuple[str, str, int]:
        """Runs a program with the environment of this process, updated by `env`, without PYTHONPATH."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        variables.update(env or {})
        done = subprocess.run(
            [command] + [str(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            cwd=cwd,
            timeout=timeout,
            check=False,
        )
        return (
            done.stdout.decode("utf-8", "replace").strip(),
            done.stderr.decode("utf-8", "replace").strip(),
            done.returncode,
        )

    def read_binary(self, path: str) -> bytes:
        """The content of a file."""
        with open(path, "rb") as stream:
            return stream.read()

    def file_exists(self, path: str) -> bool:
        """True if the path exists, even as a dangling link."""
        return os.path.lexists(path)

    def readlink(self, path: str) -> str:
        """The target of a link."""
        return os.readlink(path)

    def symlink(self, source: str, target: str) -> None:
        """Creates a link `target` that points to `source`."""
        os.symlink(source, target)

    def is_symlink(self, path: str) -> bool:
        """True if it is a link; it must exist."""
        return stat.S_ISLNK(os.lstat(path).st_mode)

    def file_stat(self, path: str) -> Dict[str, Union[int, str]]:
        """Owner, group and permissions."""
        status = os.stat(path)
        try:
            owner = pwd.getpwuid(status.st_uid).pw_name
        except KeyError:
            owner = str(status.st_uid)
        try:
            group = grp.getgrgid(status.st_gid).gr_name
        except KeyError:
            group = str(status.st_gid)
        return {"owner": owner, "group": group, "permissions": int("%o" % stat.S_IMODE(status.st_mode))}

    def remove(self, path: str) -> None:
        """Removes a file."""
        os.remove(path)

    def put(self, path: str, content: bytes) -> None:
        """Writes a file."""
        with open(path, "wb") as stream:
            stream.write(content)

    def chown(self, path: str, user: Optional[str] = None, group: Optional[str] = None) -> None:
        """Changes the owner and the group; None means unchanged."""
        uid = -1 if user is None else pwd.getpwnam(user).pw_uid
        gid = -1 if group is None else grp.getgrnam(group).gr_gid
        os.chown(path, uid, gid)

    def chmod(self, path: str, permissions: str) -> None:
        """Changes the permissions."""
        os.chmod(path, int(str(permissions), 8))

    def mkdir(self, path: str) -> None:
        """Creates a directory."""
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        """Removes a directory with its content."""
        shutil.rmtree(path)


class BashIO(LocalIO):
    """This machine as another user: every operation is a program that `sudo` starts.

    :param run_as: the user.
    """

    def __init__(self, run_as: Optional[str] = None) -> None:
        self.run_as = run_as

    def _program(self, *words: str, content: Optional[bytes] = None) -> bytes:
        prefix = [] if self.run_as is None else ["sudo", "-n", "-u", self.run_as, "--"]
        done = subprocess.run(
            prefix + list(words),
            input=b"" if content is None else content,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
        )
        if done.returncode != 0:
            text = done.stderr.decode("utf-8", "replace").strip()
            missing = "No such file" in text
            error = FileNotFoundError if missing else OSError
            raise error("%s: %s" % (" ".join(words[:1]), text or "exit status %d" % done.returncode))
        return done.stdout

    def _test(self, *words: str) -> bool:
        try:
            self._program("test", *words)
        except OSError:
            return False
        return True

    def run(
        self,
        command: str,
        arguments: List[str] = [],
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Tuple[str, str, int]:
        """Runs a program as that user; variables are passed with `env`, since sudo drops them."""
        words = ["env"] + ["%s=%s" % item for item in (env or {}).items()] + [command] + list(arguments)
        if self.run_as is not None:
            words = ["sudo", "-n", "-u", self.run_as, "--"] + words
        return LocalIO.run(self, words[0], words[1:], cwd=cwd, timeout=timeout)

    def hash_file(self, path: str) -> str:
        """The SHA-1 of the content of a file."""
        return hashlib.sha1(self.read_binary(path)).hexdigest()

    def read_binary(self, path: str) -> bytes:
        """The content of a file."""
        return self._program("cat", "--", path)

    def file_exists(self, path: str) -> bool:
        """True if the path exists, even as a dangling link."""
        return self._test("-e", path) or self._test("-L", path)

    def readlink(self, path: str) -> str:
        """The target of a link."""
        return self._program("readlink", "--", path).decode("utf-8").rstrip("\n")

    def symlink(self, source: str, target: str) -> None:
        """Creates a link `target` that points to `source`."""
        self._program("ln", "-s", "-T", "--", source, target)

    def is_symlink(self, path: str) -> bool:
        """True if it is a link; it must exist."""
        if not self.file_exists(path):
            raise FileNotFoundError(path)
        return self._test("-L", path)

    def file_stat(self, path: str) -> Dict[str, Union[int, str]]:
        """Owner, group and permissions."""
        words: Any = self._program("stat", "-L", "-c", "%U %G %a", "--", path).decode("utf-8").split()
        return {"owner": words[0], "group": words[1], "permissions": int(words[2])}

    def remove(self, path: str) -> None:
        """Removes a file."""
        self._program("rm", "--", path)

    def put(self, path: str, content: bytes) -> None:
        """Writes a file."""
        self._program("dd", "status=none", "of=" + path, content=content)

    def chown(self, path: str, user: Optional[str] = None, group: Optional[str] = None) -> None:
        """Changes the owner and the group; None means unchanged."""
        if user is not None:
            self._program("chown", "--", user, path)
        if group is not None:
            self._program("chgrp", "--", group, path)

    def chmod(self, path: str, permissions: str) -> None:
        """Changes the permissions."""
        self._program("chmod", "--", str(permissions), path)

    def mkdir(self, path: str) -> None:
        """Creates a directory."""
        self._program("mkdir", "--", path)

    def rmdir(self, path: str) -> None:
        """Removes a directory with its content."""
        self._program("rm", "-r", "--", path)
