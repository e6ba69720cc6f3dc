"""Parts that only some random models have: attributes of refined types, lists and dictionaries, a second parent, an
index over a relation, a row of steps that shows when things happen, and expressions that need all of these.

`Extras` is mixed into the generator, which calls it for further choices.
"""

from __future__ import annotations

import random

from random_parts import Entity, Relation, Scope

# Refined types of the attribute `k`, and values that they take.
REFINED = [
    ("typedef small as int matching self >= 0 and self < 4", "0 1 2 3"),
    ("typedef small as int matching self in [0, 1, 2, 3, 5, 8]", "1 2 5 8"),
    ("typedef small as string matching /^[a-z]+[0-9]*$/", '"a" "b2" "ccc"'),
    ("typedef small as number matching self % 2 == 0", "0 2 4.0"),
]
STEPS = 12


class Extras:
    """Further parts of a model. Needs `random`, `chance`, `pick`, `fresh`, `entities` and `type_name` of the generator."""

    random: random.Random
    entities: list[Entity]

    def choose_extras(self) -> None:
        self.has_attributes = self.chance(0.4)
        self.refined, values = self.random.choice(REFINED)
        self.refined_values = values.split()
        self.has_steps = self.chance(0.25)
        self.mixin = "__config__" if self.chance(0.2) else None
        self.family: Entity | None = None

    # ---- Definitions

    def extra_attributes(self) -> list[str]:
        """Attributes of every root entity; `small` is defined in each namespace."""
        if not self.has_attributes:
            return []
        return [f"  small k = {self.refined_values[0]}", "  int[] li = [1, 2]", '  dict d = {"a": 1, "b": [1, 2]}', "  int? o = null"]

    def type_text(self) -> list[str]:
        return [self.refined] if self.has_attributes else []

    def mixin_text(self) -> list[str]:
        """A second parent, in the main file; the position of its relation among the others matters."""
        if self.mixin is None:
            return []
        target = self.type_name(self.random.choice(self.entities), "__config__")
        lines = ["entity M:", "  int mx = 5", "end", f"M.mr [0:] -- {target}"]
        lines += ["implementation m_show for M:", '  std::print("m {{self.mx}}")', "end"]
        lines += ["implementation m_count for M:", '  std::print(["mc", std::count(self.mr)])', "end"]
        chosen = self.pick("m_show", "m_count", "m_show, m_count", "std::none")
        condition = self.pick("", "", " when mx == 5", " when self.mr is defined")
        return [*lines, f"implement M using {chosen}{condition}", "implement M using std::none"]

    def parents_text(self, entity: Entity) -> str:
        parents = [self.type_name(entity.parent, entity.namespace)] if entity.parent else []
        if self.mixin and entity.namespace == "__config__" and self.chance(0.4):
            parents.insert(self.random.randint(0, len(parents)), "M")
        return f" extends {', '.join(parents)}" if parents else ""

    def make_family(self, level: int) -> None:
        """An entity with an index on a number and on the owning instance."""
        owners = [entity for entity in self.entities if entity.namespace == "__config__"]
        if not owners or not self.chance(0.3):
            return
        owner = self.random.choice(owners)
        self.family = Entity("K", "__config__", len(self.entities), None)
        kids = Relation(owner, "kids", self.family, level, 0, None, writer="nobody")
        up = Relation(self.family, "up", owner, level, 1, 1, inverse=kids, writer="nobody")
        kids.inverse = up
        owner.relations.append(kids)
        self.family.relations.append(up)

    def family_text(self) -> list[str]:
        if self.family is None:
            return []
        owner = self.family.relations[0].target
        lines = ["entity K:", "  int n", "  int v = 0", "  string? s = null", "  bool b = false", *self.extra_attributes(), "end"]
        lines += [f"{owner.name}.kids [0:] -- K.up [1]", f"index K({self.pick('n, up', 'up, n')})"]
        if self.chance(0.5):
            lines += ["implementation kid for K:", f'  std::print(["kid", n, {self.pick("up.n", "v", "std::count(up.kids)")}])', "end"]
            lines.append("implement K using kid" + self.pick("", " when n > 1", " when up.n > 0", " when std::count(up.kids) > 1"))
        return [*lines, "implement K using std::none"]

    # ---- Statements

    def extra_statement(self, scope: Scope) -> list[str] | None:
        choices = [self.family_statement, self.deep_write, self.number_loop, self.steps_of_scope]
        return self.random.choice(choices)(scope)

    def family_statement(self, scope: Scope) -> list[str] | None:
        if self.family is None or scope.namespace != "__config__" or scope.repeated or scope.source:
            return None
        owner = self.family.relations[0].target
        paths = [path for path, entity in scope.instances if entity.is_a(owner)]
        if not paths:
            return None
        path, key = self.random.choice(paths), self.random.randint(0, 2)
        made = self.pick(f"K(n={key})", f"K(n={key}, up={path})", f"[K(n=z) for z in [{key}, {key + 1}]]", f"true ? K(n={key}) : []")
        if self.chance(0.6):
            return [f"{path}.kids {self.pick('+=', '=')} {made}"]
        name = self.fresh("x")
        self.aliases.add(name)
        lookup = self.pick(f"{path}.kids[n={key}]", f"K[n={key}, up={path}]", f"K[up={path}, n={key}]", f"K(n={key}, up={path})")
        label = self.fresh("p")
        return [f"{name} = {lookup}", f'std::print(["{label}", {name}.n, {name}.up.n])', f"{path}.kids += K(n={key})"]

    def deep_write(self, scope: Scope) -> list[str] | None:
        """Adds to a relation of the instance in an optional relation."""
        ends = [(path, relation) for path, relation in scope.ends() if not relation.is_list and relation.low == 0]
        if not ends:
            return None
        path, relation = self.random.choice(ends)
        inner = scope.nested(relation.level + 1)
        inner.instances.append((f"{path}.{relation.name}", relation.target))
        self.aliases.add(f"{path}.{relation.name}")
        return [f"if {path}.{relation.name} is defined:", *("  " + line for line in self.statement(inner)), "end"]

    def number_loop(self, scope: Scope) -> list[str] | None:
        source = self.pick("[1, 2]", "std::sequence(2)")
        if scope.instances and self.has_attributes and self.chance(0.5):
            source = f"{self.random.choice(scope.instances)[0]}.li"
        name = self.fresh("j")
        inner = scope.nested()
        inner.numbers.append((name, 0))
        inner.repeated = True
        return [f"for {name} in {source}:", *("  " + line for line in self.statement(inner)), "end"]

    def steps_of_scope(self, scope: Scope) -> list[str] | None:
        """A short row of steps inside of a block."""
        if not self.has_steps or scope.depth == 0:
            return None
        name = self.fresh("t")
        return [f"{name} = 0", f"{name}a = {name} + 1", f"{name}b = {name}a + 1", f'std::print("{name} {{{{{name}b}}}}")']

    def steps(self, name: str) -> list[str]:
        """Variables that get their values one step after the other, and print them."""
        lines = [f"{name}0 = 0"]
        for step in range(1, STEPS):
            lines += [f"{name}{step} = {name}{step - 1} + 1", f'std::print("{name}{{{{{name}{step}}}}}")']
        return lines

    # ---- Expressions

    def extra_arguments(self) -> list[str]:
        if not self.has_attributes or self.chance(0.5):
            return []
        number = self.random.randint(0, 3)
        choices = [
            f"k={self.random.choice(self.refined_values)}",
            f"li=[{number}, {number + 1}]",
            f"li=[i + 1 for i in [0, {number}] if i != 1]",
            f'd={{"a": {number}, "b": []}}',
            f"o={number}",
            f'**{{"li": [{number}], "o": {number}}}',
            f'**{{"v": {number}}}' if self.chance(0.3) else "o=null",
        ]
        return [self.random.choice(choices)]

    def extra_numbers(self, scope: Scope) -> list[tuple[str, int]]:
        choices: list[tuple[str, int]] = []
        for path, entity in scope.instances:
            if self.has_attributes:
                choices += [(f"std::count({path}.li)", 0), (f'{path}.d["a"]', 0), (f"std::at({path}.li, 0)", 0), (f"{path}.n * 2 - {path}.v", 0)]
            for relation in entity.all_relations():
                value = f"{path}.{relation.name}"
                if relation.is_list and self.chance(0.3):
                    choices.append((f"std::count([z for z in {value} if z.n {self.pick('>', '<')} 1])", relation.level + 1))
                elif not relation.is_list and self.chance(0.3):
                    choices.append((f"({value} is defined ? {value}.n : 0)", relation.level + 1))
        return choices

    def extra_conditions(self, scope: Scope) -> list[tuple[str, int]]:
        choices: list[tuple[str, int]] = [(f"{name} is defined", level) for name, level in scope.numbers[-1:]]
        for path, entity in scope.instances:
            if self.has_attributes:
                choices += [(f"{self.random.randint(0, 3)} in {path}.li", 0), (f'"{self.pick("a", "c")}" in {path}.d', 0), (f"{path}.o is defined", 0)]
            for relation in entity.all_relations():
                value = f"{path}.{relation.name}"
                members = [other for other, kind in scope.instances if kind.is_a(relation.target)]
                if relation.is_list and self.chance(0.4):
                    choices.append((f"std::count([z.n for z in {value} if z.b]) {self.pick('>', '==')} 0", relation.level + 1))
                    choices.append((f"[z for z in {value} if z.n > 1] == []", relation.level + 1))
                    if members:
                        choices.append((f"{self.random.choice(members)} in {value}", relation.level + 1))
                elif not relation.is_list and self.chance(0.4):
                    choices.append((f"({value} is defined and {value}.n > 0)", relation.level + 1))
        return choices

    def nested_lists(self, relation: Relation, scope: Scope) -> list[str]:
        """Comprehensions over relations of the members of a relation."""
        choices: list[str] = []
        for path, outer in scope.ends():
            if not outer.is_list:
                continue
            for inner in outer.target.all_relations():
                if inner.is_list and inner.target.is_a(relation.target):
                    source, members = f"{path}.{outer.name}", f"z.{inner.name}"
                    choices += [
                        f"[{members} for z in {source}]",
                        f"[[y for y in {members} if y.n > 0] for z in {source}]",
                        f"[y for y in [{members} for z in {source} if z.n < 3] if y.n != 1]",
                        f"[z.n > 0 ? {members} : [] for z in {source}]",
                    ]
        return choices

    def extra_shows(self, label: str, path: str, entity: Entity) -> list[str]:
        choices = [f'std::print("{label} {{{{{path}.n}}}} {{{{{path}.v}}}} {{{{{path}.b}}}}")', f'std::print(f"{label} {{{path}.n:>4}}|{{{path}.v:<3}}|{{{path}.n!r}}")']
        choices.append(f'std::print(["{label}", std::attr({path}, "{self.pick("n", "v", "b")}")])')
        if entity.has_computed():
            choices += [f'std::print(["{label}", std::attr({path}, "w")])', f'std::print(["{label}", std::getattr({path}, "w", 9)])']
        if self.has_attributes:
            choices += [
                f'std::print(["{label}", {path}.k, {path}.li, {path}.d])',
                f'std::print(["{label}", [i * 2 for i in {path}.li if i > {path}.n]])',
                f'std::print({{"{label}": {path}.n, "l": {path}.li, "d": {path}.d["b"]}})',
                f'std::print(["{label}", [[i + j for i in {path}.li] for j in [1, {path}.n]]])',
            ]
        for relation in entity.all_relations():
            value = f"{path}.{relation.name}"
            if not relation.is_list:
                choices.append(f'std::print(["{label}", {value} is defined ? "{{{{{value}.n}}}}" : "none"])')
                continue
            choices.append(f'std::print(["{label}", [z.n for z in std::key_sort({value}, "{self.pick("n", "v")}")]])')
            choices.append(f'std::print(["{label}", std::unique([z.n for z in {value}])])')
            for inner in relation.target.all_relations():
                if inner.is_list:
                    choices.append(f'std::print(["{label}", [[y.n for y in z.{inner.name}] for z in {value}]])')
        return choices
