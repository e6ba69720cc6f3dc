"""Generated requests for every operation of the API: no response may be a server error or an undocumented status.

    python3 tests/api/run.py --orrery target/debug/orrery --dir target/api

It starts a server on loopback with temporary data, creates an administrator's token, and lets schemathesis (from PyPI, in a virtual
environment below --dir) read the server's own OpenAPI document and test every operation in it.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path

SCHEMATHESIS = "schemathesis==4.32.5"
PASSWORD = "correct horse battery staple 1"
# They would revoke the rights of the caller, or never end.
LEFT_OUT = ["/api/v1/logout", "/api/v1/events", "/api/v1/environments/{environment}/events"]


def program(directory):
    """The tool, installed once."""
    home = Path(directory) / "schemathesis"
    tool = home / "bin" / "schemathesis"
    note = home / "installed"
    if not note.exists() or note.read_text() != SCHEMATHESIS:
        venv.create(home, with_pip=True, clear=True)
        pip = [home / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install", SCHEMATHESIS]
        subprocess.run(pip, check=True)
        note.write_text(SCHEMATHESIS)
    return tool


def call(base, path, body, token=None):
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(base + path, data=json.dumps(body).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--orrery", default="target/debug/orrery")
    parser.add_argument("--dir", default="target/api")
    parser.add_argument("--database", help="a PostgreSQL URL instead of a file")
    parser.add_argument("--examples", type=int, default=6, help="generated requests for each operation and phase")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    Path(options.dir).mkdir(parents=True, exist_ok=True)
    # Keeps the files of the tool out of the sources.
    directory = Path(options.dir).resolve()
    tool = program(directory)
    with tempfile.TemporaryDirectory() as data:
        command = [options.orrery, "server", "--listen", "127.0.0.1:0", "--data", data, "--log", "error"]
        if options.database:
            command += ["--database", options.database]
        environment = {**os.environ, "ORRERY_ADMIN_PASSWORD": PASSWORD}
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            base = server.stdout.readline().split()[-1]
            token = call(base, "/api/v1/login", {"name": "admin", "password": PASSWORD})["token"]
            token = call(base, "/api/v1/tokens", {"name": "generated requests", "role": "admin"}, token)["secret"]
            project = call(base, "/api/v1/projects", {"name": "p"}, token)["id"]
            call(base, "/api/v1/environments", {"project": project, "name": "e"}, token)
            arguments = [
                tool, "run", f"{base}/api/v1/openapi.json", "--url", base,
                "--header", f"Authorization: Bearer {token}",
                "--checks", "not_a_server_error,status_code_conformance,content_type_conformance",
                "--max-examples", str(options.examples), "--seed", str(options.seed), "--phases", "examples,coverage,fuzzing",
                "--request-timeout", "30", "--continue-on-failure", "--suppress-health-check", "all", "--warnings", "off",
                "--generation-database", "none",
            ]
            for path in LEFT_OUT:
                arguments += ["--exclude-path", path]
            done = subprocess.run(arguments, cwd=directory)
            if server.poll() is not None:
                sys.exit(f"the server ended with {server.returncode}")
            sys.exit(done.returncode)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


if __name__ == "__main__":
    main()
