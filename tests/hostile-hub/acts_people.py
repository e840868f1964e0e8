"""Acts against people: the hub answers so that an operator signs, believes or shows what is not so."""

import base64
import contextlib
import json

from acts import act
from formats import compact, opened, payload_of, sealed, sha256, with_payload
from forgeries import NAMESPACES, forged_statement
from processes import demand
from proxy import Bend


def thiefs_key(stage):
    """The part of the thief's key that no other key has: what a screen must show, or must not."""
    return stage.keys.line("thief").split()[1]


def refused(stage, line, why, code=4, shows_key=False):
    """Runs a verb that must end without a signature and say why. It may show the thief's key only where the act says so."""
    signed = len(stage.thief.signed)
    told = stage.desk.run(line)
    demand(told.code == code, f"`{line}` ended with {told}")
    demand(told.says(why), f"`{line}` does not say `{why}`: {told}")
    demand(shows_key or not told.says(thiefs_key(stage)), f"`{line}` showed what nobody signed: {told}")
    demand(len(stage.thief.signed) == signed, f"`{line}` handed a signature in")
    return told


def push(stage, directory):
    return f"fleet push pve1 {directory} --key {stage.keys.path('author')} --yes --wait 0"


@contextlib.contextmanager
def newest_rewritten(stage):
    """Puts the thief's texts under the manifest that the author of the newest document signed."""
    generation, author = stage.rows.newest("pve1")
    with stage.rows.put_back():
        stage.rows.keep_document("pve1", generation, stage.stolen(), author, under=stage.files())
        yield generation


@act("Z01", "the newest document's texts are rewritten: push")
def _(stage):
    with newest_rewritten(stage):
        refused(stage, push(stage, stage.edited()), "are not those of its manifest")


@act("Z01", "the newest document's texts are rewritten: rollback")
def _(stage):
    with newest_rewritten(stage) as number:
        line = f"fleet rollback pve1 {number} --key {stage.keys.path('author')} --yes --wait 0"
        refused(stage, line, "are not those of its manifest")


@act("Z01", "the newest document's texts are rewritten: pull and diff")
def _(stage):
    with newest_rewritten(stage):
        refused(stage, "fleet pull pve1 --out pulled", "are not those of its manifest")
        refused(stage, f"fleet diff pve1 {stage.edited()}", "are not those of its manifest")
        demand(not (stage.desk.at / "pulled" / "qemu-101.toml").exists(), "pull wrote what nobody signed")


@act("Z01", "the hub's own check names what was rewritten")
def _(stage):
    with newest_rewritten(stage):
        told = stage.hub.machine.run("hub check --state hub")
        demand(told.code != 0 and told.says("qemu-101.toml"), f"`hub check` ended with {told}")


@act("Z01", "another document stands under the author's statement")
def _(stage):
    with stage.rows.put_back():
        generation, author = stage.rows.newest("pve1")
        stage.rows.keep_document("pve1", generation + 1, stage.stolen(), author)
        stage.rows.say_in_effect("pve1", generation + 1, stage.stolen())
        refused(stage, push(stage, stage.edited()), "was signed as another document")


@act("Z01", "a document of the thief's is said to be in effect: everything is shown")
def _(stage):
    number = stage.one.generation + 1
    with stage.rows.put_back():
        stage.rows.keep_document("pve1", number, stage.stolen())
        stage.rows.say_in_effect("pve1", number, stage.stolen())
        told = stage.desk.run(f"fleet diff pve1 {stage.edited()}")
        demand(told.code == 0 and told.says("the whole document is shown, not a difference"), f"a difference was shown: {told}")
        demand(told.says("nobody signed"), f"it does not say that nobody signed it: {told}")


def signs_nothing(stage, draft):
    """Runs `fleet sign` with nobody at a terminal: the thief's key must be on the screen, and nothing may be signed."""
    signed = len(stage.thief.signed)
    told = stage.desk.run(f"fleet sign pve1 {draft} --key {stage.keys.path('author')} --wait 0")
    demand(told.says(thiefs_key(stage)), f"the thief's key is not on the screen: {told}")
    demand(told.code == 64, f"nobody was asked: {told}")
    demand(len(stage.thief.signed) == signed, f"a signature was handed in: {told}")


@act("Z01", "a draft is rewritten before it is signed: the thief's line is shown")
def _(stage):
    draft = stage.draft("bob", stage.files(stage.edited()))
    with stage.rows.put_back():
        manifest = stage.rows.keep_texts(stage.stolen())
        stage.rows.write(("UPDATE drafts SET manifest = ? WHERE id = ?", (manifest, draft)))
        signs_nothing(stage, draft)


