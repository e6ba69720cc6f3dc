"""Resources: their export from instances, their ids, and their deserialization by an executor."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from inmanta import const, references
from inmanta._reference_collector import ReferenceCollector, ReferenceSubCollector
from inmanta._resource_id import Id
from inmanta.execute.util import Unknown

if TYPE_CHECKING:
    from inmanta.agent.handler import LoggerABC
    from inmanta.execute.proxy import DynamicProxy
    from inmanta.export import Exporter

__all__ = [
    "DiscoveryResource",
    "HostNotFoundException",
    "Id",
    "IgnoreResourceException",
    "ManagedResource",
    "PurgeableResource",
    "ReferenceCollector",
    "ReferenceSubCollector",
    "Resource",
    "ResourceException",
    "ResourceNotFoundExcpetion",
    "resource",
    "to_id",
]

LOGGER = logging.getLogger(__name__)

_R = TypeVar("_R", bound="Resource")
_T = TypeVar("_T")

RESERVED_FOR_RESOURCE = frozenset(
    {"id", "version", "model", "requires", "unknowns", "set_version", "clone", "is_type", "serialize"}
)


class ResourceException(Exception):
    """An invalid resource class or resource."""


class ResourceNotFoundExcpetion(Exception):
    """There is no such resource. The name is spelled as modules import it."""


class IgnoreResourceException(Exception):
    """Raised by a serializer to exclude an instance from the export."""


class HostNotFoundException(Exception):
    """The machine of a handler is unreachable."""

    def __init__(self, hostname: str, user: str, error: str) -> None:
        super().__init__(f"Failed to access host {hostname} as user {user} over ssh.")
        self.hostname = hostname
        self.user = user
        self.error = error


class resource:
    """Registers a resource class for an entity.

    :param name: the full name of the entity.
    :param id_attribute: the field that identifies a resource among those of its type and agent.
    :param agent: the path of attributes that leads to the name of the agent.
    """

    _resources: dict[str, tuple[type[Resource], dict[str, str]]] = {}

    def __init__(self, name: str, id_attribute: str, agent: str) -> None:
        if not isinstance(agent, str):
            raise ResourceException(
                f"The agent parameter has to be a string, got {agent} of type {type(agent)}"
            )
        self._cls_name = name
        self._options = {"agent": agent, "name": id_attribute}

    def __call__(self, cls: type[_T]) -> type[_T]:
        resource.add_resource(self._cls_name, cls, self._options)  # type: ignore[arg-type]
        return cls

    @classmethod
    def add_resource(cls, cls_name: str, resource_type: type[Resource], options: dict[str, str]) -> None:
        """Registers a class; a later one replaces an earlier one."""
        if cls_name in cls._resources:
            LOGGER.info("Reregistering model entity %s", cls_name)
        cls._resources[cls_name] = (resource_type, options)

    @classmethod
    def validate(cls) -> None:
        """Raises if a registered class is invalid."""
        for resource_type, _options in cls._resources.values():
            cls.validate_class(resource_type)

    @classmethod
    def validate_class(cls, resource_type: type[Any]) -> None:
        """Raises if this class is invalid."""
        if issubclass(resource_type, resource):
            from inmanta.ast import RuntimeException

            raise RuntimeException(
                None,
                f"Resource {resource_type.__module__}.{resource_type.__qualname__} is inheriting from the"
                " inmanta.resources.resource decorator. Did you intend to inherit from inmanta.resources.Resource"
                " instead?",
            )
        resource_type.validate()

    @classmethod
    def get_entity_resources(cls) -> Iterable[str]:
        """The entities that have a class."""
        return cls._resources.keys()

    @classmethod
    def get_class(cls, name: str) -> tuple[type[Resource] | None, dict[str, str] | None]:
        """The class of an entity and its options; a pair of None if it has none."""
        return cls._resources.get(name, (None, None))

    @classmethod
    def get_resources(cls) -> Iterator[tuple[str, type[Resource]]]:
        """Entities and their classes."""
        return ((name, found) for name, (found, _options) in cls._resources.items())

    @classmethod
    def reset(cls) -> None:
        """Removes all classes."""
        cls._resources = {}


class ResourceMeta(type):
    """Merges `fields` of a class with those of its bases."""

    def __new__(mcs, class_name: str, bases: tuple[type, ...], dct: dict[str, Any]) -> type:
        own = dct.get("fields", ())
        if not isinstance(own, tuple | list):
            raise Exception(f"fields attribute of {class_name} should be a tuple or list")
        merged = [*mcs._get_parent_fields(bases), *own]
        # The order is deterministic: a field has the position of its first declaration.
        dct["fields"] = tuple(dict.fromkeys(merged))
        return super().__new__(mcs, class_name, bases, dct)

    @classmethod
    def _get_parent_fields(mcs, bases: Sequence[type]) -> list[str]:
        merged: list[str] = []
        for base in bases:
            merged.extend(mcs._get_parent_fields(base.__bases__))
            merged.extend(getattr(base, "fields", ()))
        return merged


class Resource(metaclass=ResourceMeta):
    """A resource: its id and its fields. Subclasses list their fields in `fields`."""

    fields: Sequence[str] = (
        const.RESOURCE_ATTRIBUTE_SEND_EVENTS,
        const.RESOURCE_ATTRIBUTE_RECEIVE_EVENTS,
        const.RESOURCE_ATTRIBUTE_REFERENCES,
        const.RESOURCE_ATTRIBUTE_MUTATORS,
        const.RESOURCE_ATTRIBUTE_REPORT_ONLY,
    )
    send_event: bool
    model: DynamicProxy
    map: dict[str, Any]

    # Defaults of fields that older exports lack.
    _FIELD_DEFAULTS = {"receive_events": True, "report_only": False, "references": (), "mutators": ()}

    def __init__(self, _id: Id) -> None:
        self.id = _id
        self.requires: set[Id] = set()
        self.resource_requires: set[Resource] = set()
        self.unknowns: set[str] = set()
        for field in type(self).fields:
            object.__setattr__(self, field, None)
        # Shared with clones: a value is resolved once.
        self._reference_models: dict[uuid.UUID, references.ReferenceModel] | None = None
        self._reference_values: dict[uuid.UUID, object] = {}
        self._resolving: list[uuid.UUID] = []
        self._resolved = False

    # The fields that need not be attributes of the entity.

    @staticmethod
    def get_send_event(_exporter: Exporter, obj: Any) -> bool:
        """True if dependents reload when this changes; default: false."""
        return _optional(obj, "send_event", False)

    @staticmethod
    def get_receive_events(_exporter: Exporter, obj: Any) -> bool:
        """True if this reloads when its requirements change; default: true."""
        return _optional(obj, "receive_events", True)

    @staticmethod
    def get_report_only(_exporter: Exporter, obj: Any) -> bool:
        """True if differences are only reported; default: false."""
        return _optional(obj, "report_only", False)

    @staticmethod
    def get_references(_exporter: Exporter, instance: Any) -> Sequence[Any]:
        """Filled in when all other fields are known."""
        return []

    @staticmethod
    def get_mutators(_exporter: Exporter, instance: Any) -> Sequence[Any]:
        """Filled in when all other fields are known."""
        return []

    @classmethod
    def validate(cls) -> None:
        """Raises if a field has an invalid name."""
        for field in cls.fields:
            if field.startswith("_"):
                raise ResourceException(
                    f"Resource field names can not start with _, reported in {cls.__name__}"
                )
            if field in RESERVED_FOR_RESOURCE:
                raise ResourceException(
                    f"Resource {field} is a reserved keyword and not a valid field name, reported in {cls.__name__}"
                )

    # From the model.

    @classmethod
    def map_field(
        cls,
        exporter: Exporter | None,
        entity_name: str,
        field_name: str,
        model_object: DynamicProxy,
        reference_collector: ReferenceCollector | None = None,
    ) -> object:
        """The value of a field: of its getter, of its entry in `map`, or of the attribute of that name.

        An unknown is returned unchanged. Errors name the field and the entity.
        """
        from inmanta import ast
        from inmanta.execute.proxy import exportcontext

        locatable = model_object._get_instance() if hasattr(model_object, "_get_instance") else None
        message = f"Failed to get attribute '{field_name}' for export on '{entity_name}'"
        try:
            with exportcontext:
                if hasattr(cls, "get_" + field_name):
                    value = getattr(cls, "get_" + field_name)(exporter, model_object)
                elif hasattr(cls, "map") and field_name in cls.map:
                    value = cls.map[field_name](exporter, model_object)
                else:
                    value = getattr(model_object, field_name)
                if isinstance(value, Unknown):
                    return value
                if reference_collector is not None:
                    value = reference_collector.collect_references(value, field_name)
                return value
        except IgnoreResourceException:
            raise
        except ast.UnknownException as error:
            return error.unknown
        except ast.PluginException as error:
            raise ast.ExplicitPluginException(locatable, message, error) from error
        except ast.CompilerException:
            raise
        except Exception as error:
            raise ast.ExternalException(locatable, message, error) from error

    @classmethod
    def object_to_id(
        cls, model_object: DynamicProxy, entity_name: str, attribute_name: str, agent_attribute: str
    ) -> Id:
        """The id of the resource of an instance. Raises UnknownException if it depends on an unknown."""
        from inmanta.ast import UnknownException

        agent = cls._orrery_agent_of(model_object, entity_name, agent_attribute)
        value = cls.map_field(None, entity_name, attribute_name, model_object)
        if isinstance(value, Unknown):
            raise UnknownException(value)
        if references.unwrap_reference(value) is not None:
            raise ResourceException(
                f"Encountered reference in resource's id attribute: {value!r}. The id attribute '{attribute_name}' of"
                f" {entity_name} can not be a reference"
            )
        return Id(entity_name, agent, attribute_name, str(value))

    @classmethod
    def _orrery_agent_of(cls, model_object: DynamicProxy, entity_name: str, agent_attribute: str) -> str:
        from inmanta import ast
        from inmanta.execute.proxy import exportcontext

        value: Any = model_object
        for element in agent_attribute.split("."):
            try:
                if not isinstance(value, str) and _is_list(value):
                    value = value[0]
                with exportcontext:
                    value = getattr(value, element)
            except (ast.UnknownException, ast.UnsetException, ast.MultiUnsetException, ResourceException):
                raise
            except Exception as error:
                raise Exception(
                    f"Unable to get the name of agent {model_object} belongs to. In path {agent_attribute},"
                    f" '{element}' does not exist"
                ) from error
            if isinstance(value, Unknown):
                raise ast.UnknownException(value)
            if references.unwrap_reference(value) is not None:
                raise ResourceException(
                    f"Encountered reference in resource's agent attribute: {value!r}. The agent path"
                    f" '{agent_attribute}' of {entity_name} can not lead through references"
                )
        if not isinstance(value, str):
            raise ResourceException(
                f"The agent attribute should lead to a string, got {value} of type {type(value)}"
            )
        return value

    @classmethod
    def create_from_model(cls, exporter: Exporter, entity_name: str, model_object: DynamicProxy) -> Resource:
        """The resource of an instance. Raises exceptions of serializers, and UnknownException for an unknown id."""
        resource_cls, options = resource.get_class(entity_name)
        if resource_cls is None or options is None:
            raise TypeError(f"No resource class registered for entity {entity_name}")
        identifier = resource_cls.object_to_id(model_object, entity_name, options["name"], options["agent"])
        created = resource_cls(identifier)
        collector = ReferenceCollector(created)
        for field in resource_cls.fields:
            if field not in (const.RESOURCE_ATTRIBUTE_REFERENCES, const.RESOURCE_ATTRIBUTE_MUTATORS):
                setattr(
                    created,
                    field,
                    resource_cls.map_field(exporter, entity_name, field, model_object, collector),
                )
        created.references = [model.to_json() for model in collector.get_references_sorted()]
        created.mutators = [model.to_json() for model in collector.get_mutators_sorted()]
        created.model = model_object
        return created

    def is_type(self, type_name: str) -> bool:
        """True if the instance behind this has that type."""
        return str(self.model._type()) == type_name or self.model._type().get_full_name() == type_name

    # From and to JSON.

    @classmethod
    def deserialize(cls, obj_map: Mapping[str, Any]) -> Resource:
        """Creates a resource from its exported form, with the class registered for its type."""
        identifier = Id.parse_id(obj_map["id"])
        resource_cls, _options = resource.get_class(identifier.entity_type)
        if resource_cls is None:
            raise TypeError(f"No resource class registered for entity {identifier.entity_type}")
        created = resource_cls(identifier)
        created.populate(dict(obj_map), force_fields=True)
        created.requires = {
            entry if isinstance(entry, Id) else Id._parse_requirement(entry)
            for entry in obj_map.get("requires", ())
        }
        return created

    def populate(self, fields: dict[str, object], force_fields: bool = False) -> None:
        """Sets the values of fields.

        :param force_fields: whether each declared field is required.
        """
        for field in type(self).fields:
            if field in fields:
                setattr(self, field, fields[field])
            elif field in self._FIELD_DEFAULTS:
                default = self._FIELD_DEFAULTS[field]
                setattr(self, field, list(default) if isinstance(default, tuple) else default)
            elif force_fields:
                raise Exception(f"Resource with id {self.id} does not have field {field}")

    def serialize(self) -> dict[str, Any]:
        """All fields, `requires` and `id`."""
        plain: dict[str, Any] = {field: getattr(self, field) for field in type(self).fields}
        plain["requires"] = [str(entry) for entry in self.requires]
        plain["id"] = self.id.resource_version_str()
        return plain

    def clone(self: _R, **kwargs: Any) -> _R:
        """A copy with other values for some attributes. Values of references are not resolved again."""
        cloned = Resource.deserialize(_copy(self.serialize()))
        for name, value in kwargs.items():
            setattr(cloned, name, value)
        cloned._reference_models = self._reference_models
        cloned._reference_values = self._reference_values
        cloned._resolved = self._resolved
        return cloned  # type: ignore[return-value]

    # References, on the executor.

    def get_reference_value(self, id: uuid.UUID, logger: LoggerABC) -> Any:
        """The value of the reference with this id, resolved once."""
        if id in self._reference_values:
            return self._reference_values[id]
        if self._reference_models is None:
            self._reference_models = {}
            for item in self.references:  # type: ignore[attr-defined]
                model = (
                    item if isinstance(item, references.ReferenceModel) else references.ReferenceModel(**item)
                )
                self._reference_models[model.id] = model
        found = self._reference_models.get(id)
        if found is None:
            raise KeyError(f"The reference with id {id} is not defined in resource {self.id}")
        if id in self._resolving:
            raise ValueError(f"The reference with id {id} needs its own value, in resource {self.id}")
        self._resolving.append(id)
        try:
            value = references.reference.get_class(found.type).deserialize(found, self, logger).get(logger)
        finally:
            self._resolving.pop()
        self._reference_values[id] = value
        return value

    def resolve_all_references(self, logger: LoggerABC) -> None:
        """Assigns the values of references to the fields, once."""
        if self._resolved:
            return
        pending = [
            item if isinstance(item, references.MutatorModel) else references.MutatorModel(**item)
            for item in self.mutators  # type: ignore[attr-defined]
        ]
        # Missing classes are detected before any value is resolved.
        classes = [references.mutator.get_class(item.type) for item in pending]
        for cls, item in zip(classes, pending, strict=True):
            cls.deserialize(item, self, logger).run(logger)
        self._resolved = True

    # Mapping interface over the declared fields.

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, Unknown):
            self.unknowns.add(name)
        object.__setattr__(self, name, value)

    def __getitem__(self, key: str) -> Any:
        if key not in type(self).fields:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: object) -> None:
        if key not in type(self).fields:
            raise KeyError(key)
        setattr(self, key, value)

    def __delitem__(self, key: str) -> None:
        raise Exception("Deleting fields is not allowed on a resource")

    def clear(self) -> None:
        """Raises: the fields of a resource are fixed."""
        raise Exception("Deleting fields is not allowed on a resource")

    def __contains__(self, item: str) -> bool:
        return item in type(self).fields

    def get(self, key: str, default: object = None) -> Any:
        """The value of a declared field, or the default."""
        return getattr(self, key) if key in type(self).fields else default

    def items(self) -> Iterator[tuple[str, Any]]:
        """Declared fields with their values."""
        for field in type(self).fields:
            yield field, getattr(self, field)

    def __str__(self) -> str:
        return str(self.id)

    def __repr__(self) -> str:
        return str(self.id)


def _copy(value: Any) -> Any:
    """A deep copy; much faster than the general one for typical fields."""
    kind = type(value)
    if kind is dict:
        return {key: _copy(item) for key, item in value.items()}
    if kind is list:
        return [_copy(item) for item in value]
    if value is None or kind in (str, int, float, bool):
        return value
    import copy

    return copy.deepcopy(value)


def _optional(obj: Any, name: str, default: bool) -> bool:
    try:
        return getattr(obj, name)
    except Exception:
        return default


def _is_list(value: Any) -> bool:
    from inmanta.execute.proxy import SequenceProxy

    return isinstance(value, list | tuple | SequenceProxy)


class PurgeableResource(Resource):
    """A resource that can be purged."""

    fields = ("purged", "purge_on_delete")
    purged: bool
    purge_on_delete: bool


class ManagedResource(Resource):
    """A resource that can be unmanaged."""

    fields = ("managed",)
    managed: bool

    @staticmethod
    def get_managed(exporter: Exporter, obj: Any) -> bool:
        """Excludes unmanaged resources from the export."""
        if not obj.managed:
            raise IgnoreResourceException()
        return obj.managed


class DiscoveryResource(Resource):
    """A resource that discovers others."""

    fields = ()


def to_id(entity: DynamicProxy) -> str | None:
    """The id of the resource of an instance; None if neither its type nor an ancestor has a resource class."""
    entity_type = entity._type()
    for name in (entity_type.get_full_name(), *entity_type.get_all_parent_names()):
        cls, options = resource.get_class(name)
        if cls is not None and options is not None:
            return cls.object_to_id(entity, name, options["name"], options["agent"]).resource_str()
    return None
