"""A host in plain Python with handlers that misbehave as the attribute `mode` of a resource selects."""

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time

wire = socket.socket(fileno=int(os.environ["ORRERY_HOST_FD"]))
sending = threading.Lock()
cancelled = set()
replies = {}
replied = threading.Condition()


def send(message):
    with sending:
        wire.sendall(json.dumps(message).encode() + b"\n")


def raw(data):
    with sending:
        wire.sendall(data)


def log(number, level, text, **values):
    send({"k": "log", "c": number, "lines": [[1, time.time(), level, text, values]]})


def call(number, method, **arguments):
    send({"k": "server", "c": number, "q": number, "method": method, "args": arguments})
    with replied:
        while number not in replies:
            replied.wait()
        return replies.pop(number)


def handle(message):
    number, resource = message["c"], message["resource"]
    mode = resource["mode"]
    report = {"k": "report", "c": number, "state": "deployed", "change": "updated", "lines": 1}
    log(number, "debug", f"pid {os.getpid()} begins {mode}", operation=message["op"])
    if resource.get("together"):
        meet(resource["together"])
        if mode == "ok":
            # Still at work when the others do their worst.
            time.sleep(0.5)
    if mode == "exit":
        print("about to exit", file=sys.stderr)
        os._exit(3)
    elif mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif mode == "exit-once":
        # The first process that comes here dies, as if another operation had killed it.
        try:
            os.close(os.open(resource["marker"], os.O_CREAT | os.O_EXCL))
            os._exit(4)
        except FileExistsError:
            pass
    elif mode == "never":
        while True:
            time.sleep(1)
    elif mode == "obedient":
        while number not in cancelled:
            time.sleep(0.01)
        report["state"] = "cancelled"
    elif mode == "memory":
        try:
            hoard = [bytearray(16 << 20) for _ in range(10_000)]
            report["change"] = f"nochange{len(hoard)}"
        except MemoryError:
            log(number, "error", "MemoryError")
            report["state"] = "failed"
    elif mode == "print":
        for _ in range(resource["megabytes"]):
            print("x" * (1 << 20))
            print("y" * (1 << 20), file=sys.stderr)
    elif mode == "log":
        lines = [[i, time.time(), "debug", "line %d" % i, {}] for i in range(1000)]
        for _ in range(100):
            send({"k": "log", "c": number, "lines": lines})
        log(number, "warning", "still heard")
    elif mode == "close":
        os.closerange(0, 4096)
        time.sleep(300)
    elif mode == "garbage":
        raw(b"\x00\x01\xff garbage\n")
        time.sleep(300)
    elif mode == "deep":
        raw(b'{"k":' + b"[" * 100_000 + b"\n")
        time.sleep(300)
    elif mode == "endless":
        while True:
            raw(b"x" * (1 << 20))
    elif mode == "unknown":
        send({"k": "surprise"})
        time.sleep(300)
    elif mode == "stopped":
        # Sleeps with the interpreter's lock: no other thread can answer.
        ctypes.PyDLL(None).sleep(300)
    elif mode == "server":
        method, arguments = resource["call"]
        report["changes"] = {"reply": {"current": None, "desired": call(number, method, **arguments)}}
    elif mode == "slow":
        time.sleep(resource["seconds"])
    elif mode == "echo":
        report["changes"] = {"message": {"current": None, "desired": message}}
    elif mode == "state":
        report.update(resource["report"])
    report["facts"] = [["pid", str(os.getpid()), False]]
    send(report)


def meet(spec):
    """Waits until as many operations as wanted are here."""
    directory, count = spec
    open(os.path.join(directory, f"{threading.get_ident()}-{os.getpid()}"), "w").close()
    until = time.time() + 10
    while len(os.listdir(directory)) < count and time.time() < until:
        time.sleep(0.005)


def main():
    send({"k": "hello", "protocol": 1, "language": "python", "version": "3", "pid": os.getpid()})
    for line in wire.makefile("rb"):
        message = json.loads(line)
        kind = message["k"]
        if kind == "init":
            send({"k": "loaded", "handlers": ["m::R"], "problems": [{"module": "bad", "problems": ["no such name"]}]})
        elif kind == "op":
            threading.Thread(target=handle, args=(message,), daemon=True).start()
        elif kind == "cancel":
            cancelled.add(message["c"])
        elif kind == "ping":
            send({"k": "pong", "n": message["n"]})
        elif kind == "reply":
            with replied:
                replies[message["q"]] = {"code": message["code"], "result": message["result"]}
                replied.notify_all()
        elif kind == "retire":
            print("retire " + message["agent"])
        elif kind == "shutdown":
            os._exit(0)


try:
    main()
except OSError:
    # The handler closed the socket: continues without it.
    time.sleep(300)
os._exit(0)
