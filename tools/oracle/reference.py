"""Runs the reference compiler inside this process and records its result.

`compile_here` is called in a forked child with a project as its working directory. It drives the reference's own command
line, so that it captures the visible output, and replaces only its last step (print the summary
and exit) with one that builds the report.

What counts as the message of an error: the text of the exception itself with its causes, as the command line prints it
after `Error: `. The advice which the command line prints under a few errors ("Exception explanation") is not part of it.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

import inmanta.app as command_line
from inmanta.ast import CompilerException, Range
from inmanta.ast.attribute import RelationAttribute
from inmanta.ast.entity import Entity
from inmanta.execute.runtime import Instance
from inmanta.execute.util import NoneValue, Unknown


class Capture:
    """The collected data of a run of the reference."""

    def __init__(self, report: Path) -> None:
        self.report = report
        self.printed = io.StringIO()
        self.complaint = io.StringIO()
        self.records: list[logging.LogRecord] = []
        self.compiled: tuple[dict[str, object], object] | None = None

    def write(self, outcome: dict[str, object]) -> NoReturn:
        """Passes the outcome to the parent and ends the child without running the reference's exit code."""
        self.report.write_text(json.dumps(outcome), encoding="utf-8", errors="surrogateescape")
        os._exit(0)


def compile_here(report: Path, export: bool) -> NoReturn:
    """Compiles the project in the working directory and writes its outcome to `report`. Does not return."""
    capture = Capture(report)
    collect_log_records(capture)
    real_compile = command_line.do_compile

    def compile_and_keep(*args: object, **kwargs: object) -> object:
        # The log handlers keep the stream they were made with, so from here on only the model prints to this one.
        sys.stdout = capture.printed
        capture.compiled = real_compile(*args, **kwargs)
        return capture.compiled

    def summarise(reporter: command_line.CompileSummaryReporter, show_stack_traces: bool) -> NoReturn:
        failure = reporter._get_exception_to_report() if reporter.is_failure() else None
        capture.write(outcome_of(capture, failure, export))

    command_line.do_compile = compile_and_keep
    command_line.CompileSummaryReporter.print_summary_and_exit = summarise
    sys.argv = ["inmanta", "export", "-j", "exported.json"] if export else ["inmanta", "compile"]
    sys.stderr = capture.complaint
    try:
        command_line.app()
    except SystemExit:
        pass
    # A broken project ends the command line before its summary. Its text is the only information about the error.
    outcome = outcome_of(capture, RuntimeError(), export)
    text = capture.complaint.getvalue().strip()
    outcome["error"] = {"message": text, "file": None, "line": None, "column": None, "class": None, "text": text}
    capture.write(outcome)


def collect_log_records(capture: Capture) -> None:
    """Keeps every warning that is logged, whatever handlers the reference installs."""
    make_record = logging.getLogRecordFactory()

    def keep_and_make(*args: object, **kwargs: object) -> logging.LogRecord:
        record = make_record(*args, **kwargs)
        if record.levelno >= logging.WARNING:
            capture.records.append(record)
        return record

    logging.setLogRecordFactory(keep_and_make)


def outcome_of(capture: Capture, failure: BaseException | None, export: bool) -> dict[str, object]:
    """The report of a run, in the form that `orrery compile --report` writes."""
    outcome: dict[str, object] = {
        "status": "ok" if failure is None else "error",
        "stdout": capture.printed.getvalue(),
    }
    if failure is not None:
        outcome["error"] = describe_failure(failure)
    outcome["warnings"] = [{"message": warning_text(record)} for record in capture.records]
    if failure is None and capture.compiled is not None:
        types, scopes = capture.compiled
        outcome["model"] = ModelDump().dump(types, scopes)
    if failure is None and export:
        resources = json.loads(Path("exported.json").read_text(encoding="utf-8"))
        outcome["resources"] = sorted(resources, key=lambda resource: resource["id"])
    return outcome


def warning_text(record: logging.LogRecord) -> str:
    """The message of a warning. One of Python's own names a line of the reference's source, which means nothing here."""
    text = record.getMessage()
    if record.name == "py.warnings":
        text = text.partition("\n")[0]
        text = text[text.index(": ") + 2 :]
    return text


