"""The published client library against this server."""

import datetime
import hashlib
import base64
import unittest

from inmanta.config import Config
from inmanta.protocol.endpoints import SyncClient

from support import PASSWORD, ClassicTest


def null(name: str, agent: str = "one", requires: tuple[str, ...] = (), **attributes: object) -> dict:
    """A resource with a handler that does nothing."""
    return {
        "id": f"std::testing::NullResource[{agent},name={name}],v=0",
        "name": name,
        "agentname": agent,
        "fail": False,
        "purged": False,
        "send_event": True,
        "receive_events": True,
        "report_only": False,
        "requires": list(requires),
        **attributes,
    }


def null_id(name: str, agent: str = "one") -> str:
    return f"std::testing::NullResource[{agent},name={name}]"


class ClientTest(ClassicTest):
    def setUp(self) -> None:
        self.client = self.client_with(self.server.token)
        self.project = self.ok(self.client.project_create(name=self.id()))["id"]
        self.environment = self.ok(self.client.environment_create(project_id=self.project, name="test"))["id"]

    def client_with(self, token: str) -> SyncClient:
        for name, value in {"host": "127.0.0.1", "port": str(self.server.port), "token": token}.items():
            Config.set("client_rest_transport", name, value)
        return SyncClient("client")

    def ok(self, answer):
        self.assertEqual(answer.code, 200, answer.result)
        return answer.result.get("data") if answer.result else None

    def put(self, *resources: dict, sets: dict[str, str] | None = None, release: bool = True) -> int:
        version = self.ok(self.client.reserve_version(tid=self.environment))
        answer = self.client.put_version(
            tid=self.environment,
            version=version,
            resources=list(resources),
            resource_sets=sets or {},
            module_version_info={},
            version_info={"export_metadata": {"type": "test", "message": "made by a test"}},
        )
        self.assertEqual(answer.code, 200, answer.result)
        if release:
            self.until(lambda: self.status_of_version(version), "active")
        return version

    def partial(self, *resources: dict, sets: dict[str, str], **more: object):
        return self.client.put_partial(
            tid=self.environment, resources=list(resources), resource_sets=sets, module_version_info={}, **more
        )

    def status_of_version(self, version: int) -> str | None:
        listed = self.ok(self.client.list_desired_state_versions(tid=self.environment))
        return {one["version"]: one["status"] for one in listed}.get(version)

    def statuses(self) -> dict[str, str]:
        listed = self.ok(self.client.resource_list(tid=self.environment))
        return {one["id_details"]["resource_id_value"]: one["status"] for one in listed}


