"""Calls of plugins: arguments, results, and all kinds of failures."""

from __future__ import annotations

from compiling.fake_core import FakeCore, attribute, entity, relation

I1 = {"$": ["i", 1]}
I2 = {"$": ["i", 2]}
THING = entity(
    "m::Thing",
    attribute("name", "string"),
    attribute("tags", "string[]"),
    relation("other", "m::Thing", 0, 1),
    relation("all", "m::Thing"),
)


def test_plain_values_go_both_ways(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin
        @plugin
        def same(x: "any") -> "any":
            return x
        @plugin
        def kind(x: "any") -> "string":
            return type(x).__name__
        """,
    )
    core.start()
    core.types()
    for value in (None, True, 3, 1.5, "a", [1, [None]], {"a": {"b": None}}, {"$": ["b", str(2**70)]}):
        assert core.call(0, value) == {"k": "result", "v": value}
    assert core.call(0, {"$": ["d", {"$": 1}]})["v"] == {"$": ["d", {"$": 1}]}
    assert core.call(0, {"$": ["f", "-inf"]})["v"] == {"$": ["f", "-inf"]}
    kinds = [core.call(1, value)["v"] for value in (None, [1], {"a": 1}, {"$": ["b", "1"]})]
    assert kinds == ["NoneType", "SequenceProxy", "DictProxy", "int"]


def test_parameters_of_all_kinds(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin, Context
        @plugin
        def kinds(a: "int", ctx: Context, b: "int" = 2, *c: "int", d: "int" = 4, **e: "int") -> "list":
            return [a, b, list(c), d, dict(e), ctx.plugin.get_full_name()]
        """,
    )
    loaded = core.start()
    assert [(p["name"], p["kind"], p.get("default")) for p in loaded["plugins"][0]["params"]] == [
        ("a", "normal", None),
        ("b", "normal", {"value": 2}),
        ("c", "varargs", None),
        ("d", "keyword", {"value": 4}),
        ("e", "varkwargs", None),
    ]
    assert loaded["plugins"][0]["context"] is True
    core.types()
    assert core.call(0, 1, None, [], None, {}, o=[1, 3])["v"] == [1, 2, [], 4, {}, "m::kinds"]
    assert core.call(0, 1, 5, [6, 7], 8, {"z": 9})["v"] == [1, 5, [6, 7], 8, {"z": 9}, "m::kinds"]


def test_an_instance_is_read_from_what_came_with_the_call(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin
        seen = []
        @plugin
        def read(x: "m::Thing") -> "any":
            seen.append(x)
            return [x.name, x.tags, x.other.name, len(set(seen)), x.other, hasattr(x, "nope")]
        """,
    )
    core.start()
    core.types(THING)
    told = [[1, 1, [[], [], "one", ["t"], I2, [I2]]], [2, 1, [[], [], "two", [], {"$": ["n"]}, []]]]
    expected = {"k": "result", "v": ["one", ["t"], "two", 1, I2, False]}
    assert core.call(0, I1, x=told) == expected
    # Values are final: nothing is requested, and the proxies are equal across calls.
    assert core.call(0, I1) == expected


def test_what_is_not_known_is_asked_for_and_in_a_loop_at_once(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin
        @plugin
        def names(x: "m::Thing") -> "any":
            return [one.name for one in x.all]
        """,
    )
    core.start()
    core.types(THING)
    values = {n: [n, 1, [[], [], f"n{n}", [], {"$": ["n"]}, []]] for n in (2, 3, 4)}
    core.answers["get"] = lambda request: {"k": "got", "x": [values[n] for n in request["i"]]}
    members = [{"$": ["i", n]} for n in (2, 3, 4)]
    reply = core.call(0, I1, x=[[1, 1, [[], [], "one", [], {"$": ["n"]}, members]]])
    assert reply == {"k": "result", "v": ["n2", "n3", "n4"]}
    assert core.asked == [{"k": "get", "i": [2, 3, 4]}]


