"""A small client of Proxmox VE's API, with the standard library only: the suite's own eyes and hands.

What evenkeel did is judged by reading the node here, and what other people do to guests is done here. Nothing is sent before
the certificate was held against what the configuration trusts.
"""

import hashlib
import http.client
import json
import ssl
import time
from urllib.parse import quote, urlencode, urlsplit


# How often a read is asked before it counts as failed, and the pause between: a proxy that starts again takes seconds.
READ_TRIES, READ_PAUSE_S = 8, 2
# What a proxy says when it lost the answer or the worker behind it; a refusal has another status.
LOST_STATUSES = {502, 503, 504, *range(595, 600)}


class ApiError(Exception):
    """The node refused, with its words."""

    def __init__(self, status, words):
        super().__init__(f"{status}: {words}")
        self.status = status


class Node:
    """One node, by one token."""

    def __init__(self, pve, token):
        self.url = urlsplit(pve["url"])
        pins = pve.get("fingerprint", [])
        pins = [pins] if isinstance(pins, str) else pins
        self.pins = {pin.replace(":", "").lower() for pin in pins}
        self.ca_file = pve.get("ca_file")
        self.token = token
        self.name = pve.get("node") or self._local_name()

    def _connection(self):
        if self.url.scheme == "http":
            return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=120)
        if self.pins:
            # The pin is the proof, below: a self-signed certificate has no other.
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        else:
            context = ssl.create_default_context(cafile=self.ca_file)
        port = self.url.port or 8006
        connection = http.client.HTTPSConnection(self.url.hostname, port, timeout=120, context=context)
        connection.connect()
        if self.pins:
            found = hashlib.sha256(connection.sock.getpeercert(binary_form=True)).hexdigest()
            if found not in self.pins:
                raise ApiError(0, f"the server has another certificate: {found}")
        return connection

    def call(self, method, path, /, **params):
        """One request; its data, or an ApiError."""
        body, headers = None, {"Authorization": f"PVEAPIToken={self.token}"}
        target = "/api2/json" + path
        if params and method in ("GET", "DELETE"):
            target += "?" + urlencode(params)
        elif params:
            body = urlencode(params)
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = self._connection()
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
            if answer.status != 200:
                raise ApiError(answer.status, f"{answer.reason} {text[:300]}")
            return json.loads(text)["data"]
        finally:
            connection.close()

    def get(self, path, **params):
        """A read, which is harmless to repeat: one that the proxy or the wire lost is asked again."""
        for _ in range(READ_TRIES - 1):
            try:
                return self.call("GET", path, **params)
            except ApiError as error:
                if error.status not in LOST_STATUSES:
                    raise
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(READ_PAUSE_S)
        return self.call("GET", path, **params)

    def _local_name(self):
        for entry in self.get("/cluster/status"):
            if entry["type"] == "node" and entry.get("local"):
                return entry["name"]
        raise ApiError(0, "the node does not tell its name: set `node` under [pve]")

    def path(self, guest, rest=""):
        """The path of a guest `lxc/9000`."""
        return f"/nodes/{self.name}/{guest}{rest}"

    def taken(self):
        """Every number in use, on any node of the cluster."""
        return {int(entry["vmid"]) for entry in self.get("/cluster/resources", type="vm")}

    def is_free(self, vmid):
        """What the node itself says of a number."""
        try:
            return str(self.get("/cluster/nextid", vmid=vmid)) == str(vmid)
        except ApiError:
            return False

    def stored(self, guest):
        """What a guest has, with what waits for its restart laid over it."""
        values = {}
        for entry in self.get(self.path(guest, "/pending")):
            if "pending" in entry:
                values[entry["key"]] = entry["pending"]
            elif not entry.get("delete") and "value" in entry:
                values[entry["key"]] = entry["value"]
        return values

    def waiting(self, guest):
        """The keys that wait for a restart."""
        entries = self.get(self.path(guest, "/pending"))
        return {entry["key"] for entry in entries if "pending" in entry or entry.get("delete")}

    def runs(self, guest):
        return self.get(self.path(guest, "/status/current"))["status"] == "running"

    def edit(self, guest, **params):
        """Changes a configuration as a person would, at the web page."""
        self.call("PUT", self.path(guest, "/config"), **params)

    def done(self, upid, patience_s=900):
        """Waits for a task, which must end well."""
        deadline = time.monotonic() + patience_s
        where = f"/nodes/{self.name}/tasks/{quote(upid, safe='')}/status"
        while True:
            status = self.get(where)
            if status["status"] == "stopped":
                ended = status.get("exitstatus", "")
                if ended != "OK" and not ended.startswith("WARNINGS"):
                    raise ApiError(0, f"{upid} ended with {ended}")
                return
            if time.monotonic() > deadline:
                raise ApiError(0, f"{upid} has not ended in {patience_s} s")
            time.sleep(0.2)

    def power(self, guest, what):
        self.done(self.call("POST", self.path(guest, f"/status/{what}")))

    def destroy(self, guest):
        """Ends a guest, running or not."""
        if self.runs(guest):
            self.power(guest, "stop")
        if self.stored(guest).get("protection") in ("1", 1):
            self.edit(guest, protection=0)
        self.done(self.call("DELETE", self.path(guest), purge=1))

    def tasks(self, vmid, kind=None):
        """The tasks on one number, of one kind or of any, newest first."""
        listed = self.get(f"/nodes/{self.name}/tasks", vmid=vmid, source="all", limit=500)
        return [task["upid"] for task in listed if kind in (None, task["type"])]

    def storages(self, content):
        """The active storages that take a content."""
        listed = self.get(f"/nodes/{self.name}/storage", content=content)
        return [entry["storage"] for entry in listed if entry.get("active") and entry.get("enabled", 1)]

    def volumes(self, storage, **params):
        return self.get(f"/nodes/{self.name}/storage/{storage}/content", **params)

    def free_volume(self, volid):
        storage = volid.split(":", 1)[0]
        path = f"/nodes/{self.name}/storage/{storage}/content/{quote(volid, safe='')}"
        # A backup on request is protected.
        self.call("PUT", path, protected=0)
        answer = self.call("DELETE", path)
        if answer:
            self.done(answer)
