"""An S3 as a process: moto's server, which does one request at a time and keeps all in memory.

python -m tests.kills.s3_process HOST:PORT
"""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from .serving import READY


class OneByOne:
    """A WSGI application that is asked for one thing at a time, once all of the request is there:
    a client that stands still holds up nobody."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        size = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(size))
        with self._lock:
            return list(self._application(environ, start_response))


class Quiet(WSGIRequestHandler):
    def log_request(self, *_: Any) -> None:
        return


def main(address: str) -> None:
    host, _, port = address.rpartition(":")
    application = OneByOne(DomainDispatcherApplication(create_backend_app))
    server = make_server(host, int(port), application, threaded=True, request_handler=Quiet)
    print(READY, f"{host}:{server.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
