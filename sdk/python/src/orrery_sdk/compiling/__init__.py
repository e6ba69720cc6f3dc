"""The role `compile`: runs plugins, serializers and other hooks of module code."""

from orrery_sdk.compiling.host import CompileHost

__all__ = ["CompileHost"]
