"""Random models that show at which step each expression is evaluated.

Two rows of variables, one before and one after the statements in question, get their values one step after the other
and print them; other values arrive at steps that these variables choose. What is printed between them tells whether an
expression took as many steps as in the reference, in the same order.
"""

from __future__ import annotations

import random

STEPS = 9
PRELUDE = """entity E:
  int n
  int v = 0
  string? s = null
  int[] li = [1, 2]
end
entity F extends E:
  bool b = true
end
E.l [0:] -- E
E.m [0:] -- E.mi [0:]
E.o [0:1] -- E
E.one [1] -- E
index E(n)
implement E using std::none
u = std::get_env("NOPE")
dd = {"a": 1, "b": [1, 2]}
x = E(n=1, one=y)
y = E(n=2, one=x, l=[x])
z = F(n=3, one=z, v=a3, li=[a2])
""".splitlines()


class Steps:
    """One model of this kind."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.unknown = self.random.random() < 0.3
        self.names = 0

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def fresh(self) -> str:
        self.names += 1
        return str(self.names)

    def main(self) -> str:
        late = [self.late(relation) for relation in ("l", "l", "l", "o") if self.random.random() < 0.6]
        statements = [self.statement() for _ in range(self.random.randint(2, 5))]
        middle = late + statements
        self.random.shuffle(middle)
        lines = [*PRELUDE, *self.implementation(), *self.row("a"), *[line for lines in middle for line in lines], *self.row("b")]
        return "\n".join(lines) + "\n"

    def row(self, name: str) -> list[str]:
        lines = [f"{name}0 = 0"]
        for step in range(1, STEPS):
            lines += [f"{name}{step} = {name}{step - 1} + 1", f'std::print("{name}{{{{{name}{step}}}}}")']
        return lines

    def late(self, relation: str) -> list[str]:
        """A statement that runs at a certain step."""
        step = self.random.randint(1, STEPS - 1)
        sign = "+=" if relation == "l" else "="
        return [f"if a{step} == {step}:", f"  {self.pick('x', 'y', 'z')}.{relation} {sign} {self.pick('x', 'y', 'z')}", "end"]

    def implementation(self) -> list[str]:
        if self.random.random() < 0.5:
            return ["implement F using std::none"]
        conditions = ["b", "self.l is defined", "v == 3", "o is defined", "n > 2 and l is defined", "std::count(l) > 0", "self.one.n == 3", "s is defined"]
        shown = self.pick("n", "self.v", "[q.n for q in l]", "std::count(self.l)", "li")
        lines = ["implementation f for F:", f'  std::print(["f", {shown}])', "end"]
        return [*lines, f"implement F using f when {self.random.choice(conditions)}", "implement F using std::none"]

    def statement(self) -> list[str]:
        label = f"p{self.fresh()}"
        kind = self.random.randint(0, 8)
        if kind <= 2:
            shown = self.random.choice([self.number, self.truth, self.numbers])(3)
            return [f'std::print(["{label}", {shown}])']
        if kind == 3:
            return [f'for q in {self.instances(3)}:', f'  std::print(["{label}", {self.number(1, ("q",))}])', "end"]
        if kind == 4:
            return [f"if {self.truth(3)}:", f'  std::print("{label}")', "else:", f'  std::print(["{label}", {self.number(1)}])', "end"]
        if kind == 5:
            name = f"w{self.fresh()}"
            return [f"{name} = {self.random.choice([self.number, self.truth, self.numbers])(3)}", f'std::print(["{label}", {name}])']
        if kind == 6:
            owner = self.pick("x", "y", "z")
            return [f"{owner}.m {self.pick('+=', '=')} {self.instances(3)}", f"for q in {owner}.m:", f'  std::print(["{label}", q.n])', "end"]
        if kind == 7:
            name = f"w{self.fresh()}"
            return [f"{name} = {self.instance(3)}", f'std::print(["{label}", {name}.v])']
        made = f"{self.pick('E', 'F')}(n=1{self.fresh()}, one=x, m={self.instances(2)}, v={self.number(2)})"
        return [f"w{self.fresh()} = {made}", f'std::print("{label} {{{{w{self.names}.v}}}}")']

    # ---- Expressions; `depth` is how many more may be inside, `members` are variables of comprehensions around

    def number(self, depth: int, members: tuple[str, ...] = ()) -> str:
        simple = [str(self.random.randint(0, 3)), f"a{self.random.randint(1, STEPS - 1)}", f"{self.known(members)}.{self.pick('n', 'v')}"]
        if depth == 0:
            return self.random.choice(simple)
        deep = [
            lambda: f"({self.number(depth - 1, members)} {self.pick('+', '*', '-')} {self.number(depth - 1, members)})",
            lambda: f"({self.truth(depth - 1, members)} ? {self.number(depth - 1, members)} : {self.number(depth - 1, members)})",
            lambda: f"std::count({self.instances(depth - 1, members)})",
            lambda: f"std::count({self.numbers(depth - 1, members)})",
            lambda: f'std::attr({self.instance(depth - 1, members)}, "{self.pick("n", "v")}")',
            lambda: f"{self.known(members)}.one.{self.pick('n', 'v')}",
            lambda: 'dd["a"]',
            lambda: f"std::at({self.known(members)}.li, 0)",
        ]
        if self.unknown and self.random.random() < 0.08:
            return "u"
        return self.random.choice(simple + [choice() for choice in self.random.sample(deep, 3)])

    def truth(self, depth: int, members: tuple[str, ...] = ()) -> str:
        simple = [f"{self.known(members)}.{self.pick('l', 'o', 'v', 's', 'one')} is defined", f"a{self.random.randint(1, STEPS - 1)} is defined", "true"]
        if depth == 0:
            return f"({self.random.choice(simple)})"
        deep = [
            lambda: f"{self.number(depth - 1, members)} {self.pick('>', '==', '<=', '!=')} {self.number(depth - 1, members)}",
            lambda: f"{self.truth(depth - 1, members)} {self.pick('and', 'or')} {self.truth(depth - 1, members)}",
            lambda: f"not {self.truth(depth - 1, members)}",
            lambda: f"{self.number(0, members)} in {self.numbers(depth - 1, members)}",
            lambda: f"{self.known(members)} in {self.instances(depth - 1, members)}",
            lambda: f"{self.instances(depth - 1, members)} == []",
        ]
        return f"({self.random.choice(simple + [choice() for choice in self.random.sample(deep, 3)])})"

    def known(self, members: tuple[str, ...] = ()) -> str:
        return self.random.choice(["x", "y", "z", *members, *members])

    def instance(self, depth: int, members: tuple[str, ...] = ()) -> str:
        if depth == 0:
            return self.known(members)
        choices = [
            self.known(members),
            f"{self.known(members)}.one",
            f"E[n={self.random.randint(1, 3)}]",
            f"({self.truth(depth - 1, members)} ? {self.instance(depth - 1, members)} : {self.instance(depth - 1, members)})",
        ]
        if not members:
            choices.append(f"E(n=2{self.fresh()}, one=y, v={self.number(depth - 1)})")
        return self.random.choice(choices)

    def instances(self, depth: int, members: tuple[str, ...] = ()) -> str:
        simple = [f"{self.known(members)}.l", f"{self.known(members)}.l", f"[{self.known(members)}]"]
        if depth == 0:
            return self.random.choice(simple)
        inner = (*members, name := f"q{len(members)}")
        source = self.instances(depth - 1, members)
        deep = [
            f"[{self.instance(depth - 1, members)}, {self.instances(depth - 1, members)}]",
            f"[{name} for {name} in {source} if {self.truth(depth - 1, inner)}]",
            f"[{self.instance(depth - 1, inner)} for {name} in {source}]",
            f"[{name}.l for {name} in {source}]",
            f"({self.truth(depth - 1, members)} ? {source} : {self.instances(depth - 1, members)})",
            f"[{self.instance(depth - 1, members)}, {self.instance(depth - 1, members)}]",
        ]
        return self.random.choice(simple + deep + deep)

    def numbers(self, depth: int, members: tuple[str, ...] = ()) -> str:
        simple = [f"{self.known(members)}.li", "[1, 2]", 'dd["b"]']
        if depth == 0:
            return self.random.choice(simple)
        inner = (*members, name := f"q{len(members)}")
        deep = [
            f"[{self.number(depth - 1, members)}, {self.number(depth - 1, members)}]",
            f"[{self.number(depth - 1, inner)} for {name} in {self.instances(depth - 1, members)}]",
            f"[{name}.n for {name} in {self.instances(depth - 1, members)} if {self.truth(depth - 1, inner)}]",
            f"[{self.numbers(depth - 1, inner)} for {name} in {self.instances(depth - 1, members)}]",
            f"({self.truth(depth - 1, members)} ? {self.numbers(depth - 1, members)} : {self.numbers(depth - 1, members)})",
        ]
        return self.random.choice(simple + deep + deep)
