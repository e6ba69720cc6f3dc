"""The current project and its modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orrery_sdk.loading import HostedModule


class ProjectNotFoundException(Exception):
    """There is no project."""


class Module:
    """A module with code."""

    def __init__(self, name: str, path: str, version: str | None = None) -> None:
        self.name = name
        self._path = path
        self.version = version

    @property
    def path(self) -> str:
        """The directory of the module."""
        return self._path


class Project:
    """The project of this process."""

    _project: Project | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self.modules: dict[str, Module] = {}

    @property
    def project_path(self) -> str:
        """The directory of the project."""
        return self._path

    @property
    def path(self) -> str:
        """The directory of the project."""
        return self._path

    @classmethod
    def get(cls) -> Project:
        """The project of this process."""
        if cls._project is None:
            raise ProjectNotFoundException("Unable to find an inmanta project (project.yml expected)")
        return cls._project

    @classmethod
    def set(cls, project: Project) -> None:
        """Sets the project of this process."""
        cls._project = project

    @classmethod
    def _install(cls, path: str, modules: Sequence[HostedModule]) -> None:
        project = cls(path)
        project.modules = {item.name: Module(item.name, item.root, item.version) for item in modules}
        cls.set(project)
