"""Notes: files that a handler of this module writes."""

import os

from inmanta.agent.handler import CRUDHandler, HandlerContext, ResourcePurged, provider
from inmanta.resources import PurgeableResource, resource


@resource("notes::Note", agent="agent", id_attribute="name")
class Note(PurgeableResource):
    fields = ("name", "folder", "text")


@provider("notes::Note", name="note")
class NoteHandler(CRUDHandler):
    def path(self, note: Note) -> str:
        return os.path.join(note.folder, note.name)

    def read_resource(self, ctx: HandlerContext, note: Note) -> None:
        try:
            with open(self.path(note)) as file:
                note.text = file.read()
        except FileNotFoundError:
            raise ResourcePurged() from None

    def create_resource(self, ctx: HandlerContext, note: Note) -> None:
        os.makedirs(note.folder, exist_ok=True)
        with open(self.path(note), "w") as file:
            file.write(note.text)
        ctx.info("written to %(path)s", path=self.path(note))
        ctx.set_created()

    def update_resource(self, ctx: HandlerContext, changes: dict, note: Note) -> None:
        with open(self.path(note), "w") as file:
            file.write(note.text)
        ctx.set_updated()

    def delete_resource(self, ctx: HandlerContext, note: Note) -> None:
        os.unlink(self.path(note))
        ctx.set_purged()

    def facts(self, ctx: HandlerContext, note: Note) -> dict[str, str]:
        return {"length": str(len(note.text))}
