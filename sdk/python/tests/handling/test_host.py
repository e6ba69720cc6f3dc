"""The handlers role, with a real process: streaming, cancelling, crashes, secrets, and code that misbehaves."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from handler_host import HandlerHost, HostGone, resource, wait_until, write_module

CODE = """
import os, signal, sys, threading, time, subprocess, uuid
from inmanta import const
from inmanta.agent.handler import (CRUDHandler, ResourcePurged, SkipResource, cache, provider)
from inmanta.protocol.endpoints import SyncClient
from inmanta.references import Reference, reference
from inmanta.resources import PurgeableResource, resource


@resource("odd::Thing", agent="agent", id_attribute="name")
class Thing(PurgeableResource):
    fields = ("name", "do", "secret", "path")


@reference("odd::Env")
class Env(Reference[str]):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def resolve(self, logger):
        logger.debug("resolving %(name)s", name=self.name)
        if self.name == "missing":
            raise LookupError("there is no variable of that name")
        if self.name == "later":
            raise SkipResource("the vault is sealed")
        return os.environ[self.name]


class Unprintable:
    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


def closed(value):
    with open(value, "a") as stream:
        stream.write("closed by %s\\n" % threading.current_thread().name)


@provider("odd::Thing", name="odd")
class Handler(CRUDHandler):
    @cache(ignore=["path"], call_on_delete=closed)
    def connection(self, path):
        with open(path, "a") as stream:
            stream.write("opened by %s\\n" % threading.current_thread().name)
        return path

    def read_resource(self, ctx, resource):
        ctx.set("started", True)
        getattr(self, "do_" + resource.do)(ctx, resource)

    def post(self, ctx, resource):
        if resource.path and resource.do != "connect":
            ctx.info("post ran")
            with open(resource.path, "a") as stream:
                stream.write("post\\n")

    def do_nothing(self, ctx, resource):
        pass

    def do_connect(self, ctx, resource):
        self.connection(resource.path)

    def do_spin(self, ctx, resource):
        ctx.info("spinning")
        while True:
            time.sleep(0.01)
            ctx.is_dry_run()

    def do_swallow(self, ctx, resource):
        ctx.info("spinning")
        for _ in range(3):
            try:
                while True:
                    time.sleep(0.01)
                    ctx.debug("again")
            except Exception:
                pass

    def do_sleep(self, ctx, resource):
        ctx.info("sleeping")
        time.sleep(0.5)

    def do_slow_lines(self, ctx, resource):
        ctx.info("first")
        while not os.path.exists(resource.path):
            time.sleep(0.01)
        ctx.info("second")

    def do_many_lines(self, ctx, resource):
        for number in range(12000):
            ctx.debug("line %(number)d", number=number)
        ctx.info("done")

    def do_print(self, ctx, resource):
        for _ in range(2000):
            print("x" * 2000)
        sys.stderr.write("y" * 1000000)

    def do_close_some(self, ctx, resource):
        os.closerange(3, 1024)
        ctx.info("still here")

    def do_close_all(self, ctx, resource):
        os.closerange(3, 65536)
        # Files that are opened now get the numbers that were closed.
        self.files = [open(resource.path + str(number), "w") for number in range(5000)]
        ctx.info("not into a file")
        time.sleep(10)

    def do_subprocess(self, ctx, resource):
        done = subprocess.run([sys.executable, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"],
                              capture_output=True, text=True, close_fds=False)
        ctx.info("descriptors %(text)s", text=done.stdout.strip())

    def do_crash(self, ctx, resource):
        ctx.info("before the crash")
        time.sleep(0.3)
        signal.raise_signal(signal.SIGSEGV)

    def do_exit_in_thread(self, ctx, resource):
        thread = threading.Thread(target=sys.exit, args=(3,))
        thread.start()
        thread.join()

    def do_interrupt(self, ctx, resource):
        raise KeyboardInterrupt()

    def do_leak(self, ctx, resource):
        secret = resource.secret
        ctx.info("the secret is " + secret.replace("%", "%%"))
        ctx.info("quoted %(it)r", it=secret, **{"nested": [{"deep": secret, secret: 1}]})
        ctx.add_change("secret", desired=secret, current={"in": [secret, "x" + secret]})
        ctx.set_fact("fact", secret)
        raise ValueError("wrong password: " + secret)

    def do_odd_values(self, ctx, resource):
        circle = []
        circle.append(circle)
        ctx.debug("odd", a=float("nan"), b=2 ** 100, c={1: {2}}, d=b"bytes", e="half \\udc80", f=uuid.UUID(int=1))
        ctx.debug("printless", a=1)
        ctx.add_change("nan", desired=float("inf"), current=2 ** 100)
        ctx.add_change("text", desired="half \\udc80")
        ctx.add_change("enum", desired=const.Change.created)
        ctx.set_fact("number", 5)
        ctx.set_fact("object", Unprintable())
        ctx.set_fact("circle", circle)

    def do_huge(self, ctx, resource):
        ctx.info("huge " + "x" * 3000000)
        ctx.info("huge values", values={str(number): "y" * 900000 for number in range(20)})
        for number in range(20):
            ctx.add_change(str(number), desired="z" * 900000)

    def do_server(self, ctx, resource):
        result = SyncClient("agent").get_param("tid", id="x")
        ctx.info("code %(code)s %(result)s", code=result.code, result=result.result)

    def do_server_async(self, ctx, resource):
        result = self.run_sync(lambda: self.get_client().get_param(tid="t", id="y"))
        ctx.info("code %(code)s", code=result.code)

    def do_await(self, ctx, resource):
        import asyncio
        ctx.info("awaiting")
        self.run_sync(lambda: asyncio.sleep(60))

    def do_fork(self, ctx, resource):
        child = os.fork()
        if child == 0:
            try:
                ctx.info("from the child " * 100)
                self.get_client()
                ctx._operation.flush()
            finally:
                os._exit(5)
        ctx.info("child ended with %(status)s", status=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        ctx.info("path %(path)s", path=os.environ.get("PYTHONPATH"))

    def do_orphan(self, ctx, resource):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        os._exit(9)

    def do_files(self, ctx, resource):
        self.upload_file("some-id", b"content")
        missing = self.get_file("0" * 40)
        ctx.info("%(a)s %(b)s %(c)s", a=self.get_file("some-id"), b=missing, c=self.stat_file("some-id"))

    def do_late_thread(self, ctx, resource):
        def late():
            time.sleep(0.2)
            ctx.info("too late")
        threading.Thread(target=late).start()

    def do_raise_in_close(self, ctx, resource):
        self.close = lambda: 1 / 0

    def do_io(self, ctx, resource):
        ctx.info(self._io.run("echo", ["io"])[0])

    def do_reload(self, ctx, resource=None):
        if resource is not None and resource.do == "nothing":
            ctx.info("reloaded")

    def can_reload(self):
        return True

    def facts(self, ctx, resource):
        if resource.do == "fail":
            raise ValueError("no facts")
        return {"kernel": "6", "secret": resource.secret}
"""


def thing(do: str, agent: str = "a", version: int = 1, **fields: Any) -> dict[str, Any]:
    values = {"secret": None, "path": None, **fields}
    return resource(f"odd::Thing[{agent},name={do}],v={version}", name=do, do=do, **values)


def secret_thing(do: str, variable: str, **fields: Any) -> dict[str, Any]:
    """A resource with a reference as its secret."""
    import uuid

    name = str(uuid.UUID(int=7))
    return thing(
        do,
        references=[
            {"type": "odd::Env", "args": [{"type": "literal", "name": "name", "value": variable}], "id": name}
        ],
        mutators=[
            {
                "type": "core::Replace",
                "args": [
                    {"type": "resource", "name": "resource", "id": f"odd::Thing[a,name={do}]"},
                    {"type": "reference", "name": "value", "id": name},
                    {"type": "literal", "name": "destination", "value": "secret"},
                ],
            }
        ],
        **fields,
    )


@pytest.fixture
def module(tmp_path: Path) -> dict[str, Path]:
    return write_module(tmp_path / "modules", "odd", CODE)


@pytest.fixture
def host(module: dict[str, Path], tmp_path: Path) -> Iterator[HandlerHost]:
    (tmp_path / "files").mkdir()
    with HandlerHost(module, files=str(tmp_path / "files")) as started:
        assert started.loaded["problems"] == []
        yield started


def test_the_greeting_and_the_manifest(host: HandlerHost) -> None:
    assert (host.hello["protocol"], host.hello["language"], host.hello["pid"]) == (
        1,
        "python",
        host.process.pid,
    )
    assert host.loaded["handlers"] == ["odd::Thing"]
    assert host.loaded["references"] == ["core::AttributeReference", "odd::Env"]


def test_a_module_that_cannot_be_imported_does_not_keep_others_away(
    tmp_path: Path, module: dict[str, Path]
) -> None:
    broken = write_module(tmp_path / "more", "broken", "import sys\nsys.exit(3)\n")
    missing = {"gone": tmp_path / "nowhere"}
    with HandlerHost({**broken, **missing, **module}) as started:
        problems = {item["module"]: item["problems"] for item in started.loaded["problems"]}
        assert list(problems) == ["broken", "gone"]
        assert "SystemExit: 3" in problems["broken"][0] and "sys.exit(3)" in problems["broken"][0]
        assert started.run(thing("nothing")).state == "deployed"


def test_lines_are_sent_while_the_operation_runs(host: HandlerHost, tmp_path: Path) -> None:
    signal_file = tmp_path / "go"
    number = host.start(thing("slow_lines", path=str(signal_file)))
    host.wait_for_line(number, "first")
    signal_file.touch()
    outcome = host.wait(number)
    assert [line[3] for line in outcome.lines if line[2] == "info"] == ["first", "second", "post ran"]
    times = [line[1] for line in outcome.lines]
    assert times == sorted(times) and abs(times[0] - time.time()) < 60


def test_debug_lines_have_a_limit(host: HandlerHost) -> None:
    outcome = host.run(thing("many_lines"))
    assert outcome.state == "deployed"
    assert len(outcome.texts("debug")) == 10_000
    assert outcome.texts("info") == ["done"]
    # "Calling read_resource" is one of them.
    assert outcome.texts("warning") == ["2001 more lines of level DEBUG were left out: 10000 is the limit"]


def test_lines_below_the_level_are_not_sent(host: HandlerHost) -> None:
    outcome = host.run(thing("many_lines"), level="info")
    assert outcome.texts() == ["done"]


def test_cancelling(host: HandlerHost, tmp_path: Path) -> None:
    log = tmp_path / "post"
    for mode in ("spin", "swallow"):
        number = host.start(thing(mode, path=str(log)))
        host.wait_for_line(number, "spinning")
        host.send({"k": "cancel", "c": number})
        outcome = host.wait(number)
        assert (outcome.state, outcome.change) == ("cancelled", "nochange")
        assert "post ran" in outcome.texts("info")
    assert log.read_text() == "post\npost\n"
    number = host.start(thing("await"))
    host.wait_for_line(number, "awaiting")
    host.send({"k": "cancel", "c": number})
    assert host.wait(number).state == "cancelled"
    host.send({"k": "cancel", "c": 12345})
    assert host.run(thing("nothing")).state == "deployed"


def test_what_waits_can_be_cancelled(host: HandlerHost) -> None:
    first, second = host.start(thing("sleep")), host.start(thing("nothing"))
    host.send({"k": "cancel", "c": second})
    assert host.wait(first).state == "deployed"
    assert host.wait(second).state == "cancelled"


def test_a_deadline(host: HandlerHost) -> None:
    begun = time.monotonic()
    outcome = host.run(thing("spin"), deadline=0.3)
    assert outcome.state == "failed" and 0.2 < time.monotonic() - begun < 10
    assert "deadline of 0.3 s" in outcome.texts("error")[0]


def test_agents_do_not_wait_for_each_other_but_operations_of_one_do(host: HandlerHost) -> None:
    slow = host.start(thing("spin", agent="one"))
    host.wait_for_line(slow, "spinning")
    assert host.run(thing("nothing", agent="two")).state == "deployed"
    behind = host.start(thing("nothing", agent="one"))
    host.send({"k": "ping", "n": 7})
    assert host.wait_for("pong")["n"] == 7
    host.send({"k": "cancel", "c": slow})
    assert host.wait(slow).state == "cancelled"
    assert host.wait(behind).state == "deployed"


def test_printing_megabytes_is_allowed(host: HandlerHost) -> None:
    assert host.run(thing("print")).state == "deployed"
    wait_until(lambda: len(host.printed()) >= 5_000_000, "all was printed")


def test_closing_the_usual_descriptors_does_no_harm(host: HandlerHost) -> None:
    outcome = host.run(thing("close_some"))
    assert outcome.state == "deployed" and outcome.texts("info") == ["still here"]


def test_closing_all_descriptors_ends_the_host_and_writes_into_no_file(
    host: HandlerHost, tmp_path: Path
) -> None:
    number = host.start(thing("close_all", path=str(tmp_path / "file")))
    with pytest.raises(HostGone, match=r"status 70.*closed by code that runs in this process"):
        host.wait(number)
    assert all(path.stat().st_size == 0 for path in tmp_path.glob("file[0-9]*"))


def test_programs_that_handlers_start_do_not_inherit_the_connection(host: HandlerHost) -> None:
    text = host.run(thing("subprocess")).texts("info")[0]
    numbers = json.loads(text.removeprefix("descriptors "))
    assert max(numbers) < 10


def test_forked_processes_have_no_part_in_the_conversation(host: HandlerHost) -> None:
    outcome = host.run(thing("fork"))
    assert outcome.state == "deployed"
    assert outcome.texts("info") == ["child ended with 70", "path None"]
    begun = time.monotonic()
    with pytest.raises(HostGone, match="status 9"):
        host.run(thing("orphan"))
    assert time.monotonic() - begun < 10, "a child that stays must not keep the connection open"


def test_a_crash_keeps_the_lines_that_were_sent(host: HandlerHost) -> None:
    number = host.start(thing("crash"))
    host.wait_for_line(number, "before the crash")
    with pytest.raises(HostGone, match=r"status -11(.|\n)*do_crash"):
        host.wait(number)


@pytest.mark.parametrize(
    ("mode", "state", "text"),
    [
        ("exit_in_thread", "deployed", None),
        ("interrupt", "failed", "KeyboardInterrupt"),
        ("raise_in_close", "deployed", "could not be closed"),
        ("no_such_thing", "failed", "AttributeError"),
        ("io", "deployed", "io"),
    ],
)
def test_odd_endings(host: HandlerHost, mode: str, state: str, text: str | None) -> None:
    outcome = host.run(thing(mode))
    assert outcome.state == state
    assert text is None or any(text in line for line in outcome.texts())
    assert host.run(thing("nothing")).state == "deployed"


def test_an_interrupt_of_the_terminal_is_not_for_hosts(host: HandlerHost) -> None:
    os.kill(host.process.pid, signal.SIGINT)
    assert host.run(thing("nothing")).state == "deployed"


def test_whatever_handlers_report_is_plain_json(host: HandlerHost) -> None:
    outcome = host.run(thing("odd_values"))
    assert outcome.state == "deployed"
    values = outcome.lines[1][4]
    assert values["a"] == "nan" and values["b"] == str(2**100) and values["f"].endswith("1")
    assert values["c"] == "{1: {2}}" and values["d"] == "b'bytes'" and values["e"].startswith("half ")
    changes = outcome.report["changes"]
    assert changes["nan"] == {"current": str(2**100), "desired": "inf"}
    assert changes["enum"]["desired"] == "created"
    facts = {name: value for name, value, _expires in outcome.report["facts"]}
    assert facts["number"] == 5 and "cannot be printed" in facts["object"]
    assert "…" in json.dumps(facts["circle"], ensure_ascii=False)


def test_what_is_too_large_is_cut_and_says_so(host: HandlerHost) -> None:
    outcome = host.run(thing("huge"))
    assert outcome.state == "deployed"
    assert "characters were left out" in outcome.texts("info")[0]
    assert "left_out" in outcome.lines[-1][4]
    assert "left out" in outcome.report["changes"]["0"]["desired"]


@pytest.mark.parametrize(
    "secret", ["hunter2 is it", 'it\'s "quoted"\\n', "ümlaut/?&", "line one of it\nline two of it"]
)
def test_values_of_references_stay_here(
    module: dict[str, Path], monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("SECRET", secret)
    with HandlerHost(module) as host:
        outcome = host.run(secret_thing("leak", "SECRET"))
        assert outcome.state == "failed"
        assert (
            outcome.texts("info") == ["the secret is ***", "quoted '***'"]
            or "***" in outcome.texts("info")[1]
        )
        assert outcome.report["changes"]["secret"] == {"current": {"in": ["***", "x***"]}, "desired": "***"}
        assert outcome.report["facts"] == [["fact", "***", True]]
        sent = outcome.everything()
        for part in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], *secret.splitlines()):
            assert part not in sent and json.dumps(part)[1:-1] not in sent
        # The next operation has no secrets.
        assert host.run(thing("nothing")).texts() == ["Calling read_resource"]


def test_short_values_are_hidden_only_where_they_are_all(
    module: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "is")
    with HandlerHost(module) as host:
        outcome = host.run(secret_thing("leak", "SECRET"))
        assert outcome.texts("info")[0] == "the secret is is"
        assert outcome.report["changes"]["secret"]["desired"] == "***"
        facts = host.run(secret_thing("nothing", "SECRET"), op="facts").report["facts"]
        assert facts == [["kernel", "6", True], ["secret", "***", True]]


@pytest.mark.parametrize("kind", ["deploy", "dryrun", "facts"])
def test_references_that_cannot_be_resolved(host: HandlerHost, kind: str) -> None:
    failed = host.run(secret_thing("nothing", "missing"), op=kind)
    assert failed.state == "failed" and "LookupError" in failed.texts("error")[0]
    skipped = host.run(secret_thing("nothing", "later"), op=kind)
    assert skipped.state == "skipped"
    gone = secret_thing("nothing", "SECRET")
    gone["references"][0]["type"] = "odd::Gone"
    unavailable = host.run(gone, op=kind)
    assert unavailable.state == ("failed" if kind == "facts" else "unavailable")
    if kind == "dryrun":
        assert unavailable.report["changes"] == {
            "handler": {"current": "FAILED", "desired": "Handler failed"}
        }


@pytest.mark.parametrize("kind", ["deploy", "dryrun", "facts"])
def test_resources_that_cannot_be_handled(host: HandlerHost, kind: str, tmp_path: Path) -> None:
    unknown = resource("odd::Other[a,name=x],v=1", name="x")
    lacking = thing("nothing")
    del lacking["secret"]
    for item in (unknown, lacking):
        outcome = host.run(item, op=kind)
        assert outcome.state == ("failed" if kind == "facts" else "unavailable")
        assert "Unable to deserialize" in outcome.texts("error")[0]
        assert ("handler" in outcome.report["changes"]) == (kind == "dryrun")


def test_no_handler(tmp_path: Path) -> None:
    module = write_module(
        tmp_path,
        "bare",
        """
        from inmanta.resources import PurgeableResource, resource

        @resource("bare::Thing", agent="agent", id_attribute="name")
        class Thing(PurgeableResource):
            fields = ("name",)
        """,
    )
    with HandlerHost(module) as host:
        wanted = resource("bare::Thing[a,name=x],v=1", name="x")
        outcome = host.run(wanted)
        assert (
            outcome.state == "unavailable" and "No resource handler registered" in outcome.texts("error")[0]
        )
        change = {"handler": {"current": "FAILED", "desired": "Unable to find a handler"}}
        assert host.run(wanted, op="dryrun").report["changes"] == change


def test_dry_runs_and_failing_facts(host: HandlerHost) -> None:
    dry = host.run(thing("nothing", purged=True), op="dryrun")
    assert dry.state == "dry"
    assert dry.report["changes"] == {"purged": {"current": False, "desired": True}}
    failed = host.run(thing("interrupt"), op="dryrun")
    assert failed.state == "failed"
    facts = host.run(thing("fail"), op="facts")
    assert facts.state == "failed" and "no facts" in facts.texts("error")[0]


def test_requirements_and_reload(host: HandlerHost) -> None:
    skipped = host.run(thing("nothing"), requires={"odd::Thing[a,name=y]": "skipped_for_dependency"})
    assert skipped.state == "skipped_for_dependency"
    odd = host.run(thing("nothing"), requires={"odd::Thing[a,name=y]": "a state of the future"})
    assert odd.state == "skipped_for_dependency"
    reloaded = host.run(
        thing("nothing"), requires={"odd::Thing[a,name=y]": "deployed"}, changed=["odd::Thing[a,name=y]"]
    )
    assert reloaded.state == "deployed" and "reloaded" in reloaded.texts("info")
    assert "reloaded" not in host.run(thing("nothing"), requires={"odd::Thing[a,name=y]": "deployed"}).texts()


def test_calls_of_the_core(host: HandlerHost) -> None:
    for mode, arguments in (("server", {"tid": "tid", "id": "x"}), ("server_async", {"tid": "t", "id": "y"})):
        number = host.start(thing(mode))
        call = host.wait_for("server")
        assert (call["c"], call["method"], call["args"]) == (number, "get_param", arguments)
        host.send({"k": "reply", "q": call["q"], "code": 404, "result": {"message": "none"}})
        assert host.wait(number).texts("info")[0].startswith("code 404")
    waiting = host.start(thing("server"))
    host.wait_for("server")
    host.send({"k": "cancel", "c": waiting})
    assert host.wait(waiting).state == "cancelled"


def test_file_contents(host: HandlerHost, tmp_path: Path) -> None:
    assert host.run(thing("files")).texts("info")[0].endswith("None True")
    assert (tmp_path / "files" / "some-id").read_bytes() == b"content"


def test_threads_that_handlers_leave_behind_do_no_harm(host: HandlerHost) -> None:
    outcome = host.run(thing("late_thread"))
    assert outcome.state == "deployed"
    time.sleep(0.4)
    assert host.run(thing("nothing")).texts() == ["Calling read_resource"]


def test_retiring_an_agent_closes_its_cache_on_its_own_thread(host: HandlerHost, tmp_path: Path) -> None:
    log = tmp_path / "log"
    host.run(thing("connect", path=str(log)))
    host.run(thing("connect", path=str(log), version=2))
    assert log.read_text() == "opened by agent-a\n"
    host.send({"k": "retire", "agent": "a"})
    wait_until(lambda: log.read_text().count("closed") == 1, "the connection was closed")
    host.run(thing("connect", path=str(log)))
    host.send({"k": "shutdown"})
    assert host.process.wait(10) == 0
    assert log.read_text() == "opened by agent-a\nclosed by agent-a\n" * 2


def test_idle_agents_retire(module: dict[str, Path], tmp_path: Path) -> None:
    log = tmp_path / "log"
    with HandlerHost(module, config={"handlers.retire_after": "0.2"}) as host:
        host.run(thing("connect", path=str(log)))
        threads = Path(f"/proc/{host.process.pid}/task")
        before = len(list(threads.iterdir()))
        wait_until(lambda: "closed by agent-a" in log.read_text(), "the connection was closed")
        wait_until(lambda: len(list(threads.iterdir())) < before, "the thread has ended")
        assert host.run(thing("connect", path=str(log))).state == "deployed"


def test_an_agent_without_a_machine_gets_no_io(host: HandlerHost) -> None:
    refusal = {"uri": None, "no_machine": {"reason": "web2 is elsewhere", "help": "enrol it"}}
    done = host.run(thing("io"), **refusal)
    assert done.state == "unavailable"
    assert "web2 is elsewhere" in done.texts("error")
    assert host.run(thing("nothing"), **refusal).state == "deployed"
    assert host.run(thing("io")).state == "deployed"


def test_many_agents_do_not_mean_many_threads(host: HandlerHost) -> None:
    threads = Path(f"/proc/{host.process.pid}/task")
    numbers = [host.start(thing("nothing", agent=f"agent{number}")) for number in range(600)]
    assert all(host.wait(number).state == "deployed" for number in numbers)
    wait_until(lambda: len(list(threads.iterdir())) < 270, "idle agents were retired")


def test_shutting_down_waits_for_what_runs(host: HandlerHost) -> None:
    number = host.start(thing("sleep"))
    host.wait_for_line(number, "sleeping")
    host.send({"k": "shutdown"})
    late = [host.start(thing("nothing")), host.start(thing("nothing", agent="b"))]
    assert all(host.wait(each).state == "deployed" for each in [number, *late])
    assert host.process.wait(10) == 0


def test_the_end_of_the_stream_ends_the_host(host: HandlerHost, tmp_path: Path) -> None:
    log = tmp_path / "log"
    host.run(thing("connect", path=str(log)))
    number = host.start(thing("spin", agent="b"))
    host.wait_for_line(number, "spinning")
    host.close()
    assert host.process.returncode == 0
    assert "closed by agent-a" in log.read_text()


def test_a_broken_rule_ends_the_host(host: HandlerHost) -> None:
    host.send({"k": "nonsense"})
    with pytest.raises(HostGone, match=r"status 76.*unknown kind `nonsense`"):
        host.receive()


def test_many_operations_do_not_use_up_memory(host: HandlerHost) -> None:
    def run(count: int) -> None:
        for _ in range(count // 50):
            numbers = [host.start(thing("nothing", agent=f"agent{position % 4}")) for position in range(50)]
            assert all(host.wait(number).state == "deployed" for number in numbers)

    run(500)
    before = host.memory_kib()
    run(3000)
    assert host.memory_kib() - before < 4096
