"""Names for loggers of modules."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger(__name__)
