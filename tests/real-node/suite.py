"""The steps, in order. Each is a function that ends, or raises `Failed` or `Skipped` with words."""

import http.client
import subprocess
import time

from agent import Failed, demand
from node_api import LOST_STATUSES, ApiError
from values import lxc_rounds, qemu_rounds, same, wanted


class Skipped(Exception):
    """The node lacks what a step needs; the words say what."""


class Suite:
    """What the steps share: the node, the agent, and the guests of the range."""

    def __init__(self, node, agent, options):
        self.node, self.agent, self.options = node, agent, options
        first, last = options.vmids
        numbers = iter(range(first, last + 1))
        self.lxc = f"lxc/{next(numbers)}"
        self.lxc_running = f"lxc/{next(numbers)}"
        self.qemu = f"qemu/{next(numbers)}"
        self.qemu_running = f"qemu/{next(numbers)}"
        self.lxc_copy, self.qemu_copy = f"lxc/{next(numbers)}", f"qemu/{next(numbers)}"
        self.lxc_back, self.qemu_back = f"lxc/{next(numbers)}", f"qemu/{next(numbers)}"
        self.late = f"lxc/{next(numbers)}"
        self.reused = f"qemu/{next(numbers)}"
        # What the suite made by its own hand. What the agent made is in its journal, from before it was asked for.
        self.made_here = set()
        self.archives = []
        self.declared = {}
        # Tasks of earlier runs, or of other people, on the same numbers: what counts is what comes after.
        self.known_tasks = {upid for vmid in range(first, first + self.NEEDED) for upid in node.tasks(vmid)}

    NEEDED = 10

    def new_tasks(self, guest, kind):
        """The tasks of one kind on a guest's number since the suite began."""
        return set(self.node.tasks(guest.split("/")[1], kind)) - self.known_tasks

    def steps(self):
        return [
            ("doctor", self.doctor), ("create", self.create), ("import", self.imported), ("values", self.values),
            ("restart", self.restart), ("kill -9 at the request", self.killed_at_request), ("healing", self.healing),
            ("kill -9 in a task", self.killed_in_task), ("kill -9 while making", self.killed_making),
            ("kill -9 settled", self.settled), ("clone", self.clone), ("restore", self.restore),
            ("resize", self.resize), ("move", self.move), ("signed destroy", self.signed_destroy),
            ("re-used number", self.number_reused), ("journal", self.journal),
        ]

    def declare(self, guest, **keys):
        """Lays keys over what was declared of a guest before."""
        self.declared[guest] = {**self.declared.get(guest, {}), **keys}
        self.agent.declare(guest, **self.declared[guest])

    def storage(self, size="1GiB", storage=None):
        return {"storage": storage or self.options.storage, "size": size}

    def container(self, **keys):
        return {
            "source": {"template": self.options.template}, "rootfs": self.storage(), "unprivileged": True,
            "memory": 64, "swap": 64, "hostname": "ek-real-node", **keys,
        }

    def machine(self, **keys):
        # Without KVM it starts on nested nodes too; nothing ever runs in it.
        return {
            "source": {}, "scsihw": "virtio-scsi-single", "scsi0": self.storage(), "memory": 64, "kvm": False,
            "name": "ek-real-node", "stop": "force", **keys,
        }

    def doctor(self):
        """What the agent depends on is there."""
        for guest in (self.lxc, self.qemu):
            make = self.container() if guest.startswith("lxc") else self.machine()
            self.agent.declare(guest, **make)
        found = self.agent.json("doctor", expect=(0, 1))
        failed = [finding["what"] for finding in found["findings"] if finding["verdict"] == "failed"]
        demand(not failed, "; ".join(failed))
        return f"Proxmox VE {self.node.get('/version')['version']}"

    def create(self):
        """Two containers and two machines, one of each running."""
        self.declare(self.lxc, **self.container())
        self.declare(self.lxc_running, **self.container(run="running"))
        self.declare(self.qemu, **self.machine())
        self.declare(self.qemu_running, **self.machine(run="running"))
        self.agent.settle()
        self.agent.pin()
        for guest, runs in ((self.lxc, False), (self.lxc_running, True), (self.qemu, False), (self.qemu_running, True)):
            demand(self.node.runs(guest) == runs, f"{guest} {'does not run' if runs else 'runs'}")
        for guest in self.declared:
            # `source` counts only while a guest is not there; without it the suite can never make one twice.
            self.declared[guest].pop("source")
            self.declare(guest)
        return "4 guests"

    def imported(self):
        """Guests as they are, written down: a plan right after is empty."""
        guests = [self.lxc, self.lxc_running, self.qemu, self.qemu_running]
        self.agent.run("import", *guests, "--out", "imported")
        self.agent.run("validate", "imported")
        self.agent.run("plan", "--desired", "imported", "--detailed-exitcode")
        self.agent.run("plan", "--detailed-exitcode")
        return "plan empty"

    def values(self):
        """Every value written once, read back from the node, and left alone by the next pass."""
        rounds = zip(lxc_rounds(self.options.bridge), qemu_rounds(self.options.bridge))
        written = 0
        for containers, machines in rounds:
            both = [(self.lxc, containers), (self.lxc_running, containers), (self.qemu, machines),
                    (self.qemu_running, machines)]
            for guest, keys in both:
                self.declare(guest, **keys)
            self.agent.settle()
            for guest, keys in both:
                found = self.node.stored(guest)
                for key, value in keys.items():
                    has, want = found.get(key), wanted(value)
                    demand(same(key, want, has), f"{guest} {key}: {want!r} was declared, the node has {has!r}")
                    written += 1
            self.agent.rests()
        demand(written >= 150, f"only {written} values were tried")
        return f"{written} values"

    def restart(self):
        """What waited for a restart is in effect after one, and nothing is planned again."""
        waited = {guest: len(self.node.waiting(guest)) for guest in (self.lxc_running, self.qemu_running)}
        for run in ("stopped", "running"):
            for guest in waited:
                self.declare(guest, run=run)
            self.agent.settle()
        for guest in waited:
            left = self.node.waiting(guest)
            demand(self.node.runs(guest) and not left, f"{guest} still waits with {sorted(left)}")
        self.agent.rests()
        return f"{sum(waited.values())} values had waited"

    def _killed_at(self, guest, kind, states):
        """Kills the agent as soon as an operation of this kind on the guest reached a state; tells which operation."""
        known = {line["op"] for line in self.agent.lines()}

        def found():
            lines = self.agent.lines()
            begun = {line["op"] for line in lines if line.get("guest") == guest and line.get("kind") == kind} - known
            return [line for line in lines if line["op"] in begun and line["state"] in states]

        self.agent.until(f"{kind} of {guest} begins", found, every_s=0.005)
        self.agent.kill()
        return found()[-1]["op"]

    def killed_at_request(self):
        """Killed in the very moment it is about to ask. Whether the node was asked nobody can know then; what became of it
        is looked at below, a minute later, when the node can no longer surprise anybody."""
        self.agent.start()
        self.started_before = self.new_tasks(self.lxc_running, "vzstart")
        self.node.power(self.lxc_running, "stop")
        self.lost = self._killed_at(self.lxc_running, "start", ("started",))
        self.agent.start()
        return "taken up below"

    def healing(self):
        """Somebody changes guests behind the agent's back; it sets them right."""
        began = time.monotonic()
        # The guest whose lane the kill before has shut is left out: it waits for a minute, and that is meant.
        self.node.edit(self.lxc, hostname="oops", memory=80, description="oops")
        self.node.edit(self.qemu, name="oops", cores=1, sockets=1)
        self.node.power(self.qemu_running, "stop")

        def is_healed():
            one, two = self.node.stored(self.lxc), self.node.stored(self.qemu)
            return (
                one["hostname"] == self.declared[self.lxc]["hostname"] and int(one["memory"]) == 64
                and two["name"] == self.declared[self.qemu]["name"] and int(two["sockets"]) == 2
                and "oops" not in one["description"]
                and self.node.runs(self.qemu_running)
            )

        self.agent.until("the guests are healed", is_healed, every_s=0.3)
        return f"{time.monotonic() - began:.1f} s"

    def killed_in_task(self):
        """Killed while the node works: the task is taken up, not repeated."""
        guest = self.qemu_running
        before = self.new_tasks(guest, "qmstart")
        self.node.power(guest, "stop")
        op = self._killed_at(guest, "start", ("task_running",))
        self.agent.start()
        self.agent.until(f"{op} is closed", lambda: self._is_closed(op))
        demand(self.node.runs(guest), f"{guest} does not run")
        new = self.new_tasks(guest, "qmstart") - before
        demand(len(new) == 1, f"{len(new)} start tasks instead of one: {sorted(new)}")
        return "1 task"

    def _is_closed(self, op):
        ends = [line["state"] for line in self.agent.lines() if line["op"] == op]
        return bool(ends) and ends[-1] in ("succeeded", "failed")

    def killed_making(self):
        """Killed while a container is made: the next start makes no second one."""
        self.declare(self.late, **self.container(run="running"))
        op = self._killed_at(self.late, "create", ("task_running",))
        self.agent.start()
        self.agent.until(f"{op} is closed", lambda: self._is_closed(op))
        self.agent.until("it runs", lambda: self.node.runs(self.late))
        made = self.new_tasks(self.late, "vzcreate")
        demand(len(made) == 1, f"{len(made)} create tasks instead of one: {sorted(made)}")
        return "1 task"

    def settled(self):
        """What the first kill left is closed by evidence, and the guest runs by one task."""
        self.agent.until(f"{self.lost} is closed", lambda: self._is_closed(self.lost), max(120, self.options.patience))
        self.agent.until(f"{self.lxc_running} runs", lambda: self.node.runs(self.lxc_running))
        new = self.new_tasks(self.lxc_running, "vzstart") - self.started_before
        demand(len(new) == 1, f"{len(new)} start tasks instead of one: {sorted(new)}")
        self.agent.stop()
        return "1 task"

    def clone(self):
        """A full copy of a container and of a machine, with names of their own."""
        for guest, of in ((self.lxc_copy, self.lxc), (self.qemu_copy, self.qemu)):
            name = "hostname" if guest.startswith("lxc") else "name"
            source = {"clone": int(of.split("/")[1]), "storage": self.options.storage}
            self.declare(guest, source=source, **{name: "ek-copy"})
        self.agent.settle()
        for guest in (self.lxc_copy, self.qemu_copy):
            stored = self.node.stored(guest)
            demand("ek-copy" in (stored.get("name"), stored.get("hostname")), f"{guest} has another name: {stored}")
            self.declared[guest].pop("source")
            self.declare(guest)
        return "2 guests"

    def restore(self):
        """A backup of each kind, and a guest made from it."""
        kept = self.options.backup_storage or next(iter(self.node.storages("backup")), None)
        if not kept:
            raise Skipped("the node has no active storage for backups")
        for guest, back in ((self.lxc, self.lxc_back), (self.qemu, self.qemu_back)):
            vmid = int(guest.split("/")[1])
            before = {entry["volid"] for entry in self.node.volumes(kept, content="backup", vmid=vmid)}
            self.agent.run("request", "backup", guest, f"storage={kept}", "--wait", self.options.patience)
            after = {entry["volid"] for entry in self.node.volumes(kept, content="backup", vmid=vmid)}
            made = sorted(after - before)
            self.archives += made
            demand(len(made) == 1, f"{len(made)} new backups of {guest}")
            keys = {"rootfs": self.storage()} if back.startswith("lxc") else {"scsi0": self.storage()}
            name = "hostname" if back.startswith("lxc") else "name"
            self.declare(back, source={"backup": made[0]}, **keys, **{name: "ek-back"})
        self.agent.settle()
        for guest, back in ((self.lxc, self.lxc_back), (self.qemu, self.qemu_back)):
            one, two = self.node.stored(guest), self.node.stored(back)
            demand(one["memory"] == two["memory"], f"{back} has another memory than {guest}")
            self.declared[back].pop("source")
            self.declare(back)
        return "2 guests"

    def resize(self):
        """Disks grow, stopped and running."""
        slots = {self.lxc: "rootfs", self.lxc_running: "rootfs", self.qemu: "scsi0", self.qemu_running: "scsi0"}
        for guest, slot in slots.items():
            self.declare(guest, **{slot: self.storage("2GiB")})
        self.agent.settle()
        for guest, slot in slots.items():
            stored = self.node.stored(guest)[slot]
            demand("size=2G" in stored or "size=2048M" in stored, f"{guest} {slot} is {stored}")
        self.agent.rests()
        return "4 disks"

    def move(self):
        """Disks of stopped guests go to another storage."""
        both = [name for name in self.node.storages("rootdir") if name in self.node.storages("images")]
        others = [name for name in both if name != self.options.storage]
        to = self.options.move_to or next(iter(others), None)
        if not to:
            raise Skipped("the node has no second storage for disks: name one with --move-to")
        slots = {self.lxc: "rootfs", self.qemu: "scsi0"}
        for guest, slot in slots.items():
            self.declare(guest, **{slot: self.storage("2GiB", to)})
        self.agent.settle()
        for guest, slot in slots.items():
            stored = self.node.stored(guest)[slot]
            demand(stored.startswith(f"{to}:"), f"{guest} {slot} is {stored}")
        self.agent.rests()
        return f"to {to}"

    def _signed(self, guest):
        """Puts a destroy before the operator, who signs it; the file with the approval."""
        self.declared[guest] = {}
        self.agent.declare(guest, state="absent")
        return self.approval(guest)

    def approval(self, guest):
        """Has what is declared of a guest wait for a signature, and signs it; the file with the approval."""
        self.agent.run("apply", "-y", expect=(6,))
        items = [item for item in self.agent.json("pending")["items"] if item["guest"] == guest]
        demand(len(items) == 1, f"{len(items)} items wait for {guest}")
        vmid = guest.split("/")[1]
        self.agent.run("pending", items[0]["pending"], "--out", f"item-{vmid}.json")
        self.agent.run(
            "sign", f"item-{vmid}.json", "--key", "alice", "--known-hosts", "known_hosts", "-y", "--out", f"approval-{vmid}.json"
        )
        return f"approval-{vmid}.json"

    def signed_destroy(self):
        """Nothing goes unsigned; what is signed goes once."""
        for guest in (self.lxc_copy, self.lxc_back):
            approval = self._signed(guest)
            vmid = int(guest.split("/")[1])
            demand(not self.node.is_free(vmid), f"{guest} is gone before anybody handed a signature in")
            self.agent.run("submit", approval, "--wait", self.options.patience)
            demand(self.node.is_free(vmid), f"{guest} is still there")
            again = self.agent.run("submit", approval, expect=range(8))
            asked = len(self.new_tasks(guest, "vzdestroy"))
            demand(asked == 1, f"{asked} destroy tasks after handing it in twice: {again.stdout}")
            self.agent.forget(guest)
        return "2 guests, once each"

    def number_reused(self):
        """A signature for a guest does not reach the one that took its number."""
        guest, vmid = self.reused, int(self.reused.split("/")[1])
        self.declare(guest, **self.machine(name="ek-first"))
        self.agent.settle()
        approval = self._signed(guest)
        self.node.destroy(guest)
        self.made_here.add(guest)
        self.node.done(self.node.call(
            "POST", f"/nodes/{self.node.name}/qemu", vmid=vmid, name="ek-second", memory=64, kvm=0,
            scsihw="virtio-scsi-single", scsi0=f"{self.options.storage}:1",
        ))
        refused = self.agent.run("submit", approval, "--wait", self.options.patience, expect=range(1, 8))
        told = refused.stderr + refused.stdout
        code = next((word for word in ("identity_mismatch", "identity_unproven", "stale", "not_pending") if word in told), None)
        demand(code, f"it was refused, but not for another guest's sake: {told.strip()[-300:]}")
        demand(self.node.stored(guest)["name"] == "ek-second", "the other guest is gone")
        self.agent.forget(guest)
        return f"refused as {code}"

    def journal(self):
        """Every line is whole, and nothing is left open."""
        self.agent.stop()
        verified = self.agent.json("journal", "verify")
        demand(verified["whole"], f"the journal is not whole: {verified}")
        left = self.agent.json("journal", "--open")["operations"]
        demand(not left, f"{len(left)} operations are open: {left}")
        return f"{verified['records']} records"

    def clean_up(self):
        """Removes every guest and backup that the suite made; tells what it could not."""
        self.agent.stop()
        left = []
        makings = ("create", "clone", "restore")
        by_agent = {line["guest"] for line in self.agent.lines() if line.get("kind") in makings}
        for guest in sorted(by_agent | self.made_here):
            try:
                self.node.get(self.node.path(guest, "/status/current"))
            except (ApiError, OSError) as error:
                # Refused: it is gone. Anything else says nothing about it.
                if getattr(error, "status", None) in (None, *LOST_STATUSES):
                    left.append(f"{guest}: {error}")
                continue
            try:
                self.node.destroy(guest)
            except (ApiError, OSError) as error:
                left.append(f"{guest}: {error}")
        for archive in self.archives:
            try:
                self.node.free_volume(archive)
            except (ApiError, OSError) as error:
                left.append(f"{archive}: {error}")
        return left


TROUBLE = (Failed, ApiError, OSError, http.client.HTTPException, KeyError, ValueError, subprocess.SubprocessError)