class Environments(ClientTest):
    def test_projects_and_environments_have_a_life(self) -> None:
        [project] = [one for one in self.ok(self.client.project_list()) if one["id"] == self.project]
        self.assertEqual([one["name"] for one in project["environments"]], ["test"])
        self.ok(self.client.project_modify(id=self.project, name=self.id() + " too"))
        self.assertEqual(self.client.project_create(name=self.id() + " too").code, 409)
        changed = self.client.environment_modify(id=self.environment, name="renamed", description="about it")
        self.assertEqual(self.ok(changed)["description"], "about it")
        self.assertEqual(self.ok(self.client.environment_get(id=self.environment))["name"], "renamed")
        odd = self.client.environment_create(project_id=self.project, name="odd", repository="https://a.invalid/b")
        self.assertEqual(odd.code, 400)
        old = self.client.list_environments().result["environments"]
        self.assertIn((self.environment, self.project), [(one["id"], one["project"]) for one in old])
        self.assertEqual(self.client.environment_delete(id=self.environment).code, 200)
        self.assertEqual(self.client.environment_get(id=self.environment).code, 404)
        self.assertEqual(self.client.project_delete(id=self.project).code, 200)
        self.assertEqual(self.client.project_get(id=self.project).code, 404)

    def test_settings_are_checked_and_protected(self) -> None:
        got = self.ok(self.client.environment_settings_list(tid=self.environment))
        self.assertEqual(got["settings"]["autostart_agent_deploy_interval"], "600")
        self.assertEqual(got["definition"]["recompile_backoff"]["type"], "positive_float")
        set_ = self.client.environment_settings_set
        self.ok(set_(tid=self.environment, id="available_versions_to_keep", value=5))
        one = self.ok(self.client.environment_setting_get(tid=self.environment, id="available_versions_to_keep"))
        self.assertEqual(one["settings"], {"available_versions_to_keep": 5})
        self.assertEqual(set_(tid=self.environment, id="available_versions_to_keep", value="many").code, 400)
        self.assertEqual(set_(tid=self.environment, id="nothing", value=1).code, 404)
        self.ok(self.client.environment_setting_delete(tid=self.environment, id="available_versions_to_keep"))
        old = self.client.get_setting(tid=self.environment, id="available_versions_to_keep")
        self.assertEqual(old.result["value"], 100)
        protect = self.client.protected_environment_settings_set_batch
        self.ok(protect(tid=self.environment, settings={"auto_deploy": False}, protected_by="project_yml"))
        self.assertEqual(set_(tid=self.environment, id="auto_deploy", value=True).code, 403)
        self.ok(protect(tid=self.environment, settings={}, protected_by="project_yml"))
        self.ok(set_(tid=self.environment, id="auto_deploy", value=True))

    def test_a_protected_environment_is_neither_cleared_nor_deleted(self) -> None:
        self.put(null("a"))
        set_ = self.client.environment_settings_set
        self.ok(set_(tid=self.environment, id="protected_environment", value=True))
        self.assertEqual(self.client.environment_clear(id=self.environment).code, 403)
        self.assertEqual(self.client.environment_delete(id=self.environment).code, 403)
        self.ok(set_(tid=self.environment, id="protected_environment", value=False))
        self.assertEqual(self.client.environment_clear(id=self.environment).code, 200)
        self.assertEqual(self.ok(self.client.list_desired_state_versions(tid=self.environment)), [])
        self.assertEqual(self.ok(self.client.resource_list(tid=self.environment)), [])

    def test_a_halt_pauses_all_and_resuming_leaves_out_who_was_paused(self) -> None:
        self.put(null("a", "one"), null("b", "two"))
        self.ok(self.client.agent_action(tid=self.environment, name="two", action="pause"))
        on_resume = self.client.agent_action(tid=self.environment, name="one", action="keep_paused_on_resume")
        self.assertEqual(on_resume.code, 403)
        self.ok(self.client.halt_environment(tid=self.environment))
        self.ok(self.client.halt_environment(tid=self.environment))
        agents = self.ok(self.client.get_agents(tid=self.environment))
        self.assertEqual([(one["name"], one["status"]) for one in agents], [("one", "paused"), ("two", "paused")])
        self.assertEqual(self.client.agent_action(tid=self.environment, name="one", action="pause").code, 403)
        self.assertEqual(self.client.dryrun_trigger(tid=self.environment, version=1).code, 409)
        self.ok(self.client.resume_environment(tid=self.environment))
        self.until(
            lambda: {one["name"]: one["status"] for one in self.ok(self.client.get_agents(tid=self.environment))},
            {"one": "up", "two": "paused"},
        )
        self.assertEqual(self.client.all_agents_action(tid=self.environment, action="unpause").code, 200)
        self.assertEqual(self.client.agent_action(tid=self.environment, name="$__scheduler", action="pause").code, 400)


