"""Writes the cases that are tables rather than ideas: operators on every pair of types, the types of std with good and
bad values, casts, format specifications and the plugins of std with their arguments.

    tables.py tests/language        writes operators.cases, std-types.cases and std-plugins.cases

Successful results share a case; a failure ends a compile, so it gets a separate case.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cases import Case, format_case
from table_data import (
    BAD_ATTRIBUTES,
    BAD_CALLS,
    BAD_CASTS,
    BAD_FORMATS,
    BAD_OPERANDS,
    CASTS,
    FORMATS,
    GOOD_ATTRIBUTES,
    GOOD_CALLS,
    VALIDATED,
    VALUES,
)

# Definitions for the operands of the tables.
HEAD = """entity A:
    int i = 0
end
implement A using std::none
u = std::get_env("NOPE")
a = A()
b = A()
"""

NUMBERS = ["true", "false", "0", "1", "-3", "7", "2.5", "-0.5", "1.0", "12345678901234567890"]


def main() -> None:
    target = Path(sys.argv[1])
    for area, cases in {"operators": operators(), "std-types": std_types(), "std-plugins": std_plugins()}.items():
        heading = "# Written by tools/oracle/tables.py; change the tables there.\n"
        (target / f"{area}.cases").write_text(heading + "".join(map(format_case, cases)), encoding="utf-8")


def case(name: str, *lines: str) -> Case:
    return Case(name, [], {"main.cf": "\n".join(lines) + "\n"})


def prints(expressions: list[str], head: str = "") -> str:
    """A model that prints a list of expressions with their text before each result."""
    lines = []
    for expression in expressions:
        label = expression.replace("\\", "\\\\").replace('"', '\\"').replace("{{", "{ {")
        lines.append(f'std::print("{label}") std::print({expression})')
    return head + "\n".join(lines)


def in_chunks(name: str, expressions: list[str], head: str = "", size: int = 30) -> list[Case]:
    chunks = [expressions[start : start + size] for start in range(0, len(expressions), size)]
    return [case(f"{name}_{number}", prints(chunk, head)) for number, chunk in enumerate(chunks)]


def operators() -> list[Case]:
    cases: list[Case] = []
    for word, sign in {"plus": "+", "minus": "-", "times": "*"}.items():
        cases += in_chunks(f"numbers_{word}", [f"{x} {sign} {y}" for x in NUMBERS for y in NUMBERS], size=100)
    for word, sign in {"less": "<", "greater": ">", "at_most": "<=", "at_least": ">="}.items():
        cases += in_chunks(f"numbers_{word}", [f"{x} {sign} {y}" for x in NUMBERS for y in NUMBERS], size=100)
    divisors = [number for number in NUMBERS if number not in ("0", "false")]
    cases += in_chunks("numbers_divided", [f"{x} / {y}" for x in NUMBERS for y in divisors], size=100)
    cases += in_chunks("numbers_modulo", [f"{x} % {y}" for x in NUMBERS for y in divisors], size=100)
    powers = [(x, y) for x in NUMBERS[:-1] for y in NUMBERS[:-1] if not (x in ("0", "false") and y[0] == "-")]
    powers = [(x, y) for x, y in powers if not (x[0] == "-" and "." in y and y != "1.0")]
    cases += in_chunks("numbers_power", [f"{x} ** {y}" for x, y in powers], size=100)
    cases += in_chunks("values_equal", [f"({x} == {y})" for x in VALUES for y in VALUES], HEAD, size=80)
    cases += in_chunks("values_unequal", [f"({x} != {y})" for x in VALUES for y in VALUES if x <= y], HEAD, size=80)
    containers = ['[1, "a", null]', "[]", '{"a": 1, "b": null}', "{}", "[a]", "[u, 1]", '{"a": u}', "[2.0, true]"]
    members = [value for value in VALUES if value[0] not in "[{"]
    in_dict = [value for value in members if value[0] == '"']
    pairs = [(x, y) for y in containers for x in (in_dict if y[0] == "{" else members)]
    cases += in_chunks("member_in", [f"std::is_unknown({x} in {y}) ? null : ({x} in {y})" for x, y in pairs], HEAD, size=60)
    cases += in_chunks("member_not_in", [f"std::is_unknown({x} not in {y}) ? null : ({x} not in {y})" for x, y in pairs], HEAD, 60)
    signs = ["+", "-", "*", "/", "%", "**", "<", ">", "<=", ">=", "==", "!=", "in", "and", "or"]
    others = ["1", '"a"', "null", "[1]", "true"]
    mixed = [f"u {sign} {x}" for sign in signs for x in others]
    mixed += [f"{x} {sign} u" for sign in signs[:12] for x in others] + ["false or u", "true and u", "true or u", "not u"]
    mixed = [text for text in mixed if text not in ("u in null", "u in 1", 'u in "a"', "u in true")]
    cases += in_chunks("unknown_operand", [f"std::is_unknown({text})" for text in mixed], HEAD, size=140)
    for name, left, sign, right in BAD_OPERANDS:
        cases.append(case(f"bad_{name}", HEAD + f"x = {left} {sign} {right}"))
    cases += in_chunks("casts", [f"{kind}({value})" for kind, values in CASTS.items() for value in values], HEAD, size=50)
    for number, text in enumerate(BAD_CASTS):
        cases.append(case(f"bad_cast_{number}", HEAD + f"x = {text}"))
    for number, (value, specs) in enumerate(FORMATS):
        lines = [f"v = {value}", "w = 12", "p = 3"]
        for spec in specs:
            lines.append(f'std::print(f"[{{v{spec}}}]")')
        cases.append(case(f"format_{number}", *lines))
    for number, (value, text) in enumerate(BAD_FORMATS):
        cases.append(case(f"bad_format_{number}", f"v = {value}", f"std::print({text})"))
    return cases


def std_types() -> list[Case]:
    cases: list[Case] = []
    for name, kind, parameters, values in VALIDATED:
        extra = f", {parameters}" if parameters else ""
        calls = [f'std::validate_type("{kind}", {value}{extra})' for value in values]
        cases += in_chunks(f"validate_{name}", calls, size=60)
    for kind, values in GOOD_ATTRIBUTES.items():
        lines = [f"entity T:\n    {kind} x\nend\nimplement T using std::none"]
        lines += [f"t{number} = T(x={value})" for number, value in enumerate(values)]
        cases.append(case("good_" + word_of(kind), *lines))
    for kind, values in BAD_ATTRIBUTES.items():
        for number, value in enumerate(values):
            head = f"entity T:\n    {kind} x\nend\nimplement T using std::none"
            cases.append(case(f"bad_{word_of(kind)}_{number}", head, f"t = T(x={value})"))
    return cases


def word_of(kind: str) -> str:
    return kind.replace("std::", "").replace("[]", "_list").replace("?", "_or_null")


def std_plugins() -> list[Case]:
    cases: list[Case] = []
    for name, calls in GOOD_CALLS.items():
        cases.append(case(f"good_{name}", prints(calls, HEAD)))
    for number, call in enumerate(BAD_CALLS):
        plugin = call.partition("(")[0].replace("std::", "")
        cases.append(case(f"bad_{plugin}_{number}", HEAD + f"x = {call}"))
    return cases


if __name__ == "__main__":
    main()
