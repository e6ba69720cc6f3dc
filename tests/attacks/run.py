"""Attacks on a server by clients without credentials, or with insufficient ones. Each prints measurements or the broken guarantee.

    python3 tests/attacks/run.py --orrery target/debug/orrery [ATTACK...]

Most take one or two minutes, because they wait for deadlines.
"""

import argparse
import contextlib
import gzip
import http.client
import json
import os
import resource
import sys
import threading
import time

from support import PASSWORD, Failed, Probe, check, serving


def packed_values(orrery):
    """Sends 97 KB that decompress to 50 million values to the login route, without an account."""
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
    """Sends a slow body, a byte every 5 s, and 20 large bodies, without authentication."""
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
    """Opens 8300 connections without a request; half of them send an HTTP/2 preface and answer pings."""
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
                    # Answers pings, like a client that keeps its connection open.
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


def run(command):
    """Returns a resource that runs a command on the server's machine."""
    attributes = {
        "command": command, "creates": "", "cwd": "", "environment": {}, "onlyif": "", "path": "", "reload": "", "reload_only": False,
        "returns": [0], "timeout": 300, "unless": "", "skip_on_fail": False, "send_event": False, "receive_events": True,
    }  # fmt: skip
    return {"id": f"exec::Run[localhost,command={command}]", "attributes": attributes}


def made(server):
    """Returns the number of files that deployed commands created."""
    return sum(name.startswith("made") for name in os.listdir(server.data))


def descriptors(orrery):
    """Opens more connections than the server has descriptors, while it deploys commands that need descriptors."""
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
            resources = [run(command) for command in commands]
            answer = server.as_admin("POST", f"{environment}/versions", {"resources": resources, "release": True})
            check(answer[0] == 201, f"a push while descriptors are short: {answer}")
            until, counts = time.monotonic() + 60, None
            while time.monotonic() < until:
                counts = server.as_admin("GET", f"{environment}/resource-counts")[1]
                if made(server) == 200:
                    break
                time.sleep(0.5)
        finally:
            stop.set()
            holding.join()
        log = json.dumps(server.as_admin("GET", f"{environment}/resources?limit=1000")[1])
        failed = log.count('"failed"')
        figures = f"{made(server)} of 200 commands run, {failed} failed, {server.descriptors()} descriptors, {counts}"
        check(made(server) == 200 and failed == 0, figures)
        return figures


def flood(stop, send):
    """Calls `send` repeatedly until `stop` is set. Returns the number of successful calls."""
    count = 0
    while not stop.is_set():
        try:
            send()
            count += 1
        except (OSError, http.client.HTTPException):
            time.sleep(0.01)
    return count


def audit_growth(orrery):
    """Sends malformed logins on 16 connections for 20 s; the audit log stays below 100 entries."""
    with serving(orrery) as server:
        stop, counts = threading.Event(), []
        paths = ["/api/v1/login", "/api/v1/setup", "/api/v2/login"]

        def send_all():
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            count = 0
            while not stop.is_set():
                try:
                    connection.request("POST", paths[count % 3], b'{"x": 1}', {"Content-Type": "application/json"})
                    connection.getresponse().read()
                    count += 1
                except (OSError, http.client.HTTPException):
                    connection.close()
            counts.append(count)

        threads = [threading.Thread(target=send_all) for _ in range(16)]
        for thread in threads:
            thread.start()
        time.sleep(20)
        stop.set()
        for thread in threads:
            thread.join()
        newest = server.as_admin("GET", "/api/v1/audit?limit=1")[1]["items"][0]["id"]
        figures = f"{sum(counts)} requests, {newest} entries"
        check(sum(counts) > 1000 and newest < 100, figures)
        return figures


