"""What tests of modules import to annotate their fixtures, and to hold results."""

from __future__ import annotations

from orrery_sdk.testing.project import Project
from orrery_sdk.testing.results import DeployResult, Result

DeployResultV2 = DeployResult

__all__ = ["DeployResult", "DeployResultV2", "Project", "Result"]
