"""Fake server for tests: facts set by the test, and data from handlers."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

_NOT_FOUND = (404, {"message": "there is no such thing in this test"})


class StandInServer:
    """Answers the calls of modules.

    :param facts: the facts by resource and name.
    """

    def __init__(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        self._facts = facts
        # The discovered resources.
        self.discovered: list[Any] = []
        self.parameters: dict[str, Any] = {}
        self._methods: dict[str, Callable[[dict[str, Any]], tuple[int, Any]]] = {
            "get_param": self._get_param,
            "set_param": self._set_param,
            "delete_param": self._delete_param,
            "list_params": lambda _: (200, {"parameters": [self._shown(name) for name in self.parameters]}),
            "get_facts": self._get_facts,
            "resource_did_dependency_change": lambda _: (200, {"data": False}),
            "discovered_resource_create_batch": self._take_discovered,
            "get_environment": lambda arguments: (
                200,
                {"environment": {"id": arguments.get("id"), "name": "test"}},
            ),
        }

    def call(self, method: str, arguments: dict[str, Any]) -> tuple[int, Any]:
        answer = self._methods.get(method)
        return _NOT_FOUND if answer is None else answer(arguments)

    def _shown(self, name: str) -> dict[str, Any]:
        return {"name": name, "value": self.parameters[name]}

    def _get_param(self, arguments: dict[str, Any]) -> tuple[int, Any]:
        name, resource = str(arguments.get("id")), arguments.get("resource_id")
        known = self._facts.get(str(resource), {}) if resource else self.parameters
        return (200, {"parameter": {"name": name, "value": known[name]}}) if name in known else _NOT_FOUND

    def _set_param(self, arguments: dict[str, Any]) -> tuple[int, Any]:
        self.parameters[str(arguments.get("id"))] = arguments.get("value")
        return 200, self._shown(str(arguments.get("id")))

    def _delete_param(self, arguments: dict[str, Any]) -> tuple[int, Any]:
        self.parameters.pop(str(arguments.get("id")), None)
        return 200, {}

    def _get_facts(self, arguments: dict[str, Any]) -> tuple[int, Any]:
        known = self._facts.get(str(arguments.get("rid")), {})
        facts = [
            {"name": name, "value": value, "resource_id": arguments.get("rid")}
            for name, value in known.items()
        ]
        return 200, {"data": facts}

    def _take_discovered(self, arguments: dict[str, Any]) -> tuple[int, Any]:
        for item in arguments.get("discovered_resources") or ():
            self.discovered.append(types.SimpleNamespace(**item))
        return 200, {}
