"""Small components: transport, loading, contents, redaction, plain values, configuration, clients, encoders."""

from __future__ import annotations

import datetime
import enum
import json
import socket
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from inmanta import const, data, util
from inmanta.config import Config, Option, is_bool, is_int
from inmanta.module import Project, ProjectNotFoundException
from inmanta.protocol import Client, SyncClient
from inmanta.protocol.common import BadRequest, Result
from inmanta.resources import Id
from orrery_sdk import files, loading, server
from orrery_sdk.handling.plain import plain
from orrery_sdk.handling.redact import Redactor
from orrery_sdk.loop import run_and_wait
from orrery_sdk.wire import LINE_MAX, Closed, Wire, WireError, decode, encode

# Transport.


@pytest.fixture
def wires() -> Any:
    ours, theirs = socket.socketpair()
    wire = Wire(theirs)
    yield wire, ours
    ours.close()
    wire.close()


def test_messages_arrive_however_they_are_cut(wires: Any) -> None:
    wire, other = wires
    messages = [{"k": "a", "text": "é\n" * n} for n in range(5)]
    data = b"".join(encode(message) for message in messages)
    for position in range(0, len(data), 3):
        other.sendall(data[position : position + 3])
    assert [wire.receive() for _ in messages] == messages
    wire.send({"k": "b"})
    assert other.recv(100) == b'{"k":"b"}\n'
    other.close()
    with pytest.raises(Closed):
        wire.receive()


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{}", b'{"k":1}', b"nonsense", b'{"k":"a"', b"\xff", b"[" * 100000]
)
def test_other_lines_break_the_rules(line: bytes) -> None:
    with pytest.raises(WireError):
        decode(line)


def test_lines_have_a_limit(wires: Any) -> None:
    with pytest.raises(WireError, match="at most"):
        encode({"k": "a", "text": "x" * LINE_MAX})
    with pytest.raises(ValueError):
        encode({"k": "a", "value": float("nan")})
    assert decode(encode({"k": "a", "text": "half \udc80"}))["text"] == "half ?"


# Loading.


def test_code_is_found_wherever_it_lies(tmp_path: Path) -> None:
    code = tmp_path / "libs" / "somemod" / "plugins"
    (code / "sub" / "deep").mkdir(parents=True)
    for directory in ("model", "templates", "__pycache__"):
        (code / directory).mkdir()
        (code / directory / "never.py").write_text("raise Exception('loaded what is no code')")
    (code / "__init__.py").write_text("ORDER = ['package']")
    (code / "not-a-name.py").write_text("raise Exception")
    (code / "b.py").write_text("from inmanta_plugins.somemod import ORDER\nORDER.append(__name__)")
    (code / "sub" / "__init__.py").write_text(
        "from inmanta_plugins.somemod import ORDER\nORDER.append(__name__)"
    )
    (code / "sub" / "deep" / "c.py").write_text(
        "from inmanta_plugins.somemod import ORDER\nORDER.append(__name__)"
    )
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "__init__.py").write_text("import no_such_package")
    modules = [
        loading.HostedModule.from_message({"name": "somemod", "code": str(code)}),
        loading.HostedModule.from_message({"name": "brokenmod", "code": str(broken)}),
    ]
    loading.install_finder(modules)
    try:
        problems = loading.load_modules(modules)
        loaded = sys.modules["inmanta_plugins.somemod"]
        assert [
            "package",
            *(f"inmanta_plugins.somemod.{name}" for name in ("b", "sub", "sub.deep.c")),
        ] == loaded.ORDER
        assert [item["module"] for item in problems] == ["brokenmod"]
        assert "ModuleNotFoundError: No module named 'no_such_package'" in problems[0]["problems"][0]
        assert "importlib" not in problems[0]["problems"][0]
    finally:
        for name in [name for name in sys.modules if name.startswith("inmanta_plugins")]:
            del sys.modules[name]
        for module in modules:
            loading._finder.packages.pop(module.package)


# Contents.


@pytest.fixture
def contents(tmp_path: Path) -> Any:
    files.use_directory(str(tmp_path))
    yield tmp_path
    files.use_directory(None)