def test_a_value_that_is_not_there_yet_is_waited_for(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin
        from inmanta.ast import UnsetException, MultiUnsetException
        @plugin
        def read(x: "m::Thing") -> "any":
            return x.name
        @plugin
        def both(x: "m::Thing") -> "any":
            missing = set()
            for name in ("name", "tags", "name"):
                try:
                    getattr(x, name)
                except UnsetException as e:
                    missing.add(e.get_result_variable())
            if missing:
                raise MultiUnsetException("not all there", list(missing))
            return "complete"
        """,
    )
    core.start()
    core.types(THING)
    pending = [[1, 1, [[], [], {"$": ["p", 88]}, {"$": ["p", 89]}, {"$": ["n"]}, []]]]
    assert core.call(0, I1, x=pending) == {"k": "unset", "cells": [88]}
    reply = core.call(1, I1, x=pending)
    assert (reply["k"], sorted(reply["cells"])) == ("unset", [88, 89])
    # In a later call, the pending state is outdated.
    core.answers["get"] = {"k": "got", "x": [[1, 1, [[], [], "one", ["t"], {"$": ["n"]}, []]]]}
    assert core.call(0, I1) == {"k": "result", "v": "one"}
    assert core.call(1, I1) == {"k": "result", "v": "complete"}
    assert len(core.asked) == 1


def test_optional_values_and_unknowns(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin
        from inmanta.ast import OptionalValueException
        from inmanta.execute.util import Unknown
        @plugin
        def other(x: "m::Thing") -> "any":
            return x.other
        @plugin
        def caught(x: "m::Thing") -> "any":
            try:
                return x.other
            except OptionalValueException:
                return None
        @plugin
        def name(x: "m::Thing") -> "any":
            return x.name
        @plugin
        def fresh(x: "any") -> "any":
            return [Unknown(source=x), Unknown(source=None)]
        @plugin(allow_unknown=True)
        def seen(x: "any") -> "any":
            return [type(x).__name__, x]
        """,
    )
    loaded = core.start()
    assert [p["allow_unknown"] for p in loaded["plugins"]] == [False, False, False, False, True]
    core.types(THING)
    told = [[1, 1, [[], [], {"$": ["u", 3]}, [], {"$": ["n"]}, []]]]
    assert core.call(0, I1, x=told) == {"k": "optional", "i": 1, "name": "other"}
    assert core.call(1, I1) == {"k": "result", "v": None}
    assert core.call(2, I1) == {"k": "unknown", "u": {"$": ["u", 3]}}
    assert core.call(3, I1) == {"k": "result", "v": [{"$": ["U", 1]}, {"$": ["U"]}]}
    assert core.call(4, {"$": ["u", 9]}) == {"k": "result", "v": ["Unknown", {"$": ["u", 9]}]}


def test_failures(core: FakeCore) -> None:
    core.module(
        "m",
        """
        import sys
        from inmanta.plugins import plugin, PluginException
        from inmanta.ast import RuntimeException
        class Mine(PluginException):
            pass
        @plugin
        def complain() -> "any":
            raise Mine("no good")
        @plugin
        def break_() -> "any":
            raise KeyError("k")
        @plugin
        def language() -> "any":
            raise RuntimeException(None, "of the language")
        @plugin
        def keys() -> "any":
            return {1: 2}
        @plugin
        def leave() -> "any":
            sys.exit(3)
        @plugin
        def readonly(x: "m::Thing") -> "any":
            x.name = 1
        @plugin
        def nothing() -> "any":
            raise ValueError()
        """,
    )
    core.start()
    core.types(THING)
    replies = [core.call(n) for n in (0, 1, 2, 3, 4)]
    assert [(r["kind"], r["class"], r["message"]) for r in replies] == [
        ("plugin", "inmanta_plugins.m.Mine", "no good"),
        ("other", "KeyError", "'k'"),
        ("runtime", "RuntimeException", "of the language"),
        (
            "runtime",
            "RuntimeException",
            "dict keys should be strings, got 1 of type <class 'int'> with dict value 2",
        ),
        ("other", "SystemExit", "3"),
    ]
    assert "complain" in replies[0]["traceback"] and "calls.py" not in replies[0]["traceback"]
    reply = core.call(5, I1, x=[[1, 1, [[], [], "n", [], {"$": ["n"]}, []]]])
    assert (reply["class"], reply["message"]) == ("Exception", "Readonly object")
    assert (core.call(6)["class"], core.call(6)["message"]) == ("ValueError", "")


