"""The published command line against this server."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import click.testing
from inmanta.main import cmd

from support import ClassicTest


class CommandLine(ClassicTest):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory(prefix="orrery-cli-")
        self.addCleanup(place.cleanup)
        self.variables = {"INMANTA_CMDLINE_REST_TRANSPORT_TOKEN": self.server.token, "COLUMNS": "200"}
        self.place = place.name
        self.server_options = ["--host", "127.0.0.1", "--port", str(self.server.port)]

    def run_cli(self, *arguments: str, fails: bool = False) -> str:
        """The commands of the program, in this process: starting it takes seconds."""
        with contextlib.chdir(self.place):
            done = click.testing.CliRunner(env=self.variables).invoke(cmd, [*self.server_options, *arguments])
        self.assertEqual(done.exit_code != 0, fails, f"{done.output} {done.exception}")
        return re.sub(r"\s+", " ", done.output)

    def test_the_program_itself(self) -> None:
        program = Path(sys.executable).with_name("inmanta-cli")
        command = [program, *self.server_options, "project", "create", "-n", "by the program"]
        variables = {**os.environ, **self.variables}
        done = subprocess.run(command, cwd=self.place, env=variables, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("by the program", done.stdout)

    def test_a_tour(self) -> None:
        self.assertIn("tour", self.run_cli("project", "create", "-n", "tour"))
        self.run_cli("environment", "create", "-n", "stop", "-p", "tour")
        self.assertIn("stop", self.run_cli("environment", "list"))
        self.run_cli("environment", "setting", "set", "-e", "stop", "-k", "auto_deploy", "-o", "false")
        self.assertIn("False", self.run_cli("environment", "setting", "get", "-e", "stop", "-k", "auto_deploy"))
        self.run_cli("environment", "setting", "set", "-e", "stop", "-k", "nothing", "-o", "1", fails=True)

        _, _, listed = self.server.call("GET", "/api/v2/environment")
        [environment] = [one["id"] for one in listed["data"] if one["name"] == "stop"]
        _, _, reserved = self.server.call("POST", "/api/v2/reserve_version", {}, environment=environment)
        resource = {"id": "std::testing::NullResource[one,name=a],v=0", "name": "a", "agentname": "one", "requires": []}
        version = {"version": reserved["data"], "resources": [resource], "module_version_info": {}}
        self.assertEqual(self.server.call("PUT", "/api/v1/version", version, environment=environment)[0], 200)

        self.assertIn("1", self.run_cli("version", "list", "-e", "stop"))
        self.run_cli("version", "release", "-e", "stop", "1")
        self.until(lambda: "a (#actions=1)" in self.run_cli("version", "report", "-e", "stop", "-i", "1"))
        self.assertIn("one", self.run_cli("agent", "list", "-e", "stop"))
        # This command accepts no names.
        self.run_cli("agent", "pause", "-e", environment, "--agent", "one")
        self.assertIn("True", self.run_cli("agent", "list", "-e", "stop"))
        self.run_cli("agent", "unpause", "-e", environment, "--all")

        self.run_cli("param", "set", "-e", "stop", "--name", "size", "--value", "big")
        self.assertIn("big", self.run_cli("param", "get", "-e", "stop", "--name", "size"))
        self.assertIn("size", self.run_cli("param", "list", "-e", "stop"))
        self.assertIn("orr_", self.run_cli("token", "create", "-e", "stop", "--api"))
        log = self.run_cli("action-log", "list", "-e", "stop", "--rvid", "std::testing::NullResource[one,name=a],v=1")
        self.assertIn("deploy", log)
        self.run_cli("environment", "delete", "stop")
        self.run_cli("project", "delete", "tour")
