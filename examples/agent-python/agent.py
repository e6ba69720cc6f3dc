#!/usr/bin/env python3
"""A remote agent of Orrery in one file: Python's standard library and the program `openssl`.

It offers the resource type `notes::Note`: a text file for each note. Everything else is the
protocol, docs/reference/agent-protocol.md, and can be taken over for other types.

    ORRERY_AGENT_TOKEN=orrj_… ./agent.py join HOST:PORT --state DIRECTORY
    ./agent.py run --state DIRECTORY --notes DIRECTORY
"""

import argparse
import base64
import hashlib
import http.client
import json
import os
import platform
import queue
import random
import re
import select
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

VERSION = "1.0"
MESSAGE_MAX = 64 * 1024 * 1024
QUEUE_MAX = 64
RESULTS_MAX = 1000  # journal entries that survive a restart


def log(text):
    print(f"agent.py: {text}", file=sys.stderr, flush=True)


# --- The resource type -----------------------------------------------------------------------


class NoteHandler:
    """Notes as text files. A handler has a declaration, and reads and changes one resource."""

    declaration = {
        "entity": "notes::Note",
        "agent": "agent",
        "id_attribute": "title",
        "attributes": {"title": "string", "text": "string", "purged": "bool?"},
    }

    def __init__(self, directory):
        self.directory = Path(directory)

    def path(self, desired):
        title = desired["title"]
        if not re.fullmatch(r"[\w][\w .-]*", title):
            raise ValueError(f"a title has letters, digits, blanks, dots and hyphens: {title!r}")
        return self.directory / f"{title}.txt"

    def read(self, desired):
        """The current attributes; None if it does not exist."""
        try:
            return {"text": self.path(desired).read_text("utf-8")}
        except FileNotFoundError:
            return None

    def write(self, desired):
        self.directory.mkdir(parents=True, exist_ok=True)
        replace_file(self.path(desired), desired["text"].encode())

    def delete(self, desired):
        self.path(desired).unlink(missing_ok=True)

    def facts(self, desired):
        current = self.read(desired)
        return {} if current is None else {"size": str(len(current["text"]))}


