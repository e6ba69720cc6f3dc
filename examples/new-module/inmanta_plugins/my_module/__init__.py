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
    """Stores items in a JSON file."""

    def read_resource(self, ctx: HandlerContext, resource: Item) -> None:
        """Sets the resource to its current state; differences from the desired state are then changed."""
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
        # Written to a temporary file and renamed, so that readers see complete content.
        draft = path.with_name(path.name + ".draft")
        draft.write_text(json.dumps(items, indent=2, sort_keys=True) + "\n")
        draft.replace(path)
