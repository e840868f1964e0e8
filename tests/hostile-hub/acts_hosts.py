"""Acts against hosts: the hub serves so that a host does what no author and no operator signed."""

import contextlib
import json
import signal
import threading
import time

from acts import act
from forgeries import forged_statement
from formats import joined, manifest, opened, payload_of, sealed, sha256, with_payload
from processes import demand, until
from proxy import Bend


def must_refuse(stage, host, number, document, *codes):
    """Offers a document that the host must refuse, by one of these reason codes."""
    code = stage.offered(host, number, document)
    demand(code in codes, f"the host answered `{code}`, not `{' or '.join(codes)}`")


def must_not_act(stage, host, envelope, *codes):
    """Delivers an envelope whose verdict must be one of these reason codes."""
    code = stage.judged(host, envelope)
    demand(code in codes, f"the host answered `{code}`, not `{' or '.join(codes)}`")


# Z01: documents that the author of `pve1` did not sign, or not so.

def _refused_document(words, code, make):
    """An act that offers `pve1` one document, which `make` makes of the stage, a number and what is in effect."""

    @act("Z01", words)
    def _(stage):
        number = stage.next_number(stage.one)
        must_refuse(stage, stage.one, number, make(stage, number, stage.in_effect(stage.one)), code)


def stolen_document(stage, number, base, **how):
    """The thief's files for `pve1`, with a statement about exactly these."""
    files = stage.stolen()
    return stage.document(stage.one, number, files, stage.statement(stage.one, number, files, base, **how))


def _other_texts(stage, number, base):
    statement = stage.statement(stage.one, number, stage.files(), base)
    return stage.document(stage.one, number, stage.files(), statement, texts=stage.stolen())


def _other_manifest(stage, number, base):
    return stage.document(stage.one, number, stage.stolen(), stage.statement(stage.one, number, stage.files(), base))


def _other_number(stage, number, base):
    return stage.document(stage.one, number, stage.stolen(), stage.statement(stage.one, number + 1, stage.stolen(), base))


def _other_base(stage, number, base):
    return stolen_document(stage, number, {**base, "manifest": sha256(manifest(stage.stolen()))})


_refused_document("a document that nobody signed", "policy", lambda s, n, _base: s.document(s.one, n, s.stolen()))
_refused_document("signed by a key of the thief's", "unknown_signer", lambda s, n, base: stolen_document(s, n, base, key="thief"))
_refused_document(
    "signed by an operator, who is no author", "role_denied", lambda s, n, base: stolen_document(s, n, base, key="alice")
)
_refused_document("other texts under the manifest that an author signed", "binding_mismatch", _other_texts)
_refused_document("another manifest beside the author's statement", "binding_mismatch", _other_manifest)
_refused_document("the author's statement has another number", "binding_mismatch", _other_number)
_refused_document(
    "signed for another host", "host_mismatch", lambda s, n, base: stolen_document(s, n, base, binding=s.two.binding)
)
_refused_document("signed for another hub", "binding_mismatch", lambda s, n, base: stolen_document(s, n, base, hub_id="f" * 32))
_refused_document("signed over a document that is not in effect", "stale", _other_base)
_refused_document("signed as the host's first document", "stale", lambda s, n, _base: stolen_document(s, n, "none"))
_refused_document(
    "signed in the old format, which names no base", "policy", lambda s, n, base: stolen_document(s, n, base, version=1)
)


class KeepsPush(Bend):
    """The hub tells whoever pushes that it cannot take documents now. The thief keeps what was signed."""

    def instead(self, method, path):
        if method == "POST" and path == "/v1/hosts/pve1/documents":
            return 503, b'{"type":"about:blank","title":"no","status":503,"detail":"later","code":"unavailable"}'
        return None


@act("Z04", "a push that the hub said it refused is served after a newer one")
def _(stage):
    host = stage.one
    stage.thief.bends.append(KeepsPush())
    directory = stage.edited("kept", "memory = 256", "memory = 300")
    told = stage.desk.run(f"fleet push pve1 {directory} --key {stage.keys.path('author')} --yes --wait 0")
    demand(told.code != 0, f"a push that the hub refused ended with {told}")
    kept = stage.thief.signed[-1]
    stage.thief.rest()
    # A number that the host refused before stands in the way of lower ones for ten minutes; a start forgets it.
    host.restart()
    stage.push("pve1", stage.edited("newer", "line one", "line 1"))
    until("the newer push is done", lambda: "line 1" in host.node.guests()["lxc/100"]["description"])
    stage.look()
    files = {entry["name"]: entry["text"] for entry in kept["files"]}
    number = opened(kept["author"])["generation"]
    must_refuse(stage, host, number, stage.document(host, number, files, kept["author"]), "generation_rollback")
    later = stage.next_number(host)
    must_refuse(stage, host, later, stage.document(host, later, files, kept["author"]), "binding_mismatch")


# Z06: what an unsigned document may set, where root takes such documents: of each key its file, and the line.

