"""The cache of an agent: keys, lifetimes, callbacks."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from inmanta.agent.cache import AgentCache, retention
from inmanta.agent.handler import CRUDHandler, cache
from inmanta.resources import Id, PurgeableResource, resource


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(clock: Clock) -> AgentCache:
    return AgentCache(clock=clock)


def handler(cls: type[Any], kept: AgentCache) -> Any:
    made = cls(None)
    made.set_cache(kept)
    return made


class Counting(CRUDHandler[Any]):
    made = 0
    closed: list[int] = []

    def _new(self) -> int:
        Counting.made += 1
        return Counting.made

    @cache
    def bare(self, a: Any, b: Any = 2) -> int:
        return self._new()

    @cache(ignore=["ctx"], timeout=120)
    def by_time(self, ctx: Any, a: Any) -> int:
        return self._new()

    @cache(
        ignore=["ctx"],
        timeout=120,
        for_version=True,
        call_on_delete=lambda value: Counting.closed.append(value),
    )
    def by_version(self, ctx: Any, a: Any, version: int) -> int:
        return self._new()

    @cache(timeout=120, call_on_delete=lambda value: Counting.closed.append(value))
    def implied_version(self, version: int) -> int:
        return self._new()

    @cache(for_version=False, call_on_delete=lambda value: Counting.closed.append(value))
    def any_version(self, version: int) -> int:
        return self._new()

    @cache(cache_none=False)
    def nothing(self, results: Any) -> Any:
        return results.pop(0)

    @cache(cacheNone=False)
    def nothing_old(self, results: Any) -> Any:
        return results.pop(0)

    @cache
    def nothing_kept(self, a: Any) -> None:
        self._new()

    @cache
    def of_resource(self, resource: Any) -> int:
        return self._new()


@pytest.fixture(autouse=True)
def counters() -> None:
    Counting.made = 0
    Counting.closed = []


def test_the_same_arguments_give_the_same_value_however_they_are_given(kept: AgentCache) -> None:
    one, other = handler(Counting, kept), handler(Counting, kept)
    assert one.bare(1) == other.bare(1, 2) == one.bare(b=2, a=1) == 1
    assert one.bare(2) == 2 and one.bare("1") == 3
    assert one.by_time("ctx1", 5) == one.by_time("ctx2", 5) == 4


def test_ignore_can_be_given_by_position() -> None:
    # The first parameter is the function; `ignore` and `timeout` follow.
    decorated = cache(None, ["ctx"], 120)(lambda self, ctx, a: object())
    some = handler(Counting, AgentCache())
    assert decorated(some, "x", 1) is decorated(some, "y", 1)


def test_methods_that_only_have_the_same_name_do_not_share(kept: AgentCache) -> None:
    class Base(CRUDHandler[Any]):
        @cache
        def connection(self, host: str) -> object:
            return object()

    class First(Base):
        @cache
        def own(self, host: str) -> object:
            return object()

    class Second(Base):
        @cache
        def own(self, host: str) -> object:
            return object()

    first, second = handler(First, kept), handler(Second, kept)
    assert first.connection("h") is second.connection("h"), "inherited helpers share"
    assert first.own("h") is not second.own("h")
    assert first.own("h") is first.own("h")


def test_a_resource_counts_by_its_id_without_version(kept: AgentCache) -> None:
    @resource("t::R", agent="a", id_attribute="name")
    class Thing(PurgeableResource):
        fields = ("name",)

    some = handler(Counting, kept)
    assert some.of_resource(Thing(Id.parse_id("t::R[a,n=x],v=1"))) == 1
    assert some.of_resource(Thing(Id.parse_id("t::R[a,n=x],v=2"))) == 1
    assert some.of_resource(Thing(Id.parse_id("t::R[a,n=y],v=2"))) == 2


def test_none(kept: AgentCache) -> None:
    some = handler(Counting, kept)
    for method in (some.nothing, some.nothing_old):
        results: Any = Results([None, 5, 6])
        assert [method(results), method(results), method(results)] == [None, 5, 5]
    some.nothing_kept(1)
    some.nothing_kept(1)
    assert Counting.made == 1


class Results(list[Any]):
    def __repr__(self) -> str:
        return "results"


# for_version, timeout, after last use, after creation, has a version: lifetime after last use, after creation
RETENTION: list[tuple[bool | None, float | None, float, float, bool, float, float]] = [
    (None, None, 0, 0, False, 60, 0),
    (None, 120, 0, 0, False, 0, 120),
    (None, 120, 7, 0, False, 7, 0),
    (None, 120, 0, 8, False, 0, 8),
    (None, None, 7, 8, False, 7, 8),
    (True, None, 0, 0, False, 60, 0),
    (True, None, 7, 0, False, 7, 0),
    (True, 120, 0, 0, True, 60, 120),
    (True, 120, 0, 0, False, 60, 0),
    (False, None, 0, 0, False, 0, 5000),
    (False, 120, 0, 0, False, 0, 120),
    (False, 120, 0, 8, False, 0, 8),
    (False, None, 0, 0, True, 0, 5000),
    (None, 120, 0, 0, True, 0, 120),
]


@pytest.mark.parametrize("row", RETENTION)
def test_how_long_values_are_kept(row: Any, kept: AgentCache, clock: Clock) -> None:
    for_version, timeout, last, creation, has_version, idle, life = row
    assert retention(for_version, timeout, last, creation, has_version) == (idle, life)
    options = {"for_version": for_version, "timeout": timeout}
    arguments = {"version": 3} if has_version else {}

    def get() -> object:
        return kept.get_or_make(
            "f", object, arguments, evict_after_last_access=last, evict_after_creation=creation, **options
        )

    value, end = get(), clock.now + life
    for _ in range(4):
        # Used repeatedly, shortly before its idle limit.
        if idle:
            clock.now += idle - 1
            expected = not life or clock.now < end
            assert (get() is value) == expected
            if not expected:
                return
            kept.touch_used_cache_items()
    if life:
        clock.now = end - 1
        assert idle or get() is value
        clock.now = end
    else:
        clock.now += idle
    assert get() is not value


def test_the_last_use_counts_from_the_end_of_the_operation(kept: AgentCache, clock: Clock) -> None:
    some = handler(Counting, kept)
    some.bare(1)
    clock.now += 50
    kept.touch_used_cache_items()
    clock.now += 59
    kept.clean_stale_entries()
    assert len(kept) == 1 and kept.next_expiry() == 1
    clock.now += 1
    kept.clean_stale_entries()
    assert len(kept) == 0 and kept.next_expiry() is None


def test_values_of_a_version_go_when_a_newer_one_has_been_used(kept: AgentCache, clock: Clock) -> None:
    some = handler(Counting, kept)
    assert some.by_version("c", 1, 1) == 1
    assert some.implied_version(1) == 2
    assert some.any_version(1) == 3
    kept.close_versions_before(1)
    assert some.by_version("c", 1, version=1) == 1 and Counting.closed == []
    assert some.by_version("c", 1, 2) == 4
    kept.close_versions_before(2)
    assert Counting.closed == [1, 2]
    assert some.by_version("c", 1, 2) == 4 and some.any_version(1) == 3
    clock.now += 121
    kept.clean_stale_entries()
    assert Counting.closed == [1, 2, 4]
    kept.close()
    assert Counting.closed == [1, 2, 4, 3]


def test_callbacks_run_exactly_once_and_may_fail(kept: AgentCache, clock: Clock) -> None:
    calls: list[str] = []

    def fail(value: str) -> None:
        calls.append(value)
        raise SystemExit(1)

    kept.cache_value("a", "a", 60, 0, call_on_delete=fail)
    kept.cache_value("b", "b", 60, 0, call_on_delete=fail)
    clock.now += 60
    kept.clean_stale_entries()
    kept.clean_stale_entries()
    kept.close()
    assert sorted(calls) == ["a", "b"]


def test_a_cache_that_nobody_closed_still_calls_back() -> None:
    calls: list[str] = []
    forgotten = AgentCache()
    forgotten.cache_value("a", "a", call_on_delete=calls.append)
    del forgotten
    gc.collect()
    assert calls == ["a"]


def test_one_thread_at_a_time_makes_a_value() -> None:
    kept = AgentCache()
    begun, go = threading.Event(), threading.Event()
    made: list[int] = []

    def make() -> int:
        made.append(1)
        begun.set()
        go.wait(10)
        return len(made)

    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(kept.get_or_make("f", make, {}))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    begun.wait(10)
    go.set()
    for thread in threads:
        thread.join(10)
    assert results == [1, 1, 1, 1] and made == [1]


def test_threads_of_handlers_may_use_the_cache_while_it_is_cleaned() -> None:
    kept = AgentCache()
    failures: list[BaseException] = []
    stop = threading.Event()

    def use(number: int) -> None:
        position = 0
        try:
            while not stop.is_set():
                position += 1
                kept.get_or_make(
                    "f", object, {"n": number % 2, "i": position % 50}, evict_after_creation=0.0005
                )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            kept.clean_stale_entries()
            kept.touch_used_cache_items()
            kept.next_expiry()
            kept.close_versions_before(5)
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
    assert failures == [] and not kept._locks
