"""A page that knows nothing of limits: nginx asks Gatehouse before it passes a request on."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = b"hello from Python\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


host, port = sys.argv[1].rsplit(":", 1)
server = ThreadingHTTPServer((host, int(port)), Page)
print("the application is ready", flush=True)
server.serve_forever()