OPENS = {
    "sshkeys": ("qemu-101.toml", lambda stage: f"sshkeys = {json.dumps([stage.keys.line('thief')])}"),
    "nameserver": ("lxc-100.toml", lambda _stage: 'nameserver = "203.0.113.9"'),
    "entrypoint": ("lxc-100.toml", lambda _stage: 'entrypoint = "/bin/evil"'),
    "cmode": ("lxc-100.toml", lambda _stage: 'cmode = "shell"'),
    "serial0": ("qemu-101.toml", lambda _stage: 'serial0 = "socket"'),
    "smbios1": ("qemu-101.toml", lambda _stage: 'smbios1 = { serial = "ds=nocloud;s=http://203.0.113.9/" }'),
    "hookscript": ("qemu-101.toml", lambda _stage: 'hookscript = "local:snippets/evil.sh"'),
}


def lets_in(stage, files):
    """Offers `pve2` an unsigned document, which root lets in; what a pass with it says."""
    number = stage.next_number(stage.two)
    code = stage.offered(stage.two, number, stage.document(stage.two, number, files))
    demand(code == "taken", f"the host answered `{code}`")
    stage.let_in(stage.two)
    return stage.two.apply()


def _opens(key, name, line):
    @act("Z06", f"an unsigned document sets `{key}`")
    def _(stage):
        text = stage.files("pve2")[name]
        lines = [kept for kept in text.splitlines() if not kept.startswith(f"{key} =")]
        told = lets_in(stage, stage.files("pve2", {name: "\n".join([*lines, line(stage)]) + "\n"}))
        # `hookscript` is for root@pam alone, whoever signs.
        why = "only root@pam can set" if key == "hookscript" else "nobody signed the hub's document"
        demand(told.code in (1, 4) and told.says(key, why), f"the pass does not say why `{key}` is not set: {told}")


for _key, (_name, _line) in OPENS.items():
    _opens(_key, _name, _line)


@act("Z06", "an unsigned document declares guests absent")
def _(stage):
    gone = {
        "lxc-100.toml": '[guest.100]\nkind = "lxc"\nstate = "absent"\n',
        "qemu-101.toml": '[guest.101]\nkind = "qemu"\nstate = "absent"\n',
    }
    told = lets_in(stage, stage.files("pve2", gone))
    demand(told.code in (4, 6) and told.says("held"), f"the pass does not say that the guests stay: {told}")


# Z08, and what else an envelope may be.

def _second_key(words, code, make):
    """An act in which one of two keys signed; `make` makes the envelope of the stage and that approval."""

    @act("Z08", words)
    def _(stage):
        stage.request(102)
        must_not_act(stage, stage.one, make(stage, stage.approval(102, "alice")), code)


_second_key("one of two keys", "pending_signature", lambda _stage, first: first)
_second_key("one of two keys, twice in one envelope", "envelope", lambda _stage, first: joined(first, first))
_second_key(
    "one of two keys, and a key of the thief's", "unknown_signer", lambda s, first: joined(first, s.resealed(first, "thief"))
)
_second_key("one of two keys, and the author's", "role_denied", lambda s, first: joined(first, s.resealed(first, "author")))
_second_key("one of two keys, and the recovery key's", "role_denied", lambda s, first: joined(first, s.resealed(first, "vault")))


@act("Z08", "one of two keys, in one envelope after another")
def _(stage):
    stage.request(102)
    first = stage.approval(102, "alice")
    must_not_act(stage, stage.one, first, "pending_signature")
    must_not_act(stage, stage.one, first, "pending_signature")


@act("Z08", "two keys over two statements of one item")
def _(stage):
    stage.request(102)
    first, second = stage.approval(102, "alice"), stage.approval(102, "bob")
    must_not_act(stage, stage.one, first, "pending_signature")
    must_not_act(stage, stage.one, second, "binding_mismatch")


@act("P13", "an approval of another host's item")
def _(stage):
    stage.request(103)
    must_not_act(stage, stage.two, stage.approval(103, "alice"), "host_mismatch")


@act("V29", "an approval whose bytes name another guest, under the operator's signature")
def _(stage):
    stage.request(103)
    envelope = stage.approval(103, "alice")
    payload = payload_of(envelope).replace(b"qemu/103", b"qemu/101")
    demand(payload != payload_of(envelope), "the approval does not name its guest")
    must_not_act(stage, stage.one, with_payload(envelope, payload), "sig_invalid")


@act("T12", "a rotation that the thief signed")
def _(stage):
    payload = forged_statement(stage, "rotation")
    envelope = sealed(payload, stage.keys.armour(payload, "thief", "evenkeel.rotate.v1"))
    must_not_act(stage, stage.one, envelope, "unknown_signer")


# Z10: the anchor, without which `pve1` does no signed work.