def test_contents_by_id(contents: Path) -> None:
    name = files.put("text")
    assert name == "372ea08cab33e71c02c651dbc83a474d32c676ea" and files.get(name) == b"text"
    assert files.put(b"bytes", "own-name.1") == "own-name.1" and files.get("own-name.1") == b"bytes"
    assert files.get("0" * 40) is None and not files.has("0" * 40) and files.has(name)
    assert sorted(path.name for path in contents.iterdir()) == sorted([name, "own-name.1"])
    (contents / name).write_bytes(b"changed")
    with pytest.raises(ValueError, match="damaged"):
        files.get(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\nb", "é", "x" * 300])
def test_ids_do_not_lead_elsewhere(contents: Path, name: str) -> None:
    for action in (lambda: files.put(b"x", name), lambda: files.get(name), lambda: files.has(name)):
        with pytest.raises(ValueError):
            action()


def test_without_a_place_for_contents() -> None:
    with pytest.raises(files.NoFileStore):
        files.put("x")


# Secrets.


def redactor(*values: Any) -> Redactor:
    made = Redactor()
    for value in values:
        made.add(value)
    return made


def test_secrets_in_texts_and_values() -> None:
    secrets = redactor("hunter2", {"deep": ["other-secret"]}, b"bytes-secret", 123456)
    assert secrets.text("x hunter2 y other-secret bytes-secret 123456") == "x *** y *** *** ***"
    value = {"hunter2": ["hunter2", {"a": "xhunter2"}], "n": 123456, "m": 1234567, "t": True, "z": None}
    assert secrets.value(value) == {
        "***": ["***", {"a": "x***"}],
        "n": "***",
        "m": 1234567,
        "t": True,
        "z": None,
    }


def test_the_longest_secret_goes_first() -> None:
    assert redactor("pass", "password1").text("password1 pass") == "*** ***"


def test_short_secrets_are_hidden_only_where_they_are_all() -> None:
    secrets = redactor("abc", 7)
    assert (
        secrets.text("abcd abc") == "abcd abc"
        and secrets.text("abc") == "***"
        and secrets.value([7, 77]) == ["***", 77]
    )


def test_truths_and_nothing_are_no_secrets() -> None:
    secrets = redactor(True, None, "")
    assert not secrets and secrets.value([True, None, "", "True"]) == [True, None, "", "True"]


def test_other_forms_of_a_secret() -> None:
    secret = "a \"b\"\n'c'/é and a long second line"
    text = " | ".join([repr(secret), json.dumps(secret), json.dumps({"x": secret}, ensure_ascii=False)])
    hidden = redactor(secret).text(text)
    assert "second line" not in hidden and hidden.count("***") == 3
    assert redactor("a b/c&d").text("?q=a%20b%2Fc%26d") == "?q=***"


# Plain values.


class Colour(enum.Enum):
    RED = 1


def test_anything_becomes_plain() -> None:
    circle: list[Any] = []
    circle.extend([circle, circle])
    text = json.dumps(plain({"a": {1, 2}, 3: (1, Colour.RED), "f": float("inf"), "big": 2**64, "c": circle}))
    read = json.loads(text)
    assert (read["a"], read["3"], read["f"], read["big"]) == ("{1, 2}", [1, "RED"], "inf", str(2**64))
    assert plain(datetime.datetime(2020, 1, 2)) == "2020-01-02T00:00:00.000000+00:00"
    assert plain(const.Change.created) == "created" and type(plain(const.Change.created)) is str
    assert plain(2**63 - 1) == 2**63 - 1 and plain(True) is True
    deep: Any = 1
    for _ in range(10000):
        deep = [deep]
    json.dumps(plain(deep))


# Encoders.


class Steps(util.JSONSerializable):
    def json_serialization_step(self) -> Any:
        return {"step": 1}


def test_encoders() -> None:
    encoder = util.api_boundary_json_encoder
    assert encoder(uuid.UUID(int=3)) == "00000000-0000-0000-0000-000000000003"
    assert (
        encoder(Colour.RED) == "RED" and encoder(ValueError("x")) == "x" and encoder(Steps()) == {"step": 1}
    )
    zone = datetime.timezone(datetime.timedelta(hours=2))
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=zone)
    assert encoder(moment) == "2020-01-02T03:04:05.000000+02:00"
    assert encoder(moment, tz_aware=False) == "2020-01-02T01:04:05.000000"
    assert util.internal_json_encoder(moment.replace(tzinfo=None)) == "2020-01-02T03:04:05.000000+00:00"
    assert encoder(Id.parse_id("t::R[a,b=c]"))["agent_name"] == "a"
    for bad in (object(), {1}, b"x", 1j, Exception, datetime.date(2020, 1, 1)):
        with pytest.raises(TypeError, match="is not JSON serializable"):
            encoder(bad)


def test_encoders_of_pydantic() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        a: int = 1

    assert util.api_boundary_json_encoder(Model()) == {"a": 1}
    assert util.api_boundary_json_encoder(pydantic.SecretStr("x")) == "**********"
    assert util.api_boundary_json_encoder(pydantic.AnyUrl("http://a.b")) == "http://a.b/"