def describe_failure(failure: BaseException) -> dict[str, object]:
    """Message, location and class of an error."""
    if not isinstance(failure, CompilerException):
        text = str(failure)
        return {"message": text, "file": None, "line": None, "column": None, "class": type(failure).__name__, "text": text}
    place = failure.get_location()
    return {
        "message": failure.format_trace(indent="  "),
        "file": place.file if place else None,
        "line": place.lnr if place else None,
        "column": place.start_char if isinstance(place, Range) else None,
        "class": type(failure).__name__,
        "text": failure.get_message(),
    }


class ModelDump:
    """Turns the finished model into JSON. Instances get their ids in an order that does not depend on memory addresses:
    first those that the variables lead to, then the rest by type, place and content."""

    def __init__(self) -> None:
        self.ids: dict[int, str] = {}
        self.order: list[Instance] = []
        self.relations: dict[object, set[str]] = {}

    def dump(self, types: dict[str, object], scopes: object) -> dict[str, object]:
        slots = scopes.get_child("__config__").get_scope().slots
        values = {name: slot.get_value() for name, slot in slots.items() if slot.is_ready()}
        everything = [
            instance
            for kind in types.values()
            if isinstance(kind, Entity)
            for instance in kind.get_all_instances()
            if instance.type is kind
        ]
        for value in values.values():
            self.reach(value)
        # Instances of std's own OS entity exist in every model; they only matter where a model leads to them.
        rest = [instance for instance in everything if str(instance.type) != "std::OS"]
        for instance in sorted(rest, key=self.sort_key):
            self.reach(instance)
        return {
            "variables": {name: self.value(value) for name, value in values.items()},
            "instances": [self.instance(instance) for instance in self.order],
        }

    def sort_key(self, instance: Instance) -> tuple[str, str, str]:
        plain = {name: str(value) for name, value in self.slots_of(instance)[0].items()}
        return str(instance.type), str(instance), json.dumps(plain, sort_keys=True)

    def slots_of(self, instance: Instance) -> tuple[dict[str, object], dict[str, list[object]]]:
        """Attributes, and relations that are not empty."""
        kind = instance.type
        if kind not in self.relations:
            attributes = kind.get_all_attributes()
            self.relations[kind] = {name for name, attribute in attributes.items() if isinstance(attribute, RelationAttribute)}
        attributes: dict[str, object] = {}
        relations: dict[str, list[object]] = {}
        for name, slot in instance.slots.items():
            value = slot.value if slot.is_ready() else None
            if name == "self" or value is None:
                continue
            if name not in self.relations[kind]:
                attributes[name] = value
            elif not isinstance(value, NoneValue):
                members = value if isinstance(value, list) else [value]
                if members:
                    relations[name] = members
        return attributes, relations

    def reach(self, start: object) -> None:
        """Assigns ids to all instances reachable from a value, nearest first."""
        queue = [start]
        while queue:
            value = queue.pop(0)
            if isinstance(value, Instance):
                if id(value) not in self.ids:
                    self.ids[id(value)] = f"i{len(self.order)}"
                    self.order.append(value)
                    attributes, relations = self.slots_of(value)
                    queue += [*attributes.values(), *relations.values()]
            elif isinstance(value, dict):
                queue += value.values()
            elif isinstance(value, (list, tuple)):
                queue += value

    def instance(self, instance: Instance) -> dict[str, object]:
        attributes, relations = self.slots_of(instance)
        return {
            "id": self.ids[id(instance)],
            "type": str(instance.type),
            "attributes": {name: self.value(value) for name, value in attributes.items()},
            "relations": {name: [self.member(value) for value in members] for name, members in relations.items()},
        }

    def member(self, value: object) -> object:
        return self.ids[id(value)] if isinstance(value, Instance) else self.value(value)

    def value(self, value: object) -> object:
        if isinstance(value, Instance):
            return {"$instance": self.ids[id(value)]}
        if isinstance(value, Unknown):
            return {"$unknown": True}
        if isinstance(value, NoneValue):
            return None
        if isinstance(value, float):
            finite = value - value == 0
            return value if finite else {"$float": repr(value)}
        if isinstance(value, (str, bool, int)):
            return value
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {("$" + key if key.startswith("$") else key): self.value(item) for key, item in value.items()}
        return {"$other": repr(value)}
