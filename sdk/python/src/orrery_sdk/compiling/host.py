"""The host of a compile: caches instances from the core, and answers its requests."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from inmanta.ast import Location, NotFoundException
from inmanta.ast.entity import Entity
from inmanta.ast.type import ConstraintType, Type
from inmanta.compiler import Compiler
from inmanta.execute.proxy import DynamicProxy, paired_entities
from inmanta.execute.runtime import (
    AttributeVariable,
    ConstantVariable,
    Instance,
    NoValue,
    Pending,
    PendingVariable,
    ResultVariable,
)
from inmanta.export import Exporter, unknown_parameters
from inmanta.plugins import Plugin
from orrery_sdk import server
from orrery_sdk.compiling import loading
from orrery_sdk.compiling.calls import Calls
from orrery_sdk.compiling.conversation import Conversation
from orrery_sdk.compiling.exporting import Exporting
from orrery_sdk.compiling.logs import logs_to_core
from orrery_sdk.compiling.manifest import Manifest
from orrery_sdk.compiling.types import TypeTable
from orrery_sdk.loading import install_finder
from orrery_sdk.session import Session
from orrery_sdk.values import Values
from orrery_sdk.wire import Closed, Message, Wire, WireError


def run(wire: Wire, session: Session) -> int:
    """Runs the role `compile` in a separate process."""
    # Objects of a compile live until its end, and few are in reference cycles: collecting them as often
    # as by default costs a tenth of the time.
    gc.set_threshold(100_000, 50, 100)
    host = CompileHost(wire, session)
    # The directory of the compile: module code names files relative to it.
    os.chdir(session.project)
    # Once for all calls: entering it for each would cost more than a short call.
    with contextlib.suppress(Closed), host.around():
        host.load()
        host.serve()
    return 0


class CompileHost:
    """One compile, in the process of a host or of a test."""

    def __init__(self, wire: Wire, session: Session, refs: Mapping[object, object] | None = None) -> None:
        self.session = session
        self.conversation = Conversation(wire, self._answer)
        # A pending value may be available in the next call; within one, nothing changes.
        self.epoch = 0
        self._depth = 0
        self._surrounded = False
        self._instances: dict[int, Instance] = {}
        self.types = TypeTable(self.instances_of, self._fits)
        self.manifest = Manifest([], self.types.namespace)
        self.values = Values(self.instance, lambda kind, where: self.manifest.type_text(kind, where))
        self.compiler = HostedCompiler(self, refs)
        self.exporter = Exporter()
        self.calls = Calls(self)
        self.exporting = Exporting(self)
        self._answers: dict[str, Callable[[Message], Message | None]] = {
            "types": self._take_types,
            "call": self.calls.one,
            "calls": self._many,
            "serialize": self.exporting.serialize,
            "requires": self.exporting.requires,
            "exporters": self.exporting.exporters,
            "finalize": self.exporting.finalize,
            "compiled": self._take_outcome,
        }
        # The result of the compile in a test process, and the exceptions of module code.
        self.compiled: Message | None = None
        self.raised: deque[BaseException] = deque(maxlen=20)

    # The course of a compile

    def load(self) -> None:
        """Loads the code of all modules and sends the manifest to the core."""
        modules = self.session.modules
        loading.unload_moved(modules)
        install_finder(modules)
        loading.reset_state(modules)
        unknown_parameters.clear()
        paired_entities.clear()
        with self.around():
            problems = loading.load(modules, lambda imports: imports())
            self.manifest = Manifest(modules, self.types.namespace)
            self.compiler.forget_plugins()
            loaded = self.manifest.collect(problems)
        self.conversation.tell(loaded)

    def serve(self) -> None:
        """Answers the core until it closes the connection, which raises wire.Closed."""
        self.conversation.serve()

    def serve_compile(self) -> Message:
        """Answers the core until it reports the result of the compile. The model can be queried afterwards."""
        self.conversation.serve_until(lambda: self.compiled is not None)
        assert self.compiled is not None
        return self.compiled

    def _take_outcome(self, message: Message) -> None:
        self.compiled = message

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Context of module code: its output and its server calls go to the core."""
        if self._surrounded:
            yield
            return
        self._surrounded = True
        output = sys.stdout
        sys.stdout = self.conversation.output
        server.use_carrier(self._call_server)
        try:
            with logs_to_core(self.conversation):
                yield
            self.conversation.output.flush()
        finally:
            self._surrounded = False
            sys.stdout = output
            server.use_carrier(None)

    def _answer(self, message: Message) -> Message | None:
        answer = self._answers.get(message["k"])
        if answer is None:
            raise WireError(f"a host that compiles knows no message `{message['k']}`")
        with self.around():
            if self._depth == 0:
                self.epoch += 1
            self._depth += 1
            try:
                self.tell_instances(message.get("x"))
                return answer(message)
            finally:
                self._depth -= 1

    def _take_types(self, message: Message) -> None:
        self.types.load(message)
        paired_entities.update(self.types.pair(self.manifest.dataclasses))

    def _many(self, message: Message) -> Message:
        return {"k": "results", "r": [self.calls.one(call) for call in message.get("c") or ()]}

    # Instances

    def instance(self, number: int) -> Instance:
        """The instance with a number. Missing data is fetched lazily."""
        known = self._instances.get(number)
        if known is None:
            known = Instance(number, self)
            self._instances[number] = known
        return known

    def tell_instances(self, told: Any) -> None:
        """Updates instances with data from the core."""
        for number, entity, values in told or ():
            self.instance(number).tell(self.types.entity(entity), values)

    def fetch(self, instances: Sequence[Instance]) -> None:
        got = self.conversation.ask({"k": "get", "i": [one.number for one in instances]}, "got")
        self.tell_instances(got.get("x"))
        for one in instances:
            if not one.is_told():
                raise WireError(f"the core says nothing of the instance {one.number}")

    def decode(self, value: Any) -> Any:
        return self.values.decode(value)

    def where(self, instance: Instance) -> tuple[Location, str]:
        reply = self.conversation.ask({"k": "where", "i": instance.number}, "where")
        return Location(reply.get("file") or "", reply.get("line") or 0), reply.get("text") or ""

    def instances_of(self, entity: Entity | None) -> list[Instance]:
        name = None if entity is None else entity.get_full_name()
        reply = self.conversation.ask({"k": "instances", "type": name}, "instances")
        instances = [self.instance(number) for number in reply.get("i") or []]
        strangers = [one for one in instances if not one.is_told()]
        if strangers:
            self.fetch(strangers)
        return instances

    # Requests of module code

    def lookup(self, name: str, namespace: str | None = None) -> ResultVariable:
        """A variable visible to the caller, or one of a namespace; raises NotFoundException if there is none."""
        request = {"k": "lookup", "name": name}
        if namespace is not None:
            request["ns"] = namespace
        reply = self.conversation.ask(request, "found", "absent")
        if reply["k"] == "absent":
            raise NotFoundException(None, name, f"variable {name.rpartition('::')[2]} not found")
        self.tell_instances(reply.get("x"))
        value = self.values.decode(reply.get("v"))
        if isinstance(value, NoValue) and reply.get("i") is not None:
            # An optional attribute of the instance whose implementation is the caller.
            return AttributeVariable(self.instance(reply["i"]), name)
        return PendingVariable(value.cell) if isinstance(value, Pending) else ConstantVariable(value)

    def _fits(self, typedef: ConstraintType, value: object) -> bool:
        request = {"k": "is_type", "v": self.values.encode(value), "type": typedef.get_full_name()}
        return bool(self.conversation.ask(request, "is", "absent").get("v"))

    def all_types(self) -> dict[str, Any]:
        """All types by full name, as dependency managers and exporters get them."""
        return self.types.all_types()

    def _call_server(self, method: str, args: dict[str, Any]) -> tuple[int, Any]:
        reply = self.conversation.ask({"k": "server", "method": method, "args": args}, "reply")
        return int(reply.get("code") or 500), reply.get("result")

    def call_core(self, name: str, args: Sequence[object]) -> object:
        """Calls a native plugin of the core."""
        request = {"k": "plugin", "name": name, "a": [self.values.encode(arg) for arg in args]}
        reply = self.conversation.ask(request, "result", "unset", "unknown", "optional", "error", "absent")
        return plugin_result(reply, name, self)


