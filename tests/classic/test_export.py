"""The published compiler pushes a model with a module and its handlers, and this server deploys it."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from inmanta.config import Config
from inmanta.protocol.endpoints import SyncClient

from support import HERE, ClassicTest

FIRST, SECOND = "notes::Note[writer,name=first]", "notes::Note[writer,name=second]"


class Export(ClassicTest):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory(prefix="orrery-export-")
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        shutil.copytree(HERE / "project", self.place / "project")
        self.folder = self.place / "notes"
        for name, value in {"host": "127.0.0.1", "port": str(self.server.port), "token": self.server.token}.items():
            Config.set("client_rest_transport", name, value)
        self.client = SyncClient("client")
        project = self.client.project_create(name=self.id()).result["data"]["id"]
        made = self.client.environment_create(project_id=project, name="test")
        self.environment = made.result["data"]["id"]

    def export(self, text: str, *arguments: str) -> None:
        variables = {
            **os.environ,
            "NOTES_FOLDER": str(self.folder),
            "NOTES_TEXT": text,
            "INMANTA_CONFIG_STATE_DIR": str(self.place / "state"),
            "INMANTA_CONFIG_LOG_DIR": str(self.place / "log"),
        }
        program = Path(sys.executable).with_name("inmanta")
        command = [program, "export", "-e", self.environment, "--server_address", "127.0.0.1"]
        command += ["--server_port", str(self.server.port), "--token", self.server.token, *arguments]
        done = subprocess.run(command, cwd=self.place / "project", env=variables, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def status(self, resource: str) -> str | None:
        answer = self.client.resource_details(tid=self.environment, rid=resource)
        return answer.result["data"]["status"] if answer.code == 200 else None

    def test_a_pushed_model_is_deployed_with_its_own_handlers(self) -> None:
        self.export("hello")
        self.until(lambda: self.status(SECOND), "deployed")
        self.assertEqual((self.folder / "first").read_text(), "hello")
        self.assertEqual((self.folder / "second").read_text(), "depends")
        # What the handler said and learned can be read.
        logs = self.client.resource_logs(tid=self.environment, rid=FIRST, filter={"minimal_log_level": "INFO"})
        self.assertEqual([line["msg"] for line in logs.result["data"]], [f"written to {self.folder}/first"])
        asked = self.client.get_param(tid=self.environment, id="length", resource_id=FIRST)
        self.assertEqual(asked.code, 503, "the resource is asked for it")
        self.until(lambda: self.client.get_param(tid=self.environment, id="length", resource_id=FIRST).code, 200)
        [fact] = self.client.get_facts(tid=self.environment, rid=FIRST).result["data"]
        self.assertEqual((fact["name"], fact["value"]), ("length", "5"))
        details = self.client.resource_details(tid=self.environment, rid=SECOND).result["data"]
        self.assertEqual(details["requires_status"], {FIRST: "deployed"})
        # Another text is another version, and only what differs is done.
        self.export("good bye")
        self.until(lambda: (self.folder / "first").read_text(), "good bye")
        diff = self.client.get_diff_of_versions(tid=self.environment, from_version=1, to_version=2)
        [changed] = diff.result["data"]
        self.assertEqual((changed["resource_id"], changed["status"]), (FIRST, "modified"))
        self.assertEqual(changed["attributes"]["text"]["from_value"], "hello")
        history = self.client.resource_history(tid=self.environment, rid=FIRST).result["data"]
        self.assertEqual([entry["attributes"]["text"] for entry in history], ["good bye", "hello"])

    def test_a_dry_run_tells_what_a_pushed_model_would_change(self) -> None:
        set_ = self.client.environment_settings_set(tid=self.environment, id="auto_deploy", value=False)
        self.assertEqual(set_.code, 200)
        self.export("hello")
        begun = self.client.dryrun_trigger(tid=self.environment, version=1)
        self.assertEqual(begun.code, 200, begun.result)

        def report() -> dict:
            return self.client.get_dryrun_diff(tid=self.environment, version=1, report_id=begun.result["data"]).result["data"]

        self.until(lambda: report()["summary"]["todo"], 0)
        self.assertEqual({one["resource_id"]: one["status"] for one in report()["diff"]}, {FIRST: "added", SECOND: "added"})
        self.assertFalse(self.folder.exists())
        # The export can release what it pushed.
        self.export("hello", "-d")
        self.until(lambda: self.status(FIRST), "deployed")
