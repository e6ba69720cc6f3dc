"""Plugins: functions that models can call."""

from __future__ import annotations

import inspect
import os
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from inmanta.ast import (
    Location,
    Namespace,
    PluginException,
    RuntimeException,
    TypeNotFoundException,
    WithComment,
)
from inmanta.ast.type import NamedType, Type
from inmanta.execute.proxy import DynamicProxy, ProxyContext
from inmanta.execute.runtime import QueueScheduler, Resolver, ResultVariable
from inmanta.warnings import InmantaWarning

if TYPE_CHECKING:
    from inmanta.compiler import Compiler
    from inmanta.protocol.endpoints import Client, SyncClient

__all__ = [
    "CheckedArgs",
    "Context",
    "ModelType",
    "Plugin",
    "PluginDeprecationWarning",
    "PluginException",
    "PluginMeta",
    "allow_reference_values",
    "deprecated",
    "plugin",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

_MISSING = object()


class PluginDeprecationWarning(InmantaWarning):
    """A deprecated plugin is called."""


class ModelType:
    """The type of the language for an annotation: `Annotated[int, ModelType["std::port"]]`."""

    def __init__(self, model_type: str) -> None:
        self.model_type = model_type

    def __class_getitem__(cls, key: str) -> ModelType:
        return cls(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelType) and other.model_type == self.model_type

    def __hash__(self) -> int:
        return hash(self.model_type)

    def __repr__(self) -> str:
        return f"ModelType(model_type={self.model_type!r})"


class CheckedArgs:
    """Arguments of a plugin that match their types."""

    def __init__(self, args: list[object], kwargs: Mapping[str, object], unknowns: bool) -> None:
        self.args = args
        self.kwargs = kwargs
        self.unknowns = unknowns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CheckedArgs) and vars(other) == vars(self)

    def __repr__(self) -> str:
        return f"CheckedArgs(args={self.args!r}, kwargs={self.kwargs!r}, unknowns={self.unknowns!r})"


def allow_reference_values(instance: T) -> T:
    """Lets references be read through this value: its attributes, or its elements, but nothing below those."""
    if isinstance(instance, DynamicProxy):
        return instance._allow_references()  # type: ignore[return-value]
    return instance


class Context:
    """Information about the current call, passed to a parameter with this annotation."""

    def __init__(
        self,
        resolver: Resolver,
        queue: QueueScheduler,
        owner: Any,
        plugin: Plugin,
        result: ResultVariable,
    ) -> None:
        self.resolver = resolver
        self.queue = queue
        self.owner = owner
        self.plugin = plugin
        self.result = result
        self.compiler: Compiler = queue.get_compiler()  # type: ignore[assignment]

    def get_resolver(self) -> Resolver:
        """The names visible to the caller."""
        return self.resolver

    def get_type(self, name: object) -> Type:
        """The type of that name; raises TypeNotFoundException if there is none."""
        found = self.compiler.find_type(str(name), self.plugin.namespace.get_full_name())
        if found is None:
            raise TypeNotFoundException(name, self.plugin.namespace)
        return found

    def get_queue_scheduler(self) -> QueueScheduler:
        return self.queue

    def get_environment_id(self) -> str:
        """The id of the environment."""
        from inmanta.config import Config

        return str(Config.get("config", "environment", None))

    def get_compiler(self) -> Compiler:
        return self.compiler

    def get_data_dir(self) -> str:
        """A directory for files of the module, persistent across compiles."""
        directory = os.path.join(self.compiler.data_directory(), self.plugin.namespace.get_full_name())
        os.makedirs(directory, exist_ok=True)
        return directory

    def get_client(self) -> Client:
        """An asynchronous client of the server, for `run_sync`."""
        from inmanta.protocol.endpoints import Client

        return Client("compiler")

    def get_sync_client(self) -> SyncClient:
        """A synchronous client of the server."""
        from inmanta.protocol.endpoints import SyncClient

        return SyncClient("compiler")

    def run_sync(self, function: Callable[[], Awaitable[T]], timeout: int = 5) -> T:
        """Runs a coroutine function to completion. After `timeout` seconds the server counts as unreachable."""
        import asyncio

        async def bounded() -> T:
            return await asyncio.wait_for(function(), timeout)

        try:
            return asyncio.run(bounded())
        except TimeoutError:
            raise ConnectionRefusedError() from None


class PluginValue:
    """A parameter or the result of a plugin."""

    def __init__(self, type_expression: object) -> None:
        self.type_expression = type_expression

    def shown(self) -> str:
        expression = self.type_expression
        return repr(expression) if isinstance(expression, str) else inspect.formatannotation(expression)


