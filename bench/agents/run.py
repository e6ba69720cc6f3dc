#!/usr/bin/env python3
"""One gateway with thousands of simulated agents: memory, dispatched commands, and a reconnect storm.

The agents speak the real protocol (mutual TLS, WebSocket, heartbeats) over loopback, from several addresses, after a real
enrolment. Server, agents and a probe of the API share the processors; their shares are printed. `run.py --help` lists the
choices.
"""

import argparse
import concurrent.futures
import http.client
import json
import multiprocessing
import os
import resource
import ssl
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "attacks"))

import support  # noqa: E402 - a server on loopback
from fleet import serve  # noqa: E402
from support import Failed, check  # noqa: E402

ENROLLERS = 8
PATIENCE = 300
TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Client:
    """One connection to the API."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        self.headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        self.used = time.monotonic()

    def call(self, method, path, body=None):
        # The server closes idle connections; the next request opens another one.
        if time.monotonic() - self.used > 5:
            self.connection.close()
        self.used = time.monotonic()
        self.connection.request(method, path, json.dumps(body) if body is not None else None, self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        check(answer.status < 300, f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if answer.getheader("Content-Type", "").endswith("json") else text.decode()


class Site:
    """A server with an environment, enrolled agents, and the process that simulates them."""

    def __init__(self, server, count, directory):
        self.server, self.count, self.directory = server, count, directory
        client = Client(server)
        project = client.call("POST", "/api/v1/projects", {"name": "bench"})
        body = {"project": project["id"], "name": "agents"}
        environment = client.call("POST", "/api/v1/environments", body)
        self.path = f"/api/v1/environments/{environment['id']}"
        self.client, self.local = client, threading.local()
        self.enrol()

    def own_client(self):
        if not hasattr(self.local, "client"):
            self.local.client = Client(self.server)
        return self.local.client

    def enrol(self):
        key, csr = self.directory / "key.pem", self.directory / "csr.pem"
        # All agents have one key, and each its own certificate: ten thousand keys would only take time.
        for arguments in (
            ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key],
            ["req", "-new", "-key", key, "-subj", "/CN=agent", "-out", csr],
        ):
            subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
        csr, answers = csr.read_text(), [None] * self.count

        def join(number):
            body = {"names": [f"web{number}"]}
            invited = self.own_client().call("POST", f"{self.path}/remote-agents/invitations", body)
            if not hasattr(self.local, "gateway"):
                context = ssl.create_default_context()
                # The token is for this server only; the sessions verify the authority.
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                host, port = invited["gateway"].rsplit(":", 1)
                self.local.gateway = http.client.HTTPSConnection(host, int(port), context=context, timeout=60)
                self.address = invited["gateway"]
            body = json.dumps({"token": invited["token"], "csr": csr, "machine": {"host_name": f"web{number}"}})
            self.local.gateway.request("POST", "/agent/v1/join", body, {"Content-Type": "application/json"})
            response = self.local.gateway.getresponse()
            answer = json.loads(response.read())
            check(response.status == 200, f"join: {response.status} {answer}")
            path = self.directory / f"{number}.pem"
            path.write_text(answer["certificate"])
            answers[number] = str(path)
            self.ca = answer["ca"]

        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(ENROLLERS) as pool:
            for done in concurrent.futures.as_completed([pool.submit(join, number) for number in range(self.count)]):
                done.result()
        self.enrolment = time.monotonic() - began
        self.pipe, child = multiprocessing.Pipe()
        self.fleet = multiprocessing.Process(
            target=serve, args=(child, self.address, self.ca, str(key), answers), daemon=True
        )
        self.fleet.start()

    def order(self, order):
        self.pipe.send(order)
        return self.pipe.recv()

    def until(self, what, holds, pause=0.02):
        end = time.monotonic() + PATIENCE
        while True:
            state = self.order("state")
            if holds(state):
                return state
            check(time.monotonic() < end, f"this never came: {what}: {state}")
            time.sleep(pause)

    def until_connected(self):
        return self.until("all agents are connected", lambda state: state["open"] == self.count, 0.1)

    def cpu(self):
        return cpu_of(self.server.process.pid), cpu_of(self.fleet.pid)

    def sessions(self):
        text = self.client.call("GET", "/metrics")
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith("orrery_agent_sessions ")))


def probe(pipe, port, token, paths, every):
    """Requests paths in turn on one connection, in a process of its own, until told to stop."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers, times = {"Authorization": f"Bearer {token}"}, []
    while not pipe.poll(every):
        began = time.monotonic()
        connection.request("GET", paths[len(times) % len(paths)], headers=headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            break
        times.append(time.monotonic() - began)
    pipe.send(times)


class Probing:
    """Response times of the API while something else happens."""

    def __init__(self, site):
        self.pipe, child = multiprocessing.Pipe()
        paths = [f"{site.path}/resources?limit=20", f"{site.path}/agents/web7", site.path, "/health"]
        arguments = (child, site.server.port, site.server.token, paths, 0.01)
        self.process = multiprocessing.Process(target=probe, args=arguments, daemon=True)

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.pipe.send("stop")
        self.times = sorted(self.pipe.recv())
        self.process.join()

    def p99(self):
        return self.times[int(len(self.times) * 0.99)]

    def __str__(self):
        median = statistics.median(self.times)
        return (f"{len(self.times)} requests, median {median * 1000:.1f} ms, p99 {self.p99() * 1000:.1f} ms, "
                f"slowest {self.times[-1] * 1000:.1f} ms")


def shares(before, after, took):
    server, agents = (later - earlier for earlier, later in zip(before, after))
    return f"processors: server {server / took:.2f}, agents {agents / took:.2f}"


def connections(site):
    before, memory, began = site.cpu(), site.server.memory(), time.monotonic()
    site.order("connect")
    site.until_connected()
    took = time.monotonic() - began
    print(f"connect   {site.count} agents in {took:.1f} s; {shares(before, site.cpu(), took)}")
    time.sleep(10)
    before = site.cpu()
    time.sleep(10)
    grown = site.server.memory() - memory
    print(f"memory    {grown:.0f} MiB for {site.count} sessions: {grown * 1024 / site.count:.1f} KiB each")
    print(f"idle      {shares(before, site.cpu(), 10)}")


def dispatch(site, each, rounds):
    total, rates = site.count * each, []
    for value in range(rounds):
        resources = [
            {
                "id": f"std::testing::NullResource[web{number},name=r{at}]",
                "attributes": {"name": f"r{at}", "value": str(value), "agentname": f"web{number}", "send_event": False},
                "requires": [],
            }
            for number in range(site.count) for at in range(each)
        ]
        site.order("count")
        before, began = site.cpu(), time.monotonic()
        site.client.call("POST", f"{site.path}/versions", {"resources": resources})
        stored = time.monotonic() - began
        state = site.until("all commands are dispatched", lambda state: state["commands"] >= total)
        dispatched = state["last"] - state["first"]

        def deployed():
            return site.client.call("GET", f"{site.path}/resource-counts")["by_status"].get("deployed") == total

        end = time.monotonic() + PATIENCE
        while not deployed():
            check(time.monotonic() < end, "not all resources were deployed")
            time.sleep(0.05)
        took = time.monotonic() - began
        rates.append(total / dispatched)
        print(
            f"dispatch  {total} commands in {dispatched:.2f} s: {total / dispatched:.0f} per second; stored after {stored:.2f} s, "
            f"all deployed after {took:.2f} s; {shares(before, site.cpu(), took)}; {site.server.memory():.0f} MiB"
        )
    return max(rates)


def storm(site):
    with Probing(site) as probing:
        before, began = site.cpu(), time.monotonic()
        site.order("drop")
        site.order("connect")
        state = site.until_connected()
        took = time.monotonic() - began
        after = site.cpu()
    check(site.sessions() == site.count, f"the gateway has {site.sessions()} sessions")
    print(f"storm     {site.count} agents reconnected in {took:.1f} s, {state['lost']} attempts lost; {shares(before, after, took)}")
    print(f"          API meanwhile: {probing}")
    return took, probing.p99()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orrery", type=Path, default=ROOT / "target/release/orrery")
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=1, help="resources of each agent")
    parser.add_argument("--rounds", type=int, default=3, help="versions, each of which changes all resources")
    parser.add_argument("--realtime", action="store_true", help="run with real-time priority, on a machine with other work")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # A gateway accepts connections for half of its descriptors.
    if hard < 2 * options.agents:
        sys.exit(f"{options.agents} agents need a hard limit of {2 * options.agents} descriptors; it is {hard}: see `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        with support.serving(str(options.orrery), arguments=["--log", "error", "--gateway-listen", "127.0.0.1:0"]) as server:
            directory = Path(server.data) / "agents"
            directory.mkdir()
            site = Site(server, options.agents, directory)
            print(f"enrol     {site.count} agents in {site.enrolment:.1f} s, {ENROLLERS} at once")
            connections(site)
            rate = dispatch(site, options.each, options.rounds)
            took, p99 = storm(site)
            site.pipe.send("end")
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")
    goals = [
        (f"dispatch {rate:.0f} commands per second, goal 10,000", rate >= 10_000),
        (f"storm {took:.1f} s, goal 30 s", took <= 30),
        (f"p99 of the API {p99 * 1000:.0f} ms, goal 200 ms", p99 <= 0.2),
    ]
    for text, is_met in goals:
        print(f"{'met   ' if is_met else 'MISSED'}  {text}")
    sys.exit(not all(is_met for _, is_met in goals))


if __name__ == "__main__":
    main()
