"""Formats that a thief writes without any of evenkeel's code: docs/formats/approval.md and docs/formats/hub.md."""

import base64
import hashlib
import json


def compact(value):
    """JSON without blanks, as bytes."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def sha256(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


def manifest(files):
    """The bytes whose hash an author signs."""
    listed = [{"name": name, "sha256": sha256(text), "bytes": len(text.encode())} for name, text in sorted(files.items())]
    return compact({"format": "evenkeel/manifest/v1", "files": listed})


def sealed(payload, *armours):
    """An envelope: exact bytes, and signatures over them."""
    return {"payload": base64.b64encode(payload).decode(), "signatures": list(armours)}


def payload_of(envelope):
    """The exact bytes that were signed."""
    return base64.b64decode(envelope["payload"])


def opened(envelope):
    """What the signed bytes say."""
    return json.loads(payload_of(envelope))


def with_payload(envelope, payload):
    """Other bytes under the same signatures."""
    return {**envelope, "payload": base64.b64encode(payload).decode()}


def joined(first, *others):
    """One envelope with the signatures of several over the bytes of the first."""
    return {**first, "signatures": first["signatures"] + [armour for other in others for armour in other["signatures"]]}
