"""The pytest plugin with the fixture `project` for module tests.

The program `orrery` is searched in PATH, or ORRERY_BIN has its path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from orrery_sdk.testing.project import Project

# Options of module test suites, accepted without effect.
_ACCEPTED = (
    "--use-module-in-place",
    "--no-load-plugins",
    "--no-strict-deps-check",
    "--pip-pre",
)
_ACCEPTED_WITH_VALUE = ("--venv", "--module_repo", "--install_mode", "--pip-index-url")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("orrery", "testing modules with orrery")
    for name in _ACCEPTED:
        _accept(group, name, action="store_true", default=False)
    for name in _ACCEPTED_WITH_VALUE:
        _accept(group, name, action="append", default=[])


def _accept(group: Any, name: str, **how: Any) -> None:
    try:
        group.addoption(name, help="accepted, without effect", **how)
    except ValueError:
        # Another plugin defines this option.
        pass


@pytest.fixture
def project_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Project]]:
    """Creates projects."""
    import inmanta
    from orrery_sdk.testing.project import Project

    before = inmanta.RUNNING_TESTS
    inmanta.RUNNING_TESTS = True
    made: list[Project] = []

    def make() -> Project:
        made.append(Project(str(tmp_path_factory.mktemp("project"))))
        return made[-1]

    yield make
    for project in made:
        project.clean()
    inmanta.RUNNING_TESTS = before


@pytest.fixture
def project(project_factory: Callable[[], Project]) -> Project:
    """A project for one test, with only the module `unittest`."""
    return project_factory()


@pytest.fixture
def project_no_plugins(project_factory: Callable[[], Project]) -> Project:
    """The same as `project`: code is loaded on demand."""
    return project_factory()


@pytest.fixture
def inmanta_state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A directory for the state of agents."""
    from inmanta.config import Config

    directory = tmp_path / "state"
    directory.mkdir()
    Config.set("config", "state-dir", str(directory))
    return str(directory)


@pytest.fixture
def set_cwd(project: Project) -> Iterator[None]:
    """The test runs in the directory of its project."""
    before = os.getcwd()
    os.chdir(project._test_project_dir)
    yield
    os.chdir(before)
