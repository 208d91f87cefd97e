"""Who may see the page: this machine's user, in a browser that came through the printed address.

The server listens on the loopback address only.  That alone would keep away neither other users of the machine nor
other sites in the user's browser.  So every request must

- name this server as its host: a foreign name that leads here (DNS rebinding) is refused;
- come from the page itself: a request that another site makes the browser send is refused;
- carry a cookie that the printed address sets.
"""

import logging
import secrets
import socket
from hmac import compare_digest
from typing import Any
from urllib.parse import urlencode

from dash import Dash
from flask import Flask, Response, redirect, request
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from clustpsi.errors import ClustPSIError
from clustpsi.explorer.library import LARGEST_TABLE, too_large

LOOPBACK = "127.0.0.1"
NAMES = (LOOPBACK, "localhost")
ENTRANCE = "token"  # the parameter of the printed address that holds the key


class _Quiet(WSGIRequestHandler):
    def log_request(self, *_: Any, **__: Any) -> None:
        """Log no requests: the page makes many of them as sliders move."""


def bound(port: int) -> socket.socket:
    """A socket at this port of the loopback address; 0: any free port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ClustPSIError(
            f"port {port} cannot be used ({error.strerror}): choose another with --port, or --port 0 for any that is "
            "free"
        ) from None
    return listener


class PageServer:
    """Serves the page at a bound socket until it is closed."""

    def __init__(self, app: Dash, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self.key = secrets.token_urlsafe(24)
        flask: Flask = app.server
        _guard(flask, self.port, self.key, app.csp_hashes())
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server: BaseWSGIServer = make_server(
            LOOPBACK, self.port, flask, threaded=True, request_handler=_Quiet, fd=listener.fileno()
        )

    @property
    def address(self) -> str:
        """The address that the user opens."""
        return f"http://{LOOPBACK}:{self.port}/?{urlencode({ENTRANCE: self.key})}"

    def serve(self) -> None:
        """Serve until an exception, such as that of Ctrl-C, ends it."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()


def _guard(flask: Flask, port: int, key: str, inline_scripts: Any) -> None:
    hosts = {f"{name}:{port}" for name in NAMES}
    origins = {f"http://{host}" for host in hosts}
    cookie = f"clustpsi-{port}"  # browsers share cookies between the ports of a host
    largest = LARGEST_TABLE * 4 // 3 + 1_000_000  # a table in the browser's encoding
    flask.config["MAX_CONTENT_LENGTH"] = largest  # for requests that do not tell their length
    policy = "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' {' '.join(inline_scripts)}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )

    def check() -> Any:
        if request.host not in hosts:
            return _refused("This server does not answer to that name.")
        if request.headers.get("Origin") not in (None, *origins):
            return _refused("Requests from other sites are refused.")
        opened = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
        if request.headers.get("Sec-Fetch-Site") not in (None, "same-origin", "none") and not opened:
            return _refused("Requests from other sites are refused.")
        if request.method == "GET" and request.path == "/" and ENTRANCE in request.args:
            if not _same(request.args[ENTRANCE], key):
                return _refused(_WRONG_KEY)
            rest = [(name, value) for name, value in request.args.items(multi=True) if name != ENTRANCE]
            entered = redirect("/" + (f"?{urlencode(rest)}" if rest else ""))
            entered.set_cookie(cookie, key, httponly=True, samesite="Lax")
            return entered
        if not _same(request.cookies.get(cookie, ""), key):
            return _refused(_WRONG_KEY)
        if (request.content_length or 0) > largest:
            return Response(f"{too_large()}.\n", 413, mimetype="text/plain")
        return None

    def seal(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response

    flask.before_request(check)
    flask.after_request(seal)


_WRONG_KEY = "Open the address that `clustpsi explore` printed when it was started."


def _same(given: str, key: str) -> bool:
    return compare_digest(given.encode(), key.encode())


def _refused(why: str) -> Response:
    return Response(f"{why}\n", 403, mimetype="text/plain")
