"""The agent, under the name by which older modules import it."""

from __future__ import annotations

from inmanta.agent.executor import AgentInstance

__all__ = ["AgentInstance"]