@contextlib.contextmanager
def kept_down(stage):
    """The agent of `pve1` is killed and the thief writes rows; afterwards they are put back, and the agent starts again."""
    host = stage.one
    stage.request(103)
    envelope = stage.approval(103, "alice")
    host.stop(signal.SIGKILL)
    try:
        with stage.rows.put_back():
            yield
            host.start()
            must_not_act(stage, host, envelope, "journal_rollback")
            stage.still()
            host.stop()
    finally:
        stage.thief.rest()
        host.restart()


def anchor(stage):
    """The row of the anchor of `pve1`: its columns by their names."""
    return stage.rows.read("SELECT head, epoch, seq, sum FROM anchors WHERE host = 'pve1'")[0]


def put_anchor(stage, row):
    stage.rows.write(("UPDATE anchors SET head = ?, epoch = ?, seq = ?, sum = ? WHERE host = 'pve1'", row))


@act("Z10", "the anchor is deleted")
def _(stage):
    with kept_down(stage):
        stage.rows.write(("DELETE FROM anchors WHERE host = 'pve1'", ()))


@act("Z10", "the anchor is an older head, which the host signed itself")
def _(stage):
    older = anchor(stage)
    # The host knows that the hub keeps a head when it has told the next one.
    for _ in range(2):
        last = anchor(stage)
        stage.request(103)
        until("the hub has a newer anchor", lambda last=last: anchor(stage)[2] > last[2])
    with kept_down(stage):
        put_anchor(stage, older)


@act("Z10", "the anchor is a head that the thief signed")
def _(stage):
    head, epoch, seq, sum_of_head = anchor(stage)
    with kept_down(stage):
        payload = payload_of(json.loads(head))
        forged = sealed(payload, stage.keys.armour(payload, "thief", "evenkeel.head.v1"))
        put_anchor(stage, (json.dumps(forged), epoch, seq, sum_of_head))


def create_guest(host, guest, vmid):
    """Somebody makes a guest by hand that no document declares, each time with the same card; waits until it is whole."""
    card = "virtio=BC:24:11:00:01:05,bridge=vmbr0"
    host.node.call("POST", f"/nodes/{host.node.name}/qemu", vmid=vmid, name=f"vm{vmid}", memory=512, net0=card)
    until(f"{guest} is made", lambda: "lock" not in host.node.guests().get(guest, {"lock": "not there yet"}))


@act("T04", "an approval that was done once, delivered again over a guest made under the same number")
def _(stage):
    host, guest, vmid = stage.one, "qemu/105", 105
    create_guest(host, guest, vmid)
    stage.request(vmid)
    envelope = stage.approval(vmid, "alice")
    # The one destroy that an operator wants: it shows that what the thief delivers is done if it was signed.
    demand(stage.judged(host, envelope) == "allowed_signed", "the approval itself was not taken")
    until(f"{guest} is gone", lambda: guest not in host.node.guests())
    create_guest(host, guest, vmid)
    stage.look()
    must_not_act(stage, host, envelope, "replay")
    host.apply()


# Z11: a document that takes long to read.

def unknown_keys(lines):
    """Four desired files of unknown keys."""
    return {f"k{part}.toml": "".join(f"k{part}_{line} = 1\n" for line in range(lines // 4)) for part in range(4)}


def slowest_until(ended, request):
    """Makes a request again and again until something has ended; how long the slowest of them took."""
    slowest, deadline = 0.0, time.monotonic() + 150
    while not ended():
        demand(time.monotonic() < deadline, "the document was never judged")
        began = time.monotonic()
        request()
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.05)
    demand(slowest < 5, f"another request was answered after {slowest:.1f} s")
    return f"other requests within {slowest:.2f} s"


def _long_document(lines, long=False):
    @act("Z11", f"a host is served a document of {lines} unknown keys", long)
    def _(stage):
        host, number = stage.two, stage.next_number(stage.two)
        stage.thief.offer(host.credential, number, stage.document(host, number, unknown_keys(lines)))
        seen = slowest_until(lambda: stage.thief.refusal_of(number), host.status)
        refused = stage.thief.refusal_of(number)
        demand(refused["code"] == "payload", f"the host answered {refused['code']}")
        demand(len(json.dumps(refused)) < 100_000, "the mistakes that are told have no end")
        return seen

    @act("Z11", f"a hub is handed a document of {lines} unknown keys with a stolen token", long)
    def _(stage):
        token, answers = stage.login("bob"), []
        files = [{"name": name, "text": text} for name, text in unknown_keys(lines).items()]

        newest = {"if-match": f'"{stage.rows.newest("pve2")[0]}"'}

        def pushes():
            answers.append(stage.ask("POST", "/v1/hosts/pve2/documents", token, {"files": files, "message": ""}, newest))

        pushing = threading.Thread(target=pushes)
        pushing.start()
        seen = slowest_until(lambda: not pushing.is_alive(), lambda: stage.ask("GET", "/v1/hosts", token))
        status, text = answers[0]
        demand(status == 422 and "k0_0" in text, f"it was answered {status}: {text[:200]}")
        demand(len(text) < 100_000, "the mistakes that are told have no end")
        return seen


_long_document(40_000)
_long_document(232_000, long=True)
