"""Options that handlers read."""

from __future__ import annotations

from inmanta.config import Config, Option, environment, state_dir

__all__ = ["Config", "Option", "environment", "state_dir"]