def test_types_by_name() -> None:
    pydantic = pytest.importorskip("pydantic")
    from inmanta.validation_type import Regex, regex_string, validate_type

    good: list[tuple[Any, ...]] = [
        ("pydantic.constr", "abc", {"regex": "^a"}),
        ("pydantic.constr", "abc", {"regex": "(?P<x>a)bc", "min_length": 3}),
        ("ipaddress.IPv4Address", "1.2.3.4"),
        ("datetime.date", "2020-01-01"),
        ("uuid.UUID", str(uuid.UUID(int=1))),
        ("pydantic.PositiveInt", 5),
        ("pydantic.condecimal", "1.2", {"max_digits": 2}),
    ]
    for arguments in good:
        validate_type(*arguments)
    bad: list[tuple[Any, ...]] = [
        ("pydantic.constr", "bc", {"regex": "^a"}),
        ("pydantic.constr", "ab", {"regex": "^a", "min_length": 3}),
        ("pydantic.conint", 5, {"gt": 6}),
        ("ipaddress.IPv4Address", "x"),
        ("uuid.UUID", "x"),
        ("pydantic.StrictInt", "5"),
    ]
    for arguments in bad:
        with pytest.raises(pydantic.ValidationError):
            validate_type(*arguments)
    for name in ("os.system", "datetime", "pydantic_core.x"):
        with pytest.raises(ValueError, match="Unknown fq_type_name"):
            validate_type(name, "x")
    with pytest.raises(AttributeError):
        validate_type("pydantic.Nope", "x")
    pydantic.TypeAdapter(regex_string("^a$")).validate_python("a")
    assert Regex("a") == Regex("a")


def test_truths() -> None:
    assert [data.convert_boolean(word) for word in (True, "yes", "ON", "1")] == [True] * 4
    assert [data.convert_boolean(word) for word in (False, "no", "off", "0")] == [False] * 4
    with pytest.raises(ValueError, match="Not a boolean: x"):
        data.convert_boolean("x")


# Configuration and project.


def test_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Config.get("some", "name") is None and Config.get("some", "name", 3) == 3
    Config.set("some", "a_name", "5")
    assert Config.get("some", "a-name") == Config.get("some", "a_name") == "5"
    monkeypatch.setenv("INMANTA_SOME_A_NAME", "9")
    assert Config.get("some", "a-name") == "9" and Config.is_set("some", "a-name")
    option = Option("some", "number", 7, "a number", is_int)
    flag = Option("some", "flag", lambda: True, "a flag", is_bool)
    assert option.get() == 7 and flag.get() is True
    option.set("8")
    flag.set("no")
    assert option.get() == 8 and flag.get() is False and Config.getboolean("some", "flag") is False


def test_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Project, "_project", None)
    with pytest.raises(ProjectNotFoundException):
        Project.get()
    module = loading.HostedModule("fs", "inmanta_plugins.fs", "/code", "/root/of/fs", "1.0")
    Project._install("/the/project", [module])
    assert Project.get().project_path == "/the/project" and Project.get().modules["fs"]._path == "/root/of/fs"


# Clients.


def test_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_carrier", None)
    with pytest.raises(ConnectionRefusedError):
        SyncClient("agent").get_param(tid="t", id="x")
    calls: list[Any] = []

    def answer(method: str, arguments: dict[str, Any]) -> tuple[int, Any]:
        calls.append((method, arguments))
        return (200, {"data": 5}) if method == "get_param" else (404, {"message": "no"})

    monkeypatch.setattr(server, "_carrier", answer)
    result = SyncClient("agent").get_param(uuid.UUID(int=1), "x")
    assert (result.code, result.result, result.value()) == (200, {"data": 5}, 5)
    assert calls == [("get_param", {"tid": str(uuid.UUID(int=1)), "id": "x"})]
    client = Client("agent")
    assert run_and_wait(lambda: client.get_param(tid="t", id="x")).code == 200  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="no"):
        SyncClient(client=client).get_file(id="x").value()
    with pytest.raises(TypeError, match="multiple values"):
        SyncClient("agent").get_param("t", tid="t")
    with pytest.raises(TypeError, match="without a name"):
        SyncClient("agent").get_file("a", "b")
    with pytest.raises(Exception, match="Either name or client"):
        SyncClient()
    assert Result(200, {"data": 1}).available()


def test_waiting_has_an_end() -> None:
    import asyncio

    with pytest.raises(TimeoutError):
        run_and_wait(lambda: asyncio.sleep(30), timeout=0.05)