def test_objects_of_python_come_back_as_they_were(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin
        class Marked(str):
            def __new__(cls, text, more):
                made = super().__new__(cls, text)
                made.more = more
                return made
        kept = (1, 2)
        @plugin
        def make() -> "any":
            return [kept, Marked("text", 5), {1}, kept]
        @plugin
        def look(x: "any") -> "any":
            return x is kept
        @plugin
        def more(x: "any") -> "any":
            return [x.more, x == "text"]
        """,
    )
    core.start()
    core.types()
    first, marked, third, again = core.call(0)["v"]
    number = first["$"][1]
    assert first["$"][0] == "o" and first["$"][2] == {"class": "tuple", "repr": "(1, 2)", "eq": number}
    assert again == {"$": ["o", first["$"][1]]}
    assert third["$"][2]["repr"] == "{1}"
    assert marked["$"][:2] == ["s", "text"]
    assert core.call(1, again)["v"] is True
    assert core.call(2, marked)["v"] == [5, True]


def test_objects_that_are_equal_say_so(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin
        from inmanta.references import Reference, reference
        @reference("m::Secret")
        class Secret(Reference[str]):
            def __init__(self, name):
                super().__init__()
                self.name = name
        @reference("m::Odd")
        class Odd(Secret):
            def __eq__(self, other):
                return isinstance(other, Odd) and other.name[0] == self.name[0]
        class Broken:
            def __eq__(self, other):
                raise ValueError()
        @plugin
        def make() -> "any":
            return [Secret("a"), Secret("b"), Secret("a"), Secret(["l"]), Secret(["l"]),
                    Odd("ax"), Odd("ay"), Odd("b"), tuple([1]), tuple([1]), {2}, {2}, Broken(), Broken()]
        """,
    )
    core.start()
    core.types()
    made = core.call(0)["v"]
    first = {value["$"][1]: index for index, value in enumerate(made)}
    assert [first[value["$"][2]["eq"]] for value in made] == [0, 1, 0, 3, 3, 5, 5, 7, 8, 8, 10, 10, 12, 13]


def test_what_the_core_made_can_be_handed_on(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin
        from inmanta.references import Reference
        @plugin
        def same(x: "any") -> "any":
            return [isinstance(x, Reference), repr(x), x]
        """,
    )
    core.start()
    core.types()
    is_reference, shown, back = core.call(
        0, {"$": ["o", None, {"class": "a.B", "repr": "<b>", "ref": "string"}]}
    )["v"]
    assert (is_reference, shown, back["$"][2]["ref"]) == (True, "<b>", "string")
    assert core.call(0, {"$": ["o", None, {"class": "a.B", "repr": "<b>", "ref": None}]})["v"][:2] == [
        False,
        "@<b>",
    ]


def test_the_context_and_what_it_leads_to(core: FakeCore) -> None:
    core.module(
        "m",
        """
        import os
        from inmanta.plugins import plugin, Context
        from inmanta.ast import NotFoundException, TypeNotFoundException
        @plugin
        def up(x: "string") -> "string":
            return x.upper()
        @plugin
        def look(ctx: Context) -> "any":
            scope = ctx.get_resolver()
            try:
                scope.lookup("nope")
            except NotFoundException as e:
                missing = str(e)
            try:
                ctx.get_type("m::Nope")
            except TypeNotFoundException as e:
                no_type = str(e)
            thing = ctx.get_type("m::Thing")
            data = ctx.get_data_dir()
            return [
                scope.lookup("x").get_value(), missing, no_type, thing.get_full_name(),
                os.path.isdir(data), os.path.basename(data), ctx.owner.namespace.get_full_name(),
                str(ctx.owner.location), ctx.get_compiler().get_plugins()["m::up"]("a"),
                ctx.get_compiler().get_plugins()["std::core"](1), ctx.compiler.refs, ctx.get_environment_id(),
                len(ctx.get_type("Thing").get_all_instances()),
            ]
        @plugin
        def waits(ctx: Context) -> "any":
            return ctx.get_resolver().lookup("late").get_value()
        """,
    )
    core.start(environment="11111111-1111-1111-1111-111111111111")
    core.types(THING)
    answers = {"x": {"k": "found", "v": 5}, "late": {"k": "found", "v": {"$": ["p", 7]}}}
    core.answers["lookup"] = lambda request: answers.get(request["name"], {"k": "absent"})
    core.answers["plugin"] = {"k": "result", "v": "from the core"}
    core.answers["instances"] = {"k": "instances", "i": [1, 2]}
    nothing = [[], [], "n", [], {"$": ["n"]}, []]
    core.answers["get"] = lambda request: {"k": "got", "x": [[n, 1, nothing] for n in request["i"]]}
    assert core.call(1, ns="a::b")["v"] == [
        5, "variable nope not found", "could not find type m::Nope in namespace m", "m::Thing",
        True, "m", "a::b", "/p/main.cf:3:1", "A", "from the core", {}, "11111111-1111-1111-1111-111111111111", 2,
    ]  # fmt: skip
    assert core.call(2) == {"k": "unset", "cells": [7]}


def test_a_plugin_that_has_the_core_call_a_plugin(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin, Context
        @plugin
        def outer(ctx: Context) -> "any":
            print("before")
            found = ctx.get_compiler().get_plugins()["native::f"](1)
            print("after", end="")
            return [found, "outer"]
        @plugin
        def inner(x: "any") -> "any":
            print("inner", x)
            return x + 1
        """,
    )
    core.start()
    core.types()
    core.send({"k": "call", "p": 0, "a": [], "ns": "m", "at": ["/f", 1]})
    assert core.receive() == {"k": "plugin", "name": "native::f", "a": [1]}
    assert core.printed == "before\n"
    # While it answers, the core calls again: responses come in the reverse order.
    core.send({"k": "call", "p": 1, "a": [41], "ns": "m", "at": ["/f", 1]})
    assert core.receive() == {"k": "result", "v": 42}
    core.send({"k": "result", "v": 42})
    assert core.receive() == {"k": "result", "v": [42, "outer"]}
    assert core.printed == "before\ninner 41\nafter"


