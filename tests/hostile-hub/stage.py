"""The stage of the acts: a hub, two hosts in its fleet, each with a document that its author signed, and people.

On `pve1` a destroy takes two operational keys, but of guest 103 one, and signed work waits for the hub's anchor. On `pve2` root
takes documents that nobody signed. `still` asks after every act whether any guest or any document in effect was changed.
"""

import base64
import http.client
import json
import re
import time

from formats import compact, manifest, opened, payload_of, sealed, sha256
from processes import Host, Hub, Keys, Machine, demand, until
from rows import Rows
from thief import Thief

# By the name of a host: the release of its node, and lines of root's `[policy]`.
HOSTS = {
    "pve1": ("8.4", ['anchor = "required"', "[[policy.approve]]", 'op = "destroy"', 'vmids = "100-102"', "signers = 2"]),
    "pve2": ("9.2", ["desired_signed = false"]),
}
# The guests whose destroy is requested on `pve1` before the thief comes.
REQUESTED = (100, 101, 102, 103)


class Stage:
    """Everything that an act acts on."""

    def __init__(self, binary, directory):
        self.binary, self.at = binary, directory
        self.people, self.hosts, self.items, self.before = {}, {}, {}, {}
        self.number = 100
        self.keys, self.thief = Keys(directory / "keys"), Thief()
        self.hub = None
        try:
            self._set_up()
        except BaseException:
            self.end()
            raise

    def _set_up(self):
        self.hub = Hub(self.binary, self.at / "hub", self.thief.url)
        self.thief.port_of_hub = self.hub.port
        self.rows = Rows(self.hub.database)
        self.hub_id = self.rows.read("SELECT value FROM meta WHERE name = 'hub_id'")[0][0]
        for name, role in (("alice", "admin"), ("bob", "editor")):
            self.hub.verb(f"account add {name} --role {role} --key {self.keys.path(name)}.pub")
        for name, (release, policy) in HOSTS.items():
            host = self.hosts[name] = Host(self.binary, self.at / name, name, self.thief.url, self.keys, release, policy)
            host.enrol(self.hub.verb(f"enrol-token {name}"))
            host.start()
            host.machine.write("home/.config/evenkeel/known_hosts", f"{name} {host.key_line}\n")
        self.one, self.two = self.hosts["pve1"], self.hosts["pve2"]
        self.desk = Machine(self.binary, self.at / "desk")
        pins = "".join(f"{name} {host.key_line}\n" for name, host in self.hosts.items())
        self.desk.write("home/.config/evenkeel/known_hosts", pins)
        self.desk.must(f"fleet login {self.thief.url} --key {self.keys.path('alice')}")
        for host in self.hosts.values():
            self.desk.must(f"import --url {host.node.url} --token-file {host.machine.at}/token --out {host.name}")
            self.push(host.name, host.name)
        for vmid in REQUESTED:
            self.request(vmid)
        for vmid in REQUESTED:
            self.at_hub(vmid)
        self.look()

    def end(self):
        """Stops every process."""
        for host in self.hosts.values():
            host.end()
        if self.hub:
            self.hub.end()
        self.thief.end()

    # What must hold.

    def look(self):
        """Takes what is so now for what must stay."""
        self.before = {name: (host.node.guests(), host.generation) for name, host in self.hosts.items()}

    def let_in(self, host):
        """Takes the document in effect for what must stay. Root let it in; what guests are must stay all the same."""
        self.before[host.name] = (self.before[host.name][0], host.generation)

    def still(self):
        """Demands that no guest came, went or changed, in configuration or run state, and that no document did."""
        for name, host in self.hosts.items():
            guests, generation = self.before[name]
            now = host.node.guests()
            demand(now.keys() == guests.keys(), f"{name}: guests came or went: {sorted(now.keys() ^ guests.keys())}")
            for guest, keys in guests.items():
                changed = {key for key in keys.keys() | now[guest].keys() if keys.get(key) != now[guest].get(key)}
                demand(not changed, f"{name}: {guest} was changed: {', '.join(sorted(changed))}")
            effective = host.generation
            demand(effective == generation, f"{name}: generation {effective} is in effect, it was {generation}")

    # What people do.

    def push(self, name, directory):
        """The author pushes files to a host, and waits until the host has taken them."""
        self.desk.must(f"fleet push {name} {directory} --key {self.keys.path('author')} --yes --wait 30")

    def files(self, name="pve1", changed=()):
        """The desired files on the operator's machine, with other texts in the place of some."""
        found = {path.name: path.read_text() for path in sorted((self.desk.at / name).iterdir())}
        return {**found, **dict(changed)}

    def edited(self, directory="edited", old="cores = 4", new="cores = 2"):
        """Writes a directory with one small change of `pve1`'s files: what the operator means to push. Its name."""
        text = self.files()["lxc-100.toml"]
        demand(old in text, f"the first guest has no `{old}`")
        for name, whole in self.files().items():
            self.desk.write(f"{directory}/{name}", whole.replace(old, new) if name == "lxc-100.toml" else whole)
        return directory

    def request(self, vmid):
        """Somebody on `pve1` requests the destroy of a guest, anew if it was requested before; the item's whole name."""
        machine = self.one.machine
        if vmid in self.items:
            machine.must(f"pending withdraw {self.items[vmid]} -c agent.toml")

        def raised():
            told = machine.run(f"request destroy {vmid} -c agent.toml")
            items = machine.json("pending -c agent.toml")["items"]
            names = [item["pending"] for item in items if item["guest"].endswith(f"/{vmid}")]
            demand(names or told.code in (5, 7), f"the destroy of {vmid} was not requested: {told}")
            return names

        # A guest that was made a moment ago is not in the node's list yet.
        self.items[vmid] = until(f"the destroy of {vmid} is requested", raised)[0]
        return self.items[vmid]

    def at_hub(self, vmid):
        """Waits until the hub has the item about a guest; its whole name."""
        name = self.items[vmid]
        until("the hub has the item", lambda: self.rows.read("SELECT id FROM pending_items WHERE id = ?", (name,)))
        return name

    def approval(self, vmid, key):
        """The envelope of somebody who signs the item about a guest on its host."""
        name = f"approval-{key}-{time.monotonic_ns()}.json"
        self.one.machine.must(f"sign {self.items[vmid]} --key {self.keys.path(key)} --out {name} --yes -c agent.toml")
        return json.loads(self.one.machine.read(name))

    def resealed(self, envelope, *keys):
        """The same bytes, signed by others."""
        payload = payload_of(envelope)
        return sealed(payload, *(self.keys.armour(payload, key, "evenkeel.op.v1") for key in keys))

    def person(self, name):
        """Somebody's own machine."""
        if name not in self.people:
            self.people[name] = Machine(self.binary, self.at / f"person-{name}")
        return self.people[name]

    def login(self, name):
        """Logs somebody in on their own machine; their token."""
        machine = self.person(name)
        machine.must(f"fleet login {self.thief.url} --key {self.keys.path(name)} --as {name}")
        return json.loads(machine.read("home/.local/state/evenkeel/hub_logins"))[-1]["token"]

    def draft(self, name, files):
        """Somebody leaves a draft for `pve1` at the hub; its name there."""
        body = {"files": [{"name": file, "text": text} for file, text in files.items()], "message": "a small change"}
        status, text = self.ask("POST", "/v1/hosts/pve1/drafts", self.login(name), body)
        demand(status in (200, 201), f"no draft: {status} {text}")
        return json.loads(text)["id"]

    # What goes past all tools.

    def ask(self, method, path, token=None, body=None, headers=None):
        """One request; status and text."""
        status, text, _ = self.ask_whole(method, path, token, body, headers)
        return status, text

    def ask_whole(self, method, path, token=None, body=None, headers=None):
        """One request; status, text and the cookies that were set."""
        headers = {**({"authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        if body is not None:
            headers["content-type"] = "application/json"
        hub = http.client.HTTPConnection("127.0.0.1", self.thief.port, timeout=60)
        try:
            hub.request(method, path, None if body is None else json.dumps(body), headers)
            answer = hub.getresponse()
            cookies = [cookie.split(";")[0] for cookie in answer.headers.get_all("set-cookie") or []]
            return answer.status, answer.read().decode("utf-8", "replace"), cookies
        finally:
            hub.close()

    def session(self, token):
        """A session of the console, as a browser has it: its cookie, and its word against forged requests."""
        _, page, cookies = self.ask_whole("GET", "/console")
        word = re.search(r"\b[0-9a-z]{4}-[0-9a-z]{4}\b", page)
        demand(word and cookies, "the page gave the browser no word")
        status, text = self.ask("POST", "/v1/console-codes", token, {"browser": word[0]})
        demand(status == 200, f"no code for a token: {status} {text}")
        code = {"code": json.loads(text)["code"]}
        status, text, session = self.ask_whole("POST", "/v1/sessions", None, code, {"cookie": cookies[0]})
        demand(status == 200, f"no session for a code: {status} {text}")
        return session[0], json.loads(text)["csrf"]

    # What the thief makes.

    def stolen(self, name="pve1"):
        """What the thief would like to have in effect: the same files, with the thief's key in a machine."""
        key = self.keys.line("thief")
        return self.files(name, {"qemu-101.toml": self.files(name)["qemu-101.toml"] + f'\nsshkeys = ["{key}"]\n'})

    def forged_item(self, host):
        """An item like a real one, of a host whose key is the thief's."""
        said = opened(self.rows.item(self.at_hub(102)))
        said["host"] = {"id": host, "key": self.keys.fingerprint(self.keys.line("thief"))}
        return compact(said)

    def statement(self, host, number, files, base, key="author", version=2, hub_id=None, binding=None):
        """A statement of an author about a document, sealed by any key."""
        now = int(time.time())
        said = {
            "format": f"evenkeel/desired/v{version}", "hub_id": hub_id or self.hub_id, "host": binding or host.binding,
            "generation": number, "manifest": sha256(manifest(files)),
            **({"base": base} if version == 2 else {}), "not_before": now - 60, "expires_at": now + 3600,
        }
        payload = compact(said)
        return sealed(payload, self.keys.armour(payload, key, f"evenkeel.desired.v{version}"))

    def document(self, host, number, files, author=None, texts=None):
        """A document as a host is answered: a manifest of `files`, and these or other texts."""
        listed = [{"name": name, "text": text} for name, text in sorted((texts or files).items())]
        said = {
            "hub_id": self.hub_id, "host": host.name, "generation": number,
            "manifest": base64.b64encode(manifest(files)).decode(), "files": listed,
        }
        return {**said, "author": author} if author else said

    def in_effect(self, host):
        """What a host has in effect, as the base of the next document: what the host reported last."""
        text = self.rows.read("SELECT generation FROM host_states WHERE host = ?", (host.name,))[0][0]
        state = json.loads(text)
        demand(state["number"] == host.generation, "the hub does not know what is in effect")
        return {"generation": state["number"], "manifest": state["manifest"]}

    def next_number(self, host):
        """A number that no document of any host had, so that a report about it is about this one."""
        self.number = max(self.number, host.generation) + 1
        return self.number

    def offered(self, host, number, document):
        """Offers a document to a host; `taken`, or the code by which the host refuses it."""
        self.thief.offer(host.credential, number, document)

        def answer():
            refused = self.thief.refusal_of(number)
            return refused["code"] if refused else host.generation == number and "taken"

        return until(f"{host.name} judges generation {number}", answer)

    def judged(self, host, envelope):
        """Delivers an envelope to a host; the code of its verdict."""
        name = self.thief.deliver(host.credential, envelope)
        return until(f"{host.name} judges an envelope", lambda: self.thief.verdict(name))["code"]
