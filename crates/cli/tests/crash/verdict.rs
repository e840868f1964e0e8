//! What must hold after a signed act was struck, the agent started again, and the envelope delivered once more.
//!
//! It knows nothing of the engine: it asks the node, the journal's files and the verbs.

use evenkeel_core::sign::PLANNED_LINKS_MAX;
use evenkeel_sim::RequestRecord;
use serde_json::Value;

use crate::host::{Agent, Host, Told, lines};
use crate::oracle::last_states;
use crate::scene::SEGMENT;
use crate::signed::{Act, ENVELOPE, OUTSTANDING, Stage, Struck, sign};

/// Judges, and says how the act ended.
pub(crate) fn judge(stage: &mut Stage, struck: &Struck) -> Option<&'static str> {
    let act = stage.act;
    let host = &mut stage.host;
    if act.is_of_signers() {
        judge_signers(host, act, struck)
    } else {
        judge_act(host, act, struck)
    }
}

/// A destroy or a rollback: sent at most once, ended, and taken once more only if it was never begun.
fn judge_act(host: &mut Host, act: Act, struck: &Struck) -> Option<&'static str> {
    let agent = host.restart();
    host.come_to_rest();
    expect_guest(host, act);
    let begun = signed_ops(&lines(&host.journal().join(SEGMENT)));
    let sent = count(&host.node.requests(), act);
    let again = host.deliver(&agent, ENVELOPE, &crate::hook::Hook::None);
    host.come_to_rest();
    expect_guest(host, act);
    host.terminate(agent);
    let records = host.oracle.verified_records(&host.journal())?;
    let requests = host.node.requests();
    host.oracle.check_arrived(&requests);
    let ops = signed_ops(&records);
    let [op] = ops.as_slice() else {
        host.oracle.violation(format!("one signed act is {} operations: {ops:?}", ops.len()));
        return None;
    };
    let state = last_states(&records).remove(op).unwrap_or_default();
    expect_once(host, act, &requests);
    match begun.as_slice() {
        [] => expect(host, again.field("result") == "succeeded", || {
            format!("it was never begun, and the second delivery comes to {again:?}")
        }),
        [first] => {
            expect(host, again.field("result") == "replay" && again.field("op") == *first, || {
                format!("{first} was begun, and the second delivery is no replay of it: {again:?}")
            });
            expect(host, again.field("first") == state, || {
                format!("{first} is {state}, and the second delivery is told {again:?}")
            });
            expect(host, count(&requests, act) == sent, || {
                "the second delivery sent something".to_owned()
            });
        }
        more => host.oracle.violation(format!("one signed act was begun {} times", more.len())),
    }
    expect(host, struck.told.code != Some(0) || state == "succeeded", || {
        format!("it was answered that it is done, and it is {state}")
    });
    let executed =
        requests.iter().any(|record| is_act(record, act) && record.executed_ms.is_some());
    let fits = match &*state {
        "succeeded" => executed,
        "failed" => !executed,
        "unknown" => true,
        _ => false,
    };
    expect(host, fits, || format!("it is {state}; that the node carried it out is {executed}"));
    Some(how(&state, begun.is_empty()))
}

fn how(state: &str, by_second_delivery: bool) -> &'static str {
    match (state, by_second_delivery) {
        ("succeeded", false) => "succeeded",
        ("succeeded", true) => "succeeded by the second delivery",
        ("failed", _) => "failed",
        ("unknown", _) => "unknown",
        (_, _) => "open",
    }
}

/// Every request of the act at most once; the configuration is written to unprotect and to protect again.
fn expect_once(host: &mut Host, act: Act, requests: &[RequestRecord]) {
    let allowed = |record: &RequestRecord| if record.path.ends_with("/config") { 2 } else { 1 };
    for record in requests.iter().filter(|record| record.mutating) {
        let same =
            |other: &&RequestRecord| (&other.method, &other.path) == (&record.method, &record.path);
        let times = requests.iter().filter(same).count();
        expect(host, times <= allowed(record), || {
            format!("{} {} arrived {times} times", record.method, record.path)
        });
        let its = record.guest.is_some_and(|guest| guest.to_string() == act.guest());
        expect(host, its, || format!("{} {} is none of the act's", record.method, record.path));
    }
}

/// A guest that was to be destroyed is gone, or is protected as it was; unless nobody knows yet.
fn expect_guest(host: &mut Host, act: Act) {
    if matches!(act, Act::Rollback | Act::Template) {
        return;
    }
    host.wait_for("a guest that is gone or protected again", |host| {
        let (status, config) = config(host, act);
        let unknown = last_states(&lines(&host.journal().join(SEGMENT)));
        let doubted = unknown.values().any(|state| state == "unknown");
        (status != 200 || config["protection"] == 1 || doubted).then_some(())
    });
}

