"""Compiles, exports and deploys the probes with published modules, and checks the state of the machine."""

import json
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
# The probes do not inherit the caller's environment variables.
os.environ.pop("VIRTUAL_ENV", None)
ORRERY = os.environ.get("ORRERY", str(ROOT / "target/debug/orrery"))
IS_ROOT = os.geteuid() == 0
# Imports of the probes. The first is for newer Python versions, the second for older ones.
NEWEST = ["inmanta-module-std==8.7.5"]
OLDER = ["inmanta-module-std==8.4.2"]
MODULES = ["fs", "exec", "apt", "ssh", "ip", "net", "yaml", "user"]


def run(arguments, directory, expect=0, **environment):
    """Runs the binary; returns its output."""
    done = subprocess.run(
        [ORRERY, *arguments],
        cwd=directory,
        env={**os.environ, **environment},
        timeout=300,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    expected = expect if isinstance(expect, tuple) else (expect,)
    if done.returncode not in expected:
        raise AssertionError(
            f"{' '.join(arguments)} ended with {done.returncode}, not {expect}\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout if "--json" in arguments else done.stdout + done.stderr


class Environment:
    """The virtualenv with all modules, created once below target/."""

    made = None

    @classmethod
    def get(cls):
        if cls.made is None:
            project = ROOT / "target/probes"
            project.mkdir(parents=True, exist_ok=True)
            (project / "project.yml").write_text("name: probes\nmodulepath: libs\n")
            (project / "main.cf").write_text("")
            environment = project / ".venv"
            if not environment.exists():
                # Its Python determines the version of std.
                (project / "requirements.txt").write_text("")
                run(["modules", "install"], project)
            python = environment / "bin/python"
            version = subprocess.check_output(
                [python, "-c", "import sys; print(sys.version_info >= (3, 12))"], text=True
            )
            wanted = NEWEST if version.strip() == "True" else OLDER
            wanted = wanted + [f"inmanta-module-{name}" for name in MODULES]
            (project / "requirements.txt").write_text("\n".join(wanted) + "\n")
            run(["modules", "install"], project)
            cls.made = environment
        return cls.made


class Probe(unittest.TestCase):
    """One project for one probe in a scratch directory."""

    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="probe-"))
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)
        self.target = self.scratch / "target"
        self.target.mkdir()
        self.project = self.scratch / "project"
        self.project.mkdir()

    def make(self, name, **replaced):
        (self.project / "project.yml").write_text("name: probe\nmodulepath: libs\n")
        (self.project / ".venv").symlink_to(Environment.get())
        self.write((HERE / f"{name}.cf").read_text(), **replaced)
        libs = HERE / f"{name}_libs"
        if libs.is_dir():
            shutil.copytree(libs, self.project / "libs")

    def write(self, model, **replaced):
        for word, value in {"target": self.target, **replaced}.items():
            model = model.replace("{" + word + "}", str(value))
        (self.project / "main.cf").write_text(model)

    def export(self, name, **replaced):
        """Compares the exported resources with the recorded ones."""
        report = self.project / "report.json"
        run(["compile", "--resources", "--report", str(report)], self.project)
        found = json.loads(report.read_text())["resources"]
        text = (HERE / f"{name}.golden.json").read_text()
        for word, value in {"target": self.target, **replaced}.items():
            text = text.replace("{" + word + "}", str(value))

        def plain(resource):
            resource = {key: value for key, value in resource.items() if key != "set"}
            resource["id"] = resource["id"].partition(",v=")[0]
            resource["requires"] = sorted(resource["requires"])
            return resource

        wanted = {resource["id"]: resource for resource in map(plain, json.loads(text))}
        self.maxDiff = None
        self.assertEqual({resource["id"]: resource for resource in map(plain, found)}, wanted)

    def states(self):
        """The states of all resources, by the value that identifies each."""
        listed = json.loads(run(["resources", "--json"], self.project))["resources"]
        return {
            one["id"].partition("=")[2].rstrip("]").removeprefix(f"{self.target}/"): one["status"]
            for one in listed
        }


