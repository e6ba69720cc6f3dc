"""The modules of the probes, through a real host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from handler_host import HandlerHost, HostGone, resource

PROBES = Path(__file__).resolve().parents[4] / "tests" / "probes"


def balancer(store: Path, name: str, version: int, **fields: object) -> dict[str, object]:
    values = {
        "members": ["a"],
        "sg": "sg-1",
        "device_id": "lb",
        "store": str(store),
        "note_hash": "",
        **fields,
    }
    return resource(f"lbdemo::Balancer[lb,name={name}],v={version}", name=name, **values)


def test_the_module_in_the_style_of_the_documentation(tmp_path: Path) -> None:
    store = tmp_path / "lb.json"
    with HandlerHost({"lbdemo": PROBES / "08_seed002_libs" / "lbdemo" / "plugins"}) as host:
        assert host.loaded["problems"] == []
        assert host.loaded["handlers"] == ["lbdemo::Balancer"]

        created = host.run(balancer(store, "front", 1))
        assert (created.state, created.change) == ("deployed", "created")
        assert created.report["changes"] == {"purged": {"current": True, "desired": False}}
        assert created.report["facts"] == [["vip", "192.0.2.1", True]]
        assert created.texts("debug") == [
            "Calling read_resource",
            "Using connections 1 and 2 for sg-1",
            "Calling create_resource",
        ]
        assert created.lines[1][4] == {"a": 1, "b": 2, "sg": "sg-1"}

        again = host.run(balancer(store, "front", 1))
        assert (again.state, again.change, again.report["changes"]) == ("deployed", "nochange", {})

        skipped = host.run(balancer(store, "later", 1, sg="sg-skip"))
        assert (skipped.state, skipped.change) == ("skipped", "nochange")
        assert skipped.texts("warning") == [
            "Resource lbdemo::Balancer[lb,name=later] was skipped: ['device not ready']"
        ]

        dry = host.run(balancer(store, "front", 2, members=["b"]), op="dryrun")
        assert (dry.state, dry.change) == ("dry", "nochange")
        assert dry.report["changes"] == {"members": {"current": ["a"], "desired": ["b"]}}
        assert json.loads(store.read_text())["front"]["members"] == ["a"]

        updated = host.run(balancer(store, "front", 2, members=["b"]))
        assert (updated.state, updated.change) == ("deployed", "updated")
        assert updated.texts("info") == ["Updating ['members']"]

        facts = host.run(balancer(store, "front", 2, members=["b", "c"]), op="facts")
        assert facts.report["facts"] == [["member_count", "2", True]]

        purged = host.run(balancer(store, "front", 3, purged=True))
        assert (purged.state, purged.change) == ("deployed", "purged")
        assert json.loads(store.read_text()) == {}

        host.send({"k": "shutdown"})
        assert host.process.wait(10) == 0
    journal = (tmp_path / "lb.json.journal").read_text().splitlines()
    # One connection by time; one for each version, closed when the next one begins or at the end.
    assert journal == ["open 1", "open 2", "open 3", "close 2", "open 4", "close 3", "close 4"]


def bomb(mode: str) -> dict[str, object]:
    return resource(f"crashdemo::Bomb[bomb-{mode},name={mode}],v=1", name=mode, mode=mode)


def test_misbehaving_handlers_do_not_disturb_others() -> None:
    with HandlerHost({"crashdemo": PROBES / "13_crash_libs" / "crashdemo" / "plugins"}) as host:
        modes = ["sysexit", "stdout", "dep", "badlog", "twice", "badchange", "post"]
        numbers = {mode: host.start(bomb(mode)) for mode in modes}
        outcomes = {mode: host.wait(number) for mode, number in numbers.items()}
        assert {mode: outcome.state for mode, outcome in outcomes.items()} == {
            "sysexit": "failed",
            "stdout": "deployed",
            "dep": "skipped_for_dependency",
            "badlog": "failed",
            "twice": "failed",
            "badchange": "deployed",
            "post": "deployed",
        }
        assert "SystemExit('4')" in outcomes["sysexit"].texts("error")[0]
        assert "noise on stdout" in host.printed() and "noise on stderr" in host.printed()
        change = outcomes["badchange"].report["changes"]["x"]
        assert change["desired"] == "{1, 2}" and change["current"].startswith("<object object")
        assert "post failed" in outcomes["post"].texts("error")[0]

        number = host.start(bomb("exit"))
        with pytest.raises(HostGone, match="status 3"):
            host.wait(number)
