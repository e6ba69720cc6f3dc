"""Implementation of the `inmanta` package: the host protocol and the two roles of a host process."""

__version__ = "0.1.0"

PROTOCOL_VERSION = 1
