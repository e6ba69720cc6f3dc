"""Install the reference compiler into a scratch virtual environment, once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = {"inmanta-core": "20.1.0", "inmanta-module-std": "8.7.5"}
PYTHON = (3, 13)


def find_python() -> str | None:
    """A Python of the version that the reference needs, or None."""
    wanted = ".".join(map(str, PYTHON))
    managed = sorted(Path.home().glob(f".pyenv/versions/{wanted}*/bin/python{wanted}"))
    for candidate in (f"python{wanted}", sys.executable, "python3", *map(str, managed)):
        path = shutil.which(candidate)
        if path is None:
            continue
        # A version manager's wrapper may exist without the version behind it, so run it.
        probe = subprocess.run(
            [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if probe.returncode == 0 and probe.stdout.strip() == wanted:
            return path
    return None


def install(directory: Path) -> Path | None:
    """The reference's command in the virtual environment `directory`, installed if missing."""
    command = directory / "bin" / "inmanta"
    finished = directory / "installed"
    if finished.is_file() and finished.read_text() == repr(VERSIONS):
        return command
    python = find_python()
    if python is None:
        print(f"Python {PYTHON[0]}.{PYTHON[1]} was not found: Orrery is measured alone. "
              "Install it, or pass --reference COMMAND.", file=sys.stderr)
        return None
    packages = [f"{name}=={version}" for name, version in VERSIONS.items()]
    print(f"installing {' and '.join(packages)} into {directory}", file=sys.stderr)
    subprocess.run([python, "-m", "venv", "--clear", str(directory)], check=True)
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(pip + packages, check=True)
    finished.write_text(repr(VERSIONS))
    return command