class Versions(ClientTest):
    def test_a_version_is_stored_released_and_deployed(self) -> None:
        version = self.put(null("a"), null("b", requires=(null_id("a"),)))
        self.until(self.statuses, {"a": "deployed", "b": "deployed"})
        [listed] = self.ok(self.client.list_desired_state_versions(tid=self.environment))
        self.assertEqual(listed["labels"], [{"name": "test", "message": "made by a test"}])
        self.assertEqual((listed["total"], listed["released"]), (2, True))
        got = self.client.get_version(tid=self.environment, id=version).result
        self.assertEqual(got["model"]["version_info"], {"export_metadata": {"type": "test", "message": "made by a test"}})
        self.assertEqual(len(got["resources"]), 2)
        one = self.ok(self.client.versioned_resource_details(tid=self.environment, version=version, rid=null_id("b")))
        self.assertEqual(one["attributes"]["requires"], [null_id("a")])
        self.assertEqual(self.client.delete_version(tid=self.environment, id=version).code, 400)

    def test_what_is_wrong_with_a_version_is_told_and_nothing_is_stored(self) -> None:
        def put(version: int, *resources: dict, **more: object):
            return self.client.put_version(
                tid=self.environment, version=version, resources=list(resources), module_version_info={}, **more
            )

        version = self.ok(self.client.reserve_version(tid=self.environment))
        self.assertEqual(put(version + 1, null("a")).code, 400, "never reserved")
        self.assertEqual(put(0, null("a")).code, 400)
        self.assertEqual(put(version, null("a"), null("a")).code, 400, "twice")
        self.assertEqual(put(version, null("a", requires=(null_id("gone"),))).code, 400, "dangling")
        self.assertEqual(put(version, {**null("a"), "id": "no id"}).code, 400)
        self.assertEqual(put(version, null("a"), resource_sets={null_id("x"): "s"}).code, 400)
        self.assertEqual(self.ok(self.client.list_desired_state_versions(tid=self.environment)), [])
        self.assertEqual(put(version, null("a")).code, 200)
        self.assertEqual(put(version, null("a")).code, 409, "stored already")

    def test_one_release_wins_and_an_older_version_never_overrides(self) -> None:
        self.ok(self.client.environment_settings_set(tid=self.environment, id="auto_deploy", value=False))
        first, second = self.put(null("a"), release=False), self.put(null("b"), release=False)
        self.assertEqual(self.client.release_version(tid=self.environment, id=99).code, 404)
        self.assertEqual(self.client.release_version(tid=self.environment, id=second).code, 200)
        self.assertEqual(self.client.release_version(tid=self.environment, id=second).code, 409)
        promote = self.client.promote_desired_state_version
        self.assertEqual(promote(tid=self.environment, version=first).code, 409)
        self.until(lambda: self.status_of_version(second), "active")
        self.assertEqual(self.status_of_version(first), "skipped_candidate")
        third = self.put(null("c"), release=False)
        self.assertEqual(self.status_of_version(third), "candidate")
        self.assertEqual(self.client.delete_version(tid=self.environment, id=third).code, 200)

    def test_a_change_of_some_sets_leaves_the_others_alone(self) -> None:
        a, b, shared = null("a", colour="red"), null("b", colour="red"), null("shared")
        self.put(a, b, shared, sets={null_id("a"): "A", null_id("b"): "B"})
        answer = self.partial(null("a", colour="blue"), null("a2"), sets={null_id("a"): "A", null_id("a2"): "A"})
        self.assertEqual(self.ok(answer), 2)
        self.until(self.statuses, {"a": "deployed", "a2": "deployed", "b": "deployed", "shared": "deployed"})
        diff = self.ok(self.client.get_diff_of_versions(tid=self.environment, from_version=1, to_version=2))
        self.assertEqual({one["resource_id"]: one["status"] for one in diff}, {null_id("a"): "modified", null_id("a2"): "added"})
        self.assertEqual(self.ok(self.partial(sets={}, removed_resource_sets=["A"])), 3)
        self.until(self.statuses, {"a": "orphaned", "a2": "orphaned", "b": "deployed", "shared": "deployed"})

    def test_the_rules_of_changes_of_some_sets(self) -> None:
        first = self.partial(null("a"), sets={null_id("a"): "A"})
        self.assertEqual(first.code, 400, "there is no version to change")
        sets = {null_id("a"): "A", null_id("b"): "B"}
        self.put(null("a"), null("b"), null("shared"), sets=sets)
        wrong = {
            "updated and removed": self.partial(null("a"), sets={null_id("a"): "A"}, removed_resource_sets=["A"]),
            "depends on another set": self.partial(null("a", requires=(null_id("b"),)), sets={null_id("a"): "A"}),
            "moves alone": self.partial(null("b"), sets={null_id("b"): "A"}),
            "changes what is shared": self.partial(null("shared", colour="red"), sets={}),
            "a set of something else": self.partial(null("a"), sets={null_id("a"): "A", null_id("x"): "A"}),
            "has a version": self.partial({**null("a"), "id": null_id("a") + ",v=7"}, sets={null_id("a"): "A"}),
        }
        for rule, answer in wrong.items():
            with self.subTest(rule):
                self.assertEqual(answer.code, 400, answer.result)
        self.assertEqual(len(self.ok(self.client.list_desired_state_versions(tid=self.environment))), 1)
        self.assertEqual(self.ok(self.partial(null("shared"), null("more"), sets={})), 2)

    def test_files_are_kept_by_their_hash(self) -> None:
        content = self.id().encode()
        name = hashlib.sha1(content).hexdigest()
        self.assertEqual(self.client.stat_file(id=name).code, 404)
        self.assertEqual(self.client.stat_files(files=[name]).result, {"files": [name]})
        wrong = self.client.upload_file(id=name, content=base64.b64encode(b"other").decode())
        self.assertEqual(wrong.code, 400)
        self.assertEqual(self.client.upload_file(id=name, content=base64.b64encode(content).decode()).code, 200)
        self.assertEqual(self.client.stat_file(id=name).code, 200)
        self.assertEqual(self.client.stat_files(files=[name]).result, {"files": []})
        self.assertEqual(base64.b64decode(self.client.get_file(id=name).result["content"]), content)


