"""Statements that are well formed and that no person meant to sign."""

import time

from formats import compact

# The namespace under which each kind is signed.
NAMESPACES = {
    "rotation": "evenkeel.rotate.v1", "recovery": "evenkeel.recover.v1", "acknowledgement": "evenkeel.acknowledge.v1",
    "approval": "evenkeel.op.v1",
}


def forged_statement(stage, kind):
    """The bytes of a statement for `pve1`: a rotation, a recovery, an acknowledgement or an approval."""
    host, zeros = stage.one.binding, "0" * 63 + "1"
    head = {"epoch": 1, "seq": 9, "sum": zeros, "trust_version": 1}
    now = int(time.time())
    window = {"not_before": now - 60, "expires_at": now + 3000}
    signer = [
        {"name": name, "role": role, "key": " ".join(stage.keys.line(key).split()[:2]), "valid_from": 0,
         "valid_until": 253402300799, "sk": "presence"}
        for name, role, key in (("thief", "operational", "thief"), ("vault", "recovery", "vault"))
    ]
    rotation = {"host": host, "version": 2, "previous": zeros, "signers": signer, "clock": "keep", **window, "reason": ""}
    return compact({
        "rotation": {"format": "evenkeel/rotate/v1", **rotation},
        "recovery": {"format": "evenkeel/recover/v1", **rotation},
        "acknowledgement": {
            "format": "evenkeel/acknowledge/v1", "host": host, "hub_id": stage.hub_id, "anchored": head,
            "found": {**head, "seq": 3}, "nonce": "6" * 32, **window, "trust_version": 1, "reason": "",
        },
        "approval": {
            "format": "evenkeel/statement/v1", "op": "destroy", "host": host, "guest": "qemu/103", "identity": zeros,
            "expect_digest": "0" * 40,
            "params": {"destroy-unreferenced-disks": "0", "final_backup": "", "not_in_backup": "", "purge": "0", "stop": "1",
                       "unprotect": "0"},
            "item": zeros, "nonce": "6" * 32, **window, "trust_version": 1, "reason": "",
        },
    }[kind])
