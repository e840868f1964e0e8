//! P: binding. What was signed is done, to what it was signed for, or nothing is.

use evenkeel_core::action_registry::{ActionKind, ParamForm};
use evenkeel_core::model::reason::{ReasonCode as R, Refusal};
use evenkeel_core::sign::{Act, ApprovalDecision, Expected, FoundGuest, HostBinding, render};

use evenkeel_testkit::signing_keys::{
    DIGEST, IDENTITY, act, approved, decide, ed, found, host, params, reason, statement,
};

fn changed(change: impl FnOnce(&mut Act)) -> R {
    let mut asked = act();
    change(&mut asked);
    reason(&approved(&statement()), &asked)
}

#[test]
fn exactly_the_signed_act_is_allowed_and_recorded() {
    let approval = approved(&statement());
    let ApprovalDecision::Allowed(approved) = decide(&approval, &act()) else { panic!() };
    assert_eq!(approved.by.len(), 1);
    assert_eq!(approved.by[0].name.to_string(), "alice");
    assert_eq!(approved.nonce, statement().nonce);
    assert_eq!(approved.payload, approval.payload_hash());
    assert_eq!(approved.expires_at, statement().window.expires_at());
    assert_eq!(approved.reason, "old test box");
}

#[test]
fn p09_a_parameter_added_or_changed_outside_of_the_signed_bytes_is_refused() {
    for (name, value) in [
        ("purge", "1"),
        ("destroy-unreferenced-disks", "1"),
        ("skiplock", "1"),
        ("force", "1"),
        ("stop", "0"),
        ("unprotect", "1"),
        ("purge", ""),
        ("final_backup", "store"),
        ("not_in_backup", "unused0=store:a"),
    ] {
        let answer = changed(|act| {
            act.params.insert(name.to_owned(), value.to_owned());
        });
        assert_eq!(answer, R::BindingMismatch, "{name}={value}");
    }
}

#[test]
fn p09_a_parameter_signed_and_not_sent_is_refused() {
    for name in act().params.keys() {
        let answer = changed(|act| {
            act.params.remove(name);
        });
        assert_eq!(answer, R::BindingMismatch, "{name}");
    }
}

#[test]
fn an_act_of_another_kind_is_refused() {
    for op in ActionKind::ALL.into_iter().filter(|op| *op != ActionKind::Destroy) {
        let answer = changed(|act| act.op = op);
        let never = op.not_signable().is_some();
        assert_eq!(answer, if never { R::NotExecutable } else { R::BindingMismatch }, "{op}");
    }
}

/// Whoever signs a create or a migration hears at once that nothing would come of it.
#[test]
fn what_has_no_executor_is_refused_even_when_signed() {
    let signable = [
        ActionKind::SetConfig,
        ActionKind::Rollback,
        ActionKind::DeleteSnapshot,
        ActionKind::DeleteVolume,
        ActionKind::Template,
    ];
    for op in ActionKind::ALL.into_iter().filter(|op| *op != ActionKind::Destroy) {
        let mut signed = statement();
        let mut asked = act();
        (signed.op, asked.op) = (op, op);
        let sample = |form| match form {
            ParamForm::Flag | ParamForm::Count => "1",
            ParamForm::StorageOrNothing | ParamForm::LeftOut => "",
            ParamForm::Volume => "a:b",
            ParamForm::VmId => "100",
            ParamForm::Node
            | ParamForm::Storage
            | ParamForm::Slot
            | ParamForm::Keys
            | ParamForm::Snapshot
            | ParamForm::Text => "a",
        };
        let spelled_out = op.row().params.iter().filter(|param| param.spelled_out);
        let given: Vec<_> = spelled_out.map(|param| (param.name, sample(param.form))).collect();
        signed.params = params(&given);
        asked.params = signed.params.clone();
        let expected = if signable.contains(&op) { R::AllowedSigned } else { R::NotExecutable };
        assert_eq!(reason(&approved(&signed), &asked), expected, "{op}");
    }
}

#[test]
fn p12_the_host_is_bound_by_name_and_key() {
    let other_key = HostBinding { key: ed(201).public().fingerprint(), ..host() };
    let other_name = HostBinding { id: "pve2".parse().unwrap(), ..host() };
    for host in [other_key, other_name] {
        assert_eq!(changed(|act| act.host = host), R::HostMismatch);
    }
}

#[test]
fn p13_a_statement_for_one_host_says_nothing_on_another() {
    // A guest that migrated stands under another agent, which has another host key.
    let elsewhere =
        HostBinding { id: "pve2".parse().unwrap(), key: ed(202).public().fingerprint() };
    assert_eq!(changed(|act| act.host = elsewhere), R::HostMismatch);
}

