"""Moto's server on a port of the loopback interface; every third request is throttled.

Arguments: port, file for the number of throttled requests.
"""

import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

THROTTLED = b"""<?xml version="1.0" encoding="UTF-8"?>
<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error></Errors>
<RequestID>1</RequestID></Response>"""

port, log = int(sys.argv[1]), sys.argv[2]
application = DomainDispatcherApplication(create_backend_app)
requests = 0


def throttling(environment, start_response):
    global requests
    requests += 1
    if environment["PATH_INFO"] == "/" and environment["REQUEST_METHOD"] == "POST" and requests % 3 == 0:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{requests}\n")
        # A connection that is closed with an unread request would be reset.
        environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        start_response("503 Service Unavailable", [("Content-Type", "text/xml")])
        return [THROTTLED]
    return application(environment, start_response)


run_simple("127.0.0.1", port, throttling, threaded=False)