def replace_file(path, content, mode=0o644):
    """Writes a file so that it is either the old or the new one, also after a power loss."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


# --- Enrolment -------------------------------------------------------------------------------


def openssl(*arguments, given=b""):
    ran = subprocess.run(["openssl", *arguments], input=given, capture_output=True, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]}: {ran.stderr.decode(errors='replace').strip()}")
    return ran.stdout.decode()


def split_address(address):
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def authority_of(address, fingerprint):
    """The certificate of the authority that the token names, from the gateway's chain. Nothing but
    this certificate is trusted afterwards."""
    host, port = split_address(address)
    shown = openssl("s_client", "-connect", f"{host}:{port}", "-showcerts")
    for pem in re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", shown, re.S):
        der = ssl.PEM_cert_to_DER_cert(pem)
        if hashlib.sha256(der).hexdigest()[:32] == fingerprint:
            return pem
    raise RuntimeError(f"{address} is not the gateway of this token")


def tls(ca, identity=None):
    """TLS 1.3 with the server's authority, and the agent's certificate once it has one."""
    context = ssl.create_default_context(cadata=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Python 3.13 demands extensions that the short chain of an own authority does not need.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if identity is not None:
        context.load_cert_chain(identity / "certificate.pem", identity / "key.pem")
    return context


def post(address, context, path, body):
    host, port = split_address(address)
    connection = http.client.HTTPSConnection(host, port, context=context, timeout=30)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"refused by the gateway: {answer.get('reason', answer)}")
    return answer


def machine():
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except (OSError, AttributeError):
        distribution = ""
    return {
        "host_name": socket.gethostname(),
        "system": platform.system().lower(),
        "distribution": distribution,
        "architecture": platform.machine(),
    }


def store_certificate(state, answer):
    replace_file(state / "certificate.pem", answer["certificate"].encode(), 0o600)
    replace_file(state / "ca.pem", answer["ca"].encode())


def join(address, token, state):
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = state / "key.pem"
    if not key.exists():
        replace_file(key, openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256").encode(), 0o600)
    csr = openssl("req", "-new", "-key", str(key), "-subj", "/CN=agent")
    ca = authority_of(address, token.rpartition(".")[2])
    request = {"token": token, "csr": csr, "machine": machine()}
    answer = post(address, tls(ca), "/agent/v1/join", request)
    store_certificate(state, answer)
    identity = {
        "gateways": [address],
        "agent": answer["agent"],
        "environment": answer["environment"],
        "names": answer["names"],
        "renew_after": time.time() + answer["valid_seconds"] * 2 / 3,
    }
    replace_file(state / "identity.json", json.dumps(identity).encode(), 0o600)
    log(f"joined: this machine serves {', '.join(answer['names'])}")


# --- WebSocket, RFC 6455 ---------------------------------------------------------------------


class WebSocket:
    """One thread does all input and output: a TLS connection must not be used by two at once. Other
    threads put their messages into the outbox and wake it up."""

    TEXT, CLOSE, PING, PONG = 1, 8, 9, 10

    def __init__(self, address, context, path):
        host, port = split_address(address)
        plain = socket.create_connection((host, port), timeout=3)
        self.socket = context.wrap_socket(plain, server_hostname=host)
        self.socket.settimeout(10)
        self.idle_seconds = 10
        self.outbox = queue.SimpleQueue()
        self.wake_receiver, self.wake_sender = socket.socketpair()
        self.wake_receiver.setblocking(False)
        self.wake_sender.setblocking(False)
        self.received = b""
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self.received:
            self.receive()
        head, self.received = self.received.split(b"\r\n\r\n", 1)
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(f"no session: {(head + self.received).decode(errors='replace')}")

    def close(self):
        for one in (self.socket, self.wake_receiver, self.wake_sender):
            one.close()

    def receive(self):
        """Sends what is in the outbox, and receives something."""
        while True:
            while not self.outbox.empty():
                self.socket.sendall(self.outbox.get())
            if self.socket.pending() == 0:
                ready, _, _ = select.select([self.socket, self.wake_receiver], [], [], self.idle_seconds)
                if not ready:
                    raise TimeoutError("the gateway is silent")
                if self.wake_receiver in ready:
                    self.wake_receiver.recv(4096)
                if self.socket not in ready:
                    continue
            chunk = self.socket.recv(65536)
            if not chunk:
                raise ConnectionError("closed by the gateway")
            self.received += chunk
            return

    def take(self, count):
        while len(self.received) < count:
            self.receive()
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def send_frame(self, opcode, payload):
        length = len(payload)
        if length < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | length)
        elif length < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, length)
        mask = os.urandom(4)
        repeated = (mask * (length // 4 + 1))[:length]
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(length, "big")
        self.outbox.put(head + mask + masked)
        try:
            self.wake_sender.send(b"x")
        except BlockingIOError:
            pass  # it is awake

    def send(self, message):
        self.send_frame(self.TEXT, json.dumps(message, ensure_ascii=False).encode())

    def messages(self):
        parts = b""
        while True:
            first, length = self.take(2)
            if length == 126:
                (length,) = struct.unpack("!H", self.take(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self.take(8))
            if length + len(parts) > MESSAGE_MAX:
                raise ConnectionError("message too large")
            payload, opcode = self.take(length), first & 0x0F
            if opcode == self.CLOSE:
                return
            if opcode == self.PING:
                self.send_frame(self.PONG, payload)
            elif opcode in (0, self.TEXT):
                parts += payload
                if first & 0x80:
                    yield json.loads(parts)
                    parts = b""


# --- The journal -----------------------------------------------------------------------------


class Journal:
    """Commands and their results on disk, one JSON object a line: a command runs once."""

    def __init__(self, path):
        self.epoch, self.started, self.results = 0, set(), {}
        if path.exists():
            for line in path.read_bytes().splitlines():
                try:
                    self.apply(json.loads(line))
                except ValueError:
                    break  # the last line, cut off by a power loss
        while len(self.results) > RESULTS_MAX:
            self.results.pop(next(iter(self.results)))
        lines = [{"epoch": self.epoch}, *({"started": id} for id in self.started)]
        lines += ({"result": result} for result in self.results.values())
        replace_file(path, b"".join(json.dumps(line).encode() + b"\n" for line in lines), 0o600)
        self.file = open(path, "ab")

    def apply(self, entry):
        if "epoch" in entry:
            self.epoch = entry["epoch"]
        elif "started" in entry:
            self.started.add(entry["started"])
        else:
            self.started.discard(entry["result"]["id"])
            self.results[entry["result"]["id"]] = entry["result"]

    def record(self, entry):
        self.file.write(json.dumps(entry).encode() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        self.apply(entry)


# --- Commands --------------------------------------------------------------------------------


class Cancelled(Exception):
    pass


class Command:
    def __init__(self, body):
        self.body, self.id = body, body["id"]
        self.stop, self.announced = threading.Event(), threading.Event()
        self.is_announcing = False
        limit = body["deadline_ms"]
        self.deadline = None if limit is None else time.monotonic() + limit / 1000

    def check(self):
        if self.stop.is_set() or (self.deadline is not None and time.monotonic() > self.deadline):
            raise Cancelled


class Agent:
    def __init__(self, state, handlers):
        self.state = state
        self.identity = json.loads((state / "identity.json").read_text())
        self.handlers = {handler.declaration["entity"]: handler for handler in handlers}
        self.journal = Journal(state / "journal.jsonl")
        self.boot = str(uuid.uuid4())
        self.lock = threading.Lock()
        self.active = {}
        self.waiting = queue.Queue(QUEUE_MAX)
        self.session = None
        # One worker: commands for one resource never overlap, and pings are answered meanwhile.
        threading.Thread(target=self.work, daemon=True).start()

    def send(self, message):
        session = self.session
        try:
            if session is not None:
                session.send(message)
        except OSError:
            pass  # the gateway sends the command again in the next session

    # Admission: repeat a known result, queue, or reject.

    def admit(self, body):
        command = Command(body)
        with self.lock:
            known = self.active.get(command.id)
            if known is not None:
                self.send({"accepted": {"id": command.id}})
                if known.is_announcing and not known.announced.is_set():
                    self.send({"announce": {"id": command.id}})
                return
            if command.id in self.journal.results:
                return self.send({"result": self.journal.results[command.id]})
            refusal = self.refusal(body)
            if refusal is not None:
                code, reason = refusal
                return self.send({"rejected": {"id": command.id, "code": code, "reason": reason}})
            try:
                self.waiting.put_nowait(command)
            except queue.Full:
                return self.send({"busy": {"id": command.id}})
            self.active[command.id] = command
            self.send({"accepted": {"id": command.id}})

    def refusal(self, body):
        entity, _, rest = body["resource"]["id"].partition("[")
        if body["environment"] != self.identity["environment"]:
            return "unreadable", "the command is for another environment"
        if rest.partition(",")[0] not in self.identity["names"]:
            return "unreadable", f"this agent serves {', '.join(self.identity['names'])}"
        # A stale owner is fenced, whatever it sends.
        if body["what"] != "dry_run":
            if body["epoch"] is None:
                return "unreadable", "the command has no epoch"
            if body["epoch"] < self.journal.epoch:
                return "fenced", f"epoch {body['epoch']} is older than {self.journal.epoch}"
            if body["epoch"] > self.journal.epoch:
                self.journal.record({"epoch": body["epoch"]})
                for older in self.active.values():
                    if older.body["what"] != "dry_run":
                        older.stop.set()
        if entity not in self.handlers:
            return "unknown-type", f"this agent has no handler for {entity}"
        return None

    # Execution.

    def work(self):
        while True:
            command = self.waiting.get()
            repeated = command.id in self.journal.started
            if command.body["what"] != "dry_run":
                with self.lock:
                    self.journal.record({"started": command.id})
            outcome, announced = self.run_handler(command)
            result = {
                "id": command.id,
                "outcome": outcome,
                "announced": announced,
                "unclear": False,
                "repeated": repeated,
            }
            with self.lock:
                if command.body["what"] != "dry_run":
                    self.journal.record({"result": result})
                del self.active[command.id]
            self.send({"result": result})

    def run_handler(self, command):
        body = command.body
        handler = self.handlers[body["resource"]["id"].partition("[")[0]]
        try:
            desired = json.loads(body["resource"]["attributes"])
            if desired.get("references"):
                raise ValueError("this agent does not resolve secrets")
            command.check()
            if body["what"] == "facts":
                facts = [{"name": name, "value": value, "expires": True} for name, value in handler.facts(desired).items()]
                return outcome("deployed", facts=facts), False
            change = self.difference(handler, desired)
            if change["kind"] == "nochange" or body["what"] == "dry_run":
                return outcome("deployed", change), False
            if body["resource"]["flags"]["report_only"]:
                return outcome("non_compliant", change), False
            if body["wants_announcement"]:
                self.announce(command)
            command.check()
            if change["kind"] == "purged":
                handler.delete(desired)
            else:
                handler.write(desired)
            return outcome("deployed", change, log=[("info", change["kind"])]), command.is_announcing
        except Cancelled:
            return outcome("skipped", log=[("warning", "the run was cancelled")]), command.is_announcing
        except Exception as error:  # a handler's failure is an outcome
            return outcome("failed", log=[("error", f"{type(error).__name__}: {error}")]), command.is_announcing

    def difference(self, handler, desired):
        current = handler.read(desired)
        if desired.get("purged"):
            return {"kind": "nochange" if current is None else "purged", "attributes": []}
        if current is None:
            return {"kind": "created", "attributes": []}
        attributes = [
            {"name": name, "current": value, "desired": desired[name]}
            for name, value in current.items()
            if value != desired[name]
        ]
        return {"kind": "updated" if attributes else "nochange", "attributes": attributes}

    def announce(self, command):
        """Waits until the server has recorded that the change begins."""
        with self.lock:
            command.is_announcing = True
            self.send({"announce": {"id": command.id}})
        while not command.announced.wait(0.05):
            command.check()

    # Sessions.

    def hello(self):
        with self.lock:
            running = list(self.active)
        types = [handler.declaration for handler in self.handlers.values()]
        return {
            "hello": {
                "protocol": 1,
                "program_version": f"agent.py {VERSION}",
                "boot": self.boot,
                "running": running,
                "machine": machine(),
                "types": types,
            }
        }

    def serve(self, address):
        """One session. Returns if the agent may reconnect."""
        ca = (self.state / "ca.pem").read_text()
        session = WebSocket(address, tls(ca, self.state), "/agent/v1/session")
        session.send(self.hello())
        try:
            for message in session.messages():
                if message == "ping":
                    session.send("pong")
                    continue
                (name, body), = message.items()
                if name == "welcome":
                    session.idle_seconds = 3 * body["heartbeat_seconds"]
                    self.learn_gateways(body.get("gateways", []))
                    self.session = session
                    log(f"session {body['session']} with {address}")
                elif name == "refuse":
                    log(f"refused: {body['reason']}")
                    return body["code"] not in ("revoked", "protocol")
                elif name == "command":
                    self.admit(body)
                elif name in ("cancel", "announced"):
                    with self.lock:
                        command = self.active.get(body["id"])
                    if command is not None:
                        (command.stop if name == "cancel" else command.announced).set()
                else:
                    raise ConnectionError(f"unknown message {name}")
        finally:
            self.session = None
            session.close()
        return True

    def learn_gateways(self, gateways):
        known = self.identity["gateways"][:1] + [one for one in gateways if one != self.identity["gateways"][0]]
        if known != self.identity["gateways"]:
            self.identity["gateways"] = known
            self.store_identity()

    def store_identity(self):
        replace_file(self.state / "identity.json", json.dumps(self.identity).encode(), 0o600)

    def renew(self, address):
        csr = openssl("req", "-new", "-key", str(self.state / "key.pem"), "-subj", "/CN=agent")
        context = tls((self.state / "ca.pem").read_text(), self.state)
        answer = post(address, context, "/agent/v1/renew", {"csr": csr})
        store_certificate(self.state, answer)
        self.identity["renew_after"] = time.time() + answer["valid_seconds"] * 2 / 3
        self.store_identity()

    def renew_in_time(self):
        while True:
            if time.time() > self.identity["renew_after"]:
                try:
                    self.renew(self.identity["gateways"][0])
                except (OSError, RuntimeError, ValueError) as error:
                    log(f"certificate not renewed: {error}")
            time.sleep(60)

    def run(self):
        threading.Thread(target=self.renew_in_time, daemon=True).start()
        failures = 0
        while True:
            gateways = self.identity["gateways"]
            address = gateways[failures % len(gateways)]
            try:
                if not self.serve(address):
                    return 1
                failures = 0
            except (OSError, ValueError) as error:
                log(f"no session with {address}: {error}")
                failures += 1
            time.sleep(random.uniform(0, min(60, 0.5 * 2 ** min(failures // len(gateways), 8))))


def outcome(status, change=None, facts=(), log=()):
    lines = [{"at": time.time_ns() // 1000, "level": level, "message": message} for level, message in log]
    change = change or {"kind": "nochange", "attributes": []}
    return {"status": status, "change": change, "facts": list(facts), "log": lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    joining = commands.add_parser("join", help="enrol with the token of an invitation, in ORRERY_AGENT_TOKEN")
    joining.add_argument("gateway", metavar="HOST:PORT")
    running = commands.add_parser("run", help="serve until it is stopped")
    running.add_argument("--notes", type=Path, default=Path("notes"), help="directory of the notes")
    for one in (joining, running):
        one.add_argument("--state", type=Path, default=Path("agent-state"), help="directory of key, certificate and journal")
    given = parser.parse_args()
    if given.command == "join":
        join(given.gateway, os.environ["ORRERY_AGENT_TOKEN"].strip(), given.state)
        return 0
    return Agent(given.state, [NoteHandler(given.notes)]).run()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
