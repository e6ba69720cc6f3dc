#!/usr/bin/env python3
"""Records answers of Jinja2 3.1 about snippets.py, for tests/it.

    python3 -m venv scratch && scratch/bin/pip install 'jinja2==3.1.*'
    scratch/bin/python crates/orrery-jinja/tools/record.py > crates/orrery-jinja/tests/it/recorded.jsonl

Snippets define their own values: lists and dicts of a template, not of a model. Undefined values are
strict, as in the reference compiler. Other templates of a case follow its text, one pair each.
"""

import json
import re
import sys

import jinja2

from snippets import EXPRESSIONS, PRELUDE, TEMPLATES


def neutral(text):
    """Without addresses, and with the names of templates as messages of a model have them."""
    text = re.sub(r"0x[0-9a-f]{6,}", "0x7f0000000000", text)
    return re.sub(r"'/(t\.j2|m|p|base|mid)'", r"'\1'", text)


def answer(text, others):
    templates = {"/t.j2": PRELUDE + text, **others}
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(templates), undefined=jinja2.StrictUndefined
    )
    try:
        return {"output": neutral(environment.get_template("/t.j2").render())}
    except Exception as error:  # every exception is an answer
        kind = type(error)
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        message = str(error)
        return {"error": name, "message": message if "NotFound" in name else neutral(message)}


def main():
    cases = [(f"{{{{ {line} }}}}", {}) for line in EXPRESSIONS.strip("\n").split("\n")]
    for case in TEMPLATES:
        if isinstance(case, str):
            case = [case]
        cases.append((case[0], dict(zip(case[1::2], case[2::2]))))
    rows = []
    for text, others in cases:
        row = {"template": text}
        if others:
            row["others"] = others
        rows.append(row | answer(text, others))
    json.dump({"jinja2": jinja2.__version__, "prelude": PRELUDE}, sys.stdout, ensure_ascii=False)
    print()
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
