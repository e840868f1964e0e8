"""The part about rights: every act with a token that has just the role `evenkeel doctor` prints for it.

An administrator's token makes a user, a token and a role of its own, and takes them away at the end. Before each act the role
holds what looking takes and nothing else; then doctor is asked, and the role gets what it says.
"""

import re

from agent import demand
from node_api import ApiError
from suite import Skipped

USER, TOKEN, ROLE = "evenkeel-try@pve", "try", "EvenkeelTry"

# What looking at a node takes: `doctor` itself needs it.
TO_LOOK = "Datastore.Audit Sys.Audit VM.Audit"


class Rights:
    """The acts, each a function that ends, or raises `Failed` or `Skipped` with words."""

    def __init__(self, suite):
        self.suite, self.node, self.agent, self.options = suite, suite.node, suite.agent, suite.options
        self.archives = {}

    def steps(self):
        return [
            ("rights: a token", self.begin), ("rights: create", self.create), ("rights: power", self.power),
            ("rights: keys", self.keys), ("rights: volumes", self.volumes), ("rights: resize", self.resize),
            ("rights: move", self.move), ("rights: clone", self.clone), ("rights: backup", self.backup),
            ("rights: restore", self.restore), ("rights: bin", self.bin), ("rights: template", self.template),
            ("rights: destroy", self.destroy),
        ]

    def begin(self):
        """A user that may do everything, and a token of it that may do what its role says."""
        self.node.call("POST", "/access/roles", roleid=ROLE, privs=TO_LOOK)
        self.node.call("POST", "/access/users", userid=USER, comment="made by the suite for real nodes")
        made = self.node.call("POST", f"/access/users/{USER}/token/{TOKEN}", privsep=1)
        self.node.call("PUT", "/access/acl", path="/", users=USER, roles="Administrator")
        self.node.call("PUT", "/access/acl", path="/", tokens=made["full-tokenid"], roles=ROLE)
        token = self.agent.at / "try-token"
        token.touch(mode=0o600)
        token.write_text(f"{made['full-tokenid']}={made['value']}\n")
        self.agent.use_token(token)

    def end(self):
        """Takes away what `begin` made; tells what it could not."""
        left = []
        for path in (f"/access/users/{USER}", f"/access/roles/{ROLE}"):
            try:
                self.node.call("DELETE", path)
            except (ApiError, OSError) as error:
                left.append(f"{path}: {error}")
        return left

    def _printed(self, purpose=None):
        """Gives the role what doctor prints for what is declared now; with the words of a purpose, what it names for that."""
        self.node.call("PUT", f"/access/roles/{ROLE}", privs=TO_LOOK)
        findings = self.agent.json("doctor", expect=(0, 1, 4))["findings"]
        told = "\n".join(f"{finding['what']}\n{finding['next'] or ''}" for finding in findings if finding["subject"] == "rights")
        role = re.search(r"pveum role add \S+ --privs '([^']*)'", told)
        privileges = role.group(1).split() if role else TO_LOOK.split()
        if purpose:
            line = next((line for line in told.splitlines() if line.startswith(f"for {purpose} ")), None)
            demand(line, f"doctor says nothing of {purpose}: {told}")
            privileges += re.findall(r"[A-Z]\w+\.[A-Z][\w.]*\w", line)
        self.node.call("PUT", f"/access/roles/{ROLE}", privs=" ".join(sorted(set(privileges))))
        return sorted(set(privileges) - set(TO_LOOK.split()))

    def _only(self, guest, **keys):
        """Declares one guest and nothing else, and gives the role what that takes."""
        for other in list(self.suite.declared):
            self.agent.forget(other)
        self.suite.declared = {}
        self.suite.declare(guest, **keys)
        return self._printed()

    def _each(self, declared):
        """Brings guests to what is declared, one after the other; tells what the roles had beside looking."""
        needed = set()
        for guest, keys in declared.items():
            needed |= set(self._only(guest, **keys))
            self.agent.settle()
        return " ".join(sorted(needed))

    def create(self):
        suite = self.suite
        told = self._each({suite.lxc: suite.container(), suite.qemu: suite.machine()})
        self.agent.pin()
        for guest in (suite.lxc, suite.qemu):
            demand(not self.node.is_free(int(guest.split("/")[1])), f"{guest} is not there")
        return told

    def power(self):
        told = ""
        for run in ("running", "stopped"):
            told = self._each({guest: {"run": run, **self._force(guest)} for guest in (self.suite.lxc, self.suite.qemu)})
            for guest in (self.suite.lxc, self.suite.qemu):
                demand(self.node.runs(guest) == (run == "running"), f"{guest} is not {run}")
        return told

    def _force(self, guest):
        # Nothing runs in a machine that could hear a request to shut down.
        return {"stop": "force"} if guest.startswith("qemu") else {}

    def keys(self):
        network = {"bridge": self.options.bridge}
        return self._each({
            self.suite.lxc: {"cores": 1, "memory": 96, "hostname": "ek-rights", "description": "rights", "onboot": False,
                             "nameserver": "192.0.2.1", "net0": {"name": "eth0", **network}},
            self.suite.qemu: {"cores": 1, "memory": 96, "name": "ek-rights", "description": "rights", "onboot": False,
                              "net0": {"model": "virtio", **network}, "ide2": "none,media=cdrom"},
        })

    def volumes(self):
        return self._each({
            self.suite.lxc: {"mp0": {**self.suite.storage(), "mp": "/srv"}}, self.suite.qemu: {"scsi1": self.suite.storage()},
        })

    def resize(self):
        return self._each({self.suite.lxc: {"rootfs": self.suite.storage("2GiB")},
                           self.suite.qemu: {"scsi0": self.suite.storage("2GiB")}})

    def move(self):
        both = [name for name in self.node.storages("rootdir") if name in self.node.storages("images")]
        to = self.options.move_to or next((name for name in both if name != self.options.storage), None)
        if not to:
            raise Skipped("the node has no second storage for disks: name one with --move-to")
        return self._each({self.suite.lxc: {"rootfs": self.suite.storage("2GiB", to)},
                           self.suite.qemu: {"scsi0": self.suite.storage("2GiB", to)}})

    def clone(self):
        of = {self.suite.lxc_copy: self.suite.lxc, self.suite.qemu_copy: self.suite.qemu}
        source = {guest: {"clone": int(one.split("/")[1]), "storage": self.options.storage} for guest, one in of.items()}
        return self._each({guest: {"source": words} for guest, words in source.items()})

    def backup(self):
        """On request, which no file declares: doctor says what that would take beside."""
        kept = self.options.backup_storage or next(iter(self.node.storages("backup")), None)
        if not kept:
            raise Skipped("the node has no active storage for backups")
        for guest in (self.suite.lxc, self.suite.qemu):
            self._only(guest)
            told = self._printed("backing guests up")
            vmid = int(guest.split("/")[1])
            before = {entry["volid"] for entry in self.node.volumes(kept, content="backup", vmid=vmid)}
            self.agent.run("request", "backup", guest, f"storage={kept}", "--wait", self.options.patience)
            made = {entry["volid"] for entry in self.node.volumes(kept, content="backup", vmid=vmid)} - before
            demand(len(made) == 1, f"{len(made)} new backups of {guest}")
            self.archives[guest] = made.pop()
            self.suite.archives.append(self.archives[guest])
        return " ".join(told)

    def restore(self):
        if not self.archives:
            raise Skipped("there is no backup to restore")
        lxc, qemu = self.suite.lxc, self.suite.qemu
        return self._each({
            self.suite.lxc_back: {"source": {"backup": self.archives[lxc]}, "rootfs": self.suite.storage("2GiB")},
            self.suite.qemu_back: {"source": {"backup": self.archives[qemu]}, "scsi0": self.suite.storage("2GiB")},
        })

    def bin(self):
        return self._each({self.suite.lxc_copy: {"state": "bin"}})

    def template(self):
        """A signed act that is declared: its item waits until somebody signs."""
        self._only(self.suite.qemu_copy, template=True)
        told = self._printed()
        self._sign(self.suite.qemu_copy)
        demand(self.node.stored(self.suite.qemu_copy).get("template") in ("1", 1), "it is no template")
        return " ".join(told)

    def destroy(self):
        """With a last backup, of a guest that runs."""
        told = ""
        kept = self.options.backup_storage or next(iter(self.node.storages("backup")), None)
        last = {"final_backup": kept} if kept else {}
        for guest in (self.suite.lxc, self.suite.qemu):
            vmid = int(guest.split("/")[1])
            self.node.power(guest, "start")
            told = " ".join(self._only(guest, state="absent", **last))
            before = {entry["volid"] for entry in self.node.volumes(kept, content="backup", vmid=vmid)} if kept else set()
            self._sign(guest)
            demand(self.node.is_free(vmid), f"{guest} is still there")
            if kept:
                after = {entry["volid"] for entry in self.node.volumes(kept, content="backup", vmid=vmid)}
                self.suite.archives += sorted(after - before)
        return told

    def _sign(self, guest):
        approval = self.suite.approval(guest)
        self.agent.run("submit", approval, "--wait", self.options.patience)
