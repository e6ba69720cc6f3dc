"""Settings of a host from `init`: search path, configuration, project."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from orrery_sdk import files
from orrery_sdk.loading import HostedModule, Problem, install_finder, load_modules


@dataclass
class Session:
    """The contents of `init`."""

    role: str
    project: str
    environment: str | None = None
    data: str | None = None
    files: str | None = None
    fetch: bool = False
    tests: bool = False
    path: list[str] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    modules: list[HostedModule] = field(default_factory=list)

    @classmethod
    def from_init(cls, init: dict[str, Any]) -> Session:
        """Parses the message `init`; missing members have defaults."""
        return cls(
            role=init.get("role", ""),
            project=init.get("project") or ".",
            environment=init.get("environment"),
            data=init.get("data"),
            files=init.get("files"),
            fetch=bool(init.get("fetch", False)),
            tests=bool(init.get("tests", False)),
            path=list(init.get("path") or ()),
            config={key: str(value) for key, value in (init.get("config") or {}).items()},
            modules=[HostedModule.from_message(item) for item in init.get("modules") or ()],
        )

    def install(self) -> None:
        """Applies the settings to the process. No users' code runs yet."""
        import inmanta
        from inmanta.config import Config
        from inmanta.module import Project

        for place in self.path:
            if place not in sys.path:
                sys.path.append(place)
        install_finder(self.modules)
        inmanta.RUNNING_TESTS = self.tests
        Config._reset()
        for name, value in self.config.items():
            section, _, option = name.partition(".")
            Config.set(section, option, value)
        if self.environment is not None:
            Config.set("config", "environment", self.environment)
        files.use_directory(self.files, is_cache=self.fetch)
        Project._install(self.project, self.modules)

    def load(self) -> list[Problem]:
        """Imports the code of all modules, in order; returns the failures."""
        return load_modules(self.modules)