def is_marked(told):
    """Whether a screen says of what it shows that it is only the hub's word."""
    return any(told.says(words) for words in ("unverified", "as the hub says", "not verified"))


# Z02: what is signed for a name.

def listed(stage, payload, key="thief", namespace="evenkeel.pending.v1"):
    """Makes the hub list bytes among what waits on `pve1`, signed by a key; their name."""
    name = sha256(payload)
    stage.rows.list_item("pve1", name, sealed(payload, stage.keys.armour(payload, key, namespace)))
    return name


def sign(stage, name):
    return f"sign {name[:16]} --hub --key {stage.keys.path('alice')} --out signed.json --yes"


def _names_another(kind):
    @act("Z02", f"for the name of an item the hub gives {'an' if kind[0] == 'a' else 'a'} {kind}")
    def _(stage):
        with stage.rows.put_back():
            name = listed(stage, forged_statement(stage, kind), namespace=NAMESPACES[kind])
            refused(stage, sign(stage, name), "refused, nothing is signed")
            demand(not (stage.desk.at / "signed.json").exists(), "a file was written")


for _kind in NAMESPACES:
    _names_another(_kind)


@act("Z02", "an item's bytes name another guest, under the host's signature")
def _(stage):
    with stage.rows.put_back():
        item = stage.rows.item(stage.at_hub(102))
        payload = payload_of(item).replace(b"lxc/102", b"lxc/100")
        demand(payload != payload_of(item), "the item does not name its guest")
        stage.rows.list_item("pve1", sha256(payload), with_payload(item, payload))
        refused(stage, sign(stage, sha256(payload)), "sig_invalid")


@act("Z02", "an item of a host that nobody pinned, by a key of the thief's")
def _(stage):
    with stage.rows.put_back():
        line = sign(stage, listed(stage, stage.forged_item("pve9")))
        # As ssh does, the hint has the line that pins the host, after the words that say where to compare it.
        refused(stage, line, "is not known here", shows_key=True)
        demand(stage.desk.run(line).says("compare with"), "it does not say what to compare the key with")


@act("Z02", "an item of a pinned host, by a key of the thief's")
def _(stage):
    with stage.rows.put_back():
        refused(stage, sign(stage, listed(stage, stage.forged_item("pve1"))), "pinned with another key")


@act("Z02", "an item by a key of the thief's is looked at before it is signed")
def _(stage):
    with stage.rows.put_back():
        name = listed(stage, stage.forged_item("pve1"))
        told = stage.desk.run(f"fleet pending {name[:16]}")
        demand(told.code != 0 or is_marked(told), f"it is shown as if the host had signed it: {told}")
        told = stage.desk.run("fleet pending")
        demand(not told.says(name[:16]) or is_marked(told), f"it is listed as if the host had signed it: {told}")


@act("Z02", "another item of the same host is given for the name that was asked for")
def _(stage):
    asked, given = stage.at_hub(102), stage.at_hub(103)
    with stage.rows.put_back():
        stage.rows.list_item("pve1", asked, stage.rows.item(given))
        refused(stage, sign(stage, asked), "nothing that waits begins with", code=5)
        demand(not (stage.desk.at / "signed.json").exists(), "a file was written")


@act("Z02", "the beginning of a name that is too short to be one item's alone")
def _(stage):
    line = f"sign {stage.at_hub(102)[:12]} --hub --key {stage.keys.path('alice')} --out signed.json --yes"
    refused(stage, line, "at least 16 digits", code=64)


@act("Z02", "a rotation in a file, signed by `--yes` of a script")
def _(stage):
    stage.desk.write("rotation.json", forged_statement(stage, "rotation").decode())
    line = f"sign rotation.json --key {stage.keys.path('alice')} --out signed.json --yes"
    told = stage.desk.run(line)
    demand(told.code == 64 and told.says("nothing was signed"), f"`{line}` ended with {told}")


# Z03: the host that was named.

class AnotherHost(Bend):
    """Whatever is asked about `pve1` is answered about `pve2`."""

    def asked(self, _method, path):
        return path.replace("/v1/hosts/pve1", "/v1/hosts/pve2")


def _answers_another(verb):
    @act("Z03", f"what is asked about pve1 is answered about pve2: {verb.split()[1]}")
    def _(stage):
        stage.thief.bends.append(AnotherHost())
        line = push(stage, stage.edited()) if " push" in verb else verb.replace("DIR", stage.edited())
        refused(stage, line, "answered about another one")


for _verb in ("fleet push", "fleet status pve1", "fleet diff pve1 DIR", "fleet pull pve1 --out pulled"):
    _answers_another(_verb)


# Z05, Z07, Z21: what a screen shows, and what lies about.

