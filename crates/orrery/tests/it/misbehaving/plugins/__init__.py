"""Test module: handlers that manage a file, some of which break their host process."""

import os
import signal
import stat
import subprocess
import sys
import time

from inmanta.agent.handler import CRUDHandler, ResourcePurged, SkipResource, provider
from inmanta.resources import PurgeableResource, resource


@resource("misbehaving::Thing", agent="agent", id_attribute="name")
class Thing(PurgeableResource):
    fields = ("name", "mode", "path", "text")


def sockets():
    """The descriptors of this process that are sockets."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)
        except OSError:
            pass


@provider("misbehaving::Thing", name="thing")
class ThingHandler(CRUDHandler):
    def read_resource(self, ctx, resource):
        ctx.info("begins %(mode)s", mode=resource.mode)
        getattr(self, "do_" + resource.mode)(ctx, resource)
        try:
            with open(resource.path) as file:
                resource.text = file.read()
        except FileNotFoundError:
            raise ResourcePurged()

    def create_resource(self, ctx, resource):
        self.write(resource)
        ctx.set_created()
        if resource.mode == "halfway":
            raise Exception("created, and then it failed")

    def update_resource(self, ctx, changes, resource):
        self.write(resource)
        ctx.set_updated()

    def delete_resource(self, ctx, resource):
        os.unlink(resource.path)
        ctx.set_purged()

    def facts(self, ctx, resource):
        return {"length": len(resource.text)}

    def write(self, resource):
        with open(resource.path, "w") as file:
            file.write(resource.text)

    def do_good(self, ctx, resource):
        pass

    def do_halfway(self, ctx, resource):
        pass

    def do_fact(self, ctx, resource):
        ctx.set_fact("length", str(len(resource.text)))

    def do_child(self, ctx, resource):
        """What handlers start is not changed by how they are started themselves."""
        program = "import importlib.util as util; assert not util.find_spec('orrery_sdk')"
        subprocess.run([sys.executable, "-c", program], check=True, stdin=subprocess.DEVNULL, cwd="/")

    def do_skip(self, ctx, resource):
        raise SkipResource("not yet")

    def do_kill(self, ctx, resource):
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)

    def do_exit(self, ctx, resource):
        print("the last words", file=sys.stderr)
        time.sleep(0.3)
        os._exit(7)

    def do_never(self, ctx, resource):
        with open(resource.path + ".pid", "w") as file:
            file.write(str(os.getpid()))
        while True:
            time.sleep(1)

    def do_wait(self, ctx, resource):
        """Waits for the file `go` in its first run."""
        pid = resource.path + ".pid"
        first = not os.path.exists(pid)
        with open(pid + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(pid + ".new", pid)
        while first and not os.path.exists(resource.path + ".go"):
            time.sleep(0.05)

    def do_memory(self, ctx, resource):
        hoard = []
        while True:
            hoard.append(bytearray(32 << 20))

    def do_print(self, ctx, resource):
        for _ in range(20):
            print("x" * (1 << 20))
            print("y" * (1 << 20), file=sys.stderr)

    def do_log(self, ctx, resource):
        for number in range(30_000):
            ctx.debug("line %(number)d", number=number)

    def do_close(self, ctx, resource):
        os.closerange(0, 65536)
        time.sleep(300)

    def do_garbage(self, ctx, resource):
        for descriptor in sockets():
            os.write(descriptor, b"\x00\xff this is no message\n")
        time.sleep(300)
