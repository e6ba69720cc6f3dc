#!/usr/bin/env python3
"""Compile every example model in the Markdown files with the reference compiler.

The examples are promises: a model marked `inmanta` compiles and prints its `output`, one marked
`inmanta,fails` is rejected with its `error`. The tests hold Orrery to them; this script shows that the
reference agrees, and is run by hand when examples change:

    tools/check_doc_examples.py --reference COMMAND [PAGE ...]

Results are cached in `target/docs-examples`, so only changed examples are compiled again. Pages that
describe deliberate differences mark those examples with the fence word `differs`, which this script
skips; see `CONTRIBUTING.md` for all fence words.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CACHE = REPOSITORY / "target" / "docs-examples"
DEFAULT_PROJECT = "name: example\nmodulepath: libs\n"
FENCE = re.compile(r"^( *)(`{3,})([^`\n]*)\n(.*?)^ *\2 *$\n?", re.MULTILINE | re.DOTALL)


@dataclass
class Model:
    page: Path
    line: int
    main: str
    fails: bool
    files: dict[str, str]
    output: str | None = None
    error: str | None = None
    words: list[str] = field(default_factory=list)


def models(page: Path) -> list[Model]:
    """The example models of a page; `xtask/src/documents.rs` reads them the same way."""
    text = page.read_text()
    found: list[Model] = []
    files: dict[str, str] = {}
    for match in FENCE.finditer(text):
        indent, _, info, body = match.groups()
        body = "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
        words = [word.strip() for word in info.strip().split(",")]
        path = next((word[5:] for word in words if word.startswith("file=")), None)
        if path is not None:
            files[path] = body
        elif words[0] == "inmanta":
            line = text.count("\n", 0, match.start()) + 1
            found.append(Model(page, line, body, "fails" in words, files, words=words))
            files = {}
        elif words == ["output"] and found:
            found[-1].output = body
        elif words == ["error"] and found:
            found[-1].error = body
    return found


def ask(model: Model, reference: Path) -> dict:
    """Exit code and output of the reference for one model, cached by content."""
    files = {"project.yml": DEFAULT_PROJECT, **model.files, "main.cf": model.main}
    key = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    remembered = CACHE / key
    if remembered.is_file():
        return json.loads(remembered.read_text())
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "libs").mkdir()
        for path, text in files.items():
            place = Path(directory) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        result = subprocess.run(
            [str(reference), "compile"], cwd=directory, capture_output=True, text=True, timeout=300
        )
        answer = {
            "code": result.returncode,
            "stdout": result.stdout.replace(directory, "."),
            "stderr": result.stderr.replace(directory, "."),
        }
    CACHE.mkdir(parents=True, exist_ok=True)
    remembered.write_text(json.dumps(answer))
    return answer


def problem_with(model: Model, answer: dict) -> str | None:
    printed = "".join(
        line for line in answer["stdout"].splitlines(keepends=True) if not re.match(r"[\w.]+ +WARNING ", line)
    )
    if (answer["code"] != 0) != model.fails:
        return f"exit code {answer['code']}\n{answer['stdout']}{answer['stderr']}"
    if model.output is not None and printed != model.output:
        return f"printed\n{printed}"
    if model.error is not None and model.error not in re.sub(r"^Error: ", "", answer["stderr"], flags=re.MULTILINE):
        return f"said\n{answer['stderr']}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=Path, required=True, metavar="COMMAND")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    pages = arguments.pages or [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    total = bad = 0
    for page in pages:
        for model in models(page):
            if "differs" in model.words:
                continue
            total += 1
            problem = problem_with(model, ask(model, arguments.reference))
            if problem:
                bad += 1
                print(f"{model.page}:{model.line}: {problem}\n")
    print(f"{total} models, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
