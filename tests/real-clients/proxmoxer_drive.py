"""Drives `evenkeel sim` with proxmoxer, as somebody's own scripts would: usage BINARY RELEASE."""

import sys
from urllib.parse import urlsplit

import urllib3
from proxmoxer import ProxmoxAPI
from proxmoxer.core import ResourceException
from proxmoxer.tools import Tasks

from simulated import PATIENCE_S, simulated

TEMPLATE = "store:vztmpl/alpine-3.19-default_20240207_amd64.tar.gz"
# A token every simulated node has, with the rights to look and nothing else.
READER = "viewer@pve!ro=00000000-0000-4000-8000-000000000002"


def connect(ready, token):
    """A client for the simulator, with a token `user@realm!id=secret`."""
    server = urlsplit(ready["url"])
    name, secret = token.split("=", 1)
    user, token_name = name.split("!", 1)
    return ProxmoxAPI(
        server.hostname,
        port=server.port,
        user=user,
        token_name=token_name,
        token_value=secret,
        # The certificate is self-signed and on loopback; proxmoxer cannot pin one.
        verify_ssl=False,
        timeout=PATIENCE_S,
    )


def done(pve, upid):
    """Waits for a task, which must end well."""
    status = Tasks.blocking_status(pve, upid, timeout=PATIENCE_S, polling_interval=0.02)
    assert status and status["exitstatus"] == "OK", (upid, status)


def refused(status, act):
    """The act must be refused with this status."""
    try:
        act()
    except ResourceException as error:
        assert error.status_code == status, error
        return error
    raise AssertionError("it was allowed")


def lists(pve, node):
    assert [entry["node"] for entry in pve.nodes.get()] == [node.name]
    containers, machines = node.lxc.get(), node.qemu.get()
    assert (len(containers), len(machines)) == (5, 5)
    assert len(pve.cluster.resources.get(type="vm")) == 10
    for machine in machines:
        assert node.qemu(machine["vmid"]).config.get()["digest"]
    assert int(pve.cluster.nextid.get()) == 110


def container(pve, node):
    """Creates, sets, starts, snapshots, rolls back, clones and destroys a container."""
    done(pve, node.lxc.create(
        vmid=200, hostname="web", ostemplate=TEMPLATE, storage="local-lvm", memory=256,
        rootfs="local-lvm:2", net0="name=eth0,bridge=vmbr0,ip=dhcp", password="secret",
    ))
    web = node.lxc(200)
    before = web.config.get()
    assert (before["hostname"], int(before["memory"])) == ("web", 256), before
    assert "size=2G" in before["rootfs"] and "hwaddr=" in before["net0"], before

    web.config.put(cores=2, tags="web;prod", digest=before["digest"])
    after = web.config.get()
    assert int(after["cores"]) == 2 and set(after["tags"].split(";")) == {"web", "prod"}, after
    refused(500, lambda: web.config.put(cores=3, digest=before["digest"]))

    done(pve, web.status.start.post())
    assert web.status.current.get()["status"] == "running"
    done(pve, web.status.shutdown.post())
    assert web.status.current.get()["status"] == "stopped"

    done(pve, web.snapshot.post(snapname="clean", description="before the change"))
    web.config.put(memory=1024)
    done(pve, web.snapshot("clean").rollback.post())
    assert int(web.config.get()["memory"]) == 256
    names = [snapshot["name"] for snapshot in web.snapshot.get()]
    assert sorted(names) == ["clean", "current"], names

    done(pve, web.clone.post(newid=201, hostname="copy", full=1, snapname="clean"))
    copy = node.lxc(201).config.get()
    assert copy["hostname"] == "copy", copy
    mac = lambda config: config["net0"].split("hwaddr=")[1].split(",")[0]
    assert mac(copy) != mac(after), "a clone has its own address"

    done(pve, web.snapshot("clean").delete())
    done(pve, node.lxc(200).delete())
    done(pve, node.lxc(201).delete(purge=1))
    left = {int(guest["vmid"]) for guest in node.lxc.get()}
    assert not left & {200, 201}, left
    refused(500, lambda: node.lxc(200).config.get())


def machine(pve, node):
    """The same for a virtual machine."""
    done(pve, node.qemu.create(
        vmid=300, name="db", memory=512, cores=1, scsi0="local-lvm:4", ostype="l26",
        scsihw="virtio-scsi-single", net0="virtio,bridge=vmbr0",
    ))
    db = node.qemu(300)
    done(pve, db.config.post(description="the database", cores=2))
    assert int(db.config.get()["cores"]) == 2
    done(pve, db.status.start.post())
    assert db.status.current.get()["status"] == "running"
    # Cores of a running machine wait for its restart.
    db.config.put(cores=4)
    waiting = [entry for entry in db.pending.get() if entry["key"] == "cores"]
    assert [str(entry.get("pending")) for entry in waiting] == ["4"], waiting
    refused(500, lambda: done(pve, db.delete()))
    done(pve, db.status.stop.post())
    done(pve, db.clone.post(newid=301, name="copy", full=1))
    done(pve, db.delete())
    done(pve, node.qemu(301).delete())