def login_flood(orrery):
    """Sends 200 concurrent failed logins with invented names from one address, while clients log in from 20 others."""
    with serving(orrery) as server:
        stop, statuses = threading.Event(), {}

        def login(address, name, password):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60, source_address=(address, 0))
            try:
                body = json.dumps({"name": name, "password": password})
                connection.request("POST", "/api/v1/login", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                return answer.status
            finally:
                connection.close()

        def guess(number):
            count = 0
            while not stop.is_set():
                count += 1
                try:
                    status = login("127.0.0.2", f"made-up-{number}-{count}", "wrong")
                except (OSError, http.client.HTTPException):
                    continue
                statuses[status] = statuses.get(status, 0) + 1
                time.sleep(0.5 if status == 429 else 0)

        threads = [threading.Thread(target=guess, args=(number,)) for number in range(200)]
        for thread in threads:
            thread.start()
        time.sleep(3)
        answers = []
        for number in range(20):
            began = time.monotonic()
            status = login(f"127.0.0.{number + 3}", "admin", PASSWORD)
            answers.append((status, time.monotonic() - began))
        stop.set()
        for thread in threads:
            thread.join()
        slowest = max(took for _, took in answers)
        right = sum(status == 200 for status, _ in answers)
        figures = f"{right} of 20 right log-ins, slowest {slowest:.2f} s, meanwhile {statuses}"
        check(right == 20 and slowest < 2, figures)
        return figures


def large_differences(orrery):
    """Requests the diff of two versions of 60,000 resources eight times at once, through the Inmanta-compatible API."""
    with serving(orrery) as server:
        project = server.as_admin("POST", "/api/v1/projects", {"name": "p"})[1]["id"]
        environment = server.as_admin("POST", "/api/v1/environments", {"name": "e", "project": project})[1]["id"]
        for value in [1, 2]:
            resources = [
                {"id": f"t::R[a,name=r{n}]", "attributes": {"name": f"r{n}", "value": value, "text": "x" * 100}}
                for n in range(60_000)
            ]
            body = {"resources": resources, "release": False}
            status, answer = server.as_admin("POST", f"/api/v1/environments/{environment}/versions", body, timeout=300)
            check(status in (200, 201), answer)
        before, sizes = server.memory(), []

        def read():
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
            headers = {"Authorization": f"Bearer {server.token}", "X-Inmanta-tid": environment}
            connection.request("GET", "/api/v2/desiredstate/diff/1/2", headers=headers)
            answer = connection.getresponse()
            sizes.append((answer.status, len(answer.read()) >> 20))
            connection.close()

        read()
        once = server.memory("VmHWM")
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        most = server.memory("VmHWM")
        figures = f"{sizes[0][1]} MiB each; {before:.0f} MiB before, at most {once:.0f} MiB for one, {most:.0f} MiB for eight: {sizes}"
        # Requests that wait too long get the response to retry later.
        whole = [size for size in sizes if size == sizes[0]]
        check(sizes[0][0] == 200 and len(whole) >= 4 and most < 500, figures)
        return figures


def everything(orrery):
    """Runs all unauthenticated attacks at once for a minute, while the server deploys commands."""
    packed = gzip.compress(b'{"a":[' + b"1," * 50_000_000 + b"1]}", 9)
    is_json = {"Content-Type": "application/json"}
    with serving(orrery) as server:
        project = server.as_admin("POST", "/api/v1/projects", {"name": "p"})[1]["id"]
        new = {"name": "e", "project": project}
        environment = "/api/v1/environments/" + server.as_admin("POST", "/api/v1/environments", new)[1]["id"]
        stop, held = threading.Event(), []

        def hold():
            stream = server.connect()
            if len(held) % 3 == 1:
                stream.sendall(PREFACE)
            if len(held) % 3 == 2:
                stream.sendall(b"POST /api/v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 65000\r\n\r\n" + b" " * 60000)
            held.append(stream)
            if len(held) > 6000:
                held.pop(0).close()

        sends = [
            hold,
            hold,
            lambda: server.call("POST", "/api/v2/login", packed, headers=dict(is_json, **{"Content-Encoding": "gzip"})),
            lambda: server.call("POST", "/api/v1/login", {"name": f"n{time.monotonic()}", "password": "x"}),
            lambda: server.call("POST", "/api/v1/setup", b"{", headers=is_json),
            lambda: server.call("GET", "/api/v1/openapi.json", headers={"Accept-Encoding": "gzip"}),
        ]
        threads = [threading.Thread(target=flood, args=(stop, send)) for send in sends]
        with Probe(server) as probe:
            for thread in threads:
                thread.start()
            began, deployed, most = time.monotonic(), 0, 0.0
            while time.monotonic() - began < 60:
                body = {"resources": [run(f"touch {server.data}/made{deployed}")], "release": True}
                with contextlib.suppress(OSError):
                    server.as_admin("POST", f"{environment}/versions", body)
                    deployed += 1
                most = max(most, server.memory("VmHWM"))
                time.sleep(1)
            stop.set()
            for thread in threads:
                thread.join()
        done = made(server)
        figures = f"{deployed} versions pushed, {done} deployed, at most {most:.0f} MiB, {probe}"
        check(most < 500 and probe.unanswered == 0 and probe.worst < 1 and done > 10, figures)
        return figures


ATTACKS = {
    attack.__name__: attack
    for attack in [packed_values, slow_bodies, idle_connections, descriptors, audit_growth, login_flood, large_differences, everything]
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--orrery", default="target/debug/orrery")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"any of {', '.join(ATTACKS)}; all of them if none is named")
    options = parser.parse_args()
    unknown = [name for name in options.attacks if name not in ATTACKS]
    if unknown:
        parser.error(f"there is no attack {unknown[0]!r}; known are {', '.join(ATTACKS)}")
    # Raises the limit of this process, which holds thousands of connections.
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
