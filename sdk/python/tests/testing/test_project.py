"""The fixture `project`, with a fake compiler for one model."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inmanta import ast, const
from orrery_sdk.testing.core import CoreDied, CoreNotFound
from orrery_sdk.testing.project import Project

HERE = Path(__file__).parent
SOURCES = HERE.parent.parent / "src"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    binary = tmp_path / "orrery"
    binary.write_text(
        f'#!/bin/sh\nexec env PYTHONPATH={SOURCES} {sys.executable} {HERE / "fake_orrery.py"} "$@"\n'
    )
    binary.chmod(0o755)
    monkeypatch.setenv("ORRERY_BIN", str(binary))
    project = Project(str(tmp_path / "project"))
    yield project
    project.clean()


def test_a_model_is_compiled_and_deployed(project: Project) -> None:
    before = os.getcwd()
    project.compile("# ok\n")
    assert os.getcwd() == before
    assert project.get_stdout() == "printed\n"
    assert sorted(str(one) for one in project.resources) == [
        "unittest::Resource[a,name=a]",
        "unittest::Resource[b,name=b]",
    ]
    assert project.get_resource("unittest::Resource", name="nope") is None
    b = project.get_resource("unittest::Resource", name="b")
    assert b is not None and b.model.name == "b"
    assert {str(one) for one in b.requires} == {"unittest::Resource[a,name=a]"}
    assert list(project.dryrun_resource("unittest::Resource", name="a")) == ["purged"]
    project.deploy_resource("unittest::Resource", name="a", change=const.Change.created)
    assert not project.dryrun_resource("unittest::Resource", name="a")
    result = project.deploy_all()
    assert [str(one) for one in result.results] == [
        "unittest::Resource[a,name=a]",
        "unittest::Resource[b,name=b]",
    ]
    result.assert_all()
    project.dryrun_all().assert_has_no_changes()
    with pytest.raises(AssertionError, match=r"is ResourceState.deployed, not ResourceState.failed"):
        project.deploy_resource("unittest::Resource", name="a", status=const.ResourceState.failed)


def test_the_model_can_be_looked_at(project: Project) -> None:
    project.compile("# ok\n")
    assert [one.name for one in project.get_instances("unittest::Resource")] == ["a", "b"]
    assert project.get_instances("unittest::Nope") == []
    scope = project._root_scope.get_child("__config__")
    assert scope.lookup("x").value == 5
    with pytest.raises(ast.NotFoundException):
        scope.lookup("y")


def test_lines_of_a_log(project: Project) -> None:
    project.compile("# ok\n")
    result = project.deploy_resource_v2("unittest::Resource", name="a")
    assert result.assert_has_logline("Calling .*resource")
    with pytest.raises(AssertionError, match="no line has"):
        result.assert_has_logline("never said")


def test_errors_of_the_model(project: Project) -> None:
    with pytest.raises(ast.DoubleSetException, match="old value: 1") as found:
        project.compile("# error\n")
    assert found.value.get_message() == "value set twice"
    assert str(found.value.get_location()) == "./main.cf:2"


def test_errors_of_plugins_have_their_cause(project: Project) -> None:
    project.create_module(
        "unittest",
        initpy="""
from inmanta.plugins import plugin
from inmanta.agent.handler import provider
@plugin
def fail() -> "any":
    raise ValueError("no good")
provider("unittest::Resource")(object)
""",
    )
    with pytest.raises(ast.ExternalException) as found:
        project.compile("# plugin\n")
    assert isinstance(found.value.__cause__, ValueError)
    assert "ValueError: no good" in str(found.value)


def test_a_compiler_that_dies(project: Project) -> None:
    with pytest.raises(CoreDied, match=r"status 3 before it was done:\nout of memory"):
        project.compile("# dies\n")


def test_no_compiler_at_all(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORRERY_BIN")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CoreNotFound, match="ORRERY_BIN"):
        project.compile("# ok\n")


def test_files_of_the_module_for_tests(project: Project) -> None:
    project.add_mock_file("templates", "deep/t.j2", "text")
    place = Path(project._test_project_dir, "libs", "unittest", "templates", "deep", "t.j2")
    assert place.read_text() == "text"
