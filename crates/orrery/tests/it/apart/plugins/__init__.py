"""A module for tests: handlers that act on the machine of their agent through `io`, and that tell a journal there."""

from inmanta.agent.handler import CRUDHandler, ResourcePurged, provider
from inmanta.resources import PurgeableResource, resource

# Arguments: journal, name, file to wait for.
BEGIN = 'echo "begin $2" >> "$1"; while [ -n "$3" ] && [ -e "$3" ]; do sleep 0.1; done'
END = 'echo "end $2" >> "$1"'


class _Journaled(CRUDHandler):
    def tell(self, script, resource, hold=""):
        arguments = ["-euc", script, "sh", resource.journal, resource.path, hold]
        out, errors, code = self._io.run("/bin/sh", arguments)
        if code != 0:
            raise Exception(f"the journal cannot be written: {out}{errors}")

    def delete_resource(self, ctx, resource):
        self._io.remove(resource.path)


@resource("apart::Step", agent="host.name", id_attribute="path")
class Step(PurgeableResource):
    fields = ("path", "text", "journal", "hold")


@provider("apart::Step", name="step")
class StepHandler(_Journaled):
    def read_resource(self, ctx, resource):
        if not self._io.file_exists(resource.path):
            raise ResourcePurged()
        resource.text = self._io.read(resource.path)

    def create_resource(self, ctx, resource):
        self.tell(BEGIN, resource, resource.hold)
        self._io.put(resource.path, resource.text.encode())
        self.tell(END, resource)
        ctx.set_created()

    def update_resource(self, ctx, changes, resource):
        self.create_resource(ctx, resource)


@resource("apart::File", agent="host.name", id_attribute="path")
class File(PurgeableResource):
    fields = ("path", "hash", "journal")

    @staticmethod
    def get_hash(exporter, entity):
        return exporter.upload_file(entity.content)


@provider("apart::File", name="file")
class FileHandler(_Journaled):
    def read_resource(self, ctx, resource):
        if not self._io.file_exists(resource.path):
            raise ResourcePurged()
        resource.hash = self._io.hash_file(resource.path)

    def create_resource(self, ctx, resource):
        content = self.get_file(resource.hash)
        if content is None:
            raise Exception(f"there is no content {resource.hash}")
        self.tell(BEGIN, resource)
        self._io.put(resource.path, content)
        self.tell(END, resource)
        ctx.set_created()

    def update_resource(self, ctx, changes, resource):
        self.create_resource(ctx, resource)
