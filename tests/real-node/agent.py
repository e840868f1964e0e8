"""The shipped binary in a directory of its own: its configuration, desired files, keys, journal, and the daemon."""

import json
import os
import subprocess
import time
from pathlib import Path


class Failed(Exception):
    """A step did not go as it must; the words say how."""


def demand(holds, words):
    if not holds:
        raise Failed(words)


def toml(value):
    """A value as TOML spells it; strings of JSON are strings of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(part) for part in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


class Agent:
    """evenkeel with a state directory of its own. It never touches the one of an installed agent."""

    def __init__(self, binary, directory, pve, patience_s):
        self.binary, self.at, self.patience_s = str(Path(binary).resolve()), Path(directory), patience_s
        self.daemon = None
        (self.at / "desired").mkdir()
        self.pve = pve
        self._configure()

    def use_token(self, path):
        """From now on it is another one, with its own rights."""
        self.pve = {**self.pve, "token_file": str(path)}
        self._configure()

    def _configure(self):
        sections = {"pve": self.pve, "desired": {"dir": str(self.at / "desired")},
                    "state": {"dir": str(self.at / "state")}, "trust": {"file": str(self.at / "trust.toml")}}
        lines = ['host_id = "real-node"', "interval = 5"]
        for name, keys in sections.items():
            lines += [f"[{name}]"] + [f"{key} = {toml(value)}" for key, value in keys.items()]
        # Nobody signs more here than the suite does.
        lines += ["[policy]", "destructive_per_day = 20"]
        (self.at / "agent.toml").write_text("\n".join(lines) + "\n")

    def run(self, *words, expect=(0,)):
        """One verb. Its answer, and its code if several are expected."""
        environment = {**os.environ, "EVENKEEL_CONFIG": str(self.at / "agent.toml"), "NO_COLOR": "1"}
        ran = subprocess.run(
            [self.binary, *map(str, words)], env=environment, cwd=self.at, text=True, capture_output=True,
            timeout=self.patience_s, check=False, stdin=subprocess.DEVNULL,
        )
        if ran.returncode not in expect:
            told = (ran.stderr.strip() or ran.stdout.strip()).splitlines()
            raise Failed(f"`evenkeel {' '.join(map(str, words))}` ended with {ran.returncode}: " + " | ".join(told[-6:]))
        return ran

    def json(self, *words, expect=(0,)):
        return json.loads(self.run(*words, "-o", "json", expect=expect).stdout)

    def keys(self):
        """An operator and a recovery key, and the trust file that names them."""
        for name, role in (("alice", "operational"), ("vault", "recovery")):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.at / name)], check=True
            )
            self.run("signers", "enrol", f"{name}.pub", "--name", name, "--role", role, "--trust", "trust.toml")

    def pin(self):
        """Pins the host key, as an operator does once."""
        key = (self.at / "state" / "host_key.pub").read_text()
        (self.at / "known_hosts").write_text(f"real-node {key}")

    def declare(self, guest, **keys):
        """Writes the desired file of one guest."""
        kind, vmid = guest.split("/")
        unset = [key for key, value in keys.items() if value is None]
        lines = [f"[guest.{vmid}]", f"kind = {toml(kind)}"]
        lines += [f"{key} = {toml(value)}" for key, value in keys.items() if value is not None]
        if unset:
            lines.append(f"unset = {toml(unset)}")
        (self.at / "desired" / f"{kind}-{vmid}.toml").write_text("\n".join(lines) + "\n")

    def forget(self, guest):
        """Stops managing a guest."""
        kind, vmid = guest.split("/")
        (self.at / "desired" / f"{kind}-{vmid}.toml").unlink(missing_ok=True)

    def settle(self, passes=4):
        """Applies until a plan is empty; the guests must come to rest within a few passes."""
        for _ in range(passes):
            self.run("apply", "-y", expect=(0, 6))
            plan = self.run("plan", "--detailed-exitcode", expect=(0, 2))
            if plan.returncode == 0:
                return
        raise Failed("it does not come to rest; still planned: " + plan.stdout.strip()[:600])

    def rests(self):
        """A further pass writes nothing: neither to the node nor to the journal."""
        before = self.records()
        self.run("apply", "-y", expect=(0, 6))
        after = self.records()
        demand(before == after, f"a pass at rest wrote to the journal: record {before} became {after}")

    def records(self):
        return self.json("journal", "verify")["records"]

    def lines(self):
        """The operations in the journal's own lines."""
        text = ""
        for segment in sorted((self.at / "state" / "journal").glob("journal-*.jsonl")):
            text += segment.read_text()
        # The last line may be half written at this moment.
        whole = text[: text.rfind("\n") + 1]
        return [line for line in map(json.loads, whole.splitlines()) if line.get("type") == "op"]

    def start(self):
        """The daemon."""
        environment = {**os.environ, "EVENKEEL_CONFIG": str(self.at / "agent.toml")}
        log = open(self.at / "agent.log", "a", encoding="utf-8")
        self.daemon = subprocess.Popen([self.binary, "run"], env=environment, cwd=self.at, stdout=log, stderr=log)
        log.close()
        self.until("the agent answers", lambda: self.run("status", expect=(0, 3, 5, 7)).returncode == 0)

    def kill(self):
        """As hard as one can."""
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = None

    def stop(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(60)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        self.daemon = None

    def until(self, what, holds, patience_s=None, every_s=0.1):
        """Waits for something to become so."""
        deadline = time.monotonic() + (patience_s or self.patience_s)
        while not holds():
            demand(time.monotonic() < deadline, f"{what}: not in {patience_s or self.patience_s} s")
            time.sleep(every_s)