class Resources(ClientTest):
    def test_pages_lead_through_everything_in_both_directions(self) -> None:
        self.put(*(null(f"n{number:02}", "one" if number % 3 else "two") for number in range(10)))
        everything = {f"n{number:02}" for number in range(10)}
        self.until(lambda: set(self.statuses().values()), {"deployed"})
        for column in ("resource_type", "agent", "resource_id_value", "status"):
            for order in ("asc", "desc"):
                with self.subTest(column=column, order=order):
                    path = f"/api/v2/resource?limit=3&sort={column}.{order}"
                    pages = []
                    while path:
                        code, _, page = self.server.call("GET", path, environment=self.environment)
                        self.assertEqual(code, 200, page)
                        metadata, shown = page["metadata"], page["data"]
                        self.assertEqual(metadata["total"], metadata["before"] + len(shown) + metadata["after"])
                        self.assertEqual(metadata["before"], sum(map(len, pages)))
                        pages.append([one["id_details"]["resource_id_value"] for one in shown])
                        back, path = page["links"].get("prev"), page["links"].get("next")
                    self.assertEqual(list(map(len, pages)), [3, 3, 3, 1])
                    self.assertEqual({name for names in pages for name in names}, everything)
                    for names in reversed(pages[:-1]):
                        _, _, page = self.server.call("GET", back, environment=self.environment)
                        self.assertEqual([one["id_details"]["resource_id_value"] for one in page["data"]], names)
                        back = page["links"].get("prev")
                    self.assertIsNone(back)

    def test_filters_and_the_summary(self) -> None:
        self.put(null("good"), null("bad", "two", fail=True))
        self.until(self.statuses, {"good": "deployed", "bad": "failed"})

        def listed(**filter: object) -> list[str]:
            found = self.client.resource_list(tid=self.environment, filter=filter, sort="resource_id_value.asc")
            return [one["id_details"]["resource_id_value"] for one in self.ok(found)]

        self.assertEqual(listed(status=["failed"]), ["bad"])
        self.assertEqual(listed(status=["!failed"]), ["good"])
        self.assertEqual(listed(agent=["TW"]), ["bad"])
        self.assertEqual(listed(resource_id_value=["oo", "ba"]), ["bad", "good"])
        self.assertEqual(listed(resource_type=["nothing"]), [])
        answer = self.client.resource_list(tid=self.environment, deploy_summary=True, limit=1)
        summary = answer.result["metadata"]["deploy_summary"]
        self.assertEqual((summary["total"], summary["by_state"]["failed"], summary["by_state"]["deployed"]), (2, 1, 1))

    def test_orphans_are_one_row_each_and_can_be_left_out(self) -> None:
        self.put(null("a"), null("b"))
        self.put(null("b"))
        self.until(self.statuses, {"a": "orphaned", "b": "deployed"})
        left = self.client.resource_list(tid=self.environment, filter={"status": ["!orphaned"]})
        self.assertEqual([one["resource_id"] for one in self.ok(left)], [null_id("b")])
        self.assertEqual(self.ok(self.client.resource_details(tid=self.environment, rid=null_id("a")))["status"], "orphaned")

    def test_history_merges_what_is_equal_over_gaps(self) -> None:
        for colour in ("red", "red", "blue", "blue", "red"):
            self.put(null("a", colour=colour), null("other", colour=colour))
            self.put(null("a", colour=colour))
        history = self.ok(self.client.resource_history(tid=self.environment, rid=null_id("a")))
        self.assertEqual([entry["attributes"]["colour"] for entry in history], ["red", "blue", "red"])
        first = self.client.resource_history(tid=self.environment, rid=null_id("a"), limit=1)
        self.assertEqual(first.result["metadata"]["after"], 2)

    def test_actions_and_logs(self) -> None:
        self.put(null("a", fail=True), null("b"))
        self.until(self.statuses, {"a": "failed", "b": "deployed"})
        actions = self.client.get_resource_actions(tid=self.environment, attribute="name", attribute_value="a")
        [action] = self.ok(actions)
        self.assertEqual((action["action"], action["status"]), ("deploy", "failed"))
        self.assertEqual(action["resource_version_ids"], [null_id("a") + ",v=1"])
        levels = {line["level"] for line in self.ok(self.client.resource_logs(
            tid=self.environment, rid=null_id("a"), filter={"minimal_log_level": "ERROR"}))}
        self.assertEqual(levels, {"ERROR"})
        old = self.client.get_resource(tid=self.environment, id=null_id("a") + ",v=1", logs=True).result
        self.assertEqual(old["logs"][0]["action_id"], action["action_id"])
        report = self.ok(self.client.get_compliance_report(tid=self.environment, resource_ids=[null_id("a")]))
        self.assertEqual(report[null_id("a")]["last_handler_run"], "failed")

    def test_deploys_by_agent_and_by_filter(self) -> None:
        missing = self.client.deploy(tid=self.environment)
        self.assertEqual(missing.code, 404, "there is nothing to deploy")
        self.put(null("a"), null("b", "two", fail=True))
        self.until(self.statuses, {"a": "deployed", "b": "failed"})

        def runs(name: str, agent: str) -> int:
            return len(self.ok(self.client.get_resource_actions(
                tid=self.environment, attribute="name", attribute_value=name, agent=agent)))

        before = runs("b", "two")
        answer = self.client.deploy(tid=self.environment, agents=["two", "nobody"])
        self.assertEqual(answer.result["agents"], ["two"])
        self.assertIn("nobody", answer.result["metadata"]["warnings"][0])
        self.until(lambda: runs("b", "two") > before)
        self.assertEqual(self.client.deploy(tid=self.environment, agents=["nobody"]).code, 404)
        filtered = self.client.deploy_filtered(
            tid=self.environment,
            filter={"agent": {"eq": ["one"]}},
            agent_trigger_method="push_incremental_deploy",
        )
        self.assertEqual(self.ok(filtered), [null_id("a")], "told even if there is nothing to do")
        self.assertEqual(self.client.deploy_filtered(tid=self.environment, filter={"isOrphan": True}).code, 400)

    def test_a_dry_run_of_an_unknown_resource_type_and_of_undefined_ones_ends(self) -> None:
        self.ok(self.client.environment_settings_set(tid=self.environment, id="auto_deploy", value=False))
        version = self.ok(self.client.reserve_version(tid=self.environment))
        strange = {"id": "strange::Thing[one,name=x],v=0", "name": "x", "requires": []}
        answer = self.client.put_version(
            tid=self.environment,
            version=version,
            resources=[null("a"), null("b", requires=(null_id("a"),)), null("c"), strange],
            resource_state={null_id("a"): "undefined"},
            unknowns=[{"parameter": "ip", "source": "fact", "resource": null_id("c")}],
            module_version_info={},
        )
        self.assertEqual(answer.code, 200, answer.result)
        runs = [self.ok(self.client.dryrun_trigger(tid=self.environment, version=version)) for _ in range(3)]
        for run in runs:
            report = lambda: self.ok(self.client.get_dryrun_diff(tid=self.environment, version=version, report_id=run))
            self.until(lambda: report()["summary"]["todo"], 0)
            found = {one["resource_id"]: one for one in report()["diff"]}
            self.assertEqual(found[null_id("a")]["status"], "undefined")
            self.assertEqual(found[null_id("b")]["status"], "skipped_for_undefined")
            self.assertEqual(found["strange::Thing[one,name=x]"]["attributes"]["handler"]["from_value"], "FAILED")
        self.assertEqual(len(self.ok(self.client.list_dryruns(tid=self.environment, version=version))), 3)
        unknowns = self.client.get_version(tid=self.environment, id=version).result["unknowns"]
        self.assertEqual([(one["name"], one["resource_id"]) for one in unknowns], [("ip", null_id("c"))])


