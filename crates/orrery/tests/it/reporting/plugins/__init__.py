"""A module for tests: handlers that tell the server what they know, in every way that there is."""

from inmanta.agent.handler import CRUDHandler, DiscoveryHandler, ResourcePurged, provider
from inmanta.resources import DiscoveryResource, PurgeableResource, resource


@resource("reporting::Thing", agent="agent", id_attribute="name")
class Thing(PurgeableResource):
    fields = ("name", "tells", "value")


@provider("reporting::Thing", name="thing")
class ThingHandler(CRUDHandler):
    def read_resource(self, ctx, resource):
        raise ResourcePurged()

    def create_resource(self, ctx, resource):
        ctx.set_created()
        if resource.tells == "oddly":
            ctx.set_fact("size", resource.value)
            ctx.info("odd %(it)s", it=object(), more=[{1}])
            resource.value = "changed"
            return
        if not resource.tells:
            return
        given = {"id": "size", "source": "fact", "value": resource.value}
        if resource.tells == "fact":
            given["resource_id"] = resource.id.resource_str()
        else:
            given["recompile"] = True
        environment = self._agent.environment
        answer = self.run_sync(lambda: self.get_client().set_param(tid=environment, **given))
        if answer.code != 200:
            raise Exception(f"{answer.code}: {answer.result}")

    def facts(self, ctx, resource):
        return {} if resource.tells else {"size": "42"}


@resource("reporting::Search", agent="agent", id_attribute="name")
class Search(DiscoveryResource):
    fields = ("name", "count")


@provider("reporting::Search", name="search")
class SearchHandler(DiscoveryHandler):
    def discover_resources(self, ctx, discovery_resource):
        return {
            f"reporting::Thing[one,name=found{at:04}]": {"number": at}
            for at in range(discovery_resource.count)
        }
