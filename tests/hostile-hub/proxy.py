"""The proxy between the hub and everybody who dials it: hosts and people take it for the hub."""

import http.client
import json
import select
import time
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from formats import compact

# Headers that the proxy sets itself.
OWN_HEADERS = {"host", "connection", "content-length", "accept-encoding"}
# Headers of the hub's answers that tools and browsers read.
PASSED_HEADERS = {"etag", "retry-after", "set-cookie"}


class Bend:
    """One lie of the hub's. Each method tells the truth until an act overrides it."""

    def asked(self, _method, path):
        """The path that the hub is asked for in place of `path`."""
        return path

    def instead(self, _method, _path):
        """Status and body that are answered without asking the hub, or None."""
        return None

    def answered(self, _method, _path, status, body):
        """Status and body in place of those that the hub answered."""
        return status, body


class ProxyHandler(BaseHTTPRequestHandler):
    """One connection to the proxy."""

    protocol_version = "HTTP/1.1"
    thief = None

    def log_message(self, *_):
        pass

    def _send(self, status, body=b"", kind="application/json", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if status != 204:
            self.wfile.write(body)

    def _credential(self):
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def _stolen_document(self):
        """The document that the thief has for this host under the number it asks for, or None."""
        number, document = self.thief.offered.get(self._credential(), (None, None))
        if urlsplit(self.path).path == f"/v1/agent/documents/{number}":
            return compact(document)
        return None

    def _stolen_news(self):
        """What the thief answers to a poll of this host at this moment, or None."""
        query = parse_qs(urlsplit(self.path).query)
        known = int(query["generation"][0])
        number, envelopes = self.thief.news_for(self._credential(), int(query["cursor"][0]))
        if number in (None, known) and not envelopes:
            return None
        return compact({"generation": known if number is None else number, "envelopes": envelopes})

    def _serve_poll(self, hub):
        """Waits for news of the hub or the thief, whichever comes first. The hub gets no word in while the thief offers."""
        query = parse_qs(urlsplit(self.path).query)
        deadline = time.monotonic() + int(query["wait"][0])
        while time.monotonic() < deadline:
            news = self._stolen_news()
            if news:
                return self._send(200, news)
            readable, _, _ = select.select([hub.sock], [], [], 0.1)
            if readable and not self.thief.is_offering(self._credential()):
                return self._pass_on(hub.getresponse())
            if readable:
                time.sleep(0.1)
        return self._send(204)

    def _pass_on(self, answer):
        body, status = answer.read(), answer.status
        for bend in list(self.thief.bends):
            status, body = bend.answered(self.command, self.path, status, body)
        kind = answer.headers.get("content-type", "application/json")
        self._send(status, body, kind, [pair for pair in answer.headers.items() if pair[0].lower() in PASSED_HEADERS])

    def _note(self, body):
        """Keeps what hosts report and what people sign."""
        if self.command != "POST":
            return
        if self.path == "/v1/agent/reports":
            self.thief.heard_report(json.loads(body))
        elif self.path.endswith(("/documents", "/v1/envelopes")):
            handed_in = json.loads(body)
            if handed_in.get("author") or handed_in.get("envelope"):
                self.thief.signed.append(handed_in)

    def _serve(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self._note(body)
        document = self._stolen_document()
        if document:
            return self._send(200, document)
        path = self.path
        for bend in list(self.thief.bends):
            instead = bend.instead(self.command, self.path)
            if instead:
                return self._send(*instead)
            path = bend.asked(self.command, path)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in OWN_HEADERS}
        headers["host"] = self.headers["host"]
        hub = http.client.HTTPConnection("127.0.0.1", self.thief.port_of_hub, timeout=90)
        try:
            hub.request(self.command, path, body or None, headers)
            if urlsplit(path).path == "/v1/agent/poll":
                return self._serve_poll(hub)
            return self._pass_on(hub.getresponse())
        except (OSError, http.client.HTTPException):
            # The hub is down or was stopped in the middle. Whoever asked may be gone too.
            self.close_connection = True
        finally:
            hub.close()

    do_GET = do_POST = do_PUT = do_DELETE = _serve
