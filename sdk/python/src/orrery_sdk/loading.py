"""Imports the code of modules under `inmanta_plugins`, from any directory.

A module of the first generation has its code in `libs/NAME/plugins`, one of the second is installed as the package
`inmanta_plugins.NAME`. The core sends the location of each; a finder before Python's own hides the difference.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

NAMESPACE = "inmanta_plugins"

# Directories at the root of a package that contain no code of the module.
_NOT_CODE = ("model", "files", "templates", "__pycache__")

Problem = dict[str, Any]


@dataclass(frozen=True)
class HostedModule:
    """A module with code."""

    name: str
    package: str
    code: str
    root: str
    version: str | None = None

    @classmethod
    def from_message(cls, item: dict[str, Any]) -> HostedModule:
        """Parses one entry of `modules`."""
        name = item["name"]
        code = item.get("code") or ""
        return cls(
            name=name,
            package=item.get("package") or f"{NAMESPACE}.{name}",
            code=code,
            root=item.get("root") or code,
            version=item.get("version"),
        )


class _Finder:
    """Finds the namespace and the packages of the core; all others are left to Python's finders."""

    def __init__(self) -> None:
        self.packages: dict[str, str] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Part of the import system."""
        if fullname == NAMESPACE:
            spec = importlib.machinery.ModuleSpec(NAMESPACE, None, is_package=True)
            spec.submodule_search_locations = [
                place
                for place in (os.path.join(entry or os.curdir, NAMESPACE) for entry in sys.path)
                if os.path.isdir(place)
            ]
            return spec
        code = self.packages.get(fullname)
        if code is None:
            return None
        init = os.path.join(code, "__init__.py")
        if os.path.isfile(init):
            return importlib.util.spec_from_file_location(fullname, init, submodule_search_locations=[code])
        if os.path.isdir(code):
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [code]
            return spec
        return None


_finder = _Finder()


def install_finder(modules: Sequence[HostedModule]) -> None:
    """Registers the packages of these modules. May be called repeatedly."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for module in modules:
        if module.code:
            _finder.packages[module.package] = module.code
    # The directories may have changed since they were cached. `importlib.invalidate_caches` does the
    # same, but imports a large part of the standard library.
    for finder in list(sys.path_importer_cache.values()):
        forget = getattr(finder, "invalidate_caches", None)
        if forget is not None:
            forget()


def module_files(module: HostedModule) -> list[str]:
    """The full Python names of everything in a module's package, the package itself first."""
    if not module.code:
        return []
    names = [module.package]
    for directory, folders, entries in os.walk(module.code):
        here = os.path.relpath(directory, module.code)
        folders[:] = sorted(
            folder
            for folder in folders
            if folder.isidentifier() and folder != "__pycache__" and not (here == "." and folder in _NOT_CODE)
        )
        parts = [] if here == "." else here.split(os.sep)
        if parts and "__init__.py" in entries:
            names.append(".".join([module.package, *parts]))
        for entry in sorted(entries):
            stem, extension = os.path.splitext(entry)
            if extension == ".py" and stem != "__init__" and stem.isidentifier():
                names.append(".".join([module.package, *parts, stem]))
    return names


def load_modules(modules: Sequence[HostedModule]) -> list[Problem]:
    """Imports all code of all modules. A failure does not affect other modules."""
    problems: list[Problem] = []
    for module in modules:
        texts: list[str] = []
        if module.code and not os.path.isdir(module.code):
            texts.append(
                f"Unable to load all plug-ins for module {module.name}: there is no directory {module.code}"
            )
        else:
            for name in module_files(module):
                text = _import(name)
                if text is not None:
                    texts.append(text)
                    if name == module.package:
                        break
        if texts:
            problems.append({"module": module.name, "problems": texts})
    return problems


def _import(name: str) -> str | None:
    try:
        importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    # SystemExit during an import counts as a failure.
    except BaseException as error:
        lines = traceback.format_exception(type(error), error, _without_import_frames(error))
        return f"Unable to load {name}: {type(error).__name__}: {error}\n{''.join(lines).rstrip()}"
    return None


def _without_import_frames(error: BaseException) -> Any:
    """The traceback without the frames of the import system."""
    trace = error.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if not filename.startswith("<frozen importlib") and filename not in (__file__, importlib.__file__):
            return trace
        trace = trace.tb_next
    return error.__traceback__