class Things(ClientTest):
    def test_parameters_and_facts(self) -> None:
        self.put(null("a"))
        set_ = self.client.set_parameter(tid=self.environment, name="size", source="user", value="big")
        self.assertEqual(self.ok(set_)["value"], "big")
        self.assertEqual(self.client.get_param(tid=self.environment, id="size").result["parameter"]["value"], "big")
        self.assertEqual(self.client.get_param(tid=self.environment, id="nothing").code, 404)
        expiring = self.client.set_param(tid=self.environment, id="size", source="user", value="x", expires=True)
        self.assertEqual(expiring.code, 400)
        fact = self.client.set_fact(tid=self.environment, name="ip", source="fact", value="::1", resource_id=null_id("a"))
        [listed] = self.ok(self.client.get_facts(tid=self.environment, rid=null_id("a")))
        self.assertEqual((listed["id"], listed["expires"]), (self.ok(fact)["id"], True))
        one = self.client.get_fact(tid=self.environment, rid=null_id("a"), id=listed["id"])
        self.assertEqual(self.ok(one)["value"], "::1")
        asked = self.client.get_param(tid=self.environment, id="unknown", resource_id=null_id("a"))
        self.assertEqual(asked.code, 503, "the resource is asked for it")
        pages = self.client.get_parameters(tid=self.environment, filter={"source": ["user"]})
        self.assertEqual([parameter["name"] for parameter in self.ok(pages)], ["size"])
        self.assertEqual(self.client.delete_param(tid=self.environment, id="size").code, 200)
        self.assertEqual(self.client.delete_param(tid=self.environment, id="size").code, 404)

    def test_metadata_of_parameters_is_kept_replaced_and_asked_for(self) -> None:
        self.put(null("a"))
        tid = self.environment
        about = {"owner": "ada", "colour": "red"}
        set_ = self.ok(self.client.set_parameter(tid=tid, name="size", source="user", value="big", metadata=about))
        self.assertEqual(set_["metadata"], about)
        nested = {"owner": "ada", "places": {"rooms": [1, 2]}}
        self.client.set_param(tid=tid, id="zone", source="user", value="eu", metadata=nested)
        self.assertEqual(self.client.get_param(tid=tid, id="zone").result["parameter"]["metadata"], nested)
        fact = self.client.set_fact(
            tid=tid, name="ip", source="fact", value="::1", resource_id=null_id("a"), metadata={"owner": "bob"}
        )
        self.assertEqual(self.ok(fact)["metadata"], {"owner": "bob"})
        many = [{"id": "unit", "source": "user", "value": "m", "metadata": {"owner": "eve"}}]
        self.assertEqual(self.client.set_parameters(tid=tid, parameters=many).code, 200)

        def asked(query: dict) -> list[str]:
            answer = self.client.list_params(tid=tid, query=query)
            self.assertEqual(answer.code, 200, answer.result)
            return sorted(one["name"] for one in answer.result["parameters"])

        self.assertEqual(asked({}), ["ip", "size", "unit", "zone"])
        self.assertEqual(asked({"owner": "ada"}), ["size", "zone"])
        self.assertEqual(asked({"owner": "ada", "colour": "red"}), ["size"])
        self.assertEqual(asked({"places": {"rooms": [2]}}), ["zone"])
        self.assertEqual(asked({"owner": "eve"}), ["unit"])
        self.assertEqual(asked({"owner": "nobody"}), [])
        # Setting a value replaces all of its metadata.
        again = self.ok(self.client.set_parameter(tid=tid, name="size", source="user", value="big"))
        self.assertEqual(again["metadata"], {})
        odd = {"source": "user", "value": "v", "metadata": {"number": 5}}
        self.assertEqual(self.server.call("PUT", "/api/v2/parameters/size", odd, environment=tid)[0], 400)

    def test_a_parameter_asks_for_a_compile_when_that_is_wanted_and_it_changed(self) -> None:
        def compiles() -> int:
            return len(self.ok(self.client.get_compile_reports(tid=self.environment)))

        def set_(value: str, recompile: bool) -> None:
            self.ok(self.client.set_parameter(
                tid=self.environment, name="p", source="user", value=value, recompile=recompile))

        changed = self.client.environment_modify(
            id=self.environment, name="test", repository="https://repository.invalid/model", branch="main")
        self.ok(changed)
        # A halted environment compiles nothing: requests can be counted.
        self.ok(self.client.halt_environment(tid=self.environment))
        set_("1", recompile=False)
        self.assertEqual(compiles(), 0)
        set_("2", recompile=True)
        self.assertEqual(compiles(), 1)
        set_("2", recompile=True)
        self.assertEqual(compiles(), 1, "the same value again")
        set_("3", recompile=True)
        self.assertEqual(compiles(), 2)
        self.assertEqual(self.client.notify_change(id=self.environment, update=False).code, 200)
        queue = self.client.get_compile_queue(tid=self.environment).result["queue"]
        self.assertEqual(len(queue), 3)
        self.assertEqual(queue[-1]["metadata"]["type"], "api")
        self.assertEqual(self.client.is_compiling(id=self.environment).code, 200)
        details = self.ok(self.client.compile_details(tid=self.environment, id=queue[-1]["id"]))
        self.assertEqual((details["do_export"], details["force_update"]), (True, False))
        self.assertEqual(self.client.get_report(id=queue[-1]["id"]).result["report"]["id"], queue[-1]["id"])

    def test_discovered_resources(self) -> None:
        self.put(null("a"))
        found = [
            {"discovered_resource_id": null_id(name), "values": {"n": name}, "discovery_resource_id": null_id("a")}
            for name in ("a", "b")
        ]
        done = self.client.discovered_resource_create_batch(tid=self.environment, discovered_resources=found)
        self.assertEqual(done.code, 200, done.result)
        free = self.client.discovered_resources_get_batch(tid=self.environment, filter={"managed": False})
        self.assertEqual([one["discovered_resource_id"] for one in self.ok(free)], [null_id("b")])
        one = self.client.discovered_resources_get(tid=self.environment, discovered_resource_id=null_id("a"))
        self.assertIn("/api/v2/resource/std%3A%3Atesting", self.ok(one)["managed_resource_uri"])
        gone = self.client.discovered_resource_delete(tid=self.environment, discovered_resource_id=null_id("b"))
        self.assertEqual(gone.code, 200)
        again = self.client.discovered_resource_delete(tid=self.environment, discovered_resource_id=null_id("b"))
        self.assertEqual(again.code, 404)

    def test_measurements_notifications_and_the_server(self) -> None:
        now = datetime.datetime.now(datetime.UTC)
        metrics = self.client.get_environment_metrics(
            tid=self.environment,
            metrics=["resource.resource_count", "orchestrator.compile_rate"],
            start_interval=now - datetime.timedelta(hours=2),
            end_interval=now,
            nb_datapoints=4,
        )
        self.assertEqual(len(self.ok(metrics)["metrics"]["resource.resource_count"]), 4)
        self.assertEqual(self.ok(self.client.list_notifications(tid=self.environment)), [])
        self.assertEqual(self.ok(self.client.get_server_status())["product"], "Orrery")
        self.ok(self.client.health())


