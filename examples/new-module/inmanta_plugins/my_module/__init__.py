"""The resources of `my_module` and their handlers."""

import json
import pathlib

from inmanta.agent.handler import CRUDHandler, HandlerContext, ResourcePurged, provider
from inmanta.resources import PurgeableResource, resource


@resource("my_module::Item", agent="agent", id_attribute="name")
class Item(PurgeableResource):
    """One entry of a store. The fields are attributes of the entity of the same name."""

    fields = ("name", "value", "store")

    name: str
    value: str
    store: str


@provider("my_module::Item", name="json_file")
class ItemHandler(CRUDHandler[Item]):
    """Keeps items in a file of JSON."""

    def read_resource(self, ctx: HandlerContext, resource: Item) -> None:
        """Writes what there is into the resource; what differs from what is wanted is then changed."""
        items = self._load(resource)
        if resource.name not in items:
            raise ResourcePurged()
        resource.value = items[resource.name]

    def create_resource(self, ctx: HandlerContext, resource: Item) -> None:
        self._store(resource, self._load(resource) | {resource.name: resource.value})
        ctx.info("created %(item)s", item=resource.name)
        ctx.set_created()

    def update_resource(self, ctx: HandlerContext, changes: dict[str, dict[str, object]], resource: Item) -> None:
        self._store(resource, self._load(resource) | {resource.name: resource.value})
        ctx.set_updated()

    def delete_resource(self, ctx: HandlerContext, resource: Item) -> None:
        items = self._load(resource)
        del items[resource.name]
        self._store(resource, items)
        ctx.set_purged()

    def _load(self, resource: Item) -> dict[str, str]:
        path = pathlib.Path(resource.store)
        return json.loads(path.read_text()) if path.exists() else {}

    def _store(self, resource: Item, items: dict[str, str]) -> None:
        path = pathlib.Path(resource.store)
        # Written beside it and renamed, so that nobody ever sees half of it.
        draft = path.with_name(path.name + ".draft")
        draft.write_text(json.dumps(items, indent=2, sort_keys=True) + "\n")
        draft.replace(path)
