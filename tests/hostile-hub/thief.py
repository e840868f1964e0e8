"""A thief who has a hub: every answer passes through the thief's proxy and may be bent.

Towards hosts the thief can also play the hub: offer a document of their own and deliver envelopes. The thief has nobody's key
but one of their own.
"""

import threading
import time
from http.server import ThreadingHTTPServer

from proxy import ProxyHandler

# A host that found its guest busy gives no verdict; the envelope is brought again after this time.
DELIVERED_AGAIN_S = 5


class Thief:
    """The proxy, and what the thief has put into it."""

    def __init__(self):
        self.port_of_hub = None
        self.bends = []
        # By the credential of a host: the document it is offered, and the envelopes it is to be given.
        self.offered, self.waiting = {}, {}
        self.reports, self.verdicts, self.signed = [], {}, []
        self.envelopes = 0
        self.lock = threading.Lock()
        handler = type("Handler", (ProxyHandler,), {"thief": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()

    def offer(self, credential, number, document):
        """Serves a document to one host. The hub itself is silent to that host until `rest`."""
        with self.lock:
            self.offered[credential] = (number, document)

    def deliver(self, credential, envelope):
        """Gives an envelope to one host until it has judged it; its name here."""
        with self.lock:
            self.envelopes += 1
            name = f"env_{self.envelopes:032x}"
            self.waiting.setdefault(credential, {})[name] = [0.0, envelope]
        return name

    def rest(self):
        """The hub answers for itself again."""
        with self.lock:
            self.bends.clear()
            self.offered.clear()
            self.waiting.clear()

    def is_offering(self, credential):
        with self.lock:
            return credential in self.offered

    def news_for(self, credential, cursor):
        """The number of the document a host is offered, or None, and the envelopes it is given now."""
        with self.lock:
            number = self.offered.get(credential, (None, None))[0]
            envelopes, now = [], time.monotonic()
            for name, entry in self.waiting.get(credential, {}).items():
                if name not in self.verdicts and now > entry[0] + DELIVERED_AGAIN_S:
                    entry[0] = now
                    # The cursor stays where it is: the host goes on taking what the hub itself has.
                    envelopes.append({"cursor": cursor, "id": name, "envelope": entry[1]})
            return number, envelopes

    def heard_report(self, report):
        """Keeps what a host reports."""
        with self.lock:
            self.reports.append(report)
            for verdict in report.get("verdicts", ()):
                self.verdicts[verdict["envelope"]] = verdict

    def refusal_of(self, number):
        """What a host reported of a document that it refused, or None."""
        with self.lock:
            for report in reversed(self.reports):
                refused = report.get("refused")
                if refused and refused["generation"] == number:
                    return refused
        return None

    def verdict(self, name):
        """What a host reported of an envelope, or None."""
        with self.lock:
            return self.verdicts.get(name)
