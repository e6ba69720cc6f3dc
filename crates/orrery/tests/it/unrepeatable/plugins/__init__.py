"""A module for tests: effects that must not be repeated. Each writes a line into a journal when it happens."""

import os
import time

from inmanta.agent.handler import CRUDHandler, HandlerAPI, ResourcePurged, provider
from inmanta.const import HandlerResourceState
from inmanta.resources import PurgeableResource, Resource, resource


def write(resource, word):
    """One line: a word, the name of the resource, the process, its parent, and nanoseconds since the epoch."""
    line = f"{word} {resource.name} {os.getpid()} {os.stat('/proc/self/ns/pid').st_ino} {time.time_ns()}\n"
    descriptor = os.open(resource.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def is_written(resource, word):
    try:
        with open(resource.journal) as journal:
            return any(line.split(" ")[:2] == [word, resource.name] for line in journal)
    except FileNotFoundError:
        return False


@resource("unrepeatable::Effect", agent="agent", id_attribute="name")
class Effect(PurgeableResource):
    fields = ("name", "journal", "reads", "waits")


@provider("unrepeatable::Effect", name="effect")
class EffectHandler(CRUDHandler):
    unrepeatable = ("create_resource",)

    def read_resource(self, ctx, resource):
        if resource.reads == "nothing":
            raise ResourcePurged()
        if not is_written(resource, "done"):
            if resource.reads == "all" and ctx.effect_unknown:
                ctx.effect_did_not_happen()
            raise ResourcePurged()

    def create_resource(self, ctx, resource):
        if resource.waits < 0 and not is_written(resource, "wait"):
            write(resource, "wait")
            time.sleep(-resource.waits)
        write(resource, "done")
        ctx.set_created()
        if resource.waits > 0:
            time.sleep(resource.waits)


@resource("unrepeatable::Call", agent="agent", id_attribute="name")
class Call(Resource):
    fields = ("name", "journal", "waits")


@provider("unrepeatable::Call", name="call")
class CallHandler(HandlerAPI):
    def execute(self, ctx, resource, dry_run=False):
        if dry_run:
            ctx.set_resource_state(HandlerResourceState.dry)
            return
        ctx.begin_effect()
        write(resource, "done")
        time.sleep(resource.waits)
        ctx.set_updated()
        ctx.set_resource_state(HandlerResourceState.deployed)

    def check_facts(self, ctx, resource):
        return {}