class PluginArgument(PluginValue):
    """A parameter of a plugin."""

    NO_DEFAULT_VALUE_SET = _MISSING

    def __init__(
        self,
        arg_name: str,
        arg_type: object,
        arg_position: int | None = None,
        default_value: object = _MISSING,
    ) -> None:
        super().__init__(arg_type)
        self.arg_name = arg_name
        self.arg_type = arg_type
        self.arg_position = arg_position
        self._default_value = default_value

    @property
    def default_value(self) -> object:
        if self._default_value is _MISSING:
            raise Exception(f"{self.arg_name} has no default value")
        return self._default_value

    def has_default_value(self) -> bool:
        return self._default_value is not _MISSING

    def get_signature_display(self) -> str:
        default = f" = {self._default_value!r}" if self.has_default_value() else ""
        return f"{self.arg_name}: {self.shown()}{default}"


class PluginReturn(PluginValue):
    """The result of a plugin."""

    def get_signature_display(self) -> str:
        return self.shown()


class PluginMeta(type):
    """Registry of all plugins: each is a class that the decorator creates."""

    __functions: ClassVar[dict[str, type[Plugin]]] = {}

    @classmethod
    def add_function(mcs, plugin_class: type[Plugin]) -> None:
        mcs.__functions[plugin_class.__fq_plugin_name__] = plugin_class

    @classmethod
    def get_functions(mcs) -> dict[str, type[Plugin]]:
        """All plugins, by full name, in the order in which they were defined."""
        return dict(mcs.__functions)

    @classmethod
    def clear(mcs, inmanta_module: str | None = None) -> None:
        """Removes all plugins, or those of a module."""
        if inmanta_module is None:
            mcs.__functions = {}
            return
        mcs.__functions = {
            name: cls
            for name, cls in mcs.__functions.items()
            if name != inmanta_module and not name.startswith(f"{inmanta_module}::")
        }