def failed(pve, upid):
    """Waits for a task, which must fail, and gives its words."""
    status = Tasks.blocking_status(pve, upid, timeout=PATIENCE_S, polling_interval=0.02)
    assert status and status["exitstatus"] != "OK", (upid, status)
    return status["exitstatus"]


def save(pve, node, vmid):
    """Saves a guest and gives the archive that its notes name."""
    done(pve, node.all.vzdump.post(
        vmid=vmid, storage="store", mode="stop", compress="zstd", remove=0, protected=1,
        **{"notes-template": "{{guestname}} by proxmoxer"},
    ))
    rows = node.all.storage("store").content.get(content="backup", vmid=vmid)
    [row] = [row for row in rows if row["notes"].endswith(" by proxmoxer")]
    assert row["protected"] == 1 and row["size"] > 0, row
    config = node.all.vzdump.extractconfig.get(volume=row["volid"])
    assert "memory: 256" in config.splitlines(), config
    return row["volid"]


def made_and_ended(pve, node):
    """Guests of both kinds are templates, linked clones, backups and come back from them."""
    missing = failed(pve, node.lxc.create(
        vmid=400, ostemplate="store:vztmpl/nope_1_amd64.tar.gz", rootfs="local-lvm:1",
    ))
    assert missing.endswith("volume 'store:vztmpl/nope_1_amd64.tar.gz' does not exist"), missing
    assert int(pve.cluster.nextid.get(vmid=400)) == 400, "a failed create leaves nothing"

    done(pve, node.lxc.create(
        vmid=400, hostname="gold", ostemplate=TEMPLATE, rootfs="local-lvm:1", memory=256,
        mp0="local-lvm:1,mp=/data,backup=1", unprivileged=1, onboot=1,
    ))
    archive = save(pve, node, 400)
    done(pve, node.lxc.create(
        vmid=401, ostemplate=archive, restore=1, unique=1, storage="tank", hostname="back",
    ))
    back = node.lxc(401).config.get()
    assert back["hostname"] == "back" and back["mp0"].startswith("tank:"), back
    done(pve, node.lxc(401).move_volume.post(volume="mp0", storage="local-lvm"))
    assert node.lxc(401).config.get()["unused0"].startswith("tank:")
    # The answer is null although a task works.
    assert node.lxc(400).template.post() is None
    while not node.lxc(400).config.get().get("template"):
        pass
    done(pve, node.lxc(400).clone.post(newid=402, hostname="linked"))
    assert int(node.lxc(402).config.get()["onboot"]) == 1, "a clone starts with the node, too"

    done(pve, node.qemu.create(
        vmid=410, name="gold", memory=256, scsi0="store:1,format=qcow2", ide2="store:cloudinit",
        ciuser="ops", net0="virtio,bridge=vmbr0",
    ))
    volume = node.qemu(410).config.get()["scsi0"].split(",")[0]
    done(pve, node.qemu.create(vmid=411, scsi0=f"local-lvm:0,import-from={volume}"))
    assert "size=1G" in node.qemu(411).config.get()["scsi0"]
    archive = save(pve, node, 410)
    done(pve, node.qemu.create(vmid=412, archive=archive, unique=1, name="back"))
    assert node.qemu(412).config.get()["name"] == "back"
    done(pve, node.qemu(410).template.post())
    done(pve, node.qemu(410).clone.post(newid=413, name="linked"))
    assert "base-410-disk-0.qcow2/413/" in node.qemu(413).config.get()["scsi0"]
    used = failed(pve, node.qemu(410).delete())
    assert used.endswith("is still in use by linked cloned"), used
    for guests, vmids in ((node.qemu, (413, 412, 411, 410)), (node.lxc, (402, 401, 400))):
        for vmid in vmids:
            done(pve, guests(vmid).delete(purge=1))
    kept = node.all.storage("store").content.get(content="backup")
    assert len(kept) == 2, "backups outlive their guests"


def permission_denied(reader, node_name, digest):
    """A token that may look is told so when it writes."""
    guest = reader.nodes(node_name).lxc(100)
    assert guest.config.get()["digest"] == digest, "a reader reads"
    error = refused(403, lambda: guest.config.put(cores=4))
    assert "Permission check failed" in str(error), error
    refused(403, lambda: guest.status.start.post())
    assert guest.config.get()["digest"] == digest, "nothing was written"


class Node:
    """A node with its name at hand."""

    def __init__(self, pve, name):
        self.name = name
        self.all = pve.nodes(name)
        self.lxc, self.qemu = self.all.lxc, self.all.qemu


def main(binary, release):
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    with simulated(binary, release, guests=10) as ready:
        pve = connect(ready, ready["token"])
        assert pve.version.get()["release"].startswith(release.split(".")[0])
        node = Node(pve, ready["node"])
        lists(pve, node)
        container(pve, node)
        machine(pve, node)
        made_and_ended(pve, node)
        digest = node.lxc(100).config.get()["digest"]
        permission_denied(connect(ready, READER), ready["node"], digest)
        wrong = connect(ready, READER[:-1] + "9")
        refused(401, wrong.version.get)
    print(
        f"proxmoxer against {release}: list, set, start, create, import, clone, link, snapshot, save, restore, move, "
        "destroy, denied"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
