"""A fake `orrery` program: speaks the protocol for one canned model, whatever main.cf contains.

Which model is in the first line of main.cf: `# ok`, `# error`, `# plugin` or `# dies`.
"""

from __future__ import annotations

import argparse
import pathlib
import socket
import sys
from typing import Any

from orrery_sdk.wire import Closed, Wire

ENTITIES = [
    {"name": "std::Entity", "parents": [], "slots": ["requires", "provides"], "attributes": []},
    {
        "name": "unittest::Resource",
        "parents": [0],
        "slots": ["requires", "provides", "name", "desired_value", "purged", "purge_on_delete"],
        "attributes": [{"name": "name", "type": "string", "owner": 1, "relation": False}],
    },
]
NAMES = ("a", "b")


def fields(name: str) -> dict[str, Any]:
    return {
        "id": f"unittest::Resource[{name},name={name}],v=0", "name": name, "desired_value": f"value of {name}",
        "purged": False, "purge_on_delete": False, "send_event": False, "receive_events": True,
        "report_only": False, "references": [], "mutators": [],
        "requires": ["unittest::Resource[a,name=a]"] if name == "b" else [],
    }  # fmt: skip


def told(number: int) -> list[Any]:
    name = NAMES[number - 1]
    return [number, 1, [[], [], name, f"value of {name}", False, False]]


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    match message["k"]:
        case "get":
            return {"k": "got", "x": [told(number) for number in message["i"]]}
        case "instances":
            return {"k": "instances", "i": [1, 2]}
        case "lookup":
            known = message == {"k": "lookup", "name": "x", "ns": "__config__"}
            return {"k": "found", "v": 5} if known else {"k": "absent"}
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["compile"])
    parser.add_argument("--serve-host", action="store_true", required=True)
    parser.add_argument("--project", type=pathlib.Path, required=True)
    parser.add_argument("--python-env")
    parser.add_argument("--resources", action="store_true", required=True)
    options = parser.parse_args()
    wire = Wire(socket.socket(fileno=sys.stdin.fileno()))
    scenario = (options.project / "main.cf").read_text().splitlines()[0].removeprefix("# ")
    assert wire.receive()["k"] == "hello"
    module = options.project / "libs" / "unittest"
    wire.send(
        {
            "k": "init",
            "role": "compile",
            "project": str(options.project),
            "environment": None,
            "tests": True,
            "data": str(options.project / "data"),
            "files": str(options.project / "files"),
            "path": [],
            "modules": [
                {
                    "name": "unittest",
                    "package": "inmanta_plugins.unittest",
                    "code": str(module / "plugins"),
                    "root": str(module),
                    "version": "0.0.1",
                }
            ],
        }
    )
    loaded = wire.receive()
    assert loaded["problems"] == [], loaded
    assert "unittest::Resource" in loaded["handlers"]
    wire.send({"k": "types", "entities": ENTITIES, "typedefs": [], "namespaces": ["unittest"]})
    if scenario == "dies":
        print("out of memory", file=sys.stderr)
        return 3
    outcome: dict[str, Any] = {"k": "compiled", "ok": True, "errors": [], "output": "printed\n", "sets": {}}
    if scenario == "ok":
        outcome["resources"] = [fields(name) for name in NAMES]
    elif scenario == "error":
        text = "value set twice:\n\told value: 1 (./main.cf:2)"
        error = {"class": "DoubleSetException", "message": "value set twice", "file": "./main.cf", "line": 2}
        outcome.update(ok=False, errors=[{**error, "text": text}])
    elif scenario == "plugin":
        wire.send({"k": "call", "p": 0, "a": [], "ns": "__config__", "at": ["./main.cf", 2]})
        reply = wire.receive()
        text = f"Exception in plugin unittest::fail\ncaused by:\n  {reply['class']}: {reply['message']}\n"
        error = {"class": "ExternalException", "message": "Exception in plugin unittest::fail"}
        outcome.update(ok=False, errors=[{**error, "file": "./main.cf", "line": 2, "text": text}])
    wire.send(outcome)
    try:
        while True:
            reply = answer(wire.receive())
            assert reply is not None
            wire.send(reply)
    except Closed:
        return 0


if __name__ == "__main__":
    sys.exit(main())
