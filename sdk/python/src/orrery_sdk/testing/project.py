"""The project of a test: a directory with a model that can be compiled, inspected and deployed."""

from __future__ import annotations

import os
import shutil
import textwrap
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from inmanta import const
from inmanta.agent.handler import Commander, HandlerContext, SkipResource, report_exception
from inmanta.execute.proxy import DynamicProxy
from inmanta.resources import Id, Resource, resource
from orrery_sdk import files, server
from orrery_sdk.compiling.host import CompileHost
from orrery_sdk.testing import unittest_module
from orrery_sdk.testing.core import Core, working_directory
from orrery_sdk.testing.errors import exception_of
from orrery_sdk.testing.results import DeployResult, Result, matches
from orrery_sdk.testing.server import StandInServer

_PROJECT = """\
name: testcase
description: the project of a test
modulepath: {modulepath}
downloadpath: libs
"""


class Project:
    """The value of the fixture `project`."""

    def __init__(self, project_dir: str, environment: str | None = None) -> None:
        self._test_project_dir = project_dir
        self._env = environment or str(uuid.uuid4())
        self._core: Core | None = None
        self._outcome: dict[str, Any] = {}
        self._facts: dict[str, dict[str, Any]] = defaultdict(dict)
        self._server = StandInServer(self._facts)
        self._caches: dict[str, Any] = {}
        self._agents: dict[str, Any] = {}
        self.resources: dict[Id, Resource] = {}
        self.version: int | None = None
        # The context of the last operation, and the log of each.
        self.ctx: HandlerContext | None = None
        self._exporter: StandInExporter | None = None
        self._write_files()

    # The files of the project

    def _write_files(self) -> None:
        libs = os.path.join(self._test_project_dir, "libs")
        os.makedirs(libs, exist_ok=True)
        os.makedirs(self.data_dir, exist_ok=True)
        self._write("project.yml", _PROJECT.format(modulepath="[libs]"))
        self._write("main.cf", "")
        self.create_module(
            "unittest",
            initcf=unittest_module.MODEL,
            initpy=unittest_module.CODE,
            metadata=unittest_module.METADATA,
        )

    def _write(self, name: str, content: str | bytes) -> None:
        place = os.path.join(self._test_project_dir, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        data = content.encode("utf-8") if isinstance(content, str) else content
        with open(place, "wb") as stream:
            stream.write(data)

    @property
    def data_dir(self) -> str:
        return os.path.join(self._test_project_dir, "data")

    def create_module(
        self, name: str, initcf: str = "", initpy: str = "", metadata: str | None = None
    ) -> None:
        """Writes a module into the project."""
        base = os.path.join("libs", name)
        for directory in ("model", "plugins", "files", "templates"):
            os.makedirs(os.path.join(self._test_project_dir, base, directory), exist_ok=True)
        self._write(
            os.path.join(base, "module.yml"),
            metadata or f"name: {name}\nversion: 0.1.0\nlicense: Test License\n",
        )
        self._write(os.path.join(base, "model", "_init.cf"), initcf)
        self._write(os.path.join(base, "plugins", "__init__.py"), initpy)

    def add_mock_file(self, subdir: str, name: str, content: str) -> None:
        """Adds a file to the module `unittest`: `add_mock_file("templates", "a.j2", "...")` is `unittest/a.j2`."""
        self._write(os.path.join("libs", "unittest", subdir, name), content)

    def add_fact(self, resource_id: object, name: str, value: object) -> None:
        """Sets a fact for this and all later compiles of the test."""
        self._facts[str(resource_id)][name] = value

    # Compiling

    def compile(self, main: str, export: bool = False, no_dedent: bool = True) -> None:
        """Compiles a model and exports its resources. Raises the errors of the model."""
        self._write("main.cf", main if no_dedent else textwrap.dedent(main.strip("\n")))
        self.close()
        self.resources = {}
        self.ctx = None
        with working_directory(self._test_project_dir):
            self._core = Core(self._test_project_dir, {"facts": self._facts}, [])
            self._outcome = self._core.compile()
        if not self._outcome.get("ok"):
            host = self._core.host
            raise exception_of(self._outcome.get("errors") or [], [] if host is None else list(host.raised))
        self._take_resources()
        server.use_carrier(self._server.call)
        self._exporter = StandInExporter()

    def _take_resources(self) -> None:
        exported = self._outcome.get("resources") or []
        numbers = self._outcome.get("instances")
        models = self._models(exported) if numbers is None else [self._proxy(number) for number in numbers]
        for fields, model in zip(exported, models, strict=True):
            made = Resource.deserialize(fields)
            if model is not None:
                made.model = model
            made.id = made.id.copy(version=0)
            self.resources[made.id] = made
        for made in self.resources.values():
            made.requires = {required.copy(version=0) for required in made.requires}
            made.resource_requires = {self.resources[one] for one in made.requires if one in self.resources}

    def _proxy(self, number: int) -> DynamicProxy:
        return DynamicProxy.return_value(self.host.instance(number))  # type: ignore[no-any-return]

    def _models(self, exported: Iterable[Mapping[str, Any]]) -> list[DynamicProxy | None]:
        """The instances of resources, matched by id."""
        found: dict[str, DynamicProxy] = {}
        for name in {Id.parse_id(fields["id"]).entity_type for fields in exported}:
            cls, options = resource.get_class(name)
            if cls is None or options is None:
                continue
            for instance in self.get_instances(name):
                try:
                    identifier = cls.object_to_id(instance, name, options["name"], options["agent"])
                except Exception:
                    # Without an id it was not exported.
                    continue
                found[identifier.resource_str()] = instance
        return [found.get(Id.parse_id(fields["id"]).resource_str()) for fields in exported]

    @property
    def host(self) -> CompileHost:
        assert self._core is not None and self._core.host is not None, "nothing has been compiled yet"
        return self._core.host

    def get_stdout(self) -> str:
        """The output of the model."""
        return str(self._outcome.get("output") or "")

    def get_stderr(self) -> str:
        """Empty: warnings and errors are not output of the model."""
        return ""

    def get_instances(self, fortype: str = "std::Entity") -> list[DynamicProxy]:
        """The instances of an entity and of its descendants."""
        entity = self.host.types.entity_named(fortype)
        if entity is None:
            return []
        return [DynamicProxy.return_value(one) for one in self.host.instances_of(entity)]

    @property
    def types(self) -> dict[str, Any]:
        return self.host.all_types()

    @property
    def _root_scope(self) -> Scope:
        return Scope(self.host, [])

    def get_root_scope(self) -> Scope:
        return self._root_scope

    def close(self) -> None:
        """Ends the compiler. The model can no longer be queried."""
        if self._core is not None:
            self._core.close()
            self._core = None

    def clean(self) -> None:
        """Removes the state of earlier tests."""
        self.close()
        for cache in self._caches.values():
            cache.close()
        self._caches = {}
        server.use_carrier(None)
        shutil.rmtree(self.data_dir, ignore_errors=True)

    # Resources

    def get_resource(self, resource_type: str, **filter_args: object) -> Resource | None:
        """The resource of a type with these values; None if there is none."""
        for found in self.resources.values():
            if matches(found, resource_type, filter_args):
                return self.check_serialization(found)
        return None

    def get_resources(self, resource_type: str, **filter_args: object) -> list[Resource]:
        return [one for one in self.resources.values() if matches(one, resource_type, filter_args)]

    def check_serialization(self, found: Resource) -> Resource:
        """Checks the serialization round trip of a resource."""
        Resource.deserialize(found.serialize())
        return found

    def _one(self, resource_type: str, filter_args: Mapping[str, object]) -> Resource:
        found = self.get_resource(resource_type, **filter_args)
        assert found is not None, (
            f"No resource found of given type and filter args: {resource_type} {dict(filter_args)}; there are "
            f"{sorted(str(one) for one in self.resources)}"
        )
        return found

    # Handlers

    def get_handler(self, found: Resource, run_as_root: bool = False) -> Any:
        """The handler that would deploy a resource."""
        from inmanta.agent.cache import AgentCache
        from inmanta.agent.io import LazyIO
        from orrery_sdk.handling.execute import HostedAgent

        name = found.id.agent_name
        if name not in self._agents:
            self._agents[name] = HostedAgent(name, "local:", self._env)
            self._caches[name] = AgentCache()
        cache = self._caches[name]
        handler = Commander.get_provider(self._agents[name], found, LazyIO("local:", cache))
        handler.set_cache(cache)
        return handler

    def deploy(self, resource: Resource, dry_run: bool = False, run_as_root: bool = False) -> HandlerContext:
        """Runs the handler of a resource; returns its context."""
        server.use_carrier(self._server.call)
        copied = Resource.deserialize(resource.serialize())
        self.ctx = ctx = HandlerContext(copied, dry_run=dry_run)
        try:
            copied.resolve_all_references(ctx)
        except SkipResource as error:
            report_exception(ctx, copied, error)
            return ctx
        except Exception as error:
            ctx.set_resource_state(const.HandlerResourceState.failed)
            ctx.exception("References of the resource could not be resolved: %(error)s", error=str(error))
            return ctx
        handler = self.get_handler(copied, run_as_root)
        try:
            if dry_run:
                handler.execute(ctx, copied, dry_run=True)
            else:
                handler.deploy(ctx, copied, {})
        finally:
            handler.close()
            self._caches[copied.id.agent_name].touch_used_cache_items()
        return ctx

    def dryrun(self, resource: Resource, run_as_root: bool = False) -> HandlerContext:
        return self.deploy(resource, dry_run=True, run_as_root=run_as_root)

    def deploy_resource_v2(
        self,
        resource_type: str,
        expected_status: const.ResourceState = const.ResourceState.deployed,
        run_as_root: bool = False,
        change: const.Change | None = None,
        **filter_args: object,
    ) -> DeployResult:
        """Deploys one resource and checks the outcome."""
        found = self._one(resource_type, filter_args)
        self._server.discovered.clear()
        ctx = self.deploy(found, run_as_root=run_as_root)
        return DeployResult(found, ctx, list(self._server.discovered)).assert_status(expected_status, change)

    def deploy_resource(
        self,
        resource_type: str,
        status: const.ResourceState = const.ResourceState.deployed,
        run_as_root: bool = False,
        change: const.Change | None = None,
        **filter_args: object,
    ) -> Resource:
        """Deploys one resource and checks the outcome; returns the resource."""
        return self.deploy_resource_v2(resource_type, status, run_as_root, change, **filter_args).resource

    def dryrun_resource(
        self,
        resource_type: str,
        status: const.ResourceState = const.ResourceState.dry,
        run_as_root: bool = False,
        **filter_args: object,
    ) -> dict[str, Any]:
        """The changes of a dry run of one resource."""
        found = self._one(resource_type, filter_args)
        ctx = self.dryrun(found, run_as_root)
        DeployResult(found, ctx, []).assert_status(status)
        return ctx.changes

    def deploy_all(
        self, run_as_root: bool = False, exclude_all: Iterable[str] = (), dry_run: bool = False
    ) -> Result:
        """Deploys all resources, each after its requirements."""
        left_out = set(exclude_all)
        results: dict[Resource, HandlerContext] = {}
        for found in self._in_order():
            names = {found.id.entity_type}
            if getattr(found, "model", None) is not None:
                names.add(found.model._type().get_full_name())
            if not names & left_out:
                results[found] = self.deploy(found, dry_run, run_as_root)
        return Result(results)

    def dryrun_all(self, run_as_root: bool = False, exclude_all: Iterable[str] = ()) -> Result:
        return self.deploy_all(run_as_root, exclude_all, dry_run=True)

    def _in_order(self) -> list[Resource]:
        ordered: dict[Id, Resource] = {}

        def visit(found: Resource) -> None:
            if found.id in ordered:
                return
            for required in sorted(found.resource_requires, key=str):
                visit(required)
            ordered[found.id] = found

        for found in self.resources.values():
            visit(found)
        return list(ordered.values())


class StandInExporter:
    """The part of an exporter that tests use."""

    @property
    def _file_store(self) -> dict[str, bytes]:
        """The uploaded contents by id."""
        directory = files._directory
        if directory is None or not os.path.isdir(directory):
            return {}
        names = [name for name in sorted(os.listdir(directory)) if not name.startswith(".")]
        return {name: content for name in names if (content := files.get(name)) is not None}


class Scope:
    """A namespace of the compiled model."""

    def __init__(self, host: CompileHost, path: list[str]) -> None:
        self._host = host
        self._path = path

    def get_child(self, name: str) -> Scope:
        return Scope(self._host, [*self._path, name])

    def lookup(self, name: str) -> Any:
        return self._host.lookup(name, "::".join(self._path))

    def get_full_name(self) -> str:
        return "::".join(self._path)
