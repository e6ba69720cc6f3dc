"""A module for tests: handlers that leave the command line of the process that runs them."""

import os
import time

from inmanta.agent.handler import CRUDHandler, ResourcePurged, provider
from inmanta.resources import PurgeableResource, resource


def runner():
    with open(f"/proc/{os.getppid()}/cmdline") as line:
        return line.read().replace("\0", " ")


@resource("placed::Note", agent="agent", id_attribute="path")
class Note(PurgeableResource):
    fields = ("path", "text", "packages", "waits")


@provider("placed::Note", name="note")
class NoteHandler(CRUDHandler):
    def read_resource(self, ctx, resource):
        if not self._io.file_exists(resource.path):
            raise ResourcePurged()
        resource.text = self._io.read(resource.path)

    def create_resource(self, ctx, resource):
        text = resource.text
        if resource.packages:
            import ship_text

            text += ship_text.TEXT
        if resource.waits:
            with open(f"{resource.path}.begun", "a") as begun:
                begun.write(f"{os.getpid()}\n")
            while not os.path.exists(resource.waits):
                time.sleep(0.02)
        self._io.put(resource.path, text.encode())
        self._io.put(f"{resource.path}.runner", runner().encode())
        ctx.set_created()

    def update_resource(self, ctx, changes, resource):
        self.create_resource(ctx, resource)

    def delete_resource(self, ctx, resource):
        self._io.remove(resource.path)


@resource("placed::Call", agent="agent", id_attribute="path")
class Call(PurgeableResource):
    fields = ("path",)


@provider("placed::Call", name="call")
class CallHandler(CRUDHandler):
    def read_resource(self, ctx, resource):
        if not os.path.exists(resource.path):
            raise ResourcePurged()

    def create_resource(self, ctx, resource):
        with open(resource.path, "w") as called:
            called.write(runner())
        ctx.set_created()

    def update_resource(self, ctx, changes, resource):
        pass

    def delete_resource(self, ctx, resource):
        os.remove(resource.path)
