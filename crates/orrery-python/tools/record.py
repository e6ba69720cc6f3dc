#!/usr/bin/env python3
"""Asks Python what things mean and writes its answers to tests/data/, which the tests replay.

Run it with the Python version that the crate follows, from anywhere:

    python3.13 tools/record.py [--scale N] [--seed N] [--out DIRECTORY]

The committed records are those of the default arguments. For a wider search, record to another
directory and name it in ORRERY_PYTHON_RECORDS when running the tests.

Each line of a record is a JSON array that ends with the outcome: {"ok": text} or
{"error": [class, message]}. Numbers are written "i:<decimal>" and "f:<bits in hex>".
"""

import argparse
import json
import pathlib
import random
import struct
import sys
import warnings

import record_format
import record_numbers
import record_regex
import record_text

HERE = pathlib.Path(__file__).resolve().parent


def number(value):
    if isinstance(value, float):
        return "f:" + struct.pack(">d", value).hex()
    return f"i:{value}"


def show(value):
    """An outcome as text: numbers tagged, strings as they are."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, complex):
        return "c:" + repr(value)
    return value


def outcome(function, *arguments):
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        try:
            return {"ok": show(function(*arguments))}
        except Exception as error:  # every exception is an answer
            return {"error": [type(error).__name__, str(error)]}


def encodable(row):
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # lone surrogates are no text
        return False
    return True


def main():
    assert sys.version_info[:2] == (3, 13), "the records are those of Python 3.13"
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--scale", type=int, default=1)
    arguments.add_argument("--seed", type=int, default=20)
    arguments.add_argument("--out", type=pathlib.Path, default=HERE.parent / "tests" / "data")
    chosen = arguments.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    sys.set_int_max_str_digits(4300)
    for module in (record_numbers, record_text, record_format, record_regex):
        for name, rows in module.records(random.Random(chosen.seed), chosen.scale, number, outcome):
            lines = [json.dumps(row, ensure_ascii=False) for row in rows if encodable(row)]
            (chosen.out / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            print(f"{name}: {len(lines)}")


if __name__ == "__main__":
    main()
