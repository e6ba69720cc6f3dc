"""Models that use `my_module`, compiled and deployed. `project` is Orrery's fixture."""

import json
import pathlib

MODEL = """
import my_module

my_module::Item(name="greeting", value="{value}", store="{store}", purged={purged})
"""


def model(store: pathlib.Path, value: str = "hello", purged: bool = False) -> str:
    return MODEL.format(store=store, value=value, purged=str(purged).lower())


def test_an_item_becomes_a_resource(project, tmp_path):
    project.compile(model(tmp_path / "items.json"))
    resource = project.get_resource("my_module::Item", name="greeting")
    assert resource is not None
    assert resource.value == "hello"
    assert resource.id.get_agent_name() == "local"


def test_an_item_is_created_updated_and_deleted(project, tmp_path):
    store = tmp_path / "items.json"
    store.write_text('{"other": "stays"}')

    project.compile(model(store))
    project.deploy_resource("my_module::Item")
    assert json.loads(store.read_text()) == {"greeting": "hello", "other": "stays"}

    project.compile(model(store, value="good day"))
    project.deploy_resource("my_module::Item")
    assert json.loads(store.read_text()) == {"greeting": "good day", "other": "stays"}

    project.compile(model(store, purged=True))
    project.deploy_resource("my_module::Item")
    assert json.loads(store.read_text()) == {"other": "stays"}


def test_what_is_as_wanted_is_left_alone(project, tmp_path):
    store = tmp_path / "items.json"
    project.compile(model(store))
    assert set(project.dryrun_resource("my_module::Item")) == {"purged"}
    project.deploy_resource("my_module::Item")
    assert project.dryrun_resource("my_module::Item") == {}
