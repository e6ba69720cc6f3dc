"""Loads the code of modules for a compile, also for further ones in the same process."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from inmanta.compiler import Finalizers
from inmanta.export import Exporter
from inmanta.plugins import PluginMeta
from orrery_sdk.loading import HostedModule, Problem, module_files

_RESET_HOOK = "inmanta_reset_state"
_ENTITY = re.compile(r"^\s*entity\s+([\w-]+)([^:]*(?:::[^:]*)*):(?!:)", re.MULTILINE)


def load(modules: Sequence[HostedModule], guard: Callable[[Callable[[], Any]], Any]) -> list[Problem]:
    """Imports all code of all modules; returns the failures.

    The rest of a failed module is not loaded; other modules are.

    :param guard: runs one import in the context of users' code.
    """
    problems: list[Problem] = []
    for module in modules:
        for name in module_files(module):
            text = guard(lambda name=name: _import(name))  # type: ignore[misc]
            if text is not None:
                problems.append({"module": module.name, "problems": [text]})
                break
    return problems


def _import(name: str) -> str | None:
    try:
        importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    # SystemExit during an import counts as a failure.
    except BaseException as error:
        place = _place(error)
        return f"{type(error).__name__} while loading plugin module {name}: {error}{f' ({place})' if place else ''}"
    return None


def _place(error: BaseException) -> str | None:
    """The location of the exception, without frames of the import system."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename not in (__file__, importlib.__file__)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def unload_moved(modules: Sequence[HostedModule]) -> None:
    """Unloads packages with a changed location, as between tests."""
    for module in modules:
        loaded = sys.modules.get(module.package)
        if loaded is None or not module.code:
            continue
        places = [os.path.realpath(place) for place in getattr(loaded, "__path__", ())]
        if os.path.realpath(module.code) not in places:
            unload(module.package)


def unload(package: str) -> None:
    """Unloads a package with everything that its code has registered."""
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
    PluginMeta.clear(package.partition(".")[2].replace(".", "::"))

    def is_gone(module: str) -> bool:
        return module == package or module.startswith(f"{package}.")

    Exporter.forget(is_gone)
    Finalizers.forget(is_gone)
    importlib.invalidate_caches()


def reset_state(modules: Iterable[HostedModule]) -> None:
    """Calls the hooks by which modules reset their state of the last compile."""
    packages = [module.package for module in modules]
    for name, module in list(sys.modules.items()):
        if any(name == package or name.startswith(f"{package}.") for package in packages):
            for attribute, value in list(vars(module).items()):
                if attribute.startswith(_RESET_HOOK) and callable(value):
                    value()


def entities_of(module: HostedModule) -> dict[str, dict[str, bool]]:
    """The entities that the model of a module declares, by namespace; true if the text has `Dataclass`.

    Classes belong to entities by name. The names of the entities are needed before the core
    has read the model, so this searches the text; extra names are harmless.
    """
    found: dict[str, dict[str, bool]] = {}
    root = os.path.join(module.root, "model")
    for directory, folders, files in os.walk(root):
        folders.sort()
        for file in sorted(files):
            if not file.endswith(".cf"):
                continue
            parts = os.path.relpath(os.path.join(directory, file), root)[: -len(".cf")].split(os.sep)
            if parts[-1] == "_init":
                parts.pop()
            try:
                with open(os.path.join(directory, file), encoding="utf-8", errors="replace") as stream:
                    names = {name: "Dataclass" in parents for name, parents in _ENTITY.findall(stream.read())}
            except OSError:
                continue
            if names:
                found.setdefault("::".join([module.name, *parts]), {}).update(names)
    return found