class Plugin(NamedType, WithComment, metaclass=PluginMeta):
    """The base of all plugins. `call` may be replaced: every call goes through it."""

    deprecated: bool = False
    replaced_by: str | None = None
    opts: dict[str, Any]
    __fq_plugin_name__: str
    __function_name__: str
    __function__: Callable[..., object]
    call: Callable[..., object]

    def __init__(self, namespace: Namespace) -> None:
        self.ns = namespace
        self.namespace = namespace
        self._context = -1
        self.context_name: str | None = None
        self.args: list[PluginArgument] = []
        self.var_args: PluginArgument | None = None
        self.kwargs: dict[str, PluginArgument] = {}
        self.var_kwargs: PluginArgument | None = None
        self.all_args: dict[str, PluginArgument] = {}
        self.return_type = PluginReturn("any")
        self.new_statement = None
        self.resolver = namespace
        function = self.__function__
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None:
            self.set_location(Location(code.co_filename, code.co_firstlineno + 1))
        self._load_signature(function)

    def _load_signature(self, function: Callable[..., object]) -> None:
        """Reads the parameters. Raises RuntimeException if one has no annotation."""
        spec = inspect.getfullargspec(function)

        def annotation_of(name: str) -> object:
            if name not in spec.annotations:
                raise RuntimeException(
                    None,
                    f"All arguments of plugin {self.get_full_name()!r} should be annotated: "
                    f"{name!r} has no annotation",
                )
            return spec.annotations[name]

        first_default = len(spec.args) - len(spec.defaults or ())
        for position, name in enumerate(spec.args):
            annotation = annotation_of(name)
            if annotation is Context:
                self._context = position
                self.context_name = name
                continue
            default = (
                _MISSING if position < first_default else (spec.defaults or ())[position - first_default]
            )
            argument = PluginArgument(name, annotation, len(self.args), default)
            self.args.append(argument)
            self.all_args[name] = argument
        if spec.varargs is not None:
            self.var_args = PluginArgument(spec.varargs, annotation_of(spec.varargs))
        for name in spec.kwonlyargs:
            annotation = annotation_of(name)
            if annotation is Context:
                self.context_name = name
                continue
            argument = PluginArgument(
                name, annotation, default_value=(spec.kwonlydefaults or {}).get(name, _MISSING)
            )
            self.kwargs[name] = argument
            self.all_args[name] = argument
        if spec.varkw is not None:
            self.var_kwargs = PluginArgument(spec.varkw, annotation_of(spec.varkw))
        if "return" in spec.annotations:
            self.return_type = PluginReturn(spec.annotations["return"])

    def get_full_name(self) -> str:
        return self.__fq_plugin_name__

    def get_namespace(self) -> Namespace:
        return self.namespace

    def get_signature(self, *, use_dsl_types: bool = False) -> str:
        """The signature in Python syntax, without the context."""
        parts = [argument.get_signature_display() for argument in self.args]
        if self.var_args is not None:
            parts.append("*" + self.var_args.get_signature_display())
        elif self.kwargs:
            parts.append("*")
        parts += [argument.get_signature_display() for argument in self.kwargs.values()]
        if self.var_kwargs is not None:
            parts.append("**" + self.var_kwargs.get_signature_display())
        return f"{self.__function_name__}({', '.join(parts)}) -> {self.return_type.get_signature_display()}"

    def is_accept_unknowns(self) -> bool:
        return bool(self.opts["allow_unknown"])

    def check_requirements(self) -> None:
        """Raises an exception if a required command is missing."""
        for command in self.opts["bin"] or ():
            # Uses the shell, which resolves commands in the same way as the plugin.
            found = subprocess.run(
                ["bash", "-c", 'type -p -- "$1"', "bash", command], capture_output=True, check=False
            )
            if found.returncode != 0:
                raise Exception(f"{self.__function_name__} requires {command} to be available in $PATH")

    @classmethod
    def deprecate_function(cls, replaced_by: str | None = None) -> None:
        cls.deprecated = True
        cls.replaced_by = replaced_by

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Calls the plugin from Python, with values of the model or of Python; returns a value of the model."""
        self.check_requirements()

        def converted(value: object) -> object:
            if isinstance(value, DynamicProxy):
                return value
            context = ProxyContext(path=repr(value), validated=False)
            return DynamicProxy.return_value(value, context=context)

        result = self.call(
            *[converted(arg) for arg in args], **{name: converted(value) for name, value in kwargs.items()}
        )
        return DynamicProxy.unwrap(result)

    def call_in_context(
        self, processed_args: CheckedArgs, resolver: Resolver, queue: QueueScheduler, location: object
    ) -> object:
        """Calls the plugin with complete arguments, including the context if it needs one."""
        self.check_requirements()
        return DynamicProxy.unwrap(self.call(*processed_args.args, **processed_args.kwargs))

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def _forwarding(function: Callable[..., object]) -> Callable[..., object]:
    """The function as a method of the plugin."""

    def wrapper(self: Plugin, *args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    return wrapper


@overload
def plugin(function: F) -> F: ...


@overload
def plugin(
    function: str | None = None,
    commands: list[str] | None = None,
    emits_statements: bool = False,
    allow_unknown: bool = False,
) -> Callable[[F], F]: ...


def plugin(
    function: Any = None,
    commands: list[str] | None = None,
    emits_statements: bool = False,
    allow_unknown: bool = False,
) -> Any:
    """Makes a function callable from models: `@plugin`, `@plugin()`, `@plugin("name")`.

    :param function: the function, or its name in models.
    :param commands: programs that must be installed.
    :param emits_statements: for API compatibility; has no effect.
    :param allow_unknown: accept unknown arguments.
    """

    def register(name: str | None, decorated: F) -> F:
        module = decorated.__module__
        if not module.startswith("inmanta_plugins."):
            raise Exception("All plugin modules should be loaded in the inmanta_plugins package")
        own_name = decorated.__name__ if name is None else name
        full_name = "::".join([*module.split(".")[1:], own_name])
        made = PluginMeta(
            own_name,
            (Plugin,),
            {
                "__module__": module,
                "__function_name__": own_name,
                "__fq_plugin_name__": full_name,
                "__function__": staticmethod(decorated),
                "opts": {
                    "bin": commands,
                    "emits_statements": emits_statements,
                    "allow_unknown": allow_unknown,
                },
                "call": _forwarding(decorated),
            },
        )
        PluginMeta.add_function(made)  # type: ignore[arg-type]
        decorated.__plugin__ = made  # type: ignore[attr-defined]
        return decorated

    if function is None:
        return lambda decorated: register(None, decorated)
    if isinstance(function, str):
        return lambda decorated: register(function, decorated)
    return register(None, function)


def deprecated(
    function: Callable[..., Any] | None = None, *, replaced_by: str | None = None, **kwargs: object
) -> Any:
    """Marks a plugin as deprecated. Must be above `@plugin`."""

    def mark(decorated: Callable[..., Any]) -> Callable[..., Any]:
        made = getattr(decorated, "__plugin__", None)
        if made is None:
            raise Exception(
                f"Can not deprecate {decorated.__name__!r}: The '@deprecated' decorator should be used in combination "
                "with the '@plugin' decorator and should be placed at the top."
            )
        made.deprecate_function(replaced_by)
        return decorated

    return mark if function is None else mark(function)
