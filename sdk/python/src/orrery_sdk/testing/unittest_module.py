"""The module `unittest`, which every project of a test has: a resource to deploy and one that is never exported."""

from __future__ import annotations

METADATA = """\
name: unittest
version: 0.0.1
license: Apache-2.0
"""

MODEL = '''\
entity Resource extends std::PurgeableResource:
    """ A resource whose state is kept in the memory of the test. """
    string name
    string desired_value
end

index Resource(name)

implement Resource using std::none

entity IgnoreResource extends std::PurgeableResource:
    """ A resource that is never exported. """
    string name
    string desired_value
end

index IgnoreResource(name)

implement IgnoreResource using std::none
'''

CODE = '''\
"""Resources for tests."""

from inmanta.agent.handler import CRUDHandler, ResourcePurged, provider
from inmanta.resources import IgnoreResourceException, PurgeableResource, resource

# The values of the resources that exist, by name.
DATA = {}


@resource("unittest::Resource", id_attribute="name", agent="name")
class Resource(PurgeableResource):
    fields = ("name", "desired_value")


@resource("unittest::IgnoreResource", id_attribute="name", agent="name")
class IgnoreResource(PurgeableResource):
    fields = ("name", "desired_value")

    @staticmethod
    def get_desired_value(exporter, instance):
        raise IgnoreResourceException()


@provider("unittest::Resource", name="test")
class ResourceHandler(CRUDHandler):
    def read_resource(self, ctx, resource):
        if resource.name not in DATA:
            raise ResourcePurged()
        resource.desired_value = DATA[resource.name]

    def create_resource(self, ctx, resource):
        DATA[resource.name] = resource.desired_value
        ctx.set_created()

    def update_resource(self, ctx, changes, resource):
        DATA[resource.name] = resource.desired_value
        ctx.set_updated()

    def delete_resource(self, ctx, resource):
        del DATA[resource.name]
        ctx.set_purged()
'''
