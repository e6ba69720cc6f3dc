# Plug-in of the provider `ec2`: one request on the standard input, one answer on the standard output.
#
# Machines are found by their tag `Name`. A machine is created with a client token that follows from its name, so that a
# repeated request creates nothing more. Botocore repeats throttled requests with backoff.
import hashlib
import json
import sys

import boto3
import botocore.exceptions
from botocore.config import Config

THROTTLED = {"Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException"}
LIVE = ("pending", "running", "stopping", "stopped")


class Failure(Exception):
    def __init__(self, message, hint=None, unclear=False):
        super().__init__(message)
        self.answer = {"message": message, "hint": hint, "unclear": unclear}


def connect(fields):
    config = Config(retries={"mode": "standard", "max_attempts": int(float(fields.get("attempts", 8)))}, connect_timeout=10, read_timeout=60)
    return boto3.client(
        "ec2",
        region_name=fields["region"],
        endpoint_url=fields.get("endpoint"),
        aws_access_key_id=fields["access_key"],
        aws_secret_access_key=fields["secret_key"],
        aws_session_token=fields.get("session_token"),
        config=config,
    )


def tags_of(instance):
    return {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}


def instances(client, filters):
    found = []
    for page in client.get_paginator("describe_instances").paginate(Filters=filters):
        for reservation in page["Reservations"]:
            found.extend(reservation["Instances"])
    return sorted(found, key=lambda instance: instance["InstanceId"])


def named(client, name):
    return instances(client, [{"Name": "tag:Name", "Values": [name]}])


def view(instance):
    return {
        "name": tags_of(instance).get("Name", ""),
        "id": instance["InstanceId"],
        "state": instance["State"]["Name"],
        "public": instance.get("PublicIpAddress"),
        "private": instance.get("PrivateIpAddress"),
    }


def words(text):
    return [word for word in (text or "").replace(",", " ").split() if word]


def create(client, request):
    fields, name = request["fields"], request["machine"]
    known = named(client, name)
    live = [instance for instance in known if instance["State"]["Name"] in LIVE]
    if live:
        instance = live[0]
        if instance["State"]["Name"] in ("stopped", "stopping"):
            client.start_instances(InstanceIds=[instance["InstanceId"]])
        return {"machine": view(instance)}
    # A token of a machine that is gone would find that one again.
    token = hashlib.sha256(f"{name} {len(known)}".encode()).hexdigest()
    tags = dict(fields.get("tags") or {})
    tags.update({"Name": name, "orrery:cluster": request["cluster"], "orrery:node": request["node"]})
    arguments = {
        "ImageId": request["image"],
        "InstanceType": request["flavor"],
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": token,
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": [{"Key": key, "Value": str(value)} for key, value in sorted(tags.items())]}
            for kind in ("instance", "volume")
        ],
    }
    if fields.get("key_name"):
        arguments["KeyName"] = fields["key_name"]
    if fields.get("subnet"):
        arguments["SubnetId"] = fields["subnet"]
    if words(fields.get("security_groups")):
        arguments["SecurityGroupIds"] = words(fields["security_groups"])
    if request.get("user_data"):
        arguments["UserData"] = request["user_data"]
    return {"machine": view(client.run_instances(**arguments)["Instances"][0])}


def find(client, request):
    live = [view(instance) for instance in named(client, request["machine"]) if instance["State"]["Name"] in LIVE]
    return {"machine": live[0] if live else None}


def delete(client, request):
    ids = [instance["InstanceId"] for instance in named(client, request["machine"]) if instance["State"]["Name"] in LIVE]
    if ids:
        client.terminate_instances(InstanceIds=ids)
    return {"deleted": ids}


def machines(client, request):
    filters = [
        {"Name": "tag:orrery:cluster", "Values": [request["cluster"]]},
        {"Name": "tag:orrery:node", "Values": [request["node"]]},
        {"Name": "instance-state-name", "Values": list(LIVE)},
    ]
    return {"machines": [view(instance) for instance in instances(client, filters)]}


OPERATIONS = {"create": create, "find": find, "delete": delete, "list": machines}


def answer(request):
    operation = request["operation"]
    try:
        return OPERATIONS[operation](connect(request["fields"]), request)
    except botocore.exceptions.ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        text = error.response.get("Error", {}).get("Message", str(error))
        if code in THROTTLED:
            raise Failure(f"EC2 throttles requests ({code}): {text}", "the engine tries again later") from None
        raise Failure(f"EC2 refuses to {operation} {request['machine']} ({code}): {text}") from None
    except botocore.exceptions.BotoCoreError as error:
        # The name of the machine finds what a lost answer left behind.
        raise Failure(f"no answer from EC2: {error}", "see if this machine reaches the endpoint") from None


try:
    result = answer(json.load(sys.stdin))
except Failure as failure:
    result = {"error": failure.answer}
json.dump(result, sys.stdout)
