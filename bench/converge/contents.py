"""Names and contents of the files that every contender creates."""

from __future__ import annotations

from pathlib import Path

# The same text is in `crates/orrery-handlers/examples/bare_files.rs`.
REST = (
    "listen = 127.0.0.1\nworkers = 4\ntimeout = 30\nlog = /var/log/service/current\n"
    "user = service\ngroup = service\nretry = always\nlimits = none\ncolour = blue\n"
)
PERMISSIONS = 0o644


def name(number: int) -> str:
    return f"service-{number}.conf"


def content(number: int) -> str:
    return f"# Service {number}\nshard = {number}\n{REST}"


def problems(directory: Path, count: int) -> list[str]:
    """The first few errors in the files of a directory."""
    found = []
    for number in range(count):
        path = directory / name(number)
        try:
            if path.read_text() != content(number):
                found.append(f"{path}: another content")
            elif path.stat().st_mode & 0o7777 != PERMISSIONS:
                found.append(f"{path}: other permissions")
        except OSError as error:
            found.append(str(error))
        if len(found) == 3:
            break
    return found


def spoil(directory: Path, count: int, round_number: int) -> None:
    """Changes one file, a different one in each round."""
    number = (count // 2 + 7 * round_number) % count
    (directory / name(number)).write_text("somebody was here\n")
