"""The agent, under its import path in older modules."""

from __future__ import annotations

from inmanta.agent.executor import AgentInstance

__all__ = ["AgentInstance"]
