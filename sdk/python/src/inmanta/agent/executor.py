"""The agent, as seen by its handlers."""

from __future__ import annotations

import abc
import uuid
from typing import Any


class AgentInstance(abc.ABC):
    """The agent that a handler belongs to.

    `environment` is the id of the environment, `name` that of the agent, `uri` the address of its machine, and
    `eventloop` a running event loop.
    """

    eventloop: Any
    environment: uuid.UUID
    name: str
    uri: str

    @abc.abstractmethod
    def is_stopped(self) -> bool:
        """True if the agent is stopping."""