@act("Z05", "one SSH key among many more than a screen has lines")
def _(stage):
    files = stage.files()
    keys = [f"ssh-ed25519 {base64.b64encode(bytes([number]) * 51).decode()} user{number}" for number in range(60)]
    keys.insert(57, stage.keys.line("thief"))
    files["qemu-101.toml"] += "\nsshkeys = " + json.dumps(keys) + "\n"
    signs_nothing(stage, stage.draft("bob", files))


@act("Z07", "a leftover file: a second signature replaces nothing")
def _(stage):
    first = sign(stage, stage.at_hub(102)).replace("signed.json", "left.json")
    stage.desk.must(first)
    before = stage.desk.read("left.json")
    told = stage.desk.run(sign(stage, stage.at_hub(103)).replace("signed.json", "left.json"))
    demand(told.code == 1 and stage.desk.read("left.json") == before, f"the file was replaced: {told}")


@act("Z07", "a leftover file that is handed in is shown from the bytes that were signed")
def _(stage):
    stage.desk.must(sign(stage, stage.at_hub(101)).replace("signed.json", "handed-in.json"))
    told = stage.desk.run("fleet submit handed-in.json --wait 0")
    # A script is not asked: the signature was made before, and the file was named.
    demand(told.says("qemu/101", "destroy"), f"it does not show what is handed in: {told}")
    stage.request(101)


@act("Z21", "escapes and turned lines in a guest's name, a message and an audit")
def _(stage):
    turned = "\u202eevil\x1b]0;owned\x07\x1b[2J"
    with stage.rows.put_back():
        stage.rows.write(
            ("UPDATE documents SET message = ?, pushed_by = ?", (turned, turned)),
            ("INSERT INTO audit (at, who, act, subject, detail) VALUES (1, ?, ?, 'pve1', ?)", (turned, turned, turned)),
            ("UPDATE guests SET name = ?", (turned,)),
        )
        for line in ("fleet history pve1", "fleet audit", "fleet status pve1", "fleet history pve1 -o json", "fleet audit -o json"):
            told = stage.desk.run(line)
            raw = [name for name in ("\x1b", "\x07", "\u202e") if told.says(name)]
            demand(not raw, f"`{line}` printed {raw!r}")
        stage.rows.write(("DELETE FROM audit WHERE subject = 'pve1' AND who = ?", (turned,)))


# Z09: what became of an approval.

class BentVerdict(Bend):
    """The hub tells of every approval that the guest was destroyed, with a verdict that `forge` makes of the host's own."""

    def __init__(self, forge):
        self.forge = forge

    def answered(self, _method, path, status, body):
        if not path.startswith("/v1/envelopes/") or status != 200:
            return status, body
        told = json.loads(body)
        verdict = told.get("verdict")
        if verdict:
            told["verdict"] = self.forge({**verdict, "code": "allowed_signed", "detail": "destroyed"})
        return status, compact(told)


def _bent_verdict(words, vmid, forge):
    @act("Z09", f"a verdict {words}")
    def _(stage):
        item = stage.at_hub(vmid)
        stage.thief.bends.append(BentVerdict(lambda verdict: forge(stage, verdict)))
        told = stage.desk.run(f"approve {item[:16]} --hub --key {stage.keys.path('alice')} --yes --wait 30")
        demand(told.code == 1 and told.out.startswith("unverified"), f"the hub's word was believed: {told}")


def _signed_by_thief(stage, verdict):
    said = {**opened(verdict["sealed"]), "code": "allowed_signed", "detail": "destroyed"}
    payload = compact(said)
    return {**verdict, "sealed": sealed(payload, stage.keys.armour(payload, "thief", "evenkeel.verdict.v1"))}


def _altered(_stage, verdict):
    payload = payload_of(verdict["sealed"])
    altered = payload.replace(b"pending_signature", b"allowed_signed")
    demand(altered != payload, "the host's verdict is another than the act alters")
    return {**verdict, "sealed": with_payload(verdict["sealed"], altered)}


def _unreported_state(line):
    @act("Z09", f"a state that no host reported: {line}")
    def _(stage):
        with stage.rows.put_back():
            stage.rows.say_in_effect("pve1", 77, stage.stolen())
            told = stage.desk.run(line)
            demand(not told.says("77") or is_marked(told), f"the hub's word is shown as the host's: {told}")


_unreported_state("fleet status pve1")
_unreported_state("fleet hosts")
_bent_verdict("without the host's signature", 100, lambda _stage, verdict: {**verdict, "sealed": None})
_bent_verdict("that the thief signed", 101, _signed_by_thief)
_bent_verdict("whose bytes were altered", 102, _altered)
