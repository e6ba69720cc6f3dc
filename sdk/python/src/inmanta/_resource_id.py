"""Ids of resources; modules import the class from `inmanta.resources`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from inmanta.types import ResourceIdStr, ResourceVersionIdStr

if TYPE_CHECKING:
    from inmanta.resources import Resource

_ID_PATTERN = re.compile(
    r"(?P<type>[\w-]+(?:::[\w-]+)+)\[(?P<agent>[^,]+),(?P<attribute>[^=]+)=(?P<value>[^\]]+)\](?:,v=(?P<version>\d+))?$"
)

# Values of resources that no Python class defines, such as commands, may have brackets.
_REQUIREMENT_PATTERN = re.compile(
    r"(?P<type>[\w-]+(?:::[\w-]+)+)\[(?P<agent>[^,]+),(?P<attribute>[^=]+)=(?P<value>.+)\](?:,v=(?P<version>\d+))?\Z",
    re.DOTALL,
)


class Id:
    """The id of a resource: `Type[agent,attribute=value]`, optionally with a version."""

    __module__ = "inmanta.resources"

    __slots__ = ("_agent_name", "_attribute", "_attribute_value", "_entity_type", "_version")

    def __init__(
        self, entity_type: str, agent_name: str, attribute: str, attribute_value: str, version: int = 0
    ) -> None:
        if "," in agent_name:
            raise ValueError(f"Invalid agent name '{agent_name}': cannot contain ','.")
        for character in ",=":
            if character in attribute:
                raise ValueError(f"Invalid attribute name '{attribute}': cannot contain '{character}'.")
        if "]" in attribute_value:
            raise ValueError(f"Invalid attribute value '{attribute_value}': cannot contain ']'.")
        self._entity_type = entity_type
        self._agent_name = agent_name
        self._attribute = attribute
        self._attribute_value = attribute_value
        self._version = version

    @property
    def entity_type(self) -> str:
        """The full name of the entity."""
        return self._entity_type

    @property
    def agent_name(self) -> str:
        """The agent that deploys it."""
        return self._agent_name

    @property
    def attribute(self) -> str:
        """The name of the identifying attribute."""
        return self._attribute

    @property
    def attribute_value(self) -> str:
        """The value of the identifying attribute."""
        return self._attribute_value

    @property
    def version(self) -> int:
        """The version, 0 if there is none."""
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        self.set_version(version)

    def get_entity_type(self) -> str:
        """The full name of the entity."""
        return self._entity_type

    def get_agent_name(self) -> str:
        """The agent that deploys it."""
        return self._agent_name

    def get_attribute(self) -> str:
        """The name of the identifying attribute."""
        return self._attribute

    def get_attribute_value(self) -> str:
        """The value of the identifying attribute."""
        return self._attribute_value

    def get_version(self) -> int:
        """The version, 0 if there is none."""
        return self._version

    def get_inmanta_module(self) -> str:
        """The module that the entity is defined in."""
        return self._entity_type.split("::", 1)[0]

    def set_version(self, version: int) -> None:
        """Sets the version, once."""
        if self._version > 0 and version != self._version:
            raise AttributeError("can't set attribute version")
        self._version = version

    def copy(self, *, version: int) -> Id:
        """The same id with another version."""
        return Id(self._entity_type, self._agent_name, self._attribute, self._attribute_value, version)

    def resource_str(self) -> ResourceIdStr:
        """The text without version."""
        return ResourceIdStr(
            f"{self._entity_type}[{self._agent_name},{self._attribute}={self._attribute_value}]"
        )

    def resource_version_str(self) -> ResourceVersionIdStr:
        """The text with version."""
        return ResourceVersionIdStr(f"{self.resource_str()},v={self._version}")

    def is_resource_version_id_obj(self) -> bool:
        """True if it has a version."""
        return self._version != 0

    def to_dict(self) -> dict[str, Any]:
        """Its parts."""
        return {
            "entity_type": self._entity_type,
            "agent_name": self._agent_name,
            "attribute": self._attribute,
            "attribute_value": self._attribute_value,
            "version": self._version,
        }

    def get_instance(self) -> Resource | None:
        """An empty resource of this id; None if no class is registered for it."""
        from inmanta.resources import resource

        cls, _options = resource.get_class(self._entity_type)
        return None if cls is None else cls(self)

    @classmethod
    def parse_id(cls, resource_id: str, version: int | None = None) -> Id:
        """Reads an id with or without version."""
        match = _ID_PATTERN.match(resource_id)
        if match is None:
            raise ValueError(f"Invalid id for resource {resource_id}")
        if version is None:
            version = int(match["version"] or 0)
        return cls(match["type"], match["agent"], match["attribute"], match["value"], version)

    @classmethod
    def _parse_requirement(cls, resource_id: str) -> Id:
        """Reads the id of a requirement, whose type may have no class in Python."""
        try:
            return cls.parse_id(resource_id)
        except ValueError:
            match = _REQUIREMENT_PATTERN.match(resource_id)
            if match is None:
                raise
        parsed = cls(match["type"], match["agent"], match["attribute"], "", int(match["version"] or 0))
        parsed._attribute_value = match["value"]
        return parsed

    @classmethod
    def parse_resource_version_id(cls, resource_id: str) -> Id:
        """Reads an id, which must have a version."""
        parsed = cls.parse_id(resource_id)
        if parsed.version == 0:
            raise ValueError(f"Version is missing from resource id: {resource_id}")
        return parsed

    @classmethod
    def is_resource_id(cls, value: str) -> bool:
        """True if a text is an id, with or without version."""
        return _ID_PATTERN.match(value) is not None

    @classmethod
    def is_resource_version_id(cls, value: str) -> bool:
        """True if a text is an id with version."""
        match = _ID_PATTERN.match(value)
        return match is not None and match["version"] is not None

    @classmethod
    def set_version_in_id(cls, id_str: str, new_version: int) -> ResourceVersionIdStr:
        """The text of an id with that version."""
        return cls.parse_id(id_str).copy(version=new_version).resource_version_str()

    def __str__(self) -> str:
        return self.resource_version_str() if self._version > 0 else self.resource_str()

    def __repr__(self) -> str:
        return str(self)

    def __hash__(self) -> int:
        return hash(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Id) and str(self) == str(other)