class Conventions(ClientTest):
    def test_what_is_not_understood_is_told(self) -> None:
        call = self.server.call
        self.assertEqual(call("GET", "/api/v2/agents")[0], 400, "no environment")
        self.assertEqual(call("GET", "/api/v2/agents", environment="00000000-0000-0000-0000-000000000000")[0], 404)
        for query in (
            "sort=colour.asc", "sort=name", "filter.colour=red", "limit=1001", "start=a&end=b", "colour=red",
            "first_id=a&last_id=b",
        ):
            with self.subTest(query):
                code, headers, answer = call("GET", f"/api/v2/agents?{query}", environment=self.environment)
                self.assertEqual((code, headers["content-type"]), (400, "application/json"))
                self.assertTrue(answer["message"].startswith("Invalid request: "), answer)
        code, _, answer = call("PUT", "/api/v2/project", {"name": "x", "colour": "red"})
        self.assertEqual(code, 400)
        self.assertIn("colour", answer["message"])
        self.assertEqual(call("PUT", "/api/v2/project", ["x"])[0], 400)
        self.assertEqual(call("PATCH", "/api/v2/project")[0], 405)
        self.assertEqual(call("GET", "/api/v2/nothing")[0], 404)

    def test_tokens_are_for_one_environment_and_can_be_revoked(self) -> None:
        make = self.client.environment_create_token
        secret = self.ok(make(tid=self.environment, client_types=["compiler"], idempotent=False, expire=3600))
        limited = self.client_with(secret)
        self.ok(limited.reserve_version(tid=self.environment))
        self.assertEqual(limited.halt_environment(tid=self.environment).code, 200)
        self.assertEqual(limited.environment_delete(id=self.environment).code, 403, "a compiler does not delete")
        other = self.ok(self.client_with(self.server.token).environment_create(project_id=self.project, name="other"))["id"]
        limited = self.client_with(secret)
        self.assertEqual(limited.reserve_version(tid=other).code, 403)
        full = self.client_with(self.server.token)
        [token] = self.ok(full.environment_token_list(tid=self.environment))
        self.assertEqual((token["client_types"], token["revoked_at"]), (["compiler"], None))
        self.assertEqual(full.environment_token_revoke(tid=self.environment, jti=token["jti"]).code, 200)
        self.assertEqual(self.client_with(secret).reserve_version(tid=self.environment).code, 401)
        self.assertEqual(self.client_with("nonsense").project_list().code, 401)

    def test_users_log_in_and_have_roles_in_environments(self) -> None:
        name, first, second = "viewer-of-" + self.environment[:8], "Some-Password-1", "Other-Password-2"
        self.ok(self.client.add_user(username=name, password=first))
        self.assertEqual(self.client.add_user(username=name, password=first).code, 409)
        self.assertEqual(self.client.login(username=name, password="Wrong-Password-3").code, 401)
        entered = self.ok(self.client.login(username=name, password=first))
        self.assertEqual(entered["user"], {"username": name, "auth_method": "database", "is_admin": False})
        theirs = self.client_with(entered["token"])
        self.assertEqual(self.ok(theirs.get_current_user()), {"username": name})
        self.assertEqual(theirs.resource_list(tid=self.environment).code, 403)
        admin = self.client_with(self.server.token)
        self.ok(admin.assign_role(username=name, environment=self.environment, role="viewer"))
        self.assertEqual(self.ok(admin.list_roles_for_user(username=name))["assignments"], {self.environment: ["viewer"]})
        theirs = self.client_with(entered["token"])
        self.ok(theirs.resource_list(tid=self.environment))
        self.assertEqual(theirs.halt_environment(tid=self.environment).code, 403)
        self.assertEqual(theirs.list_users().code, 403)
        self.assertEqual(theirs.set_password(username=name, password=second).code, 400, "without the current one")
        self.ok(theirs.set_password(username=name, password=second, current_password=first))
        self.ok(theirs.login(username=name, password=second))
        admin = self.client_with(self.server.token)
        self.assertIn("viewer", self.ok(admin.list_roles()))
        self.ok(admin.unassign_role(username=name, environment=self.environment, role="viewer"))
        self.assertEqual(admin.delete_user(username=name).code, 200)
        self.assertEqual(admin.login(username="admin", password=PASSWORD).code, 200)


if __name__ == "__main__":
    unittest.main()
