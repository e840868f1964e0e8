"""Acts with tokens and sessions that a thief took from people: they must end, and removed accounts must stay removed."""

import json
import threading

from acts import act
from processes import demand


@act("Z12", "a stolen token, after its owner ended all logins")
def _(stage):
    token = stage.login("bob")
    demand(stage.ask("GET", "/v1/hosts", token)[0] == 200, "the token never worked")
    stage.person("bob").must("fleet logout --all")
    status, _ = stage.ask("GET", "/v1/hosts", token)
    demand(status == 401, f"it still opens the hub: {status}")


@act("Z12", "a stolen session makes itself a code")
def _(stage):
    token = stage.login("bob")
    cookie, csrf = stage.session(token)
    demand(stage.ask("GET", "/v1/hosts", headers={"cookie": cookie})[0] == 200, "the session never worked")
    headers = {"cookie": cookie, "evenkeel-csrf": csrf}
    status, body = stage.ask("POST", "/v1/console-codes", None, {"browser": "aaaa-aaaa"}, headers)
    demand(status in (401, 403), f"a session made a code: {status} {body[:200]}")
    stage.person("bob").must("fleet logout")
    status, _ = stage.ask("GET", "/v1/hosts", None, headers={"cookie": cookie})
    demand(status == 401, f"the session outlives its token: {status}")


@act("Z13", "the token of an account that was removed, when the name is used again")
def _(stage):
    token = stage.login("bob")
    demand(stage.ask("GET", "/v1/hosts", token)[0] == 200, "the token never worked")
    stage.hub.verb("account remove bob")
    stage.hub.verb(f"account add bob --role editor --key {stage.keys.path('bob')}.pub")
    status, _ = stage.ask("GET", "/v1/hosts", token)
    demand(status == 401, f"it opens the hub for a person of the same name: {status}")


@act("Z14", "two admins remove each other in one moment")
def _(stage):
    tokens = {}
    for name in ("ann", "ben"):
        stage.hub.verb(f"account add {name} --role admin --key {stage.keys.make(name)}.pub")
        tokens[name] = stage.login(name)
    stage.hub.verb("account change alice --role viewer --scope *")
    answers = {}

    def removes(who, whom):
        answers[who] = stage.ask("DELETE", f"/v1/accounts/{whom}", tokens[who])[0]

    both = [threading.Thread(target=removes, args=pair) for pair in (("ann", "ben"), ("ben", "ann"))]
    for one in both:
        one.start()
    for one in both:
        one.join()
    left = stage.rows.read("SELECT name FROM accounts WHERE role = 'admin' AND scope = '*'")
    stage.hub.verb("account change alice --role admin --scope *")
    for (name,) in left:
        stage.hub.verb(f"account remove {name}")
    demand(len(left) == 1, f"{len(left)} admins were left, after {json.dumps(answers)}")


@act("Z12", "a viewer hands in, pushes, enrols, makes accounts and removes hosts")
def _(stage):
    stage.hub.verb(f"account add vic --role viewer --key {stage.keys.make('vic')}.pub")
    token = stage.login("vic")
    demand("pve1" in stage.ask("GET", "/v1/hosts", token)[1], "the viewer sees no host, so nothing is refused for the role")
    for method, path, body in (
        ("POST", "/v1/envelopes", {"envelope": {"payload": "", "signatures": []}}),
        ("POST", "/v1/hosts/pve1/documents", {"files": [], "message": ""}),
        ("POST", "/v1/enrol-tokens", {"host": "pve1", "replace": True}),
        ("POST", "/v1/accounts", {"name": "eve", "role": "admin", "scope": "*", "key": stage.keys.line("thief")}),
        ("DELETE", "/v1/hosts/pve1", None),
    ):
        status, body = stage.ask(method, path, token, body)
        demand(status == 403, f"{method} {path} was answered {status}: {body[:200]}")
    stage.hub.verb("account remove vic")


@act("all", "one more pass of both hosts after everything that was done")
def _(stage):
    for host in stage.hosts.values():
        host.apply()
