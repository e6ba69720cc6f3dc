"""Attacks on a server by clients that show no credentials, or too few. Each ends with figures, or says what did not hold.

    python3 tests/attacks/run.py --orrery target/debug/orrery [ATTACK...]

Most need a minute or two, because deadlines do.
"""

import argparse
import gzip
import resource
import socket
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


ATTACKS = {attack.__name__: attack for attack in [packed_values, slow_bodies]}


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