@unittest.skipUnless(IS_ROOT, "files of root")
class Files(Probe):
    def test_files_are_made_and_mended(self):
        self.make("01_fs_local")
        self.export("01_fs_local")
        run(["deploy"], self.project)
        base = self.target / "p1"
        self.assertEqual(set(self.states().values()), {"deployed"})
        self.assertEqual(stat.S_IMODE(base.stat().st_mode), 0o750)
        motd = base / "motd"
        self.assertEqual(motd.read_text(), "hello from the model\n")
        self.assertEqual(stat.S_IMODE(motd.stat().st_mode), 0o640)
        self.assertEqual(os.readlink(base / "motd.link"), str(motd))
        config = json.loads((base / "cfg.json").read_text())
        self.assertEqual(config, {"labels": {"tier": "gold"}, "limits": {"cpu": 2, "mem": "1G"}})

        motd.write_text("changed by hand\n")
        motd.chmod(0o600)
        plan = json.loads(run(["plan", "--json"], self.project, expect=2))
        changed = plan["resources"]
        self.assertEqual([one["id"] for one in changed], [f"fs::File[probe-local,path={motd}]"])
        fields = {change["name"] for change in changed[0]["attributes"]}
        self.assertEqual(fields, {"hash", "permissions"})
        self.assertEqual(motd.read_text(), "changed by hand\n")
        run(["repair"], self.project)
        self.assertEqual(motd.read_text(), "hello from the model\n")
        self.assertEqual(stat.S_IMODE(motd.stat().st_mode), 0o640)
        self.assertNotIn("updated", run(["repair"], self.project))

    def test_a_serializer_that_fails_is_named(self):
        self.make("01n_fs_export_error")
        said = run(["compile", "--resources"], self.project, expect=2)
        self.assertIn("`hash` of the fs::File", said)
        self.assertIn("AttributeError: (None, 'content_seperator')", said)

    def test_commands_run_behind_their_guards(self):
        self.make("02_exec_local")
        self.export("02_exec_local")
        run(["deploy"], self.project, expect=2)
        base = self.target / "p2"
        states = list(self.states().values())
        self.assertEqual((states.count("deployed"), states.count("skipped")), (5, 1))
        self.assertTrue((base / "created").exists())
        # Once: a command that has just run need not reload for a requirement created in the same deploy.
        self.assertEqual((base / "unless.log").read_text(), "once\n")
        # The reload-only command ran, because its file was written.
        self.assertEqual(len((base / "reload.log").read_text().splitlines()), 1)


@unittest.skipUnless(IS_ROOT and shutil.which("apt-get"), "installs a package")
class Packages(Probe):
    def installed(self):
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${db:Status-Status}", "sl"], capture_output=True, text=True
        )
        return done.stdout == "installed"

    def test_a_package_comes_and_goes(self):
        if self.installed():
            self.skipTest("the package is there already")
        self.make("03_apt_local")
        self.export("03_apt_local")
        run(["deploy"], self.project)
        self.assertTrue(self.installed())
        run(["deploy"], self.project, PROBE_ABSENT="yes")
        self.assertFalse(self.installed())


