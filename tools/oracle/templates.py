"""Records the output of the reference's `std::template` for `template_cases.py` and `template_snippets.py`.

    templates.py OUT.json
    templates.py OUT.json --random COUNT [SEED]    random templates instead, for long comparisons

Every template is rendered in a model that begins with the same variables; the tests build the same ones. Addresses and
places of instances are replaced by fixed ones. Run it with the Python of a virtualenv that has the reference.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import tempfile
from pathlib import Path

import plugins
from inmanta.ast import CompilerException
from inmanta.execute.util import Unknown
from plugin_cases import PRELUDE
from template_cases import PROJECTS, VARIABLES
from template_snippets import SNIPPETS


def neutral(text: str) -> str:
    """Replaces addresses and paths of this machine by those of the tests."""
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


NAMES = ["l", "ls", "le", "n", "d", "ld", "ll", "o", "ol", "s", "h", "oh", "t", "f", "big", "nope", "x", "loop"]
LITERALS = ["1", "0", "-3", "2.5", "1e3", "'ab c'", '"é<x>"', "''", "true", "false", "none", "[]", "[1, 2, 3]", "['b', 'A']", "{}", "{'a': 1, 'b': none}",
            "(1, 'x')", "()", "[[2, 'a'], [1, 'b']]", "[{'a': 1}, {'a': 2}]", "range(4)", "100000000000000000000"]
FILTERS = ["abs", "attr('name')", "batch(2)", "capitalize", "center(7)", "count", "default('z')", "default('z', true)", "dictsort", "e", "escape", "filesizeformat", "first",
           "float", "forceescape", "format(1)", "groupby('a')", "indent(2)", "int", "items", "join", "join(',')", "last", "length", "list", "lower", "map('upper')",
           "map(attribute='a')", "map(attribute='name')", "max", "min", "reject('odd')", "rejectattr('a')", "replace('a', 'b')", "reverse", "round", "round(1)", "safe", "select",
           "select('odd')", "selectattr('a')", "selectattr('a', 'gt', 1)", "slice(2)", "sort", "sort(true)", "sort(attribute='a')", "string", "sum", "sum('a')", "title", "tojson", "trim",
           "truncate(3)", "unique", "upper", "urlencode", "wordcount", "wordwrap(3)", "xmlattr", "std.upper", "std.count", "std.at(0)", "std.flatten", "std.unique", "std.length",
           "std.isset", "std.split(' ')", "std.sequence", "std.dict_keys"]
TESTS = ["defined", "undefined", "none", "odd", "even", "number", "string", "mapping", "sequence", "iterable", "callable", "boolean", "integer", "float", "lower", "upper", "true", "false",
         "eq 1", "gt 1", "in [1, 2]", "divisibleby 2", "escaped", "ne 'a'"]
ATTRIBUTES = ["name", "a", "k", "l", "m", "nope", "family", "os", "upper", "items", "keys", "values", "index", "first", "last", "length", "ip"]
CALLS = ["upper()", "split()", "split(' ')", "items()", "keys()", "values()", "get('a')", "get('k', 1)", "strip()", "title()", "startswith('a')", "replace('a', 'x')", "count(1)", "index(1)",
         "join(['a', 'b'])", "copy()", "find('b')", "format(1, 2)", "zfill(5)", "append(1)", "pop()"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"]


def random_expression(source: random.Random, depth: int) -> str:
    if depth <= 0 or source.random() < 0.2:
        return source.choice(NAMES if source.random() < 0.6 else LITERALS)
    inner = random_expression(source, depth - 1)
    kind = source.randrange(10)
    if kind < 3:
        return f"{inner} | {source.choice(FILTERS)}"
    if kind == 3:
        return f"({inner}) is {source.choice(('', 'not '))}{source.choice(TESTS)}"
    if kind == 4:
        return f"({inner}).{source.choice(ATTRIBUTES)}"
    if kind == 5:
        return f"({inner})[{source.choice(['0', '-1', '1:', repr(source.choice(ATTRIBUTES)), '::2', '7'])}]"
    if kind == 6:
        return f"({inner}).{source.choice(CALLS)}"
    if kind == 7:
        return f"{inner} if {random_expression(source, depth - 1)} else {random_expression(source, depth - 1)}"
    operator = source.choice(OPERATORS)
    other = random_expression(source, depth - 1)
    return source.choice((f"({inner}) {operator} ({other})", f"{inner} {operator} {other}", f"not {inner}", f"-({inner})"))


def random_template(source: random.Random, depth: int = 2) -> str:
    parts = []
    for _ in range(source.randrange(1, 3)):
        expression = random_expression(source, source.randrange(1, 4))
        body = random_template(source, depth - 1) if depth > 0 and source.random() < 0.6 else f"{{{{ {expression} }}}}"
        iterable = random_expression(source, 1)
        parts.append(source.choice((
            f"{{{{ {expression} }}}}", f"{{{{ {expression} }}}}", f"{{{{ {expression} }}}}",
            f"{{% if {expression} %}}{body}{{% else %}}e{{% endif %}}", f"{{% for x in {iterable} %}}{{{{ x }}}}{body},{{% else %}}none{{% endfor %}}",
            f"{{% set x = {expression} %}}{body}{{{{ x }}}}", f"{{% with x = {expression} %}}{body}{{% endwith %}}",
            f"{{% macro q(x, y=1) %}}{body}{{{{ x }}}}{{% endmacro %}}{{{{ q({expression}) }}}}", f"{{% set x %}}{body}{{% endset %}}{{{{ x | length }}}}",
            f"{{% filter upper %}}{body}{{% endfilter %}}", f" {{%- if t %}} {body} {{%- endif -%}} \n")))
    return "".join(parts)


def main() -> int:
    target = Path(sys.argv[1]).absolute()
    if "--random" in sys.argv:
        count, seed = int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0
        source = random.Random(seed)
        return record(target, [random_template(source) for _ in range(count)], [])
    return record(target, SNIPPETS, PROJECTS)


def record(target: Path, snippets: list[str], projects: list[tuple[str, dict[str, str]]]) -> int:
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        plugins.compile_first()
        for snippet in snippets:
            rows.append({"snippet": snippet} | render({"templates/t.j2": snippet}, 'std::template("/t.j2")'))
        for call, files in projects:
            rows.append({"call": call, "files": files} | render(files, call))
        os.chdir("/")
    lines = ",\n".join(json.dumps(row) for row in rows)
    target.write_text(f"[\n{lines}\n]\n")
    print(f"{len(rows)} templates")
    return 0


if __name__ == "__main__":
    sys.exit(main())
