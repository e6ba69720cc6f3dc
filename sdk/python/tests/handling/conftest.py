"""Shared fixtures: registries that are empty at the start of each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import inmanta
from inmanta import references, resources
from inmanta.agent.handler import Commander
from inmanta.config import Config


@pytest.fixture(autouse=True)
def clean_registries() -> Iterator[None]:
    resources.resource.reset()
    references.reference.reset()
    references.mutator.reset()
    Commander.reset()
    Config._reset()
    inmanta.RUNNING_TESTS = False
    yield
    inmanta.RUNNING_TESTS = False