def test_several_calls_at_once(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin
        @plugin
        def half(x: "int") -> "int":
            if x % 2:
                raise ValueError("odd")
            return x // 2
        """,
    )
    core.start()
    core.types()
    calls = [{"p": 0, "a": [n], "ns": "m", "at": ["/f", 1]} for n in (2, 3, 4)]
    replies = core.request({"k": "calls", "c": calls, "x": []}, "results")["r"]
    assert [(r["k"], r.get("v"), r.get("message")) for r in replies] == [
        ("result", 1, None), ("error", None, "odd"), ("result", 2, None),
    ]  # fmt: skip


def test_calls_go_through_the_class_of_the_plugin(core: FakeCore) -> None:
    core.module(
        "m",
        """
        from inmanta.plugins import plugin
        @plugin
        def f(x: "int") -> "int":
            return x
        def wrapped(self, *args):
            return f(*args) + 100
        f.__plugin__.call = wrapped
        """,
    )
    core.start()
    core.types()
    assert core.call(0, 1)["v"] == 101


def test_warnings_reach_the_core(core: FakeCore) -> None:
    core.module(
        "m",
        """
        import logging, warnings
        from inmanta.plugins import plugin
        @plugin
        def warn() -> "any":
            logging.getLogger(__name__).warning("a %s line", "logged")
            logging.getLogger(__name__).info("not this")
            warnings.warn("by Python", UserWarning)
        """,
    )
    core.start()
    core.types()
    assert core.call(0)["k"] == "result"
    assert core.warned == ["a logged line", "UserWarning: by Python"]


def test_threads_of_plugins_may_read(core: FakeCore) -> None:
    core.module(
        "m",
        """
        import threading
        from inmanta.plugins import plugin, Context
        def in_threads(things):
            found = []
            threads = [threading.Thread(target=lambda one=one: found.append(one.name)) for one in things]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sorted(found)
        @plugin
        def outer(ctx: Context, x: "m::Thing") -> "any":
            return [in_threads([x._get_instance() and x.all[i] for i in range(3)]),
                    ctx.get_compiler().get_plugins()["native::f"](1)]
        @plugin
        def inner(x: "m::Thing") -> "any":
            return in_threads([x.all[i] for i in range(3)])
        """,
    )
    core.start()
    core.types(THING)

    def described(request: dict[str, object]) -> dict[str, object]:
        return {"k": "got", "x": [[n, 1, [[], [], f"n{n}", [], {"$": ["n"]}, []]] for n in request["i"]]}

    core.answers["get"] = described
    several = [[1, 1, [[], [], "one", [], {"$": ["n"]}, [{"$": ["i", n]} for n in (2, 3, 4)]]]]
    more = [[5, 1, [[], [], "five", [], {"$": ["n"]}, [{"$": ["i", n]} for n in (6, 7, 8)]]]]
    call = {"k": "call", "p": 0, "a": [I1], "ns": "m", "at": ["/f", 1], "x": several}
    assert core.request(call, "plugin")["k"] == "plugin"
    # The plugin in the callback uses threads while the first one waits for its response.
    nested = {"k": "call", "p": 1, "a": [{"$": ["i", 5]}], "ns": "m", "at": ["/f", 1], "x": more}
    assert core.request(nested, "result") == {"k": "result", "v": ["n6", "n7", "n8"]}
    assert core.request({"k": "result", "v": 2}, "result") == {"k": "result", "v": [["n2", "n3", "n4"], 2]}
