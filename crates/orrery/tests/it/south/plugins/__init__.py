"""Handlers that get contents by their ids, and that keep things in caches. They tell a journal what they do."""

import hashlib
import os

from inmanta.agent.handler import CRUDHandler, ResourcePurged, cache, provider
from inmanta.resources import PurgeableResource, resource


class _Plain(PurgeableResource):
    fields = ()

    @staticmethod
    def get_purged(_, entity):
        return False

    @staticmethod
    def get_purge_on_delete(_, entity):
        return False


@resource("south::File", agent="agent", id_attribute="path")
class File(_Plain):
    fields = ("path", "hash")

    @staticmethod
    def get_hash(exporter, entity):
        content = entity.content.encode()
        if entity.upload == "named":
            hash_id = hashlib.md5(content).hexdigest()
            exporter.upload_file(hash_id, entity.content)
            return hash_id
        if entity.upload == "never":
            return hashlib.sha1(content).hexdigest()
        return exporter.upload_file(entity.content)


@provider("south::File", name="file")
class FileHandler(CRUDHandler):
    def read_resource(self, ctx, resource):
        if not os.path.exists(resource.path):
            raise ResourcePurged()
        with open(resource.path, "rb") as stream:
            if stream.read() != (self.get_file(resource.hash) or b"there is none"):
                resource.hash = "another"

    def create_resource(self, ctx, resource):
        content = self.get_file(resource.hash)
        with open(resource.path, "wb") as stream:
            stream.write(b"there is none" if content is None else content)
        ctx.set_created()

    def update_resource(self, ctx, changes, resource):
        self.create_resource_again(ctx, resource)

    def create_resource_again(self, ctx, resource):
        with open(resource.path, "wb") as stream:
            stream.write(self.get_file(resource.hash))
        ctx.set_updated()

    def delete_resource(self, ctx, resource):
        os.unlink(resource.path)
        ctx.set_purged()


@resource("south::Session", agent="agent", id_attribute="name")
class Session(_Plain):
    fields = ("name", "journal", "value")


class Connection:
    def __init__(self, journal, name):
        self.journal, self.name = journal, name
        self.tell("open")

    def tell(self, what):
        with open(self.journal, "a") as stream:
            stream.write(f"{what} {self.name}\n")

    def close(self):
        self.tell("close")


@provider("south::Session", name="session")
class SessionHandler(CRUDHandler):
    @cache(timeout=3600, for_version=False)
    def lasting(self, journal, agent):
        return Connection(journal, f"lasting {agent}")

    @cache(timeout=3600, for_version=True, call_on_delete=lambda connection: connection.close())
    def bound(self, journal, agent, version):
        return Connection(journal, f"bound {agent} {version}")

    def read_resource(self, ctx, resource):
        agent = resource.id.get_agent_name()
        self.lasting(resource.journal, agent)
        self.bound(resource.journal, agent, resource.id.version).tell(f"used by {os.getpid()}:")

    def create_resource(self, ctx, resource):
        ctx.set_created()

    def update_resource(self, ctx, changes, resource):
        ctx.set_updated()

    def delete_resource(self, ctx, resource):
        ctx.set_purged()
