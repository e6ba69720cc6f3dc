"""What Orrery has a Python environment do for it, besides running pip: looking at what is installed, and
writing the wheels that stand for packages which Orrery replaces. It is part of the binary, is run by the
environment's own interpreter, needs nothing but the standard library, and answers with JSON.
"""

import ast
import base64
import concurrent.futures
import contextlib
import functools
import hashlib
import importlib.metadata
import itertools
import json
import pathlib
import re
import subprocess
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
        origin = distribution.read_text("direct_url.json")
        packages.append(
            {
                "name": name,
                "version": distribution.version,
                "top_level": top_level(distribution),
                "origin": json.loads(origin) if origin else None,
            }
        )
    packages.sort(key=lambda package: package["name"].lower())
    version = ".".join(map(str, sys.version_info[:3]))
    return {"python": version, "prefix": sys.prefix, "pip": pip, "packages": packages}


def choose(specifiers: str, versions: list[str]) -> dict:
    """The first of the versions that all of the specifiers allow."""
    from pip._vendor.packaging.specifiers import SpecifierSet

    allowed = SpecifierSet(specifiers)
    fitting = (version for version in versions if allowed.contains(version, prereleases=True))
    return {"version": next(fitting, None)}


def configuration() -> dict:
    """What pip is configured for when it installs: of files and variables, the one that counts."""
    command = [sys.executable, "-I", "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in found:
            found[section][option] = str(ast.literal_eval(value))
    return {**found["global"], **found["install"], **found[":env:"]}


class EveryFile:
    """Tells pip's finder that files of all platforms and versions of Python are of interest."""

    def __init__(self, name: str) -> None:
        self.project_name = name

    def evaluate_link(self, link):
        from pip._internal.index.package_finder import LinkType
        from pip._vendor.packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

        try:
            if link.filename.endswith(".whl"):
                name, version = parse_wheel_filename(link.filename)[:2]
            else:
                name, version = parse_sdist_filename(link.filename)
        except Exception as error:
            return (LinkType.format_invalid, str(error))
        if name != canonicalize_name(self.project_name):
            return (LinkType.different_project, "")
        return (LinkType.candidate, str(version))


def artefacts(arguments: list[str], packages: list[list[str]]) -> dict:
    """The hashes of all files that the indexes have of some versions of packages. pip has no command for that, so its parts are
    used; where they have another form, or an index says no hashes, fewer are known."""
    from pip._internal.commands import create_command
    from pip._vendor.packaging.version import Version

    def hashes_of(finder, package: list[str]) -> tuple[str, list[str]]:
        name, version = package
        every = EveryFile(name)
        hashes = set()
        try:
            pages = functools.partial(finder.process_project_url, link_evaluator=every)
            places = finder._link_collector.collect_sources(project_name=name, candidates_from_page=pages)
            sources = [source for source in itertools.chain(*places) if source is not None]
            candidates = [one for source in sources for one in source.page_candidates()]
            candidates += finder.evaluate_links(every, [link for source in sources for link in source.file_links()])
            for candidate in candidates:
                link = candidate.link
                if Version(str(candidate.version)) != Version(version):
                    continue
                if link.hash_name == "sha256":
                    hashes.add(f"sha256:{link.hash}")
                elif link.is_file:
                    digest = hashlib.sha256(pathlib.Path(link.file_path).read_bytes()).hexdigest()
                    hashes.add(f"sha256:{digest}")
        except Exception as error:
            print(f"{name}: {error}", file=sys.stderr)
        return name, sorted(hashes)

    try:
        command = create_command("install")
        options, _ = command.parse_args(["--quiet", "--disable-pip-version-check", *arguments])
        with command.main_context():
            session = command.get_default_session(options)
            finder = command._build_package_finder(options=options, session=session)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                return dict(pool.map(functools.partial(hashes_of, finder), packages))
    except Exception as error:
        print(error, file=sys.stderr)
        return {}


def unmet(names: list[str], lines: list[str]) -> list[dict]:
    """Requirements of some installed packages, and of lines of requirement files, that nothing installed satisfies."""
    from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
    from pip._vendor.packaging.utils import canonicalize_name

    installed = {}
    for distribution in importlib.metadata.distributions():
        if distribution.metadata["Name"] is not None:
            installed.setdefault(canonicalize_name(distribution.metadata["Name"]), distribution)
    found = []

    def check(text: str, by: str) -> None:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            return
        name = canonicalize_name(wanted.name)
        other = installed.get(name)
        if other is None:
            found.append({"text": f"{by} requires {wanted.name}, which is not installed", "missing": name})
        elif wanted.specifier and not wanted.specifier.contains(other.version, prereleases=True):
            text = f"{by} requires {wanted.name}{wanted.specifier}, and {other.version} is installed"
            found.append({"text": text, "missing": None})

    for name in sorted(set(names)):
        distribution = installed.get(canonicalize_name(name))
        if distribution is None:
            found.append({"text": f"{name} is not installed", "missing": None})
            continue
        for text in distribution.requires or []:
            check(text, name)
    for line in lines:
        # Options, paths and addresses are no names of packages.
        with contextlib.suppress(InvalidRequirement):
            check(line, "the project")
    return found


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
        case ["configuration"]:
            answer = configuration()
        case ["artefacts", given, packages]:
            answer = artefacts(json.loads(given), json.loads(packages))
        case ["unmet", lines, *names]:
            answer = unmet(names, json.loads(lines))
        case _:
            raise SystemExit(f"unknown request: {arguments}")
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