fn unproven(why: &str) -> Refusal {
    Refusal::new(R::IdentityUnproven, why)
}

fn found_as(identity: &str, digest: &str) -> FoundGuest {
    FoundGuest::Guest { identity: identity.parse().unwrap(), digest: digest.parse().unwrap() }
}

#[test]
fn p14_p15_p16_another_identity_under_the_number_is_refused() {
    for place in 0..64 {
        let mut other = IDENTITY.to_owned();
        other.replace_range(place..=place, "2");
        assert_eq!(changed(|act| act.found = found_as(&other, DIGEST)), R::IdentityMismatch);
    }
    assert_eq!(changed(|act| act.found = FoundGuest::Free), R::IdentityMismatch);
    let unproven = FoundGuest::Unproven(unproven("the task list does not reach back"));
    assert_eq!(changed(|act| act.found = unproven), R::IdentityUnproven);
}

#[test]
fn p17_a_configuration_edited_after_signing_is_stale() {
    let other = DIGEST.replacen('2', "3", 1);
    assert_eq!(changed(|act| act.found = found_as(IDENTITY, &other)), R::Stale);
}

#[test]
fn p19_the_same_number_of_the_other_kind_is_refused() {
    assert_eq!(changed(|act| act.guest = "lxc/101".parse().unwrap()), R::BindingMismatch);
    assert_eq!(changed(|act| act.guest = "qemu/102".parse().unwrap()), R::BindingMismatch);
}

#[test]
fn p20_a_snapshot_is_bound_by_name_and_time() {
    let mut signed = statement();
    let mut asked = act();
    (signed.op, asked.op) = (ActionKind::Rollback, ActionKind::Rollback);
    signed.params = params(&[("snapname", "pre"), ("snaptime", "1700000000"), ("start", "0")]);
    asked.params = signed.params.clone();
    assert_eq!(reason(&approved(&signed), &asked), R::AllowedSigned);
    asked.params.insert("snaptime".to_owned(), "1700000001".to_owned());
    assert_eq!(reason(&approved(&signed), &asked), R::BindingMismatch);
}

#[test]
fn p21_a_volume_is_bound_not_its_slot() {
    let mut signed = statement();
    let mut asked = act();
    (signed.op, asked.op) = (ActionKind::DeleteVolume, ActionKind::DeleteVolume);
    signed.params = params(&[("slot", "unused0"), ("volume", "local-lvm:vm-101-disk-1")]);
    asked.params = params(&[("slot", "unused0"), ("volume", "local-lvm:vm-101-disk-2")]);
    assert_eq!(reason(&approved(&signed), &asked), R::BindingMismatch);
    asked.params = signed.params.clone();
    assert_eq!(reason(&approved(&signed), &asked), R::AllowedSigned);
}

#[test]
fn a_number_signed_as_free_must_be_free() {
    let mut signed = statement();
    signed.expected = Expected::Free;
    let approval = approved(&signed);
    let mut asked = act();
    assert_eq!(reason(&approval, &asked), R::IdentityMismatch);
    asked.found = FoundGuest::Free;
    assert_eq!(reason(&approval, &asked), R::AllowedSigned);
    asked.found = FoundGuest::Unproven(unproven("no quorum"));
    assert_eq!(reason(&approval, &asked), R::IdentityUnproven);
    asked.found = found();
    assert_eq!(reason(&approved(&statement()), &asked), R::AllowedSigned);
}

#[test]
fn a_person_is_shown_every_bound_field_from_the_bytes() {
    let mut signed = statement();
    signed.op = ActionKind::SetConfig;
    signed.params = params(&[("description", "ok\u{1b}[2J\u{202e}\nTASK OK"), ("name", "wéb")]);
    signed.reason = "because of \u{200b}it\u{202e}".to_owned();
    let bytes = signed.to_bytes().unwrap();
    let shown = render::statement(&bytes).unwrap();
    for part in [
        "SET_CONFIG qemu/101\n",
        "pve1",
        IDENTITY,
        DIGEST,
        "wéb",
        "version 1",
        "2027-01-15T07:59:00Z until 2027-01-15T09:00:00Z (3660 s)",
        "09090909090909090909090909090909",
        "SHA256:",
        "description = ok\\u{1b}[2J\\u{202e}\\u{a}TASK OK",
        "because of \\u{200b}it\\u{202e}",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(shown.contains(&evenkeel_core::sign::PayloadHash::of(&bytes).to_string()));
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()));
    assert!(render::statement(&bytes[1..]).is_err());
    let long = "x".repeat(30_000) + "end";
    signed.params = params(&[("description", &long)]);
    let shown = render::statement(&signed.to_bytes().unwrap()).unwrap();
    assert!(shown.contains(&format!("description = {long}\n")), "nothing that is signed is cut");
}
