"""Parts of random models that need Python: plugins that read what is still growing, dataclasses, templates and
resources that are exported.

`PythonParts` is mixed into the generator, which calls it for further choices.
"""

from __future__ import annotations

import random

from random_parts import Entity, Scope

MODEL = """\
entity Pt extends std::Dataclass:
  int x
  string? label = null
  int[] tags = []
  dict d = {}
end
implement Pt using std::none
entity Res extends std::Resource:
  string name
  string agent = "a"
  int v
  int[] l = []
end
index Res(name)
implement Res using std::none
"""

PLUGINS = '''\
import dataclasses
from inmanta.plugins import plugin, PluginException
from inmanta.resources import Resource, resource


@dataclasses.dataclass(frozen=True)
class Pt:
    x: int
    label: str | None
    tags: list[int]
    d: dict[str, int]


@resource("py::Res", agent="agent", id_attribute="name")
class Res(Resource):
    fields = ("name", "v", "l", "total")

    @staticmethod
    def get_total(exporter, res):
        return sum(res.l) + res.v


@plugin
def add(a: int, b: int = 1) -> int:
    return a + b


@plugin
def same(x: object) -> object:
    return x


@plugin
def number(o: "std::Entity") -> int:
    return o.n


@plugin
def total(l: "list") -> int:
    return sum(o.n for o in l)


@plugin
def numbers(l: "list") -> list[int]:
    return [o.n for o in l]


@plugin
def small(x: int) -> int:
    if x > 3:
        raise PluginException(f"{x} is too big")
    return x


@plugin
def point(x: int, tags: list[int]) -> Pt:
    # What a model passes is a proxy, which no dataclass may hold in the reference.
    return Pt(x, None if x < 1 else f"p{x}", list(tags), {"x": x})


@plugin
def shown(p: Pt) -> str:
    return f"{p.x} {p.label} {p.tags} {p.d}"


@plugin
def several(*l: int, **d: int) -> str:
    return f"{l} {sorted(d.items())}"
'''


class PythonParts:
    """Needs `random`, `chance`, `pick`, `fresh` and `modules` of the generator."""

    random: random.Random

    def choose_python(self) -> None:
        self.has_python = self.chance(0.4)
        self.exports = self.has_python and self.chance(0.4)
        self.templates: dict[str, str] = {}

    def python_flags(self) -> list[str]:
        return ["python", *(["export"] if self.exports else [])] if self.has_python else []

    def python_files(self) -> dict[str, str]:
        if not self.has_python:
            return {}
        files = {
            "libs/py/module.yml": "name: py\nversion: 1.0.0\nlicense: Apache 2.0\n",
            "libs/py/model/_init.cf": MODEL,
            "libs/py/plugins/__init__.py": PLUGINS,
        }
        return files | {f"libs/py/templates/{name}": text for name, text in self.templates.items()}

    def python_numbers(self, scope: Scope) -> list[tuple[str, int]]:
        if not self.has_python or scope.namespace != "__config__":
            return []
        choices: list[tuple[str, int]] = [("py::add(1)", 0), ("py::small(2)", 0)]
        for path, entity in scope.instances:
            choices += [(f"py::number({path})", 0), (f"py::add({path}.n, b={path}.v)", 0)]
            for relation in entity.all_relations():
                if relation.is_list:
                    choices.append((f"py::total({path}.{relation.name})", relation.level + 1))
                    choices.append((f"std::count(py::numbers({path}.{relation.name}))", relation.level + 1))
        return choices

    def python_shows(self, label: str, path: str, entity: Entity, scope: Scope) -> list[str]:
        if not self.has_python or scope.namespace != "__config__":
            return []
        choices = [
            f'std::print(["{label}", py::same({path}.n), py::several({path}.n, 2, k={path}.v)])',
            f'std::print(["{label}", py::shown(py::point({path}.n, [{path}.v, 1]))])',
            f'std::print(["{label}", py::shown(py::Pt(x={path}.n, tags=[1, {path}.v]))])',
            f'std::print(["{label}", py::small({path}.n)])',
            self.template(label, path, entity),
        ]
        if self.exports:
            number = self.random.randint(0, 2)
            made = f'py::Res(name="{label}{number}", v={path}.n, l=[{path}.v, {number}])'
            choices += [made] * 3
        for relation in entity.all_relations():
            if relation.is_list:
                choices.append(f'std::print(["{label}", py::numbers({path}.{relation.name})])')
        return choices

    def template(self, label: str, path: str, entity: Entity) -> str:
        """Prints a template that reads an instance and its relations."""
        parts = [f"{label} {{{{ {path}.n }}}}", f"{{% if {path}.b %}}yes{{% else %}}no{{% endif %}}", f"{{{{ {path}.v + 1 }}}}"]
        for relation in entity.all_relations():
            value = f"{path}.{relation.name}"
            if relation.is_list:
                parts.append(f"{{% for z in {value} %}}{{{{ z.n }}}},{{% endfor %}}")
                parts.append(f"{{{{ {value} | length }}}}")
                parts.append(f"{{{{ {value} | map(attribute='n') | sort | list }}}}")
                parts.append(f"{{{{ {value} | py.total }}}}")
        self.random.shuffle(parts)
        name = f"{self.fresh('t')}.j2"
        self.templates[name] = "|".join(parts[: self.random.randint(1, 3)]) + "\n"
        return f'std::print(std::template("py/{name}"))'
