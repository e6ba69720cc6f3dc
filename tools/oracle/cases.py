"""The corpus format: files of models (`AREA.cases`) and their recorded outcomes (`AREA.expected.json`).

A `.cases` file is text. A line `=== name [flags]` starts a case; what follows is its `main.cf`, and each line
`--- path` starts a further file of its project. A case without `project.yml` gets the plain one below.

A line `=== +name` starts a bundle of files, shared by the cases of the same file with the flag
`+name`.

Flags:
  python   the case needs its own Python code; it is listed in `python-host.list`
  export   resources are exported after the compile (always together with `python`)
  crlf     the newlines of main.cf are written as CR LF
  noeol    main.cf ends without its last newline
  hex      main.cf is written as hexadecimal digits, for bytes that a text file cannot hold
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

PLAIN_PROJECT = "name: test\nmodulepath: libs\n"


@dataclass
class Case:
    """One project to compile."""

    name: str
    flags: list[str]
    files: dict[str, str] = field(default_factory=dict)

    def main_bytes(self) -> bytes:
        """The content of main.cf, with the flags applied."""
        text = self.files["main.cf"]
        if "hex" in self.flags:
            return bytes.fromhex(text)
        if "noeol" in self.flags:
            text = text.removesuffix("\n")
        if "crlf" in self.flags:
            text = text.replace("\n", "\r\n")
        return text.encode("utf-8")

    def write_to(self, directory: Path) -> None:
        """Writes the project to disk."""
        (directory / "libs").mkdir(parents=True, exist_ok=True)
        (directory / "project.yml").write_text(PLAIN_PROJECT)
        for path, text in self.files.items():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.main_bytes() if path == "main.cf" else text.encode("utf-8"))


def read_cases(path: Path) -> list[Case]:
    """Reads a `.cases` file. Names must be unique in it, since outcomes are found by name."""
    cases: list[Case] = []
    bundles: dict[str, Case] = {}
    file = ""
    started: Case | None = None
    for number, line in enumerate(path.read_bytes().decode("utf-8").removesuffix("\n").split("\n"), start=1):
        if line.startswith("=== "):
            name, *flags = line[4:].split()
            started = Case(name, flags)
            if name in bundles or any(case.name == name for case in cases):
                raise ValueError(f"{path}:{number}: case {name} exists already")
            if name.startswith("+"):
                bundles[name] = started
                file = ""
                continue
            cases.append(started)
            for flag in flags:
                if flag.startswith("+"):
                    started.files |= bundles[flag].files
            file = "main.cf"
            started.files[file] = ""
        elif started and line.startswith("--- "):
            file = line[4:].strip()
            if file in started.files:
                raise ValueError(f"{path}:{number}: file {file} exists already in case {started.name}")
            started.files[file] = ""
        elif started and file:
            started.files[file] += line + "\n"
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"{path}:{number}: text that belongs to no file")
    return cases


def format_case(case: Case) -> str:
    """The text of one case, as `read_cases` reads it."""
    parts = [" ".join(["===", case.name, *case.flags]) + "\n", case.files["main.cf"]]
    for path, text in case.files.items():
        if path != "main.cf":
            parts += [f"--- {path}\n", text]
    return "".join(part if part.endswith("\n") or not part else part + "\n" for part in parts)


def expected_path(cases_path: Path) -> Path:
    """The path of the outcomes of a `.cases` file."""
    return cases_path.with_suffix(".expected.json")


def format_outcomes(outcomes: dict[str, dict[str, object]]) -> str:
    """JSON with one line per changed value, and compact small values."""
    return _layout(outcomes, 0) + "\n"


def _layout(value: object, depth: int) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    pad = "  " * (depth + 1)
    # Depth 0 is the table of cases and depth 1 a case: those always get a line per member.
    if depth > 1 and len(flat) + 2 * depth <= 140:
        return flat
    if isinstance(value, dict) and value:
        inner = [f"{pad}{json.dumps(key, ensure_ascii=False)}: {_layout(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner) + "\n" + "  " * depth + "}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(pad + _layout(item, depth + 1) for item in value) + "\n" + "  " * depth + "]"
    return flat
