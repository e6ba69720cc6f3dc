"""The agent as its handlers see it."""

from __future__ import annotations

import abc
import uuid
from typing import Any


class AgentInstance(abc.ABC):
    """Who a handler works for.

    `environment` is the id of the environment, `name` that of the agent, `uri` where its machine is, and
    `eventloop` a loop that runs, for code that wants one.
    """

    eventloop: Any
    environment: uuid.UUID
    name: str
    uri: str

    @abc.abstractmethod
    def is_stopped(self) -> bool:
        """Whether the agent is about to go."""
