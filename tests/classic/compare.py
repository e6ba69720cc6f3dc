#!/usr/bin/env python3
"""Sends the same requests to two servers and shows where the responses differ in status or in form.

    tests/classic/compare.py http://127.0.0.1:8888 http://127.0.0.1:9999 --token SECRET

The first is the published server, with authentication off; the second is Orrery's. A project is created in both.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import urllib.error
import urllib.request
import uuid
from urllib.parse import quote

RESOURCE = "std::testing::NullResource[one,name=a]"
UNKNOWN = "00000000-0000-0000-0000-000000000000"


class Side:
    """One of the servers."""

    def __init__(self, address: str, token: str | None) -> None:
        self.address, self.token, self.environment = address, token, None

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if self.environment:
            headers["X-Inmanta-tid"] = self.environment
            path = path.replace("ENVIRONMENT", self.environment)
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, content, headers, method=method)
        try:
            answer = urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            text = answer.read().decode()
        try:
            return answer.status, json.loads(text) if text else None
        except ValueError:
            return answer.status, text[:80]


def questions() -> list[tuple]:
    rid = quote(RESOURCE, safe="")
    resource = {
        "id": f"{RESOURCE},v=0", "name": "a", "agentname": "one", "fail": False, "purged": False, "requires": [],
        "send_event": True, "receive_events": True, "report_only": False,
    }
    version = {"version": 1, "resources": [resource], "module_version_info": {}, "version_info": {}}
    reads = [
        "/api/v1/project", "/api/v2/project", "/api/v1/environment", "/api/v2/environment", "/api/v2/environment/ENVIRONMENT",
        "/api/v1/environment_settings", "/api/v2/environment_settings/auto_deploy", "/api/v2/environment_settings/nothing",
        "/api/v1/version", "/api/v1/version/1", "/api/v1/version/9", "/api/v2/desiredstate", "/api/v2/desiredstate/1",
        f"/api/v2/desiredstate/1/resource/{rid}", "/api/v2/desiredstate/diff/1/9", "/api/v2/desiredstate/diff/2/1",
        "/api/v2/resource", "/api/v2/resource?deploy_summary=true", f"/api/v2/resource/{rid}", "/api/v2/resource/nothing",
        f"/api/v2/resource/{rid}/history", f"/api/v2/resource/{rid}/logs", f"/api/v2/resource/{rid}/facts",
        "/api/v2/resource_actions", f"/api/v1/resource/{quote(RESOURCE + ',v=1', safe='')}?logs=true",
        "/api/v1/agent", "/api/v2/agents", "/api/v1/agentproc", "/api/v2/scheduler_status", "/api/v2/dryrun/1", "/api/v1/dryrun",
        "/api/v2/parameters", "/api/v2/facts", "/api/v2/discovered", "/api/v2/notification", "/api/v2/compilereport",
        "/api/v1/compilereport", "/api/v1/compilequeue", "/api/v1/serverstatus", "/api/v2/health", "/api/v2/pip/config/1",
        "/api/v2/agents?sort=x.asc", "/api/v2/agents?filter.x=1", "/api/v2/agents?limit=5000", "/api/v2/agents?start=a&end=b",
        "/api/v2/agents?x=1", f"/api/v2/project/{UNKNOWN}", "/api/v1/parameter/nothing",
    ]
    return [
        ("POST", "/api/v2/reserve_version", {}),
        ("PUT", "/api/v1/version", version),
        ("PUT", "/api/v1/version", version),
        ("wait",),
        *(("GET", path) for path in reads),
        ("POST", "/api/v2/dryrun/1", {}),
        ("POST", "/api/v1/deploy", {}),
        ("POST", "/api/v1/deploy", {"agents": ["nobody"]}),
        ("POST", "/api/v2/deploy_filtered", {"filter": {"agent": {"eq": ["one"]}}}),
        ("POST", "/api/v2/deploy_filtered", {"filter": {"modelVersion": 1}}),
        ("POST", "/api/v2/agent/one/pause"),
        ("POST", "/api/v2/agent/one/keep_paused_on_resume"),
        ("POST", "/api/v2/agent/one/unpause"),
        ("POST", "/api/v2/actions/environment/halt"),
        ("POST", "/api/v2/agent/one/pause"),
        ("POST", "/api/v2/dryrun/1", {}),
        ("POST", "/api/v2/actions/environment/resume"),
        ("PUT", "/api/v2/parameters/p", {"source": "user", "value": "v"}),
        ("GET", "/api/v1/parameter/p"),
        ("PUT", "/api/v1/parameter/p", {"source": "user", "value": "v", "expires": True}),
        ("PUT", "/api/v2/facts/f", {"source": "fact", "value": "v", "resource_id": RESOURCE}),
        ("GET", f"/api/v1/parameter/nothing?resource_id={rid}"),
        ("DELETE", "/api/v1/parameter/p"),
        ("POST", "/api/v1/notify/ENVIRONMENT", {}),
        ("POST", "/api/v2/compliance_report", {"resource_ids": [RESOURCE]}),
        ("POST", "/api/v1/version/1", {}),
        ("DELETE", "/api/v1/version/1"),
        ("POST", "/api/v2/environment_settings/auto_deploy", {"value": False}),
        ("POST", "/api/v1/environment_settings/auto_deploy", {"value": "odd"}),
        ("DELETE", "/api/v2/environment_settings/auto_deploy"),
        ("PUT", "/api/v2/project", {"name": "x", "colour": "red"}),
        ("PUT", "/api/v2/project", {}),
        ("PUT", f"/api/v1/file/{'0' * 40}", {"content": "YQ=="}),
        ("DELETE", "/api/v2/decommission/ENVIRONMENT"),
        ("DELETE", "/api/v2/environment/ENVIRONMENT"),
    ]


def form(value: object, place: str = "") -> set[str]:
    """The names in a response with the types of their values; for a list, those of its first item."""
    if isinstance(value, dict):
        return {f"{place}.{name}" for name in value}.union(*(form(one, f"{place}.{name}") for name, one in value.items()))
    if isinstance(value, list):
        return form(value[0], f"{place}[]") if value else set()
    return {f"{place}: {type(value).__name__}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("published")
    parser.add_argument("ours")
    parser.add_argument("--token", required=True, help="for ours")
    arguments = parser.parse_args()
    sides = [Side(arguments.published, None), Side(arguments.ours, arguments.token)]
    name = f"compare-{uuid.uuid4()}"
    for side in sides:
        _, project = side.ask("PUT", "/api/v2/project", {"name": name})
        _, made = side.ask("PUT", "/api/v2/environment", {"project_id": project["data"]["id"], "name": "e"})
        side.environment = made["data"]["id"]
    same = 0
    for question in questions():
        if question == ("wait",):
            time.sleep(5)
            continue
        (status, published), (own_status, own) = (side.ask(*question) for side in sides)
        title = re.sub(r"%..", "_", " ".join(question[:2]))
        if status != own_status:
            print(f"{title}: {status} there, {own_status} here: {str(own)[:200]}")
        elif difference := form(published) ^ form(own):
            there, here = sorted(form(published) & difference), sorted(form(own) & difference)
            print(f"{title}: only there {there[:6]}, only here {here[:6]}")
        else:
            same += 1
    print(f"{same} answers are the same in status and form")


if __name__ == "__main__":
    main()
