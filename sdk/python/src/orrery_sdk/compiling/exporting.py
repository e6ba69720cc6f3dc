"""The export: fields and requirements of resources that module code computes."""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Any

from inmanta.ast import CompilerException, ExplicitPluginException, ExternalException, UnknownException
from inmanta.compiler import Finalizers
from inmanta.execute.proxy import DynamicProxy
from inmanta.execute.util import NoneValue, Unknown
from inmanta.export import ResourceDict, unknown_parameters
from inmanta.references import Reference
from inmanta.resources import (
    Id,
    IgnoreResourceException,
    ReferenceCollector,
    ReferenceSubCollector,
    Resource,
    ResourceException,
)
from inmanta.resources import resource as registered
from inmanta.util import internal_json_encoder
from orrery_sdk.compiling import failures
from orrery_sdk.compiling.manifest import ResourceClass
from orrery_sdk.wire import Closed, Message, WireError

if TYPE_CHECKING:
    from orrery_sdk.compiling.host import CompileHost

LOGGER = logging.getLogger(__name__)


class _Collector(ReferenceCollector):
    """Extracts references from fields. The resource, which only mutators need, is created lazily."""

    def __init__(self, found: ResourceClass, proxy: DynamicProxy) -> None:
        ReferenceSubCollector.__init__(self)
        self.mutators = []
        self._found = found
        self._proxy = proxy
        self._resource: Resource | None = None

    @property
    def resource(self) -> Resource:  # type: ignore[override]
        if self._resource is None:
            found = self._found
            identifier = found.cls.object_to_id(self._proxy, found.entity, found.id, found.agent)
            self._resource = found.cls(identifier)
        return self._resource


