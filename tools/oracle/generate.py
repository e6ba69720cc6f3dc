"""Generates random models that are well typed, small enough to read, and rich in what is hard to evaluate in the same
order as the reference: relations that grow while they are read, conditions on their size, unknown values, index
lookups, and implementations that are chosen by all of these.

    generate.py SEED [COUNT]        prints a `.cases` file; the same seed gives the same models

The models print as they go, so that the order of evaluation shows. Some end in an error by nature (a list that grows
after it was counted, a value set twice, an attribute that is never set): those are wanted too, in moderation.
"""

from __future__ import annotations

import random
import sys

from cases import Case, format_case
from random_extras import Extras
from random_parts import Entity, Relation, Scope
from random_python import PythonParts
from random_steps import Steps

# Instances created in a loop are numbered one higher than the ones it reads, up to this number.
HIGHEST_NUMBER = 3


class Generator(Extras, PythonParts):
    """Builds one model from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.entities: list[Entity] = []
        self.relations: list[Relation] = []
        self.modules: list[str] = []
        self.names = 0
        self.has_unknown = self.chance(0.35)
        self.tempered = self.chance(0.75)
        self.reckless = self.chance(0.15)
        # Ends that have one writer, and got their value; and names of instances that have another name.
        self.settled: set[tuple[str, str]] = set()
        self.aliases: set[str] = set()
        self.choose_extras()
        self.choose_python()

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # ---- The whole model

    def case(self, name: str) -> Case:
        self.modules = [module for module in ("m", "m::sub", "k") if self.chance(0.2)]
        if "m::sub" in self.modules and "m" not in self.modules:
            self.modules.insert(0, "m")
        files: dict[str, list[str]] = {module: self.type_text() for module in ["__config__", *self.modules]}
        self.make_entities()
        self.make_relations()
        self.make_family(len(self.relations))
        for entity in self.entities:
            files[entity.namespace] += self.entity_text(entity)
        files["__config__"] += self.mixin_text() + self.family_text()
        for relation in self.relations:
            # A relation may be in any file that sees both entities; main sees all.
            same = relation.owner.namespace == relation.target.namespace
            where = relation.owner.namespace if same and self.chance(0.7) else "__config__"
            files[where].append(self.relation_text(relation, where))
        for entity in self.entities:
            where = entity.namespace if self.chance(0.7) else "__config__"
            files[where] += self.implementation_text(entity, where)
        for module in self.modules:
            scope = Scope(module)
            for _ in range(self.random.randint(0, 3)):
                files[module] += self.statement(scope)
        files["__config__"] += self.main_statements()
        return Case(name, self.python_flags(), self.project_files(files))

    def project_files(self, files: dict[str, list[str]]) -> dict[str, str]:
        imports = [f"import {module}" for module in self.modules] + ["import py"] * self.has_python
        self.random.shuffle(imports)
        project = self.python_files() | {"main.cf": "\n".join(imports + files["__config__"]) + "\n"}
        for module in self.modules:
            root, _, rest = module.partition("::")
            project.setdefault(f"libs/{root}/module.yml", f"name: {root}\nversion: 1.0.0\nlicense: Apache 2.0\n")
            imports = [f"import {other}" for other in self.modules if other != module]
            project[f"libs/{root}/model/{rest or '_init'}.cf"] = "\n".join(imports + files[module]) + "\n"
        rules = self.precedence_rules() if self.chance(0.12) else []
        if rules:
            policy = "".join(f'  - "{rule}"\n' for rule in rules)
            project["project.yml"] = "name: test\nmodulepath: libs\nrelation_precedence_policy:\n" + policy
        return project

    def precedence_rules(self) -> list[str]:
        """Rules that follow one order of the relations, so that they hold no cycle."""
        ends = [end for relation in self.relations for end in (relation, relation.inverse) if end and end.low != end.high]
        names = [f"{end.owner.namespace}::{end.owner.name}.{end.name}" for end in ends]
        self.random.shuffle(names)
        names = names[: self.random.randint(2, 3)]
        return [f"{one} before {other}" for one, other in zip(names, names[1:])]

    # ---- Definitions

    def visible(self, entity: Entity, namespace: str) -> bool:
        """The main file imports the modules, and no module can import the main file."""
        return namespace == "__config__" or entity.namespace != "__config__"

    def make_entities(self) -> None:
        for rank in range(self.random.randint(2, 4)):
            namespace = self.random.choice(["__config__", "__config__", *self.modules])
            parents = [other for other in self.entities if self.visible(other, namespace)]
            parent = self.random.choice(parents) if parents and self.chance(0.3) else None
            entity = Entity(f"E{rank}", namespace, rank, parent)
            inherits = parent is not None and parent.has_index()
            entity.indexed = self.chance(0.25) and not inherits
            entity.computed = self.chance(0.3) and not (parent and parent.has_computed())
            self.entities.append(entity)

    def make_relations(self) -> None:
        for level in range(self.random.randint(2, 5)):
            owner, target = self.random.choice(self.entities), self.random.choice(self.entities)
            relation = Relation(owner, f"r{level}", target, level, *self.random_arity())
            owner.relations.append(relation)
            if self.chance(0.45):
                inverse = Relation(target, f"q{level}", owner, level, *self.random_arity(), inverse=relation)
                relation.inverse = inverse
                target.relations.append(inverse)
            self.relations.append(relation)
            if not self.reckless:
                self.choose_writer(relation)

    def choose_writer(self, relation: Relation) -> None:
        """Gives a relation with a single-valued end one writer: one side of it, in one kind of place."""
        ends = [end for end in (relation, relation.inverse) if end]
        if all(end.is_list for end in ends):
            return
        for end in ends:
            end.writer = "nobody"
        required = [end for end in ends if end.low > 0]
        chosen = self.random.choice(required or ends)
        chosen.writer = self.pick("constructor", "implementation", "statement", "statement")

    def random_arity(self) -> tuple[int, int | None]:
        if self.reckless:
            return self.random.choice([(0, None), (0, 1), (0, 2), (1, None), (2, None), (2, 2), (1, 3), (1, 1)])
        return self.random.choice([(0, None)] * 14 + [(0, 1)] * 7 + [(0, 3), (1, None)])

    def entity_text(self, entity: Entity) -> list[str]:
        lines = [f"entity {entity.name}{self.parents_text(entity)}:"]
        if not entity.parent:
            lines += ["  int n", "  int v = 0", "  string? s = null", "  bool b = false", *self.extra_attributes()]
        elif self.chance(0.3):
            lines.append(self.pick("  int v = 1", "  bool b = true", '  string? s = "d"', f"  int w{entity.rank} = 7"))
        if entity.computed:
            lines.append("  int w")
        lines.append("end")
        if entity.indexed:
            lines.append(f"index {entity.name}(n)")
        return lines

    def relation_text(self, relation: Relation, where: str) -> str:
        left = f"{self.type_name(relation.owner, where)}.{relation.name} {relation.arity}"
        right = self.type_name(relation.target, where)
        if relation.inverse:
            right += f".{relation.inverse.name} {relation.inverse.arity}"
        return f"{left} -- {right}"

    def type_name(self, entity: Entity, where: str) -> str:
        return entity.name if entity.namespace == where else f"{entity.namespace}::{entity.name}"

    def implementation_text(self, entity: Entity, where: str) -> list[str]:
        kind = self.type_name(entity, where)
        # Descendants may inherit the implementation, and must not create their own kind either.
        highest = max(other.rank for other in self.entities if other.is_a(entity))
        own = Scope(where, [("self", entity)], [("n", 0)], lowest_rank=highest + 1)
        lines: list[str] = []
        for _ in range(self.random.choice([0, 1, 1, 2])):
            condition, level = self.condition(own, of_instance=True) if self.chance(0.6) else ("", 0)
            scope = own.nested(level)
            name = self.fresh("i")
            lines.append(f"implementation {name} for {kind}:")
            for _ in range(self.random.randint(1, 3)):
                lines += indented(self.statement(scope))
            lines.append("end")
            names = [name]
            if self.chance(0.2):
                names.insert(self.random.randint(0, 1), other := self.fresh("i"))
                lines += [f"implementation {other} for {kind}:", *indented(self.statement(own.nested(level))), "end"]
            lines.append(f"implement {kind} using {', '.join(names)}" + (f" when {condition}" if condition else ""))
        if entity.computed:
            number, _ = self.number(own)
            lines += [f"implementation w_{entity.name} for {kind}:", f"  self.w = {number}", "end"]
        inherit = entity.parent is not None and (entity.parent.has_computed() or self.chance(0.5))
        chosen = (["parents"] if inherit else []) + ([f"w_{entity.name}"] if entity.computed else [])
        if not chosen or self.chance(0.5):
            chosen.append("std::none")
        lines.append(f"implement {kind} using {', '.join(chosen)}")
        return lines

    # ---- Statements

    def main_statements(self) -> list[str]:
        statements: list[list[str]] = []
        if self.has_unknown:
            statements.append(['u = std::get_env("NOPE")'])
        scope = Scope("__config__")
        for _ in range(self.random.randint(2, 5)):
            entity = self.random.choice(self.entities)
            statements.append([f"{(name := self.fresh('x'))} = {self.constructor(entity, scope)}"])
            scope.instances.append((name, entity))
        for entity in self.entities:
            if entity.has_index() and self.chance(0.8):
                keys = [str(10 * entity.rank + number) for number in range(4)]
                made = f"{self.type_name(entity, '__config__')}(n=z)"
                statements.append([f"{self.fresh('l')} = [{made} for z in [{', '.join(keys)}]]"])
        for _ in range(self.random.randint(5, 11)):
            statements.append(self.statement(scope))
        for path, relation in scope.ends():
            if relation.is_list and self.chance(0.15):
                value = f"{path}.{relation.name}"
                statements.append([f'std::print(["{value}", [z.n for z in {value}]])'])
        for name in ("ta", "tb") if self.has_steps else ():
            statements.insert(self.random.randint(0, len(statements)), self.steps(name))
        if self.chance(0.5):
            # The order of statements decides what is frozen first.
            self.random.shuffle(statements)
        return [line for statement in statements for line in statement]

    def statement(self, scope: Scope) -> list[str]:
        deeper = scope.depth < 2
        kinds = [(self.write, 9), (self.loop, 4 * deeper), (self.branch, 4 * deeper), (self.show, 5), (self.new_variable, 2), (self.new_number, 2), (self.extra_statement, 3 * deeper)]
        function = self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        return function(scope) or self.show(scope)

    def write(self, scope: Scope) -> list[str] | None:
        """Adds to, or sets, a relation of an instance; now and then an attribute that has a value already."""
        if scope.instances and self.reckless and self.chance(0.1):
            return [f"{self.random.choice(scope.instances)[0]}.{self.pick('v = 0', 'v = 1', 's = null', 'b = false')}"]
        ends = [end for end in scope.ends() if self.may_write(*end, scope)]
        if not ends:
            return None
        path, relation = self.random.choice(ends)
        if relation.writer != "anyone":
            # All instances are called self in an implementation, and each entity settles for itself.
            self.settled.add((path, relation.name))
        sign = "+=" if relation.is_list and self.chance(0.8) else "="
        return [f"{path}.{relation.name} {sign} {self.related(relation, scope)}"]

    def may_write(self, path: str, relation: Relation, scope: Scope) -> bool:
        if self.tempered and relation.level < scope.lowest_level:
            return False
        if relation.writer == "anyone":
            return True
        place = "implementation" if path == "self" else "statement"
        once = scope.source is None and not scope.repeated
        return relation.writer == place and once and path not in self.aliases and (path, relation.name) not in self.settled

    def related(self, relation: Relation, scope: Scope) -> str:
        """An expression for the value of a relation."""
        if relation.is_list:
            return self.instances(relation, scope)
        if relation.low == 0 and self.chance(0.1 if self.reckless else 0.02):
            return "null"
        return self.instance(relation, scope)

    def loop(self, scope: Scope) -> list[str] | None:
        sources = [(f"{path}.{relation.name}", relation) for path, relation in scope.ends() if relation.is_list]
        if not sources:
            return None
        source, relation = self.random.choice(sources)
        if self.chance(0.15):
            source = f"[z for z in {source} if z.n {self.pick('<', '>', '!=')} {self.random.randint(0, 2)}]"
        elif self.chance(0.1):
            source = f"[{source}, {source}]"
        name = self.fresh("y")
        inner = scope.nested()
        inner.instances.append((name, relation.target))
        inner.source = name
        lines = [f"for {name} in {source}:"]
        for _ in range(self.random.randint(1, 2)):
            lines += indented(self.statement(inner))
        return [*lines, "end"]

    def branch(self, scope: Scope) -> list[str]:
        condition, level = self.condition(scope)
        if self.has_unknown and scope.namespace == "__config__" and self.chance(0.1):
            condition = self.pick("u == 1", "u is defined", f"{condition} or u == 1")
        lines = [f"if {condition}:"]
        for _ in range(self.random.randint(1, 2)):
            lines += indented(self.statement(scope.nested(level)))
        if self.chance(0.12):
            condition, other = self.condition(scope)
            level = max(level, other)
            lines += [f"elif {condition}:", *indented(self.statement(scope.nested(level)))]
        if self.chance(0.3):
            lines += ["else:", *indented(self.statement(scope.nested(level)))]
        return [*lines, "end"]

    def show(self, scope: Scope) -> list[str]:
        label = self.fresh("p")
        if not scope.instances:
            return [f'std::print("{label}")']
        path, entity = self.random.choice(scope.instances)
        choices = [f'std::print("{label} {{{{{path}.n}}}}")', f'std::print(f"{label} {{{path}.v}}")', f'std::print(["{label}", {path}.s, {path}.b])']
        choices += [f'std::print(["{label}", {name}])' for name, _ in scope.numbers[-1:]]
        if entity.has_computed():
            choices.append(f'std::print(["{label}", {path}.w])')
        if self.chance(0.4):
            choices = self.extra_shows(label, path, entity) + self.python_shows(label, path, entity, scope)
        for relation in entity.all_relations():
            value = f"{path}.{relation.name}"
            choices.append(f'std::print(["{label}", {value} is defined])')
            if relation.is_list:
                choices += [f'std::print(["{label}", std::count({value})])', f'std::print(["{label}", [z.n for z in {value}]])']
            else:
                choices.append(f'std::print(["{label}", {value} is defined ? {value}.n : null])')
        return [self.random.choice(choices)]

    def new_variable(self, scope: Scope) -> list[str] | None:
        name = self.fresh("x")
        if scope.instances and self.chance(0.35):
            path, entity = self.random.choice(scope.instances)
            value = f"{self.condition(scope)[0]} ? {path} : {path}"
            single = [relation for relation in entity.all_relations() if not relation.is_list and entity.is_a(relation.target)]
            if single and self.chance(0.5):
                relation = self.random.choice(single)
                entity = relation.target
                value = f"{path}.{relation.name}"
                if self.chance(0.9):
                    value = f"{value} is defined ? {value} : {path}"
            self.aliases.add(name)
        else:
            kinds = [entity for entity in self.entities if self.may_create(entity, scope)]
            if not kinds:
                return None
            entity = self.random.choice(kinds)
            value = self.constructor(entity, scope)
            if entity.has_index() or scope.source or scope.repeated:
                self.aliases.add(name)
        scope.instances.append((name, entity))
        return [f"{name} = {value}"]

    def new_number(self, scope: Scope) -> list[str]:
        name = self.fresh("c")
        number, level = self.number(scope)
        scope.numbers.append((name, level))
        return [f"{name} = {number}"]

    # ---- Expressions

    def may_create(self, entity: Entity, scope: Scope) -> bool:
        return entity.rank >= scope.lowest_rank and self.visible(entity, scope.namespace)

    def number(self, scope: Scope) -> tuple[str, int]:
        """An integer, and the level from which on relations may depend on it."""
        if self.has_unknown and scope.namespace == "__config__" and self.chance(0.1):
            return "u", 0
        choices = [(str(self.random.randint(0, 3)), 0), *scope.numbers]
        choices += self.extra_numbers(scope) if self.chance(0.4) else []
        choices += self.python_numbers(scope) if self.chance(0.4) else []
        for path, entity in scope.instances:
            choices += [(f"{path}.n", 0), (f"{path}.n + 1", 0)]
            for relation in entity.all_relations():
                if relation.is_list and self.chance(0.5):
                    choices.append((f"std::{self.pick('count', 'len')}({path}.{relation.name})", relation.level + 1))
        return self.random.choice(choices)

    def condition(self, scope: Scope, of_instance: bool = False) -> tuple[str, int]:
        """A condition, and the level from which on relations may depend on it."""
        choices = [("n > 1", 0), ("b", 0), ("not b", 0), ("n % 2 == 0", 0)] if of_instance else []
        choices += [(f"{name} {self.pick('>', '==')} {self.random.randint(0, 2)}", level) for name, level in scope.numbers[-2:]]
        for path, entity in scope.instances:
            choices += [(f"{path}.n {self.pick('>', '<', '==')} {self.random.randint(0, 3)}", 0), (f"{path}.b", 0)]
            for relation in entity.all_relations():
                value = f"{path}.{relation.name}"
                if relation.is_list:
                    counted = f"std::{self.pick('count', 'count', 'len')}({value}) {self.pick('>', '==', '<', '!=')}"
                    choices.append((f"{counted} {self.random.randint(0, 2)}", relation.level + 1))
                choices.append((f"{value} is defined", relation.level + 1))
                choices.append((f"not ({value} is defined)", relation.level + 1))
        if self.chance(0.4):
            choices += self.extra_conditions(scope)
        if not choices:
            return self.pick("true", "1 < 2", "false"), 0
        text, level = self.random.choice(choices)
        if self.has_unknown and scope.namespace == "__config__" and self.chance(0.06):
            text = self.pick("u == 1", f"{text} and u == 1", f"{text} or u == 1", f"not (u == 2) and {text}")
        if self.chance(0.2):
            other, other_level = self.random.choice(choices)
            text, level = f"{text} {self.pick('and', 'or')} {other}", max(level, other_level)
        return text, level

    def instance(self, relation: Relation, scope: Scope) -> str:
        """An expression for one value of a relation."""
        target = relation.target
        known = [path for path, entity in scope.instances if entity.is_a(target)]
        kinds = [entity for entity in self.entities if entity.is_a(target) and self.may_create(entity, scope)]
        share = 0.1 if relation.wants_new_value() else 0.6
        if known and (not kinds or self.chance(share)):
            chosen = self.random.choice(known)
            if self.chance(0.1):
                return f"{self.condition(scope)[0]} ? {chosen} : {self.random.choice(known)}"
            return chosen
        can_look_up = target.has_index() and self.visible(target, scope.namespace)
        if can_look_up and (not kinds or self.chance(0.2)):
            return f"{self.type_name(target, scope.namespace)}[n={self.key(target)}]"
        if kinds:
            return self.constructor(self.random.choice(kinds), scope)
        return "[]" if relation.is_list else "null"

    def instances(self, relation: Relation, scope: Scope) -> str:
        """An expression for some values of a relation."""
        lists = [f"{path}.{other.name}" for path, other in scope.ends() if other.is_list and other.target.is_a(relation.target)]
        if relation.wants_new_value() and self.chance(0.9):
            lists = []
        roll = self.random.random()
        nested = self.nested_lists(relation, scope) if lists and self.chance(0.15) else []
        if nested:
            return self.random.choice(nested)
        if self.has_unknown and scope.namespace == "__config__" and not relation.inverse and self.chance(0.05):
            return f"[{self.instance(relation, scope)}, u]"
        if lists and roll < 0.2:
            return self.random.choice(lists)
        if lists and roll < 0.3:
            return f"[z for z in {self.random.choice(lists)} if {self.pick('z.n > 0', 'z.b', 'z.n != 2', 'z.s is defined', 'z.n > 0 and z.v == 0', 'z.s == null')}]"
        if roll < 0.42:
            items = [self.instance(relation, scope) for _ in range(self.random.randint(0, 3))]
            items += [self.random.choice(lists)] if lists and self.chance(0.4) else []
            return f"[{', '.join(items)}]"
        kinds = [entity for entity in self.entities if entity.is_a(relation.target) and self.may_create(entity, scope)]
        if roll < 0.5 and kinds and scope.source is None:
            made = self.constructor(self.random.choice(kinds), scope, "z")
            return f"[{made} for z in {self.pick('[1, 2]', '[2, 1, 2]', 'std::sequence(3)')}]"
        if roll < 0.56:
            return f"{self.condition(scope)[0]} ? {self.instance(relation, scope)} : {self.random.choice(lists) if lists else '[]'}"
        if roll < (0.6 if self.reckless else 0.565):
            return "null"
        return self.instance(relation, scope)

    def key(self, entity: Entity) -> int:
        """A value for the index of an entity. Entities that share an index have keys of their own."""
        return self.random.randint(0, 3) + (0 if self.reckless else 10 * entity.rank)

    def constructor(self, entity: Entity, scope: Scope, number: str | None = None) -> str:
        indexed = entity.has_index() and not self.reckless
        arguments: list[str] = [f"n={number or self.random.randint(0, 3)}"]
        if scope.source and number is None:
            arguments = [f"n={scope.source}.n + 1"]
        if indexed:
            # Another constructor may find the same instance in the index, and must not set other values.
            arguments = [f"n={self.key(entity)}"]
        else:
            if self.chance(0.3):
                arguments.append(f"v={self.random.randint(0, 2)}")
            if self.chance(0.25):
                arguments.append(f"b={self.pick('true', 'false')}")
            if self.has_unknown and scope.namespace == "__config__" and self.chance(0.1):
                arguments.append("s=u")
            arguments += self.extra_arguments()
        for relation in entity.all_relations():
            free = relation.writer == "constructor" and not indexed or relation.writer == "anyone"
            wanted = self.chance(0.2) or (relation.writer == "constructor" and self.chance(0.7)) or (relation.low > 0 and self.chance(0.9))
            if scope.depth < 4 and free and wanted:
                inner = scope.nested()
                inner.depth += 1
                inner.lowest_rank = max(scope.lowest_rank, entity.rank + 1)
                arguments.append(f"{relation.name}={self.related(relation, inner)}")
        text = f"{self.type_name(entity, scope.namespace)}({', '.join(arguments)})"
        if scope.source and number is None and not indexed:
            # What a loop creates may feed the list that it reads.
            text = f"({scope.source}.n < {HIGHEST_NUMBER} ? {text} : {self.fallback(entity, scope)})"
        return text

    def fallback(self, entity: Entity, scope: Scope) -> str:
        """Replacement for an instance beyond the limit."""
        known = [path for path, other in scope.instances if other.is_a(entity)]
        return self.random.choice(known) if known else "[]"


def indented(lines: list[str]) -> list[str]:
    return ["  " + line for line in lines]


def generate(seed: int, count: int) -> list[Case]:
    """`count` models; each depends on its own seed alone."""
    return [model(number) for number in range(seed, seed + count)]


def model(seed: int) -> Case:
    """Every third model is about the steps of expressions, the others about everything else."""
    name = f"seed_{seed}"
    return Case(name, [], {"main.cf": Steps(seed).main()}) if seed % 3 == 0 else Generator(seed).case(name)


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    sys.stdout.write("".join(map(format_case, generate(int(sys.argv[1]), count))))