def plugin_result(reply: Message, name: str, host: CompileHost) -> object:
    """The result of a native plugin: its value, or the exception for its failure."""
    from inmanta.ast import (
        MultiUnsetException,
        OptionalValueException,
        PluginException,
        RuntimeException,
        UnknownException,
    )

    kind = reply["k"]
    if kind == "result":
        host.tell_instances(reply.get("x"))
        return host.values.decode(reply.get("v"))
    if kind == "unset":
        cells = [PendingVariable(cell) for cell in reply.get("cells") or ()]
        raise MultiUnsetException("Value not available", list(cells))
    if kind == "unknown":
        raise UnknownException(host.values.decode(reply.get("u")))
    if kind == "optional":
        instance = host.instance(reply["i"])
        attribute = instance.type.get_attribute(reply["name"])
        assert attribute is not None
        raise OptionalValueException(instance, attribute)
    if kind == "absent":
        raise NotFoundException(None, name, f"could not find plugin {name}")
    message = str(reply.get("message") or "")
    if reply.get("kind") == "plugin":
        raise PluginException(message)
    if reply.get("kind") == "runtime":
        raise RuntimeException(None, message)
    raise Exception(f"{reply.get('class')}: {message}")


class HostedCompiler(Compiler):
    """The compile, as seen by modules."""

    def __init__(self, host: CompileHost, refs: Mapping[object, object] | None) -> None:
        super().__init__(refs=refs)
        self._host = host
        self._table: PluginTable | None = None

    def forget_plugins(self) -> None:
        self._table = None

    def get_plugins(self) -> Mapping[str, Plugin]:
        if self._table is None:
            plugins = {one.plugin.get_full_name(): one.plugin for one in self._host.manifest.plugins}
            self._table = PluginTable(self._host, plugins)
        return self._table  # type: ignore[return-value]

    def find_type(self, name: str, namespace: str) -> Type | None:
        return self._host.types.type(name, namespace)

    def data_directory(self) -> str:
        directory = self._host.session.data or os.path.join(self._host.session.project, "data")
        # A path inside the working directory is shown relative to it.
        relative = os.path.relpath(directory)
        return directory if relative.startswith(os.pardir) else relative


class PluginTable(dict[str, Any]):
    """Plugins by full name. Names of no Python module refer to native plugins of the core."""

    def __init__(self, host: CompileHost, plugins: dict[str, Plugin]) -> None:
        super().__init__(plugins)
        self._host = host

    def __missing__(self, name: str) -> Any:
        def call(*args: object) -> object:
            return DynamicProxy.unwrap(self._host.call_core(name, args))

        return call
