"""The processes of a stage, all of one binary: a simulated node with its agent, a real hub, and people's machines.

Everybody dials the hub through the thief's proxy. Nothing here knows what a thief does.
"""

import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request

# How long anything that must happen may take on a busy machine. Agents report every 5 seconds.
PATIENCE_S = 40


class Failed(Exception):
    """The thief got something, or the stage is not as the act needs it; the words say which."""


def demand(holds, words):
    if not holds:
        raise Failed(words)


def until(what, holds, patience_s=PATIENCE_S):
    """Waits until `holds()` is true, and gives its value."""
    deadline = time.monotonic() + patience_s
    while True:
        found = holds()
        if found:
            return found
        demand(time.monotonic() < deadline, f"{what}: not in {patience_s} s")
        time.sleep(0.1)


class Output:
    """Exit code and output of one run of the binary."""

    def __init__(self, ran):
        self.code, self.out, self.err = ran.returncode, ran.stdout, ran.stderr

    def says(self, *words):
        return all(word in self.out + self.err for word in words)

    def __str__(self):
        return f"code {self.code}: " + " | ".join((self.err.strip() or self.out.strip()).splitlines()[-8:])


class Machine:
    """A directory with a home of its own, in which verbs are run."""

    def __init__(self, binary, directory):
        self.binary, self.at = str(binary), directory
        directory.mkdir()
        (directory / "home").mkdir()

    def _environment(self):
        return {"PATH": os.environ["PATH"], "HOME": str(self.at / "home"), "USER": "alice", "NO_COLOR": "1"}

    def start(self, line, ready=True):
        """Starts a process that stays. If it prints a line when it is ready, gives that line too."""
        log = (self.at / "log").open("a", encoding="utf-8")
        process = subprocess.Popen(
            [self.binary, *line.split()], cwd=self.at, env=self._environment(), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if ready else log, stderr=log,
        )
        log.close()
        if not ready:
            return process, None
        first = process.stdout.readline()
        demand(first, f"`evenkeel {line}` ended before it was ready: {(self.at / 'log').read_text()[-600:]}")
        return process, json.loads(first)

    def run(self, line, stdin=None):
        """Runs one verb."""
        ran = subprocess.run(
            [self.binary, *line.split()], cwd=self.at, env=self._environment(), text=True, capture_output=True,
            timeout=PATIENCE_S, check=False, **({"input": stdin} if stdin else {"stdin": subprocess.DEVNULL}),
        )
        return Output(ran)

    def must(self, line, stdin=None):
        """Runs one verb that must succeed; its stdout."""
        told = self.run(line, stdin)
        demand(told.code == 0, f"`evenkeel {line}` ended with {told}")
        return told.out

    def json(self, line):
        return json.loads(self.must(line + " -o json"))

    def write(self, name, text, mode=0o644):
        path = self.at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def read(self, name):
        return (self.at / name).read_text()


def stop(process, how=signal.SIGTERM):
    if process and process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Keys:
    """Everybody's SSH keys, made and used by the installed ssh-keygen."""

    NAMES = ("alice", "bob", "author", "vault", "thief")

    def __init__(self, directory):
        self.at = directory
        directory.mkdir()
        for name in self.NAMES:
            self.make(name)

    def make(self, name):
        """Makes a key for somebody; the path of its private half."""
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.path(name))]
        subprocess.run(words, check=True)
        return self.path(name)

    def path(self, name):
        return self.at / name

    def line(self, name):
        return (self.at / f"{name}.pub").read_text().strip()

    @staticmethod
    def fingerprint(line):
        blob = base64.b64decode(line.split()[1])
        return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")

    def armour(self, payload, key, namespace):
        """Signs exact bytes."""
        words = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(self.path(key))]
        return subprocess.run(words, input=payload, capture_output=True, check=True).stdout.decode()


