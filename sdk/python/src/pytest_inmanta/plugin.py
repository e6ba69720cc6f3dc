"""Types for annotations and results in module tests."""

from __future__ import annotations

from orrery_sdk.testing.project import Project
from orrery_sdk.testing.results import DeployResult, Result

DeployResultV2 = DeployResult

__all__ = ["DeployResult", "DeployResultV2", "Project", "Result"]
