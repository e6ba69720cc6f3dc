"""Fixtures of the tests of the role `compile`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compiling.fake_core import FakeCore
from inmanta import references, resources
from inmanta.compiler import Finalizers
from inmanta.export import Exporter
from inmanta.plugins import PluginMeta


@pytest.fixture
def core(tmp_path: Path) -> Iterator[FakeCore]:
    """A core, without registrations of other tests."""
    PluginMeta.clear()
    resources.resource.reset()
    Exporter.clear()
    Finalizers.reset_finalizers()
    known = dict(references.reference.get_references())
    core = FakeCore(tmp_path)
    yield core
    core.close()
    for name in set(dict(references.reference.get_references())) - set(known):
        del references.reference._reference_classes[name]