class Exporting:
    """Answers the requests of the export."""

    def __init__(self, host: CompileHost) -> None:
        self._host = host
        # The received part of a list that is sent in several messages.
        self._listed: list[list[Any]] = []

    def serialize(self, message: Message) -> Message:
        return {"k": "serialized", "r": [self._resource(item) for item in message.get("r") or ()]}

    def _class(self, position: Any) -> ResourceClass:
        try:
            return self._host.manifest.resources[position]
        except (IndexError, TypeError):
            raise WireError(f"there is no resource class {position!r}") from None

    def _resource(self, item: list[Any]) -> dict[str, Any]:
        found = self._class(item[0])
        instance = self._host.instance(item[1])
        wants_id = len(item) > 3 and bool(item[3])
        proxy = DynamicProxy.return_value(instance)
        field: str | None = None
        try:
            answer: dict[str, Any] = {"fields": {}}
            if wants_id:
                answer["id"] = self._identify(found, proxy)
            collector = _Collector(found, proxy)
            for field in item[2]:
                value = found.cls.map_field(self._host.exporter, found.entity, field, proxy, collector)
                if isinstance(value, Unknown):
                    answer.setdefault("unknown", {})[field] = self._host.values.encode(value)
                else:
                    answer["fields"][field] = plain_json(value, field)
            field = None
            references = [model.to_json() for model in collector.get_references_sorted()]
            if references:
                answer["references"] = references
                answer["mutators"] = [model.to_json() for model in collector.get_mutators_sorted()]
            return answer
        except IgnoreResourceException as error:
            return {"ignored": str(error)}
        except UnknownException:
            return {"dropped": True}
        except (Closed, WireError, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._host.raised.append(error)
            return {"error": _field_error(error, field)}

    def _identify(self, found: ResourceClass, proxy: DynamicProxy) -> str:
        """The text of the identifying attribute. Raises UnknownException if it is unknown."""
        value = found.cls.map_field(None, found.entity, found.id, proxy)
        if isinstance(value, Unknown):
            raise UnknownException(value)
        if isinstance(value, Reference):
            raise ResourceException(
                "Encountered reference in resource's id attribute. Id attribute values can not be references. "
                f"Encountered at attribute '{found.id}' of resource instance {proxy}"
            )
        # The rules for ids are those of the class.
        return Id(found.entity, "agent", found.id, str(value)).attribute_value

    # Requirements

    def requires(self, message: Message) -> Message | None:
        self._listed += message.get("r") or []
        if message.get("more"):
            return None
        listed, self._listed = self._listed, []
        exporter = self._host.exporter
        try:
            resources = self._resources(listed)
            before = [{str(entry) for entry in resource.requires} for resource in resources]
            by_id: ResourceDict = {resource.id: resource for resource in resources}
            exporter.resources = by_id
            exporter.run_dependency_managers(self._host.manifest.managers, self._host.all_types(), by_id)
            after = [_required(resource) for resource in resources]
        except (Closed, WireError, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._host.raised.append(error)
            return {"k": "required", "r": [], "error": failures.describe(error)}
        changed = [[position, ids] for position, ids in enumerate(after) if set(ids) != before[position]]
        return {"k": "required", "r": changed, "error": None}

    def _resources(self, items: list[list[Any]]) -> list[Resource]:
        made: list[Resource] = []
        for position, number, fields, _ in items:
            identifier = Id.parse_id(fields["id"])
            # Native resources of the core have no class in the manifest.
            known = (
                registered.get_class(identifier.entity_type)[0]
                if position is None
                else self._class(position).cls
            )
            resource = (known or Resource)(identifier)
            # Plain values without unknowns need no check.
            if known is None:
                others = ("id", "requires")
                vars(resource).update((name, value) for name, value in fields.items() if name not in others)
            else:
                declared = known.fields
                vars(resource).update((name, fields[name]) for name in declared if name in fields)
            resource.model = DynamicProxy.return_value(self._host.instance(number))
            made.append(resource)
        for resource, (_, _, _, wanted) in zip(made, items, strict=True):
            resource.resource_requires = {made[position] for position in wanted}
            resource.requires = {made[position].id for position in wanted}
        return made

    # The rest

    def exporters(self, message: Message) -> Message:
        exporter = self._host.exporter
        exporter.types = self._host.all_types()
        exporter.scopes = self._host.types.root
        for name in message.get("names") or ():
            try:
                exporter.run_export_plugin(name)
            except (Closed, WireError, KeyboardInterrupt):
                raise
            except BaseException as error:
                return {"k": "exported", "error": {"name": name, **failures.describe(error)}}
        return {"k": "exported", "error": None}

    def finalize(self, message: Message) -> Message:
        errors = [str(error) for error in Finalizers.run(self._host.manifest.finalizers)]
        unknowns = [
            {
                "resource": str(item.get("resource", "")),
                "parameter": str(item.get("parameter", "")),
                "source": str(getattr(item.get("source"), "value", item.get("source", ""))),
            }
            for item in unknown_parameters
        ]
        return {"k": "finalized", "errors": errors, "unknowns": unknowns}


def _field_error(error: BaseException, field: str | None) -> dict[str, Any]:
    """The error of a field, reduced to its cause for the core."""
    cause = error.__cause__
    if isinstance(error, (ExternalException, ExplicitPluginException)) and cause is not None:
        return {"field": _named_field(error, field), **failures.describe(cause)}
    if isinstance(error, CompilerException):
        return {"field": None, **failures.describe(error)}
    return {"field": field, **failures.describe(error)}


def _named_field(error: CompilerException, field: str | None) -> str | None:
    if field is not None:
        return field
    # It is the identifying attribute, which is not among the requested fields.
    parts = error.msg.split("'")
    return parts[1] if len(parts) > 1 else None


def _required(resource: Resource) -> list[str]:
    ids: dict[str, None] = {}
    for entry in resource.requires:
        if isinstance(entry, Resource):
            ids[entry.id.resource_str()] = None
        elif isinstance(entry, Id):
            ids[entry.resource_str()] = None
        elif isinstance(entry, str):
            ids[Id.parse_id(entry).resource_str()] = None
        else:
            raise Exception(
                f"A dependency manager inserted the object {entry!r} of type {type(entry)} into a requires relation. "
                "However, only string, Resource or Id are allowable types "
            )
    return sorted(ids)


def plain_json(value: Any, path: str) -> Any:
    """The JSON form of a field. Raises TypeError if it has none."""
    kind = type(value)
    if value is None or kind in (str, int, bool):
        return value
    if kind is float:
        if not math.isfinite(value):
            raise ValueError(f"{value} in resource is not JSON serializable at path {path}")
        return value
    if isinstance(value, NoneValue):
        return None
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (list, tuple)):
        return [plain_json(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {str(key): plain_json(item, f"{path}.{key}") for key, item in value.items()}
    return json.loads(json.dumps(value, default=internal_json_encoder, allow_nan=False))
