"""A module for tests: handlers that get a secret, and are careless with it in every way that there is."""

import os
import sys

from inmanta.agent.handler import CRUDHandler, ResourcePurged, provider
from inmanta.plugins import plugin
from inmanta.references import Reference, reference
from inmanta.resources import PurgeableResource, resource


@reference("vault::Variable")
class Variable(Reference[str]):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def resolve(self, logger) -> str:
        value = os.environ[self.name]
        logger.info("resolved %(name)s to %(value)s", name=self.name, value=value)
        return value


@plugin
def variable(name: str) -> Reference[str]:
    return Variable(name)


@resource("vault::Thing", agent="agent", id_attribute="name")
class Thing(PurgeableResource):
    fields = ("name", "mode", "path", "token", "options")


@provider("vault::Thing", name="thing")
class Handler(CRUDHandler):
    def read_resource(self, ctx, resource):
        token = resource.token
        ctx.debug("the token is %(token)s", token=token, parts=[{"inside": f"<{token}>"}], resource=resource.serialize())
        if resource.mode == "raise":
            raise ValueError(f"{token} is wrong")
        if resource.mode == "exit":
            print("printed", token)
            sys.stderr.write(f"written {token}\n")
            sys.stdout.flush()
            os._exit(9)
        raise ResourcePurged()

    def create_resource(self, ctx, resource):
        with open(resource.path, "w") as file:
            file.write(f"{resource.token} {resource.options['list'][0]}")
        ctx.add_change("token", desired=resource.token, current=f"not {resource.token}")
        ctx.set_fact("token", resource.token)
        ctx.set_created()
