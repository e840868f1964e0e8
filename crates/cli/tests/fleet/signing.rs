//! What a stolen hub can have signed: nothing but an item that a pinned host raised and a person named.

use evenkeel_core::fleet::{AcknowledgeStatement, JournalHead};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{
    ClockChange, Nonce, PayloadHash, PendingItem, Role, Rotation, RotationAuthority, Signer,
    SkPolicy, TrustHash, TrustVersion, Validity, Window,
};

use std::process::Stdio;

use evenkeel_core::fleet::{EnvelopeVerdict, HostReport, VerdictStatement};
use evenkeel_core::sign::{Envelope, Statement};

use super::desk::Desk;
use super::verbs::Fleet;

fn window() -> Window {
    let now = jiff::Timestamp::now().as_second().unsigned_abs();
    Window::new(UnixSeconds(now - 60), UnixSeconds(now + 3000)).unwrap()
}

fn signer(desk: &Desk, name: &str, role: Role) -> Signer {
    Signer {
        name: name.parse().unwrap(),
        role,
        key: desk.key(name),
        validity: Validity::ALWAYS,
        sk: SkPolicy::Presence,
    }
}

/// A change of the host's signers after which the key `author` is all there is.
fn rotation(fleet: &Fleet, authority: RotationAuthority) -> Vec<u8> {
    let desk = &fleet.desk;
    let rotation = Rotation {
        authority,
        host: fleet.host(),
        version: TrustVersion(2),
        previous: TrustHash([9; 32]),
        signers: vec![
            signer(desk, "author", Role::Operational),
            signer(desk, "host", Role::Recovery),
        ],
        clock: ClockChange::Keep,
        approve: None,
        window: window(),
        reason: String::new(),
    };
    rotation.to_bytes().unwrap()
}

fn acknowledgement(fleet: &Fleet) -> Vec<u8> {
    let head = |seq| JournalHead {
        epoch: 1,
        seq,
        sum: PayloadHash([7; 32]),
        trust_version: TrustVersion(1),
    };
    let statement = AcknowledgeStatement {
        host: fleet.host(),
        hub_id: "0123456789abcdef0123456789abcdef".parse().unwrap(),
        anchored: head(9),
        found: head(3),
        nonce: Nonce::from_random([6; 16]).unwrap(),
        window: window(),
        trust_version: TrustVersion(1),
        reason: String::new(),
    };
    statement.to_bytes().unwrap()
}

#[test]
fn z02_whatever_a_hub_gives_for_the_name_of_an_item_only_an_item_is_signed() {
    let fleet = Fleet::new();
    fleet.pin_host();
    let item = fleet.item();
    let approval = item.statement(
        PendingItem::id(&item.to_bytes().unwrap()),
        Nonce::from_random([8; 16]).unwrap(),
        window(),
        "",
    );
    for (bytes, namespace, what) in [
        (rotation(&fleet, RotationAuthority::Planned), "evenkeel.rotate.v1", "a rotation of"),
        (rotation(&fleet, RotationAuthority::Recovery), "evenkeel.recover.v1", "a recovery of"),
        (acknowledgement(&fleet), "evenkeel.acknowledge.v1", "an acknowledgement of"),
        (approval.to_bytes().unwrap(), "evenkeel.op.v1", "an approval of"),
    ] {
        // The thief's key signs it as what it is, and the name fits to the last digit.
        fleet.waits(&bytes, fleet.sealed(&bytes, "author", namespace));
        let name = PendingItem::id(&bytes).to_string();
        for asked in [&name[..], &name[..16]] {
            let line = format!("sign {asked} --hub --key alice --out signed.json --yes");
            let told = fleet.desk.run(&line).ends_with(4);
            let refused = format!("the hub gave {what}");
            assert!(told.err.contains(&refused), "{told:?}");
            assert!(told.err.contains("refused, nothing is signed"), "{told:?}");
            assert!(!told.err.contains("You sign"), "{told:?}");
            let prepare = format!("sign {asked} --hub --prepare statement.json");
            fleet.desk.run(&prepare).ends_with(4);
        }
        // Nor where the host's own key calls it an item: its bytes say what it is.
        fleet.behind.report(
            "pve1",
            &fleet.desk.key("host"),
            HostReport { pending_gone: vec![PendingItem::id(&bytes)], ..HostReport::default() },
        );
        fleet.waits(&bytes, fleet.sealed(&bytes, "host", "evenkeel.pending.v1"));
        let line = format!("sign {name} --hub --key alice --out signed.json --yes");
        let told = fleet.desk.run(&line).ends_with(3);
        assert!(told.err.contains("refused as payload"), "{told:?}");
    }
    for left in ["signed.json", "statement.json"] {
        assert!(!fleet.desk.path(left).exists());
    }
}

