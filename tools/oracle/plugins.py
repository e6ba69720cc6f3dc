"""Records the results of the reference's standard plugins for the calls of `plugin_cases.py`, and their signatures.

    plugins.py calls OUT.json         the calls
    plugins.py signatures OUT.json    names, parameters, defaults and types

Run it with the Python of a virtualenv that has the reference, and for the module `ip` also `inmanta-module-ip`. Every
call is compiled as a separate model inside this process.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

from inmanta import compiler
from inmanta.ast import CompilerException, OptionalValueException
from inmanta.execute.runtime import Instance
from inmanta.execute.util import NoneValue, Unknown
from inmanta.module import Project
from plugin_cases import CALLS, ENVIRONMENT, FILES, PRELUDE, Model

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


def compile_model(text: str):
    """Compiles a model in the current directory and returns its types, its namespaces and its output."""
    Path("main.cf").write_text(text, encoding="utf-8")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        project = Project(os.getcwd(), autostd=True)
        Project.set(project)
        project.load()
        types, scopes = compiler.do_compile()
    return types, scopes, out.getvalue()


def escaped(text: str) -> str:
    """A text as a string literal of the language, free of interpolation and of its encoding quirks."""
    out = []
    for char in text:
        code = ord(char)
        if char in '"\\{}' or code < 32 or code > 126:
            out.append(f"\\x{code:02x}" if code < 256 else f"\\U{code:08x}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'


def literal(value: object) -> str:
    """An argument as an expression of the language."""
    if isinstance(value, Model):
        return value.expression
    if has_model(value):
        if isinstance(value, dict):
            return "{" + ", ".join(f"{escaped(k)}: {literal(v)}" for k, v in value.items()) + "}"
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    # Two braces in a row only occur inside texts; escaped, they do not look like an interpolation.
    text = json.dumps(value).replace("{{", "\\u007b\\u007b")
    return f"std::json_loads({escaped_json(text)})"


def escaped_json(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def has_model(value: object) -> bool:
    if isinstance(value, Model):
        return True
    if isinstance(value, dict):
        return any(has_model(item) for item in value.values())
    return isinstance(value, list) and any(has_model(item) for item in value)


def neutral(text: str) -> str:
    """Replaces paths of this machine by those of the tests."""
    std_directory = str(Path(sys.modules["inmanta_plugins.std"].__file__).parent)
    return text.replace(std_directory, "/modules/std").replace(os.getcwd(), "/project")


def encoded_argument(value: object) -> object:
    if isinstance(value, Model):
        return value.encoded
    if isinstance(value, dict):
        return {key: encoded_argument(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encoded_argument(item) for item in value]
    return encoded(value, {})


def encoded(value: object, names: dict[int, str]) -> object:
    """A value of the model as JSON."""
    if value is None or isinstance(value, NoneValue):
        return None
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return neutral(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else {"$int": str(value)}
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else {"$float": str(value)}
    if isinstance(value, list):
        return [encoded(item, names) for item in value]
    if isinstance(value, dict):
        return {key: encoded(item, names) for key, item in value.items()}
    if isinstance(value, Unknown):
        return {"$unknown": True}
    if isinstance(value, Instance):
        return {"$instance": names.get(id(value), "?")}
    return {"$other": type(value).__name__}


def outcome(plugin: str, args: list, kwargs: dict) -> dict:
    parts = [literal(arg) for arg in args] + [f"{name}={literal(arg)}" for name, arg in kwargs.items()]
    module = plugin.split("::")[0]
    imports = "" if module == "std" else f"import {module}\n"
    model = f"{imports}{PRELUDE}\nresult = {plugin}({', '.join(parts)})\n"
    try:
        _, scopes, printed = compile_model(model)
    except CompilerException as error:
        return failure(error, model)
    slots = scopes.get_child("__config__").scope.slots
    std_slots = scopes.get_child("std").scope.slots
    names = {id(slot.value): name for name, slot in [*std_slots.items(), *slots.items()] if slot.value is not None and name != "result"}
    return {"result": encoded(slots["result"].value, names), "printed": neutral(printed)}


def failure(error: CompilerException, model: str) -> dict:
    cause = error
    while isinstance(cause, CompilerException):
        if isinstance(cause, OptionalValueException):
            return {"optional": True}
        causes = cause.get_causes()
        if not causes:
            break
        cause = causes[0]
    original = getattr(cause, "__cause__", None)
    if not str(error).startswith("Exception in plugin") or original is None:
        raise SystemExit(f"not an error of the plugin itself: {error.format_trace()}\n{model}")
    kind = type(original)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {"error": {"kind": name, "message": neutral(str(original))}}


def record_calls() -> list[dict]:
    rows = []
    for plugin, calls in CALLS.items():
        for call in calls:
            args, kwargs = (call, {}) if isinstance(call, list) else call
            row = {"plugin": plugin, "args": [encoded_argument(arg) for arg in args]}
            if kwargs:
                row["kwargs"] = {name: encoded_argument(arg) for name, arg in kwargs.items()}
            recorded = outcome(plugin, args, kwargs)
            if not recorded.get("printed", "x"):
                del recorded["printed"]
            rows.append(row | recorded)
    return rows


def record_signatures() -> list[dict]:
    imports = "import ip\n" if "ip" in sys.argv else ""
    types, _, _ = compile_model(imports)
    rows = []
    for name, plugin in sorted(types.items()):
        if not hasattr(plugin, "get_signature"):
            continue
        params = [(arg, "normal") for arg in plugin.args]
        params += [(plugin.var_args, "var_positional")] if plugin.var_args else []
        params += [(arg, "keyword_only") for arg in plugin.kwargs.values()]
        params += [(plugin.var_kwargs, "var_keyword")] if plugin.var_kwargs else []
        rows.append(
            {
                "name": name,
                "params": [param(arg, kind) for arg, kind in params],
                "returns": shown_type(plugin.return_type),
                "allow_unknown": plugin.opts["allow_unknown"],
                "deprecated": plugin.replaced_by if plugin.deprecated else None,
            }
        )
    return rows


def shown_type(argument) -> str:
    return argument.resolved_type.type_string_internal()


def param(argument, kind: str) -> dict:
    row = {"name": argument.arg_name, "type": shown_type(argument), "kind": kind}
    if argument.has_default_value():
        row["default"] = argument.default_value
    return row


def compile_first() -> None:
    """The first compile loads the reference's plugins, which later steps query for their location."""
    os.mkdir("libs")
    Path("project.yml").write_text("name: test\nmodulepath: libs\n")
    compile_model("")


def main() -> int:
    what, target = sys.argv[1], Path(sys.argv[2]).absolute()
    os.environ |= ENVIRONMENT
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        compile_first()
        for path, text in FILES.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        rows = record_calls() if what == "calls" else record_signatures()
        os.chdir("/")
    lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    target.write_text(f"[\n{lines}\n]\n")
    print(f"{len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