class Node:
    """A simulated node, read past all of evenkeel's code: what is true of its guests."""

    def __init__(self, ready):
        self.url, self.name, self.token = ready["url"], ready["node"], ready["token"].strip()

    def call(self, method, path, **params):
        body = urllib.parse.urlencode(params).encode() if params else None
        headers = {"Authorization": f"PVEAPIToken={self.token}"}
        request = urllib.request.Request(f"{self.url}/api2/json{path}", data=body, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["data"]

    def guests(self):
        """Every guest with its run state and configuration, in a form to compare."""
        found = {}
        for entry in self.call("GET", "/cluster/resources"):
            if entry.get("type") in ("lxc", "qemu"):
                guest = f"{entry['type']}/{entry['vmid']}"
                config = self.call("GET", f"/nodes/{self.name}/{guest}/config")
                # The list of resources is some seconds behind; this is not.
                now = self.call("GET", f"/nodes/{self.name}/{guest}/status/current")
                found[guest] = {"power": now["status"], **config}
        return found


class Host:
    """One host: a simulated node, and the agent that keeps it."""

    def __init__(self, binary, directory, name, hub_url, keys, release, policy=()):
        self.name, self.keys, self.hub_url = name, keys, hub_url
        self.machine = Machine(binary, directory)
        self.sim, ready = self.machine.start(f"sim --pve {release} --listen 127.0.0.1:0 --guests 4 --plain-http -o json")
        self.node, self.agent = Node(ready), None
        # A node whose task list is empty proves nothing of its guests, so every approval would be refused.
        self.node.call("POST", f"/nodes/{self.node.name}/qemu", vmid=104, name="vm104", memory=512)
        self.machine.write("token", self.node.token + "\n", 0o600)
        for signer, role in (("alice", "operational"), ("bob", "operational"), ("author", "author"), ("vault", "recovery")):
            line = f"signers enrol {keys.path(signer)}.pub --role {role} --name {signer} --trust trust.toml"
            self.machine.must(line)
        self.policy = list(policy)
        self.configure()

    def configure(self):
        at = self.machine.at
        lines = [
            f'host_id = "{self.name}"', 'interval = "5s"', "[pve]", f'url = "{self.node.url}"', f'node = "{self.node.name}"',
            f'token_file = "{at}/token"', "[desired]",
            f'hub = {{ url = "{self.hub_url}", credential_file = "{at}/credential" }}',
            "[state]", f'dir = "{at}/state"', "[trust]", f'file = "{at}/trust.toml"', "[policy]",
            "destructive_per_day = 100", *self.policy,
        ]
        self.machine.write("agent.toml", "\n".join(lines) + "\n", 0o600)

    def enrol(self, token):
        self.machine.must(f"enrol {self.hub_url} -c agent.toml", stdin=token)
        self.key_line = self.machine.read("state/host_key.pub").strip()

    @property
    def binding(self):
        return {"id": self.name, "key": Keys.fingerprint(self.key_line)}

    def start(self):
        self.agent, _ = self.machine.start("run -c agent.toml --log warn", ready=False)
        until(f"the agent of {self.name} answers", lambda: self.machine.run("status -c agent.toml").code == 0)

    def stop(self, how=signal.SIGTERM):
        stop(self.agent, how)
        self.agent = None

    def restart(self):
        self.stop()
        self.start()

    @property
    def generation(self):
        """The number of the document in effect, by the host's own word."""
        return self.hub_status()["generation"]

    def status(self):
        return self.machine.json("status -c agent.toml")

    def hub_status(self):
        """How the agent stands with its hub."""
        return self.status()["agent"]["desired"]["hub"]

    def apply(self):
        """Has the running agent make one pass, and waits for its end."""
        return self.machine.run("apply -y -c agent.toml")

    @property
    def credential(self):
        return self.machine.read("credential").strip()

    def end(self):
        self.stop()
        stop(self.sim)


class Hub:
    """The hub's process and its database."""

    def __init__(self, binary, directory, public_url):
        self.machine = Machine(binary, directory)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        line = f"hub --listen 127.0.0.1:{self.port} --state hub --plain-http --public-url {public_url} -o json --log error"
        self.process, _ = self.machine.start(line)
        self.database = directory / "hub" / "hub.sqlite"

    def verb(self, line):
        return self.machine.must(f"hub {line} --state hub")

    def end(self):
        stop(self.process)
