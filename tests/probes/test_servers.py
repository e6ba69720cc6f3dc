"""Published modules on a real server: pushed and compiled on it, deployed twice, and checked on the machine.

The server runs in a mount namespace in which /etc, /usr and /var are copies on write: users, cron jobs and packages that
its handlers make are gone with it. What it sees is seen through /proc/PID/root.
"""

import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from test_probes import HERE, ORRERY, ROOT, run

PASSWORD = "Correct-horse-1"
PATIENCE_S = 300
MODULES = ["fs", "user", "cron", "apt", "rest"]
COPIED = ["/etc", "/usr", "/var"]
# Mounts and becomes the server: what is given as $1 holds the copies, the rest is its command.
ENTER = """
set -e
scratch=$1; shift
mount -t tmpfs none "$scratch"
for place in {places}; do
    mkdir -p "$scratch$place/upper" "$scratch$place/work"
    mount -t overlay overlay -o "lowerdir=$place,upperdir=$scratch$place/upper,workdir=$scratch$place/work" "$place"
done
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
exec "$@"
""".format(places=" ".join(COPIED))


def may_enter():
    """The reason why no mount namespace can be created; None if one can."""
    if os.geteuid() != 0:
        return "needs root"
    if not all(map(shutil.which, ("unshare", "apt-get", "dpkg-deb", "useradd"))):
        return "needs unshare, apt-get, dpkg-deb and useradd"
    with tempfile.TemporaryDirectory() as scratch:
        tried = subprocess.run(
            ["unshare", "--mount", "sh", "-c", ENTER, "enter", scratch, "true"],
            capture_output=True,
            text=True,
            check=False,
        )
    return None if tried.returncode == 0 else f"the kernel allows no namespace: {tried.stderr.strip()}"


REFUSED = may_enter()


