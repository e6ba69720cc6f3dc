#!/usr/bin/env python3
"""Downloads published modules and unpacks their models, for tests with real text.

    tools/fetch-modules.py DIRECTORY [NAME ...]
    ORRERY_MODULES_DIR=DIRECTORY cargo test -p orrery-syntax real_models

Only `.cf` files are unpacked, below DIRECTORY/<module>/. They are data for tests: none of them
belongs in this repository.
"""

import argparse
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

MODULES = """
    std ip net openstack ssh terraform rest exec cron graph yaml aws apt redhat mitogen files fs config
    docker ansible podman git-ops dummy-module ubuntu user web apache mysql php vyos postgresql
""".split()


def download(module: str, directory: pathlib.Path) -> pathlib.Path | None:
    """Fetches the newest archive of a module, or reports the reason for the failure."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--dest", str(directory), f"inmanta-module-{module}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = sorted(directory.iterdir())
    if result.returncode != 0 or not archives:
        reason = (result.stderr.strip().splitlines() or ["no archive"])[-1]
        print(f"{module}: {reason}", file=sys.stderr)
        return None
    return archives[0]


def models(archive: pathlib.Path):
    """Yields the name and content of each model in an archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.endswith(".cf"):
                    yield name, wheel.read(name)
    else:
        with tarfile.open(archive) as source:
            for member in source.getmembers():
                content = source.extractfile(member) if member.name.endswith(".cf") else None
                if content is not None:
                    yield member.name, content.read()


def unpack(archive: pathlib.Path, target: pathlib.Path) -> int:
    """Writes the models of an archive below `target`, and counts them."""
    count = 0
    for name, content in models(archive):
        # The directories above `model` differ between kinds of archives; ours is one per module.
        parts = [part for part in pathlib.PurePosixPath(name).parts if part not in ("..", "/")]
        path = target.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        count += 1
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=MODULES)
    arguments = parser.parse_args()
    total = failed = 0
    for module in arguments.names:
        with tempfile.TemporaryDirectory() as scratch:
            archive = download(module, pathlib.Path(scratch))
            if archive is None:
                failed += 1
                continue
            count = unpack(archive, arguments.directory / module)
            print(f"{module}: {count} models from {archive.name}")
            total += count
    print(f"{total} models, {failed} modules could not be fetched")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
