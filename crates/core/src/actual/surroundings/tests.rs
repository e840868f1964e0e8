//! One row a part: with nothing there a guest may go, with anything there or unread it may not; and a signer is told.

use super::*;

type Change = (&'static str, fn(&mut GuestSurroundings));

fn nothing() -> GuestSurroundings {
    GuestSurroundings::empty()
}

fn one(text: &str) -> PartReading<String> {
    PartReading::Read(vec![text.to_owned()])
}

fn line(kind: FirewallKind, text: &str) -> FirewallLine {
    FirewallLine { kind, text: text.to_owned() }
}

fn lacks<T>() -> PartReading<T> {
    PartReading::NotVisible(HiddenCause::Lacks { privilege: "Sys.Audit", path: "/".to_owned() })
}

fn with(change: fn(&mut GuestSurroundings)) -> GuestSurroundings {
    let mut around = nothing();
    change(&mut around);
    around
}

const THERE: [Change; 9] = [
    ("rule", |around| {
        around.firewall = PartReading::Read(vec![line(FirewallKind::Rule, "in ACCEPT")]);
    }),
    ("alias", |around| {
        around.firewall = PartReading::Read(vec![line(FirewallKind::Alias, "office")]);
    }),
    ("role", |around| around.access = one("PVEVMUser for viewer@pve")),
    ("pool", |around| around.pool = one("web")),
    ("HA", |around| around.ha = one("vm:120 started")),
    ("replication", |around| around.replication = one("120-0 to pve2")),
    ("job", |around| {
        let entry = BackupJobEntry { id: "nightly".to_owned(), naming: JobNaming::Listed };
        around.backup_jobs = PartReading::Read(vec![entry]);
    }),
    ("last of a job", |around| {
        let entry = BackupJobEntry { id: "nightly".to_owned(), naming: JobNaming::ListedAlone };
        around.backup_jobs = PartReading::Read(vec![entry]);
    }),
    ("exclusion", |around| {
        let entry = BackupJobEntry { id: "all".to_owned(), naming: JobNaming::Excluded };
        around.backup_jobs = PartReading::Read(vec![entry]);
    }),
];

const HIDDEN: [Change; 6] = [
    ("firewall", |around| around.firewall = lacks()),
    ("access", |around| around.access = lacks()),
    ("pool", |around| around.pool = lacks()),
    ("ha", |around| around.ha = lacks()),
    ("replication", |around| around.replication = lacks()),
    ("jobs", |around| around.backup_jobs = lacks()),
];

#[test]
fn y02_anything_under_the_number_or_anything_unread_needs_a_signature() {
    assert_eq!(nothing().allow_unsigned(None), Ok(()));
    for (name, change) in THERE {
        let refusal = with(change).allow_unsigned(None).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::PendingSignature, "{name}");
    }
    for (name, change) in HIDDEN {
        let refusal = with(change).allow_unsigned(None).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::Rights, "{name}");
        assert!(refusal.detail.contains("lacks Sys.Audit on /"), "{name}: {refusal}");
    }
    let unread =
        GuestSurroundings { pool: PartReading::NotVisible(HiddenCause::Unreadable), ..nothing() };
    assert_eq!(unread.allow_unsigned(None).unwrap_err().reason, ReasonCode::IdentityUnproven);
}

#[test]
fn y02_what_was_there_before_the_making_is_told_from_what_came_since() {
    let (_, rule) = THERE[0];
    let before = with(rule).hash();
    assert!(before.is_some() && before != nothing().hash());
    let told = |before| with(rule).allow_unsigned(before).unwrap_err().detail;
    assert!(told(before).contains("there before its making began"), "{}", told(before));
    assert!(told(nothing().hash()).contains("not as when its making began"));
    let (_, hidden) = HIDDEN[0];
    assert_eq!(with(hidden).hash(), None, "what was not read is no proof of nothing");
    let (_, pool) = HIDDEN[2];
    assert!(with(pool).hash().is_some(), "no call shows the pool of a free number");
}

#[test]
fn y02_a_signer_is_told_what_goes_with_the_guest_and_what_nobody_can_see() {
    assert!(nothing().losses(true).is_empty());
    for (name, change) in THERE.into_iter().chain(HIDDEN) {
        assert!(!with(change).losses(true).is_empty(), "{name}");
    }
    for (name, change) in HIDDEN {
        let lost = with(change).losses(true);
        assert!(lost[0].what.contains("not visible"), "{name}: {lost:?}");
    }
    let untouched =
        |name: &str| matches!(name, "HA" | "replication" | "job" | "last of a job" | "exclusion");
    for (name, change) in THERE {
        assert_eq!(with(change).losses(false).is_empty(), untouched(name), "{name}");
    }
    let (_, last) = THERE[7];
    assert!(with(last).losses(true)[0].what.contains("deleted with it"));
}

#[test]
fn y02_what_came_after_the_item_was_raised_is_not_signed_for() {
    let (_, rule) = THERE[0];
    let signed = with(rule).losses(false);
    assert_eq!(with(rule).are_among(&signed, false), Ok(()));
    assert_eq!(nothing().are_among(&signed, false), Ok(()), "it went meanwhile");
    let (_, role) = THERE[2];
    let refusal = with(role).are_among(&signed, false).unwrap_err();
    assert_eq!(refusal.reason, ReasonCode::Stale);
    let (_, hidden) = HIDDEN[0];
    assert!(with(hidden).are_among(&signed, false).is_err());
}

#[test]
fn long_lists_differ_in_their_words_even_where_they_are_cut() {
    let many = |last: &str| {
        let rules = (0..20).map(|n| line(FirewallKind::Rule, &format!("in ACCEPT dport={n}")));
        let lines = rules.chain([line(FirewallKind::Rule, last)]).collect();
        GuestSurroundings { firewall: PartReading::Read(lines), ..nothing() }.losses(false)
    };
    assert_ne!(many("out DROP"), many("out ACCEPT"));
    assert!(many("out DROP")[0].what.chars().count() < 1_000);
}

#[test]
fn a_copy_is_held_by_a_firewall_file_that_its_sources_would_replace() {
    let (_, rule) = THERE[0];
    assert!(with(rule).hinder_copy().is_some());
    assert!(nothing().hinder_copy().is_none());
    let (_, hidden) = HIDDEN[0];
    assert!(with(hidden).hinder_copy().is_none(), "what nobody sees holds no making");
}

#[test]
fn a_replicated_guest_is_destroyed_with_purge_alone() {
    let (_, replicated) = THERE[5];
    assert!(with(replicated).hinder_destroy(false).is_some());
    assert!(with(replicated).hinder_destroy(true).is_none());
}

#[test]
fn a_job_names_a_number_in_its_list_or_among_its_exclusions() {
    let alone = [120].into();
    let both = [100, 120].into();
    let none = BTreeSet::new();
    assert_eq!(job_naming(120, &alone, &none), Some(JobNaming::ListedAlone));
    assert_eq!(job_naming(120, &both, &none), Some(JobNaming::Listed));
    assert_eq!(job_naming(120, &none, &both), Some(JobNaming::Excluded));
    assert_eq!(job_naming(121, &both, &both), None);
}
