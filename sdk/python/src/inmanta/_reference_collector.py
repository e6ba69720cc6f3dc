"""Finds the references in the fields of resources; modules import the names from `inmanta.resources`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inmanta import references
from inmanta.execute.util import Unknown
from orrery_sdk import destination

if TYPE_CHECKING:
    from inmanta.resources import Resource


class ReferenceSubCollector:
    """Walks a value and extracts its references."""

    __module__ = "inmanta.resources"

    def __init__(self) -> None:
        self.references: dict[uuid.UUID, references.ReferenceModel] = {}

    def collect_reference(self, value: object) -> None:
        """Records a reference and its dependencies."""
        reference = references.unwrap_reference(value)
        if reference is None:
            return
        model = reference.serialize()
        if model.id in self.references:
            return
        self.references[model.id] = model
        for argument in reference.arguments.values():
            ReferenceSubCollector.collect_references(_Nested(self), argument, "")

    def add_reference(self, path: str, reference: references.Reference[Any]) -> None:
        """Called for each reference with its path."""
        self.collect_reference(reference)

    def collect_references(self, value: object, path: str) -> object:
        """A plain copy of a value, with references replaced by null."""
        if value is None or isinstance(value, str | int | float | bool):
            return value
        reference = references.unwrap_reference(value)
        if reference is not None:
            self.add_reference(path, reference)
            return None
        if isinstance(value, dict | list | tuple):
            return self._collect_items(value, path)
        if isinstance(value, Unknown):
            raise TypeError(f"{value!r} in resource is not JSON serializable at path {path}")
        from inmanta.execute.proxy import DictProxy, DynamicProxy, SequenceProxy

        if isinstance(value, DictProxy | SequenceProxy):
            return self._collect_items(value, path)
        if isinstance(value, DynamicProxy):
            raise TypeError(f"{value!r} in resource is not JSON serializable at path {path}")
        return value

    def _collect_items(self, value: Any, path: str) -> object:
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(
                        f"the key {key!r} of a dict in a resource is not a string, at path {path}"
                    )
            return {
                key: self.collect_references(item, destination.dict_item(path, key))
                for key, item in value.items()
            }
        return [
            self.collect_references(item, destination.list_item(path, position))
            for position, item in enumerate(value)
        ]

    def get_references_sorted(self) -> list[references.ReferenceModel]:
        """The references found, sorted by id."""
        return [self.references[key] for key in sorted(self.references)]


class _Nested(ReferenceSubCollector):
    """Finds references in the arguments of a reference, at any depth."""

    def __init__(self, owner: ReferenceSubCollector) -> None:
        super().__init__()
        self.owner = owner

    def add_reference(self, path: str, reference: references.Reference[Any]) -> None:
        self.owner.collect_reference(reference)


class ReferenceCollector(ReferenceSubCollector):
    """Extracts the references of a resource's fields, and records the destinations of their values."""

    __module__ = "inmanta.resources"

    def __init__(self, resource: Resource) -> None:
        super().__init__()
        self.resource = resource
        self.mutators: list[references.MutatorModel] = []

    def add_reference(self, path: str, reference: references.Reference[Any]) -> None:
        """Records the reference and the destination path of its value."""
        self.collect_reference(reference)
        self.mutators.append(references.ReplaceValue(self.resource, reference, path).serialize())

    def get_mutators_sorted(self) -> list[references.MutatorModel]:
        """The mutators that assign the values, sorted by id."""
        return sorted(self.mutators, key=lambda mutator: mutator.get_id())
