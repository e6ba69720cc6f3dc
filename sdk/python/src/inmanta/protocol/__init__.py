"""Clients of the orchestrator's API."""

from __future__ import annotations

from inmanta.protocol.common import Result
from inmanta.protocol.endpoints import Client, SyncClient

__all__ = ["Client", "Result", "SyncClient"]
