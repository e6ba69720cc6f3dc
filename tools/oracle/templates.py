"""Records what the reference's `std::template` makes of the templates of `template_cases.py`.

    templates.py OUT.json

Every template is rendered in a model that begins with the same variables; the tests build the same ones. Addresses and
places of instances are replaced by fixed ones. Run it with the Python of a virtualenv that has the reference.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import plugins
from inmanta.ast import CompilerException
from inmanta.execute.util import Unknown
from plugin_cases import PRELUDE
from template_cases import PROJECTS, SNIPPETS, VARIABLES


def neutral(text: str) -> str:
    """Addresses and places of this machine become those that the tests use."""
    text = re.sub(r"(\b[a-z_]+(?:::[a-z_]+)*::[A-Z]\w*) 7f[0-9a-f]+", r"\1 0", text)
    text = re.sub(r"0x7f[0-9a-f]+", "0x7f0000000000", text)
    return re.sub(r"\(instantiated at [^)]*\)", "(instantiated at /main.cf:1)", text)


def render(files: dict[str, str], call: str) -> dict:
    for directory in ("templates", "libs"):
        shutil.rmtree(directory, ignore_errors=True)
        os.mkdir(directory)
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    imports = "import m\n" if "libs/m/model/_init.cf" in files else ""
    try:
        _, scopes, printed = plugins.compile_model(f"{imports}{PRELUDE}{VARIABLES}\nresult = {call}\n")
    except CompilerException as error:
        return failure(error)
    result = scopes.get_child("__config__").scope.slots["result"].value
    if isinstance(result, Unknown):
        return {"unknown": True}
    outcome = {"output": neutral(result)}
    return outcome | {"printed": neutral(printed)} if printed else outcome


def failure(error: CompilerException) -> dict:
    cause = error.get_causes()[0] if error.get_causes() else error
    original = getattr(cause, "__cause__", None)
    if cause is error and error.__cause__ is not None:
        original = error.__cause__
    if original is None or isinstance(original, CompilerException):
        return {"error": {"kind": "runtime", "message": neutral(cause.get_message())}}
    kind = type(original)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {"error": {"kind": name, "message": neutral(str(original))}}


def main() -> int:
    target = Path(sys.argv[1]).absolute()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        plugins.compile_first()
        for snippet in SNIPPETS:
            rows.append({"snippet": snippet} | render({"templates/t.j2": snippet}, 'std::template("/t.j2")'))
        for call, files in PROJECTS:
            rows.append({"call": call, "files": files} | render(files, call))
        os.chdir("/")
    lines = ",\n".join(json.dumps(row) for row in rows)
    target.write_text(f"[\n{lines}\n]\n")
    print(f"{len(rows)} templates")
    return 0


if __name__ == "__main__":
    sys.exit(main())
