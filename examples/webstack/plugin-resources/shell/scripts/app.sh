#!/bin/sh
# The application: a page that counts its visits in Redis and asks PostgreSQL for the time.
set -eu
directory=$ORRERY_NODE_DIR/app

case $1 in
install)
    mkdir -p "$directory"
    cat >"$directory/app.py" <<'PYTHON'
"""Serves one page. Everything it needs is in its configuration; it uses the standard library only."""

import http.server
import json
import signal
import socket
import struct
import sys
import threading

with open(sys.argv[1], encoding="utf-8") as file:
    CONFIG = json.load(file)


def visits():
    """Counts a visit in Redis."""
    if not CONFIG["redis"]:
        return None
    with socket.create_connection((CONFIG["redis"], 6379), 2) as connection:
        connection.sendall(b"INCR visits\r\n")
        return int(connection.makefile("rb").readline()[1:])


def message(stream):
    """Next message of PostgreSQL: its kind and content."""
    head = stream.read(5)
    return head[:1], stream.read(struct.unpack("!I", head[1:])[0] - 4)


def database_time():
    """Asks PostgreSQL for its time, in its own protocol."""
    with socket.create_connection((CONFIG["database"], 5432), 2) as connection:
        start = struct.pack("!I", 196608) + b"user\0app\0database\0app\0\0"
        connection.sendall(struct.pack("!I", len(start) + 4) + start)
        stream, asked = connection.makefile("rb"), False
        while True:
            kind, content = message(stream)
            if kind == b"E":
                raise OSError(content.decode(errors="replace"))
            if kind == b"D":
                return content[6:].decode()
            if kind == b"Z" and not asked:
                query, asked = b"SELECT now()::text\0", True
                connection.sendall(b"Q" + struct.pack("!I", len(query) + 4) + query)


class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        try:
            page = {
                "greeting": CONFIG["greeting"],
                "node": CONFIG["node"],
                "worker": CONFIG["worker"],
                "database": database_time(),
                "visits": visits(),
            }
            status = 200
        except (OSError, ValueError, struct.error) as error:
            page, status = {"error": str(error), "node": CONFIG["node"]}, 503
        body = (json.dumps(page) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    # A stop waits for the answers that are being sent.
    daemon_threads = False
    request_queue_size = 128


server = Server((CONFIG["listen"], 8080), Page)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever(poll_interval=0.05)
server.server_close()
PYTHON
    ;;
configure)
    python3 - "$ORRERY_TASK" "$directory/config.json" <<'PYTHON'
import json, os, sys

with open(sys.argv[1], encoding="utf-8") as file:
    own = json.load(file)["config"].get("app", {})
config = {
    "greeting": own.get("greeting", "hello"),
    "database": own.get("database", ""),
    "redis": own.get("redis", ""),
    "worker": own.get("worker", ""),
    "node": os.environ["ORRERY_NODE"],
    "listen": os.environ["ORRERY_BIND_IP"],
}
with open(sys.argv[2] + ".new", "w", encoding="utf-8") as file:
    json.dump(config, file)
os.rename(sys.argv[2] + ".new", sys.argv[2])
PYTHON
    ;;
initialize) ;;
start)
    orrery-daemon start app python3 "$directory/app.py" "$directory/config.json"
    tries=0
    until "$0" probe >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -ge 200 ] || ! orrery-daemon status app; then
            tail -n 5 "$ORRERY_NODE_DIR/log/app.log" >&2
            echo "the application does not answer" >&2
            exit 1
        fi
        sleep 0.1
    done
    ;;
stop) orrery-daemon stop app ;;
probe)
    python3 - "$ORRERY_BIND_IP" <<'PYTHON'
import sys, urllib.request
urllib.request.urlopen(f"http://{sys.argv[1]}:8080/", timeout=3).read()
PYTHON
    ;;
remove) rm -rf "$directory" ;;
*) echo "app.sh: unknown action $1" >&2; exit 64 ;;
esac