class Api(http.server.BaseHTTPRequestHandler):
    """Records its requests."""

    calls = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.calls.append((self.path, json.loads(body)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"ok": true}')

    def log_message(self, *_):
        pass


class Server:
    """A server in its own namespace."""

    def __init__(self, scratch):
        copies = scratch / "copies"
        copies.mkdir()
        self.log = open(scratch / "server.log", "w")
        command = [ORRERY, "server", "--listen", "127.0.0.1:0", "--allow-local-repositories"]
        self.process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", ENTER, "enter", copies, *command, "--data", scratch / "data"],
            env={**os.environ, "ORRERY_ADMIN_PASSWORD": PASSWORD},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        line = self.process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        if not found:
            raise AssertionError(f"the server did not start: {line!r} {(scratch / 'server.log').read_text()}")
        self.url = found[0]
        self.token = None
        login = self.call("POST", "/api/v1/login", {"name": "admin", "password": PASSWORD})
        self.token = login["token"]

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def call(self, method, path, body=None):
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error

    def file(self, path):
        """A file in the server's namespace."""
        return pathlib.Path(f"/proc/{self.process.pid}/root{path}")


def requirements(python, generation):
    """The requirements of a project for a Python version."""
    if generation == "legacy":
        return ["inmanta-module-std==5.2.8", "inmanta-module-cron"]
    newest = "inmanta-module-std==8.7.5" if python >= (3, 12) else "inmanta-module-std==8.4.2"
    return [newest, *(f"inmanta-module-{name}" for name in MODULES)]


def environment(generation):
    """A virtualenv with modules, created once below target/."""
    project = ROOT / "target/probes" / generation
    project.mkdir(parents=True, exist_ok=True)
    (project / "project.yml").write_text("name: probes\nmodulepath: libs\n")
    (project / "main.cf").write_text("")
    if not (project / ".venv").exists():
        (project / "requirements.txt").write_text("")
        run(["modules", "install"], project)
    question = "import sys; print(*sys.version_info[:2])"
    answer = subprocess.check_output([project / ".venv/bin/python", "-c", question], text=True)
    wanted = requirements(tuple(map(int, answer.split())), generation)
    (project / "requirements.txt").write_text("\n".join(wanted) + "\n")
    run(["modules", "install"], project)
    return project


@unittest.skipIf(REFUSED, REFUSED or "")
class Servers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="servers-"))
        cls.addClassCleanup(shutil.rmtree, cls.scratch, ignore_errors=True)
        # apt reads repositories as a separate user.
        cls.scratch.chmod(0o755)
        api = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
        cls.addClassCleanup(api.server_close)
        cls.addClassCleanup(api.shutdown)
        threading.Thread(target=api.serve_forever, daemon=True).start()
        cls.api = f"http://127.0.0.1:{api.server_port}"
        cls.make_repository()
        cls.server = Server(cls.scratch)
        cls.addClassCleanup(cls.server.close)

    @classmethod
    def make_repository(cls):
        """Two empty packages in a local apt repository."""
        cls.repository = cls.scratch / "repository"
        for name in ("pushed", "compiled"):
            control = cls.scratch / f"package-{name}" / "DEBIAN/control"
            control.parent.mkdir(parents=True)
            control.write_text(
                f"Package: probe-{name}\nVersion: 1.0\nArchitecture: all\nMaintainer: none <none@localhost>\n"
                "Description: nothing\n"
            )
            place = cls.repository / name
            place.mkdir(parents=True)
            package = place / f"probe-{name}.deb"
            subprocess.check_call(
                ["dpkg-deb", "--build", "--root-owner-group", control.parent.parent, package],
                stdout=subprocess.DEVNULL,
            )
            fields = subprocess.check_output(["dpkg-deb", "--field", package], text=True)
            digest = hashlib.sha256(package.read_bytes()).hexdigest()
            size = package.stat().st_size
            (place / "Packages").write_text(
                f"{fields}Filename: ./{package.name}\nSize: {size}\nSHA256: {digest}\n"
            )

    def project(self, generation, name):
        """A project with its own model."""
        kept = environment(generation)
        project = self.scratch / f"{generation}-{name}"
        project.mkdir()
        (project / "project.yml").write_text(f"name: {generation}-{name}\nmodulepath: libs\n")
        shutil.copy(kept / "requirements.txt", project)
        model = (HERE / f"{generation}.cf").read_text()
        values = {
            "name": name,
            "target": self.scratch / f"target-{name}",
            "repository": self.repository,
            "api": self.api,
        }
        for word, value in values.items():
            model = model.replace("{" + word + "}", str(value))
        (project / "main.cf").write_text(model)
        return kept, project

    def environment_of(self, name, repository=None):
        project = self.server.call("POST", "/api/v1/projects", {"name": name})
        body = {"project": project["id"], "name": name}
        if repository:
            body.update(repository=str(repository), branch="main")
        return self.server.call("POST", "/api/v1/environments", body)["id"]

    def push(self, generation, name):
        """Compiles locally, and has the server deploy after the project is removed."""
        kept, project = self.project(generation, name)
        (project / ".venv").symlink_to(kept / ".venv")
        environment = self.environment_of(f"{generation}-{name}")
        run(
            ["export", "--release"],
            project,
            ORRERY_SERVER=self.server.url,
            ORRERY_TOKEN=self.server.token,
            ORRERY_ENVIRONMENT=environment,
        )
        shutil.rmtree(project)
        return environment

    def compile(self, generation, name):
        """Has the server compile from a repository, and deploy."""
        _, project = self.project(generation, name)
        identity = ["-c", "user.name=probe", "-c", "user.email=probe@localhost", "-c", "core.hooksPath=/dev/null"]
        for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "start"]):
            subprocess.check_call(["git", *identity, *arguments], cwd=project)
        environment = self.environment_of(f"{generation}-{name}", project)
        path = f"/api/v1/environments/{environment}/compiles"
        asked = self.server.call("POST", path, {"update": True})
        done = self.until(lambda: self.server.call("GET", f"{path}/{asked['id']}"), lambda one: one.get("completed"))
        self.assertTrue(done["success"], json.dumps(done, indent=1)[-4000:])
        return environment

    def until(self, look, holds):
        end = time.monotonic() + PATIENCE_S
        while True:
            found = look()
            if holds(found):
                return found
            self.assertLess(time.monotonic(), end, f"this took too long: {found}")
            time.sleep(0.2)

    def deployed(self, environment):
        """The ids of all resources, once all of them are deployed, and again without any change."""
        base = f"/api/v1/environments/{environment}"

        def counts():
            return self.server.call("GET", f"{base}/resource-counts")

        def is_done(found):
            by_status = found["by_status"]
            wrong = {"failed", "unavailable", "skipped"} & by_status.keys()
            return wrong or by_status.get("deployed") == found["total"] > 0

        found = self.until(counts, is_done)
        listed = self.server.call("GET", f"{base}/resources?limit=100")["items"]
        # Skipped resources only log their requirement.
        for one in sorted(listed, key=lambda one: one["status"] == "skipped"):
            if one["status"] != "deployed":
                path = urllib.request.quote(one["id"], safe="")
                logs = self.server.call("GET", f"{base}/resources/{path}/logs")
                self.fail(f"{one}\n{json.dumps(logs, indent=1)[:6000]}")
        self.assertEqual(found["by_status"], {"deployed": found["total"]})
        asked = self.server.call("POST", f"{base}/repair", {})
        path = f"{base}/operations/{asked['id']}"
        again = self.until(lambda: self.server.call("GET", path), lambda one: one["transitioning"] == "no")
        outcome = again["outcome"]
        self.assertEqual((outcome["deployed"], outcome["changed"]), (found["total"], 0), outcome)
        return sorted(one["id"] for one in listed)

    def check(self, name, environment):
        ids = self.deployed(environment)
        # Each object is managed once, by the resource of its module.
        kinds = sorted(one.partition("[")[0] for one in ids)
        self.assertEqual(
            kinds,
            [
                "apt::Package",
                "exec::Run",
                "exec::Run",
                "fs::Directory",
                "fs::File",
                "fs::File",
                "fs::Symlink",
                "rest::RESTCall",
                "std::ConfigFile",
            ],
        )
        see = self.server.file
        target = self.scratch / f"target-{name}"
        self.assertEqual((target / "motd").read_text(), f"hello from the {name} model\n")
        self.assertEqual((target / "motd.link").readlink(), target / "motd")
        self.assertRegex(see("/etc/passwd").read_text(), rf"(?m)^u{name}:")
        self.assertRegex(see("/etc/group").read_text(), rf"(?m)^g{name}:")
        self.assertIn(f"5 4 * * * root /bin/true {name}\n", see(f"/etc/cron.d/job{name}").read_text())
        packages = see("/var/lib/dpkg/status").read_text()
        self.assertRegex(packages, rf"(?m)^Package: probe-{name}\nStatus: install ok installed$")
        calls = [body for path, body in Api.calls if path == f"/things/{name}"]
        # The first deploy and the repair.
        self.assertEqual(calls, [{"name": name}] * 2)
        # None of it is on this machine.
        self.assertNotIn(f"u{name}:", pathlib.Path("/etc/passwd").read_text())
        self.assertFalse(os.path.exists(f"/etc/cron.d/job{name}"))

    def test_pushed(self):
        self.check("pushed", self.push("published", "pushed"))

    def test_compiled_by_the_server(self):
        self.check("compiled", self.compile("published", "compiled"))

    def test_the_generation_before(self):
        ids = self.deployed(self.push("legacy", "pushed"))
        self.assertEqual(len(ids), 1, ids)
        self.assertRegex(ids[0], r"^std::(Config)?File\[localhost,path=/etc/cron.d/oldpushed\]$")
        text = self.server.file("/etc/cron.d/oldpushed").read_text()
        self.assertIn("A=b\n", text)
        self.assertIn("1 2 * * * root /bin/old\n", text)


if __name__ == "__main__":
    unittest.main()
