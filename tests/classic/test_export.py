"""The published compiler pushes a model with a module and its handlers, and this server deploys it."""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
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

    def export(self, text: str, *arguments: str, **more: str) -> None:
        variables = {
            **os.environ,
            **more,
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
        # Logs and facts of the handler can be read.
        logs = self.client.resource_logs(tid=self.environment, rid=FIRST, filter={"minimal_log_level": "INFO"})
        self.assertEqual([line["msg"] for line in logs.result["data"]], [f"written to {self.folder}/first"])
        asked = self.client.get_param(tid=self.environment, id="length", resource_id=FIRST)
        self.assertEqual(asked.code, 503, "the resource is asked for it")
        self.until(lambda: self.client.get_param(tid=self.environment, id="length", resource_id=FIRST).code, 200)
        [fact] = self.client.get_facts(tid=self.environment, rid=FIRST).result["data"]
        self.assertEqual((fact["name"], fact["value"]), ("length", "5"))
        details = self.client.resource_details(tid=self.environment, rid=SECOND).result["data"]
        self.assertEqual(details["requires_status"], {FIRST: "deployed"})
        # Another text is another version, and only differences are deployed.
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
        # The export can release its version.
        self.export("hello", "-d")
        self.until(lambda: self.status(FIRST), "deployed")

    def test_a_module_that_is_only_installed_is_installed_here_too(self) -> None:
        # The same module as a package of an index, with a dependency, next to the core that must not be installed here.
        index, site = self.place / "simple", self.place / "site"
        notes = self.place / "project" / "libs" / "notes"
        code = (notes / "plugins" / "__init__.py").read_text()
        wheel(index, "loud-words", "1.0", {"loud_words.py": "def loud(text):\n    return text.upper()\n"})
        wheel(index, "inmanta-core", "99.0", {"inmanta/__init__.py": "raise Exception('not this one')\n"})
        wheel(
            index,
            "inmanta-module-notes",
            "1.5.0",
            {
                "inmanta_plugins/notes/__init__.py": "import loud_words\n"
                + code.replace("file.write(note.text)", "file.write(loud_words.loud(note.text))"),
                "inmanta_plugins/notes/model/_init.cf": (notes / "model" / "_init.cf").read_text(),
                "inmanta_plugins/notes/setup.cfg": "[metadata]\nname = inmanta-module-notes\nversion = 1.5.0\nlicense = x\n",
            },
            requires=["inmanta-core>=15", "loud-words>=1"],
        )
        shutil.rmtree(notes)
        for name in ("inmanta-module-notes", "loud-words"):
            for one in (index / name).glob("*.whl"):
                zipfile.ZipFile(one).extractall(site)
        description = self.place / "project" / "project.yml"
        description.write_text(description.read_text() + f"pip:\n  index-url: {index.as_uri()}\n")
        self.export("hello", PYTHONPATH=str(site))
        shutil.rmtree(site)
        self.until(lambda: self.status(SECOND), "deployed")
        self.assertEqual((self.folder / "first").read_text(), "HELLO")
        config = self.client.get_pip_config(tid=self.environment, version=1)
        self.assertEqual(config.result["data"]["index-url"], index.as_uri())

    def test_what_cannot_be_installed_is_unavailable_and_the_rest_is_deployed(self) -> None:
        idle = {"id": "std::testing::NullResource[one,name=a],v=0", "name": "a", "agentname": "one", "requires": []}
        lost = {"id": "nowhere::Thing[one,name=b],v=0", "name": "b", "requires": []}
        module = {"name": "nowhere", "version": "1.0", "files_in_module": None, "load_module_on_agents": ["one"]}
        version = self.client.reserve_version(tid=self.environment).result["data"]
        body = {
            "version": version,
            "resources": [idle, lost],
            "module_version_info": {"nowhere": module},
            "pip_config": {"index-url": (self.place / "empty").as_uri()},
        }
        code, _, answer = self.server.call("PUT", "/api/v1/version", body, environment=self.environment)
        self.assertEqual(code, 200, answer)
        self.until(lambda: self.status("std::testing::NullResource[one,name=a]"), "deployed")
        self.until(lambda: self.status("nowhere::Thing[one,name=b]"), "unavailable")
        logs = self.client.resource_logs(tid=self.environment, rid="nowhere::Thing[one,name=b]").result["data"]
        self.assertTrue(any("inmanta-module-nowhere==1.0" in line["msg"] for line in logs), logs)


def wheel(index: Path, name: str, version: str, files: dict[str, str], requires: list[str] | None = None) -> None:
    """Writes a package and the page of an index that names it."""
    page = index / name
    page.mkdir(parents=True)
    stem = f"{name.replace('-', '_')}-{version}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires or []]
    files = {
        **files,
        f"{stem}.dist-info/METADATA": "\n".join(lines) + "\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{stem}.dist-info/RECORD"] = "".join(f"{path},,\n" for path in files)
    path = page / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    (page / "index.html").write_text(f'<a href="{path.name}">{path.name}</a>\n')