fn config(host: &Host, act: Act) -> (u16, Value) {
    host.node.ask("GET", &format!("/api2/json/nodes/pve1/{}/config", act.guest()), "")
}

/// The signers are the old or the new ones, whole; once new they stay so, and what was outstanding is void.
fn judge_signers(host: &mut Host, act: Act, struck: &Struck) -> Option<&'static str> {
    let mut agent = host.restart();
    host.come_to_rest();
    let was_new = rotations(&lines(&host.journal().join(SEGMENT))) == 1;
    let again = host.deliver(&agent, ENVELOPE, &crate::hook::Hook::None);
    let taken_twice = |again: &Told| again.code == Some(0);
    expect(host, taken_twice(&again) != was_new, || {
        format!("that the new signers were durable is {was_new}, and delivered again: {again:?}")
    });
    expect(host, struck.told.code != Some(0) || was_new, || {
        "it was answered that the signers are new, and they are the old ones".to_owned()
    });
    host.terminate(agent);
    agent = host.restart();
    let third = host.deliver(&agent, ENVELOPE, &crate::hook::Hook::None);
    // A planned change names a version that is past; whoever recovers must have the role, which bob has not.
    let refusal = if act == Act::Rotation { "trust_version" } else { "role_denied" };
    expect(host, third.stderr.contains(refusal), || {
        format!("delivered for the third time: {third:?}")
    });
    let old = host.deliver(&agent, OUTSTANDING, &crate::hook::Hook::None);
    expect(host, old.code == Some(4) && old.stderr.contains("key_revoked"), || {
        format!("what alice signed is not void: {old:?}")
    });
    expect(host, changes(host) == 0, || "something was sent for what is void".to_owned());
    expect_new_signer(host, &agent, act);
    host.terminate(agent);
    let records = host.oracle.verified_records(&host.journal())?;
    let count = rotations(&records);
    expect(host, count == 1, || format!("the journal has {count} changes of the signers"));
    let requests = host.node.requests();
    host.oracle.check_arrived(&requests);
    Some(if was_new { "the new signers" } else { "the old signers until the second delivery" })
}

/// The new signer can sign, once.
fn expect_new_signer(host: &mut Host, agent: &Agent, act: Act) {
    sign(host, "bob", "by-bob.json", new_version(act));
    let told = host.deliver(agent, "by-bob.json", &crate::hook::Hook::None);
    expect(host, told.field("result") == "succeeded", || format!("bob cannot sign: {told:?}"));
    host.come_to_rest();
    expect(host, config(host, act).0 != 200, || "what bob signed did not happen".to_owned());
    expect(host, changes(host) == 1, || "what bob signed is not one request".to_owned());
}

fn expect(host: &mut Host, holds: bool, otherwise: impl FnOnce() -> String) {
    if !holds {
        host.oracle.violation(otherwise());
    }
}

/// The operations that spent a signature, oldest first.
fn signed_ops(records: &[Value]) -> Vec<String> {
    let is_signed = |record: &&Value| {
        record["state"] == "started" && record["key"].as_str().is_some_and(|key| !key.is_empty())
    };
    let mut ops: Vec<String> = Vec::new();
    for op in records.iter().filter(is_signed).filter_map(|record| record["op"].as_str()) {
        if !ops.iter().any(|known| known == op) {
            ops.push(op.to_owned());
        }
    }
    ops
}

/// The version of the new signers. A recovery leaves room for every planned change there can be.
fn new_version(act: Act) -> u64 {
    let first = 1;
    if act == Act::Recovery { first + PLANNED_LINKS_MAX as u64 + 1 } else { first + 1 }
}

fn rotations(records: &[Value]) -> usize {
    let is_change = |record: &&Value| record["type"] == "trust" && record["key"] != "base";
    records.iter().filter(is_change).count()
}

/// How often the act itself arrived.
fn count(requests: &[RequestRecord], act: Act) -> usize {
    requests.iter().filter(|record| is_act(record, act)).count()
}

/// How many requests for a change arrived.
fn changes(host: &Host) -> usize {
    host.node.requests().iter().filter(|record| record.mutating).count()
}

fn is_act(record: &RequestRecord, act: Act) -> bool {
    match act {
        Act::DestroyContainer | Act::DestroyMachine | Act::Rotation | Act::Recovery => {
            record.method == "DELETE"
        }
        Act::Rollback => record.method == "POST" && record.path.ends_with("/rollback"),
        Act::Template => record.method == "POST" && record.path.ends_with("/template"),
    }
}
