//! What must hold after the making of a guest was struck and an agent was started again: made once, over nobody, started
//! once and only as declared, and not lost.
//!
//! It knows nothing of the engine: it asks the node, the journal's files and the verbs.

use evenkeel_sim::RequestRecord;
use serde_json::{Value, json};

use crate::host::{Host, lines};
use crate::made::{Making, MakingScene, Meanwhile};
use crate::oracle::last_states;
use crate::scene::SEGMENT;

/// Judges, and says how it ended.
pub(crate) fn judge(scene: &mut MakingScene, meanwhile: Meanwhile) -> Option<&'static str> {
    let making = scene.making;
    let host = &mut scene.host;
    let before = host.node.requests();
    let begun = !last_states(&lines(&host.journal().join(SEGMENT))).is_empty();
    let made_before = executed(&before, making) > 0;
    let stranger = meanwhile == Meanwhile::Stranger && !made_before;
    let agent = host.restart();
    host.wait_for("the end of the making", |host| {
        let over = if stranger {
            host.status()?.agent?.last_pass.is_some()
        } else {
            is_running(host, making)
        };
        (over && host.is_at_rest()).then_some(())
    });
    // Whoever makes it twice does so in a later pass.
    host.come_to_rest();
    let looks = looks(host);
    host.wait_for("one more pass", |host| (self::looks(host) > looks).then_some(()));
    host.come_to_rest();
    host.terminate(agent);
    let records = host.oracle.verified_records(&host.journal())?;
    for (op, state) in last_states(&records) {
        // Whose guest it is that took the number only a person can say.
        let ends = state == "succeeded" || state == "failed" || (stranger && state == "unknown");
        expect(host, ends, || format!("{op} ends as {state}"));
    }
    let requests = host.node.requests();
    host.oracle.check_arrived(&requests);
    expect_others(host, &scene.others);
    if stranger {
        expect_untouched(host, making, &requests, begun);
        return Some("left to the stranger");
    }
    expect_made_once(host, making, &requests);
    expect_as_declared(host, making);
    Some(if made_before { "found and finished" } else { "made after the restart" })
}

/// One request made it, one started it, and nothing was written to it after that.
fn expect_made_once(host: &mut Host, making: Making, requests: &[RequestRecord]) {
    let made = executed(requests, making);
    expect(host, made == 1, || format!("it was made {made} times"));
    let mutating: Vec<&RequestRecord> = requests.iter().filter(|record| record.mutating).collect();
    for record in &mutating {
        let its = record.guest.is_some_and(|guest| guest.to_string() == making.guest());
        expect(host, its || making.is_made_by(record), || {
            format!("{} {} is none of the making's", record.method, record.path)
        });
    }
    let starts = |record: &&&RequestRecord| record.path.ends_with("/status/start");
    let started = mutating.iter().filter(starts).filter(|r| r.executed_ms.is_some()).count();
    expect(host, started == 1, || format!("it was started {started} times"));
    let last = mutating.last().is_some_and(|record| record.path.ends_with("/status/start"));
    expect(host, last, || "something followed its first start".to_owned());
}

/// Every declared key is in effect, and a plan finds nothing to do.
fn expect_as_declared(host: &mut Host, making: Making) {
    let (_, config) = config(host, making.guest());
    let mut wanted = vec![("cores", json!(3)), ("onboot", json!(1))];
    match making {
        Making::Container | Making::Clone | Making::Restore => wanted.push(("memory", json!(768))),
        Making::Machine => wanted.extend([("memory", json!("768")), ("ciuser", json!("ops"))]),
    }
    for (key, value) in wanted {
        expect(host, config[key] == value, || format!("{key} is {}, not {value}", config[key]));
    }
    let grown = making != Making::Machine || text(&config, "scsi0").contains("size=20G");
    expect(host, grown, || format!("scsi0 is {}", config["scsi0"]));
    let told = host.verb(&["plan", "-c", "agent.toml", "--detailed-exitcode"]);
    expect(host, told.code == Some(0), || format!("the plan is not empty at the end: {told:?}"));
}

/// The stranger's guest is no guest of ours: nothing was made over it, and what we had begun does not go on with it.
fn expect_untouched(host: &mut Host, making: Making, requests: &[RequestRecord], begun: bool) {
    let made = executed(requests, making);
    expect(host, made == 0, || format!("a guest was made over the stranger's, {made} times"));
    let touched = requests.iter().filter(|record| {
        record.mutating && record.guest.is_some_and(|guest| guest.to_string() == making.guest())
    });
    let touched: Vec<&str> = touched.map(|record| &*record.path).collect();
    expect(host, !begun || touched.is_empty(), || format!("the stranger was sent {touched:?}"));
}

/// The guests that were there are as they were.
fn expect_others(host: &mut Host, before: &[(String, Value)]) {
    for ((guest, before), (_, after)) in before.iter().zip(others(host)) {
        expect(host, *before == after, || format!("{guest} was {before} and is {after}"));
    }
}

/// The files of the guests a host begins with.
pub(crate) fn others(host: &Host) -> Vec<(String, Value)> {
    let guests = ["lxc/100", "qemu/101", "lxc/102", "qemu/103"];
    guests.map(|guest| (guest.to_owned(), config(host, guest).1)).into()
}

/// Whether the guest runs.
pub(crate) fn is_running(host: &Host, making: Making) -> bool {
    let path = format!("/api2/json/nodes/pve1/{}/status/current", making.guest());
    host.node.ask("GET", &path, "").1["status"] == "running"
}

fn config(host: &Host, guest: &str) -> (u16, Value) {
    host.node.ask("GET", &format!("/api2/json/nodes/pve1/{guest}/config"), "")
}

fn text<'a>(config: &'a Value, key: &str) -> &'a str {
    config[key].as_str().unwrap_or_default()
}

/// How often the making itself was carried out.
fn executed(requests: &[RequestRecord], making: Making) -> usize {
    let done = |record: &&RequestRecord| making.is_made_by(record) && record.executed_ms.is_some();
    requests.iter().filter(done).count()
}

/// How often an agent has looked at the whole node.
fn looks(host: &Host) -> usize {
    let lists =
        |record: &&RequestRecord| record.path == "/api2/json/nodes/pve1/qemu" && !record.mutating;
    host.node.requests().iter().filter(lists).count()
}

fn expect(host: &mut Host, holds: bool, otherwise: impl FnOnce() -> String) {
    if !holds {
        host.oracle.violation(otherwise());
    }
}
