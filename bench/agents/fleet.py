"""Many simulated remote agents in one process: the real protocol over mutual TLS, and results without effects.

The process serves one pipe: it receives orders as tuples and answers each with one message. Sessions go on meanwhile.
"""

import heapq
import os
import random
import re
import select
import socket
import ssl
import time
import uuid

# Agents that share a source address: a gateway limits the connections of one address, and ports are finite.
AGENTS_PER_ADDRESS = 1000
RESULT = (
    b'{"result":{"id":"%s","outcome":{"status":"deployed","change":{"kind":"updated","attributes":[]},"facts":[],"log":[]},'
    b'"announced":true,"repeated":false,"unclear":false}}'
)
PONG = b'"pong"'


def frame(payload):
    """A text message of a client. A mask of zeros leaves the payload as it is."""
    length = len(payload)
    if length < 126:
        return bytes((0x81, 0x80 | length)) + b"\0\0\0\0" + payload
    return bytes((0x81, 0x80 | 126)) + length.to_bytes(2, "big") + b"\0\0\0\0" + payload


class Agent:
    __slots__ = ("number", "certificate", "boot", "socket", "state", "received", "failures")

    def __init__(self, number, certificate):
        self.number, self.certificate, self.boot = number, certificate, str(uuid.uuid4())
        self.socket, self.state, self.received, self.failures = None, "closed", b"", 0


class Fleet:
    def __init__(self, address, ca, key, certificates):
        host, port = address.rsplit(":", 1)
        self.host, self.port, self.key = host, int(port), key
        self.context = ssl.create_default_context(cadata=ca)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.set_alpn_protocols(["http/1.1"])
        self.agents = [Agent(number, path) for number, path in enumerate(certificates)]
        self.epoll = select.epoll()
        self.connections, self.due = {}, []
        self.open = self.commands = self.lost = 0
        self.first = self.last = None
        self.keep = True

    def order(self, order):
        """Carries out an order and returns the answer."""
        if order == "connect":
            now = time.monotonic()
            self.due = [(now + random.uniform(0, 0.5), agent.number) for agent in self.agents]
            heapq.heapify(self.due)
        elif order == "drop":
            for agent in list(self.connections.values()):
                self.close(agent, retry=False)
            self.lost = 0
        elif order == "count":
            self.commands, self.first, self.last = 0, None, None
        times = os.times()
        return {
            "open": self.open, "commands": self.commands, "first": self.first, "last": self.last, "lost": self.lost,
            "cpu": times.user + times.system,
        }

    def run(self, pipe):
        self.epoll.register(pipe.fileno(), select.EPOLLIN)
        while True:
            wait = 1.0
            if self.due:
                wait = max(0.0, min(wait, self.due[0][0] - time.monotonic()))
            for number, _ in self.epoll.poll(wait, 4096):
                if number == pipe.fileno():
                    order = pipe.recv()
                    if order == "end":
                        return
                    pipe.send(self.order(order))
                    continue
                agent = self.connections.get(number)
                if agent is not None:
                    self.serve(agent)
            now = time.monotonic()
            while self.due and self.due[0][0] <= now:
                self.connect(self.agents[heapq.heappop(self.due)[1]])

    def connect(self, agent):
        plain = socket.socket()
        plain.setblocking(False)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The port is chosen with the destination, so that addresses have enough of them.
        plain.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
        plain.bind((f"127.77.{agent.number // AGENTS_PER_ADDRESS}.1", 0))
        plain.connect_ex((self.host, self.port))
        agent.socket, agent.state, agent.received = plain, "connecting", b""
        self.connections[plain.fileno()] = agent
        self.epoll.register(plain.fileno(), select.EPOLLOUT)

    def close(self, agent, retry=True):
        number = agent.socket.fileno()
        self.epoll.unregister(number)
        del self.connections[number]
        agent.socket.close()
        if agent.state == "open":
            self.open -= 1
        agent.state, agent.socket = "closed", None
        if retry:
            self.lost += 1
            delay = random.uniform(0, min(0.5 * 2**agent.failures, 60))
            agent.failures += 1
            heapq.heappush(self.due, (time.monotonic() + delay, agent.number))

    def serve(self, agent):
        try:
            if agent.state == "connecting":
                error = agent.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, os.strerror(error))
                # The session takes its certificate when it is made.
                self.context.load_cert_chain(agent.certificate, self.key)
                agent.socket = self.context.wrap_socket(
                    agent.socket, do_handshake_on_connect=False, server_hostname=self.host, suppress_ragged_eofs=False
                )
                agent.state = "handshake"
                self.epoll.modify(agent.socket.fileno(), select.EPOLLIN)
            if agent.state == "handshake":
                agent.socket.do_handshake()
                agent.state = "upgrade"
                agent.socket.send(
                    f"GET /agent/v1/session HTTP/1.1\r\nHost: {self.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
                )
            while True:
                chunk = agent.socket.recv(65536)
                if not chunk:
                    raise ConnectionError("closed by the gateway")
                agent.received += chunk
                self.process(agent)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            pass
        except OSError:
            self.close(agent)

    def process(self, agent):
        if agent.state == "upgrade":
            head, separator, rest = agent.received.partition(b"\r\n\r\n")
            if not separator:
                return
            if not head.startswith(b"HTTP/1.1 101"):
                raise ConnectionError("no session")
            agent.received, agent.state = rest, "hello"
            hello = (
                f'{{"hello":{{"protocol":1,"program_version":"bench","boot":"{agent.boot}","running":[],'
                '"machine":{"host_name":"bench","system":"linux","distribution":"","architecture":"x86_64"}}}'
            )
            agent.socket.send(frame(hello.encode()))
        received, at, answers = agent.received, 0, []
        while len(received) - at >= 2:
            length, start = received[at + 1], at + 2
            if length == 126:
                length, start = int.from_bytes(received[at + 2 : at + 4], "big"), at + 4
            elif length == 127:
                length, start = int.from_bytes(received[at + 2 : at + 10], "big"), at + 10
            if len(received) < start + length:
                break
            text, at = received[start : start + length], start + length
            if text.startswith(b'{"command"'):
                self.count()
                answers.append(frame(RESULT % re.search(rb'"id":"([^"]+)"', text).group(1)))
            elif text == b'"ping"':
                answers.append(frame(PONG))
            elif text.startswith(b'{"welcome"'):
                if agent.state != "open":
                    agent.state, agent.failures = "open", 0
                    self.open += 1
            elif text.startswith(b'{"refuse"'):
                raise ConnectionError(text.decode())
        agent.received = received[at:]
        if answers:
            agent.socket.send(b"".join(answers))

    def count(self):
        now = time.monotonic()
        self.commands += 1
        self.first, self.last = self.first or now, now


def serve(pipe, *arguments):
    Fleet(*arguments).run(pipe)
