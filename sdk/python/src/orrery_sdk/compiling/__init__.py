"""The role `compile`: runs plugins, serializers and whatever else code of modules does to a model."""

from orrery_sdk.compiling.host import CompileHost

__all__ = ["CompileHost"]
