"""A fake core for tests: the peer of a CompileHost that runs in a separate thread."""

from __future__ import annotations

import shutil
import socket
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

from orrery_sdk.compiling.host import CompileHost
from orrery_sdk.session import Session
from orrery_sdk.wire import Closed, Wire

ENTITY = {"name": "std::Entity", "parents": [], "slots": ["requires", "provides"], "attributes": []}


def relation(
    name: str, target: str, low: int = 0, high: int | None = None, end: str | None = None
) -> dict[str, Any]:
    return {"name": name, "type": target, "low": low, "high": high, "end": end, "relation": True, "line": 1}


def attribute(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "relation": False, "line": 1}


def entity(
    name: str, *attributes: dict[str, Any], parents: tuple[int, ...] = (0,), **more: Any
) -> dict[str, Any]:
    """An entity as `types` lists it. All parents in these tests have the slots of std::Entity only."""
    return {
        "name": name,
        "parents": list(parents),
        "slots": ["requires", "provides", *[one["name"] for one in attributes]],
        "attributes": list(attributes),
        "indexes": [],
        "file": "/m.cf",
        "line": 7,
        "doc": None,
        **more,
    }


class FakeCore:
    """Writes modules, starts a host for them and talks to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.modules: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        self.printed = ""
        self.warned: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, Any] = {}
        mine, theirs = socket.socketpair()
        mine.settimeout(20)
        self.wire = Wire(mine)
        self._host_wire = Wire(theirs)
        self.thread: threading.Thread | None = None
        self.host: CompileHost | None = None

    def module(self, name: str, code: str, model: str = "", **files: str) -> None:
        root = self.directory / "libs" / name
        (root / "plugins").mkdir(parents=True)
        (root / "model").mkdir()
        (root / "model" / "_init.cf").write_text(textwrap.dedent(model))
        (root / "plugins" / "__init__.py").write_text(textwrap.dedent(code))
        for file, text in files.items():
            place = root / "plugins" / (file.replace("__", "/") + ".py")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(textwrap.dedent(text))
        self.modules.append(
            {
                "name": name,
                "package": f"inmanta_plugins.{name}",
                "code": str(root / "plugins"),
                "root": str(root),
            }
        )

    def start(self, **init: Any) -> dict[str, Any]:
        """Starts the host; returns its manifest."""
        session = Session.from_init(
            {
                "role": "compile",
                "project": str(self.directory),
                "data": str(self.directory / "data"),
                "files": str(self.directory / "contents"),
                "modules": self.modules,
                **init,
            }
        )
        session.install()
        self.host = CompileHost(self._host_wire, session)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self.receive("loaded")

    def _run(self) -> None:
        assert self.host is not None
        try:
            self.host.load()
            self.host.serve()
        except Closed:
            pass
        except BaseException as error:
            self.error = error
            self._host_wire.close()

    def types(self, *entities: dict[str, Any], typedefs: tuple[dict[str, Any], ...] = ()) -> None:
        self.send(
            {"k": "types", "entities": [ENTITY, *entities], "typedefs": list(typedefs), "namespaces": ["m"]}
        )

    def send(self, message: dict[str, Any]) -> None:
        self.wire.send(message)

    def receive(self, *kinds: str) -> dict[str, Any]:
        """The next request; messages without a response are collected."""
        while True:
            try:
                message = self.wire.receive()
            except Closed:
                raise AssertionError(f"the host has ended: {self.error!r}") from self.error
            if message["k"] == "print":
                self.printed += message["text"]
            elif message["k"] == "warn":
                self.warned.append(message["text"])
            else:
                assert not kinds or message["k"] in kinds, message
                return message

    def request(self, message: dict[str, Any], *kinds: str) -> dict[str, Any]:
        """Sends a request; answers the host's requests from `answers`, a value or a function by kind."""
        self.send(message)
        while True:
            reply = self.receive()
            answer = self.answers.get(reply["k"])
            if answer is None or reply["k"] in kinds:
                return reply
            self.asked.append(reply)
            self.send(answer(reply) if callable(answer) else answer)

    def call(self, position: int, *arguments: Any, **more: Any) -> dict[str, Any]:
        message = {
            "k": "call",
            "p": position,
            "a": list(arguments),
            "ns": "__config__",
            "at": ["/p/main.cf", 3],
            **more,
        }
        return self.request(message, "result", "results", "unset", "unknown", "optional", "error")

    def close(self) -> None:
        self.wire.close()
        if self.thread is not None:
            self.thread.join(10)
        for module in self.modules:
            package = module["package"]
            for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
                del sys.modules[name]
        shutil.rmtree(self.directory, ignore_errors=True)
        assert self.error is None, self.error