#[test]
fn z02_an_item_of_a_hub_is_named_by_sixteen_digits_and_its_host_was_pinned_before() {
    let fleet = Fleet::new();
    let desk = &fleet.desk;
    let bytes = fleet.item().to_bytes().unwrap();
    fleet.waits(&bytes, fleet.sealed(&bytes, "host", "evenkeel.pending.v1"));
    let name = PendingItem::id(&bytes).to_string();
    let sign = |name: &str| {
        desk.run(&format!("sign {name} --hub --key alice --out signed.json --yes --force"))
    };
    let told = sign(&name).ends_with(4);
    assert!(told.err.contains("the host pve1 is not known here"), "{told:?}");
    // Another key than the pinned one, though it calls itself pve1.
    desk.write("home/.config/evenkeel/known_hosts", &format!("pve1 {}\n", desk.key("author")));
    let told = sign(&name).ends_with(4);
    assert!(told.err.contains("pinned with another key"), "{told:?}");
    fleet.pin_host();
    for short in [&name[..6], &name[..12], &name[..15]] {
        let told = sign(short).ends_with(64);
        assert!(told.err.contains("at least 16 digits of its name"), "{told:?}");
    }
    // A file is not asked of a hub, whatever it is called.
    desk.write("item.json", "{}");
    sign("item.json").ends_with(64);
    assert!(!desk.path("signed.json").exists());
    let listed = desk.run("fleet pending").ends_with(0);
    let pasted = listed.out.lines().nth(1).unwrap().split_whitespace().next().unwrap();
    assert_eq!(pasted, &name[..16], "what the list shows is enough: {listed:?}");
    sign(pasted).ends_with(0);
    sign(&name).ends_with(0);
    let other = if name.ends_with('0') { '1' } else { '0' };
    sign(&format!("{}{other}", &name[..63])).ends_with(5);
}

#[test]
fn z02_yes_on_the_command_line_acknowledges_no_rollback() {
    let fleet = Fleet::new();
    fleet.pin_host();
    fs_err::write(fleet.desk.path("s.json"), acknowledgement(&fleet)).unwrap();
    let told = fleet.desk.run("sign s.json --key alice --out signed.json --yes").ends_with(64);
    let refused =
        "nothing was signed: an acknowledgement of a rolled back journal is signed by a person";
    assert!(told.err.contains(refused), "{told:?}");
    assert!(!fleet.desk.path("signed.json").exists());
    // By hand, as it prints, a script can: the command names what is signed.
    let script = "ssh-keygen -q -Y sign -n evenkeel.acknowledge.v1 -f alice s.json";
    assert!(told.err.contains("ssh-keygen -Y sign -n evenkeel.acknowledge.v1"), "{told:?}");
    let mut by_hand = std::process::Command::new("sh");
    by_hand.args(["-c", script]).current_dir(fleet.desk.path(""));
    assert!(by_hand.status().unwrap().success());
    fleet.desk.run("sign s.json --signature s.json.sig --out signed.json").ends_with(0);
}

#[test]
fn z07_approve_takes_an_item_from_the_hub_hands_it_in_and_ends_with_the_hosts_verdict() {
    let fleet = Fleet::new();
    fleet.pin_host();
    let desk = &fleet.desk;
    let bytes = fleet.item().to_bytes().unwrap();
    fleet.waits(&bytes, fleet.sealed(&bytes, "host", "evenkeel.pending.v1"));
    let name = PendingItem::id(&bytes).to_string();
    // From a hub no guest's number is a name: which item that is would be the hub's choice.
    desk.run("approve 101 --hub --key alice --yes").ends_with(64);
    desk.run(&format!("approve {} --hub --key alice --yes", &name[..12])).ends_with(64);
    let listed = desk.run("fleet pending").ends_with(0);
    assert!(listed.err.contains("`evenkeel approve PENDING --hub --key KEY`"), "{listed:?}");
    let line = format!("approve {} --hub --key alice --yes -o json", &name[..16]);
    let mut command = desk.command(&line);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let handed_in = fleet.handed_in();
    let envelope = Envelope::parse(handed_in.body.as_bytes()).unwrap();
    let statement = Statement::parse(envelope.payload()).unwrap();
    assert_eq!(statement.item.to_string(), name);
    fleet.tells(fleet.verdict(&handed_in, "role_denied", "not this key"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["envelope"]["verdict"]["code"], "role_denied");
    assert_eq!(told["verified"], true);
    assert!(String::from_utf8_lossy(&output.stderr).contains("The host pve1 says:"));
}

/// How a hub that has every word of its host bends one.
type VerdictBend = fn(&Fleet, EnvelopeVerdict) -> EnvelopeVerdict;

#[test]
fn z09_a_verdict_that_the_host_did_not_sign_about_this_is_told_as_the_hubs_word() {
    let bends: [(&str, VerdictBend); 3] = [
        ("no signature of the host", |_, verdict| EnvelopeVerdict { sealed: None, ..verdict }),
        ("not signed by the key of its host", |fleet, verdict| {
            let bytes = verdict.sealed.unwrap().envelope().unwrap().payload().to_vec();
            let sealed = fleet.sealed(&bytes, "alice", "evenkeel.verdict.v1");
            EnvelopeVerdict { sealed: Some(sealed), ..verdict }
        }),
        ("about something else", |fleet, verdict| {
            let hub_id = fleet.behind.store.hub_id().parse().unwrap();
            let other = PayloadHash::of(b"another approval");
            let said = VerdictStatement::of(hub_id, fleet.host(), other, &verdict);
            let sealed = fleet.sealed(&said.to_bytes().unwrap(), "host", "evenkeel.verdict.v1");
            EnvelopeVerdict { sealed: Some(sealed), ..verdict }
        }),
    ];
    for (why, bend) in bends {
        let fleet = Fleet::new();
        fleet.pin_host();
        let bytes = fleet.item().to_bytes().unwrap();
        fleet.waits(&bytes, fleet.sealed(&bytes, "host", "evenkeel.pending.v1"));
        let name = PendingItem::id(&bytes).to_string();
        let line = format!("approve {name} --hub --key alice --yes");
        let mut command = fleet.desk.command(&line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let verdict = fleet.verdict(&fleet.handed_in(), "allowed_signed", "destroyed");
        fleet.tells(bend(&fleet, verdict));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            told.starts_with("unverified: the hub tells that pve1 says allowed_signed"),
            "{told}"
        );
        assert!(told.contains(why), "{told}");
    }
}
