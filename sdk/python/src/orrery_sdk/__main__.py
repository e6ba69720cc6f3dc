"""The host process: sends `hello`, gets its role, and runs until the core ends the conversation."""

from __future__ import annotations

import os
import sys

from orrery_sdk import PROTOCOL_VERSION
from orrery_sdk.session import Session
from orrery_sdk.wire import EXIT_PROTOCOL, Closed, Message, Wire, WireError, die

VARIABLE = "ORRERY_HOST_FD"


def main() -> int:
    """Runs one host; returns its exit status."""
    try:
        descriptor = int(os.environ.pop(VARIABLE))
    except (KeyError, ValueError):
        print(
            f"orrery host: {VARIABLE} has to be the number of a connected socket; the core sets it",
            file=sys.stderr,
        )
        return 2
    wire = Wire.from_descriptor(descriptor)
    _hide_sdk_path()
    try:
        wire.send(
            {
                "k": "hello",
                "protocol": PROTOCOL_VERSION,
                "language": "python",
                "version": sys.version.split()[0],
                "pid": os.getpid(),
            }
        )
        init = _await_init(wire)
        return _run_role(wire, init)
    except Closed:
        return 0
    except WireError as error:
        die(EXIT_PROTOCOL, str(error))
        return EXIT_PROTOCOL


def _hide_sdk_path() -> None:
    """Programs that the code starts must not find the SDK: they may have the package `inmanta` for something else."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [place for place in places if place and os.path.abspath(place) != here]
    if others:
        os.environ["PYTHONPATH"] = os.pathsep.join(others)
    else:
        os.environ.pop("PYTHONPATH", None)


def _await_init(wire: Wire) -> Message:
    while True:
        message = wire.receive()
        if message["k"] == "init":
            return message
        if message["k"] == "ping":
            wire.send({"k": "pong", "n": message.get("n")})
            continue
        raise WireError(f"expected `init`, got `{message['k']}`")


def _apply_bytecode_setting() -> None:
    """Caches bytecode of the SDK's own files; for others the user's setting applies."""
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))


def _run_role(wire: Wire, init: Message) -> int:
    session = Session.from_init(init)
    session.install()
    role = init.get("role")
    if role == "handlers":
        from orrery_sdk.handling.host import run as run_handlers

        _apply_bytecode_setting()
        return run_handlers(wire, session)
    if role == "compile":
        from orrery_sdk.compiling.host import run as run_compile

        _apply_bytecode_setting()
        return run_compile(wire, session)
    raise WireError(f"this host has no role `{role}`")


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Leftover threads of users' code must not keep the process alive, nor may its exit hooks fail it.
    os._exit(status)
