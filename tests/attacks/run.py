"""Attacks on a server by clients that show no credentials, or too few. Each ends with figures, or says what did not hold.

    python3 tests/attacks/run.py --orrery target/debug/orrery [ATTACK...]

Most need a minute or two, because deadlines do.
"""

import argparse
import contextlib
import gzip
import json
import os
import resource
import sys
import threading
import time

from support import Failed, Probe, check, serving


def packed_values(orrery):
    """97 KB that unpack to 50 million values, sent to the log-in that needs no account."""
    body = gzip.compress(b'{"a":[' + b"1," * 50_000_000 + b"1]}", 9)
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with serving(orrery) as server:
        with Probe(server) as probe:
            answers = []

            def send():
                try:
                    answers.append(server.call("POST", "/api/v2/login", body, headers=headers)[0])
                except OSError as error:
                    answers.append(type(error).__name__)

            threads = [threading.Thread(target=send) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        most = server.memory("VmHWM")
        figures = f"{len(body)} bytes, four times: answers {answers}, at most {most:.0f} MiB, {probe}"
        check(most < 500, figures)
        check(probe.unanswered == 0 and probe.worst < 1, figures)
        return figures


def slow_bodies(orrery):
    """Bodies of which a byte comes now and then, and many that are large, before anybody has shown who they are."""
    with serving(orrery) as server:
        slow = server.connect()
        slow.sendall(b"POST /api/v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{")
        large = []
        for _ in range(20):
            held = server.connect()
            held.sendall(b"POST /api/v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99000000\r\n\r\n")
            large.append(held)
        block = b" " * (1 << 20)
        for held in large:
            held.settimeout(5)
            try:
                for _ in range(98):
                    held.sendall(block)
            except OSError:
                pass
        memory = server.memory()
        began = time.monotonic()
        slow.settimeout(5)
        ended = None
        while time.monotonic() - began < 100:
            try:
                slow.sendall(b" ")
                if not slow.recv(4096):
                    ended = time.monotonic() - began
                    break
            except TimeoutError:
                continue
            except OSError:
                ended = time.monotonic() - began
                break
        figures = f"20 bodies of 99 MB: {memory:.0f} MiB; a byte per 5 s: {'still taken after 100 s' if ended is None else f'ended after {ended:.0f} s'}"
        check(memory < 300 and ended is not None and ended < 30, figures)
        return figures


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def idle_connections(orrery):
    """8300 connections without a request, half of them with the preface of HTTP/2 whose pings are answered."""
    with serving(orrery) as server:
        held, answered = [], 0
        with Probe(server) as probe:
            for number in range(8300):
                try:
                    stream = server.connect()
                    if number % 2:
                        stream.sendall(PREFACE)
                    stream.setblocking(False)
                    held.append(stream)
                except OSError:
                    pass
            began, alive = time.monotonic(), len(held)
            while alive and time.monotonic() - began < 60:
                time.sleep(1)
                alive = 0
                for stream in held:
                    try:
                        text = stream.recv(65536)
                    except BlockingIOError:
                        alive += 1
                        continue
                    except OSError:
                        continue
                    if not text:
                        continue
                    alive += 1
                    # Pings are answered, as a client would that means to stay.
                    while len(text) >= 17:
                        if text[3] == 6 and not text[4] & 1:
                            answered += 1
                            with contextlib.suppress(OSError):
                                stream.sendall(text[:4] + b"\1" + text[5:17])
                        text = text[9 + int.from_bytes(text[:3]) :]
        figures = f"{len(held)} opened, {alive} alive after {time.monotonic() - began:.0f} s, {answered} pings, {server.memory('VmHWM'):.0f} MiB, {probe}"
        check(alive == 0, figures)
        check(probe.unanswered == 0 and probe.worst < 1, figures)
        return figures


def descriptors(orrery):
    """More connections than the server has descriptors, while it deploys commands that need some."""
    with serving(orrery, soft=1024, hard=1024) as server:
        project = server.as_admin("POST", "/api/v1/projects", {"name": "p"})[1]["id"]
        new = {"name": "e", "project": project}
        environment = "/api/v1/environments/" + server.as_admin("POST", "/api/v1/environments", new)[1]["id"]
        stop, held = threading.Event(), []

        def hold():
            while not stop.is_set():
                try:
                    held.append(server.connect())
                except OSError:
                    time.sleep(0.01)
                if len(held) > 1500:
                    held.pop(0).close()

        holding = threading.Thread(target=hold)
        holding.start()
        try:
            time.sleep(3)
            commands = [f"touch {server.data}/made{number}" for number in range(200)]
            attributes = {
                "creates": "", "cwd": "", "environment": {}, "onlyif": "", "path": "", "reload": "", "reload_only": False,
                "returns": [0], "timeout": 300, "unless": "", "skip_on_fail": False, "send_event": False, "receive_events": True,
            }  # fmt: skip
            resources = [
                {"id": f"exec::Run[localhost,command={command}]", "attributes": dict(attributes, command=command)}
                for command in commands
            ]
            answer = server.as_admin("POST", f"{environment}/versions", {"resources": resources, "release": True})
            check(answer[0] == 201, f"a push while descriptors are short: {answer}")
            until, counts = time.monotonic() + 60, None
            while time.monotonic() < until:
                counts = server.as_admin("GET", f"{environment}/resource-counts")[1]
                if counts.get("deployed") == 200 or sum(path.startswith("made") for path in os.listdir(server.data)) == 200:
                    break
                time.sleep(0.5)
        finally:
            stop.set()
            holding.join()
        made = sum(path.startswith("made") for path in os.listdir(server.data))
        log = json.dumps(server.as_admin("GET", f"{environment}/resources?limit=1000")[1])
        failed = log.count('"failed"')
        figures = f"{made} of 200 commands run, {failed} failed, {server.descriptors()} descriptors, {counts}"
        check(made == 200 and failed == 0, figures)
        return figures


ATTACKS = {attack.__name__: attack for attack in [packed_values, slow_bodies, idle_connections, descriptors]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--orrery", default="target/debug/orrery")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"any of {', '.join(ATTACKS)}; all of them if none is named")
    options = parser.parse_args()
    unknown = [name for name in options.attacks if name not in ATTACKS]
    if unknown:
        parser.error(f"there is no attack {unknown[0]!r}; known are {', '.join(ATTACKS)}")
    # This side holds as many connections as it is let.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    failed = 0
    for name in options.attacks or ATTACKS:
        try:
            print(f"held    {name}: {ATTACKS[name](options.orrery)}", flush=True)
        except Failed as error:
            failed += 1
            print(f"BROKEN  {name}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