@unittest.skipUnless(IS_ROOT and shutil.which("sshd", path="/usr/sbin:/usr/bin"), "needs sshd and root")
class Remote(Probe):
    def start_sshd(self):
        keys = self.scratch / "sshd"
        keys.mkdir(mode=0o700)
        for name in ("host", "id"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name], check=True)
        shutil.copy(keys / "id.pub", keys / "authorized_keys")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.makedirs("/run/sshd", exist_ok=True)
        options = {
            "ListenAddress": "127.0.0.1",
            "Port": port,
            "HostKey": keys / "host",
            "PidFile": "none",
            "AuthorizedKeysFile": keys / "authorized_keys",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
        }
        flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        server = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-f", "/dev/null", *flags], stderr=subprocess.DEVNULL
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return keys, port
            time.sleep(0.05)
        self.fail("sshd does not listen")

    def test_the_same_handlers_work_over_ssh(self):
        keys, port = self.start_sshd()
        self.make("06_ssh_loopback", sshd=keys)
        model = (self.project / "main.cf").read_text().replace("22022", str(port))
        # The remote Python: the probe names the system's.
        if not os.path.exists("/usr/bin/python3"):
            model = model.replace("/usr/bin/python3", sys.executable)
        (self.project / "main.cf").write_text(model)
        run(["deploy"], self.project)
        base = self.target / "p6"
        self.assertEqual((base / "over-ssh").read_text(), "via ssh\n")
        self.assertEqual(stat.S_IMODE((base / "over-ssh").stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE((base / ".ssh").stat().st_mode), 0o700)
        self.assertEqual(set(self.states().values()), {"deployed"})


class States(Probe):
    def test_states_follow_from_each_other(self):
        self.make("07_null_states")
        run(["deploy"], self.project, expect=2)
        self.assertEqual(
            self.states(),
            {
                "a": "deployed",
                "b": "failed",
                "c": "skipped",
                "d": "deployed",
                "e": "deployed",
                "u": "undefined",
                "w": "skipped_for_undefined",
            },
        )

    def test_odd_handlers_harm_nobody_else(self):
        self.make("13_crash")
        self.export("13_crash")
        run(["deploy"], self.project, expect=2)
        self.assertEqual(
            self.states(),
            {
                "exit": "failed",
                "sysexit": "failed",
                "stdout": "deployed",
                "dep": "skipped",
                "badlog": "failed",
                "twice": "failed",
                "badchange": "deployed",
                "post": "deployed",
            },
        )
        log = run(["log", "crashdemo::Bomb[bomb-exit,name=exit]"], self.project)
        self.assertIn("exit status 3", log)

    def test_an_integration_in_the_style_of_the_guide(self):
        self.make("08_seed002")
        self.export("08_seed002")
        run(["deploy"], self.project, expect=2)
        self.assertEqual(self.states(), {"front": "deployed", "back": "deployed", "later": "skipped"})
        store = self.target / "p8.json"
        self.assertEqual(
            json.loads(store.read_text()),
            {"front": {"members": ["a", "b"], "sg": "sg-1"}, "back": {"members": ["c"], "sg": "sg-2"}},
        )
        facts = run(["facts", "lbdemo::Balancer[probe-lb,name=front]", "--json"], self.project)
        self.assertIn("192.0.2.1", facts)
        log = run(["log", "lbdemo::Balancer[probe-lb,name=front]", "--json"], self.project)
        self.assertIn("Using connections 1 and 2 for sg-", log)

        model = (self.project / "main.cf").read_text()
        (self.project / "main.cf").write_text(model.replace('["c"]', '["c", "d"]'))
        said = run(["deploy"], self.project, expect=2)
        self.assertIn("updated lbdemo::Balancer[probe-lb,name=back]", said)
        self.assertEqual(json.loads(store.read_text())["back"]["members"], ["c", "d"])
        (self.project / "main.cf").write_text(model.replace('sg="sg-1"', 'sg="sg-1", purged=true'))
        run(["deploy"], self.project, expect=2)
        self.assertNotIn("front", json.loads(store.read_text()))
        # Every connection that belongs to a version is closed when that version is done with, at the latest at
        # the end of the process; the others were never asked to be closed.
        journal = (self.target / "p8.json.journal").read_text().split("\n")
        self.assertEqual(journal.count("close 2"), 3)


class Templates(Probe):
    def test_python_renders_what_the_program_does_not(self):
        """The filter `pprint` behaves like Python's library of that name."""
        self.make("11_compile_only")
        (self.project / "templates").mkdir()
        (self.project / "templates/pretty").write_text("{{ name }}: {{ {'b': [1, 2], 'a': none} | pprint }}\n")
        self.write('name = "x"\nstd::print(std::template("/pretty"))\n')
        self.assertIn("x: {'a': None, 'b': [1, 2]}", run(["compile"], self.project))


class Facts(Probe):
    def test_facts_of_resources_in_python_are_known_to_the_next_compile(self):
        self.make("08_seed002")
        model = (self.project / "main.cf").read_text()
        made = 'lbdemo::Balancer(device=dev, name="front"'
        model = model.replace(made, f"front = {made}")
        model += 'std::print(std::getfact(front, "vip", "not yet"))\n'
        (self.project / "main.cf").write_text(model)
        self.assertIn("not yet", run(["deploy"], self.project, expect=2))
        self.assertIn("192.0.2.1", run(["deploy"], self.project, expect=2))


class Exporters(Probe):
    def test_an_exporter_of_a_module_runs_when_it_is_asked_for(self):
        self.make("08_seed002")
        code = self.project / "libs/lbdemo/plugins/__init__.py"
        code.write_text(
            code.read_text()
            + """
from inmanta.export import export


@export("listing", "lbdemo::Balancer")
def listing(exporter, types):
    print("listed", sorted(one.name for one in types["lbdemo::Balancer"]))
"""
        )
        self.assertNotIn("listed", run(["compile"], self.project))
        said = run(["compile", "--exporter", "listing"], self.project)
        self.assertIn("listed ['back', 'front', 'hidden', 'later']", said)
        said = run(["compile", "--exporter", "nonsense"], self.project, expect=1)
        self.assertIn("there is no exporter nonsense; there are: listing", said)


class Compiling(Probe):
    def test_plugins_of_published_modules(self):
        self.make("11_compile_only")
        run(["compile"], self.project)

    def test_two_thousand_resources_need_few_messages(self):
        self.make("12_scale_2000")
        said = run(["-v", "compile", "--resources"], self.project)
        self.assertIn("exported 2,001 resources", said)
        messages = int(said.split("messages=")[1].split()[0])
        self.assertLess(messages, 40)


if __name__ == "__main__":
    unittest.main()
