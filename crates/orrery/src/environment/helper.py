"""What Orrery has a Python environment do for it, besides running pip: looking at what is installed, and
writing the wheels that stand for packages which Orrery replaces. It is part of the binary, is run by the
environment's own interpreter, needs nothing but the standard library, and answers with JSON.
"""

import base64
import hashlib
import importlib.metadata
import json
import pathlib
import re
import sys
import zipfile

# Wheels are archives; equal content is to give equal bytes, so the time in them is fixed.
ARCHIVE_TIME = (2000, 1, 1, 0, 0, 0)


def write_wheel(directory: str, name: str, version: str, files: dict[str, bytes], metadata: list[str]) -> str:
    """Writes a wheel of pure Python; `files` are its contents besides what every wheel has."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata]
    content = dict(files)
    extra = {
        "METADATA": "\n".join(head) + "\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: orrery\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    for key, text in extra.items():
        content[f"{info}/{key}"] = text.encode()
    entry_points = content.pop("entry_points.txt", None)
    if entry_points is not None:
        content[f"{info}/entry_points.txt"] = entry_points
    record = []
    for path, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}")
    record.append(f"{info}/RECORD,,")
    content[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    target = pathlib.Path(directory) / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path, ARCHIVE_TIME)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return str(target)


def stand_ins(directory: str, packages: list[dict]) -> dict:
    """Packages that hold no code: what depends on them can be installed, and gets what they bring along."""
    written = []
    for package in packages:
        name = package["name"]
        metadata = [f"Summary: Stands for {name} in environments that Orrery runs; it holds no code"]
        metadata += [f"Requires-Dist: {wanted}" for wanted in package["requires"]]
        written.append(write_wheel(directory, name, package["version"], {}, metadata))
    return {"files": written}


def sdk_wheel(source: str, version: str, directory: str) -> dict:
    """The SDK as a wheel. The version tells its content, so that the installer sees when it changed."""
    root = pathlib.Path(source)
    files = {}
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        made = any(part == "__pycache__" or part.endswith(".egg-info") for part in inside.parts)
        if path.is_file() and not made:
            files[inside.as_posix()] = path.read_bytes()
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    if any(name.startswith(("orrery_sdk/pytest_plugin.", "orrery_sdk/pytest_plugin/")) for name in files):
        files["entry_points.txt"] = b"[pytest11]\norrery = orrery_sdk.pytest_plugin\n"
    name, version = "orrery-sdk", f"{version}+{digest.hexdigest()[:12]}"
    metadata = [
        "Summary: What Orrery runs the Python code of modules with, and their tests",
        "License: Apache-2.0",
        "Requires-Python: >=3.11",
    ]
    return {"name": name, "version": version, "file": write_wheel(directory, name, version, files, metadata)}


def top_level(distribution: importlib.metadata.Distribution) -> list[str]:
    """The names that a distribution adds to what can be imported."""
    names = set()
    for file in distribution.files or []:
        first = file.parts[0]
        if first in ("..", "/") or first.endswith((".dist-info", ".egg-info", ".pth", ".data")):
            continue
        if first.startswith("__editable__") or first == "__pycache__":
            continue
        names.add(re.sub(r"\.(py|pyc|so|pyd)$", "", first.split(".cpython-")[0]))
    return sorted(names)


def inspect() -> dict:
    """What this environment is and what is installed in it."""
    try:
        pip = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        pip = None
    packages = []
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name is None:
            continue
        packages.append({"name": name, "version": distribution.version, "top_level": top_level(distribution)})
    packages.sort(key=lambda package: package["name"].lower())
    version = ".".join(map(str, sys.version_info[:3]))
    return {"python": version, "prefix": sys.prefix, "pip": pip, "packages": packages}


def choose(specifiers: str, versions: list[str]) -> dict:
    """The first of the versions that all of the specifiers allow."""
    from pip._vendor.packaging.specifiers import SpecifierSet

    allowed = SpecifierSet(specifiers)
    fitting = (version for version in versions if allowed.contains(version, prereleases=True))
    return {"version": next(fitting, None)}


def main(arguments: list[str]) -> None:
    match arguments:
        case ["stand-ins", directory, packages]:
            answer = stand_ins(directory, json.loads(packages))
        case ["sdk-wheel", source, version, directory]:
            answer = sdk_wheel(source, version, directory)
        case ["inspect"]:
            answer = inspect()
        case ["choose", specifiers, *versions]:
            answer = choose(specifiers, versions)
        case _:
            raise SystemExit(f"unknown request: {arguments}")
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
