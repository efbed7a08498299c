"""Serves the folder ``index`` on loopback until its standard input ends; writes the port when it listens."""

import functools
import http.server
import pathlib
import sys
import threading


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory="index"))
threading.Thread(target=server.serve_forever, daemon=True).start()
pathlib.Path("port").write_text(str(server.server_port))
sys.stdin.read()
