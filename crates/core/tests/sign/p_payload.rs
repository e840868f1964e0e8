//! P: the payload. One reading of the signed bytes, or none.

use evenkeel_core::action_registry::ActionKind as K;
use evenkeel_core::model::reason::ReasonCode as R;
use evenkeel_core::sign::{Envelope, Namespace, PendingItem, STATEMENT_BYTES_MAX, Statement};
use proptest::prelude::*;

use evenkeel_testkit::signing_keys::{
    IDENTITY, act, alice, approved, params, reason, sealed, statement,
};

fn text() -> String {
    String::from_utf8(statement().to_bytes().unwrap()).unwrap()
}

#[track_caller]
fn refused(bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
    let refusal = Statement::parse(bytes).expect_err(&shown);
    assert_eq!(refusal.reason, R::Payload, "{shown}");
}

/// The statement with one text replaced by another; both must matter.
#[track_caller]
fn with(from: &str, to: &str) -> String {
    let good = text();
    assert!(good.contains(from), "{from} is not in {good}");
    good.replacen(from, to, 1)
}

#[test]
fn a_statement_reads_back_as_it_was_made() {
    assert_eq!(Statement::parse(text().as_bytes()).unwrap(), statement());
}

#[test]
fn p01_a_repeated_name_is_refused_at_any_depth_and_in_any_spelling() {
    refused(with("\"guest\": \"qemu/101\"", "\"guest\": \"qemu/101\", \"guest\": \"qemu/102\""));
    refused(with("\"guest\": \"qemu/101\"", "\"guest\": \"qemu/101\", \"guest\": \"qemu/101\""));
    refused(with("\"guest\":", "\"gue\\u0073t\": \"qemu/102\", \"guest\":"));
    refused(with("\"purge\": \"0\"", "\"purge\": \"0\", \"purge\": \"1\""));
    refused(with("\"purge\": \"0\"", "\"purge\": \"0\", \"p\\u0075rge\": \"1\""));
    refused(with("\"id\": \"pve1\"", "\"id\": \"pve1\", \"id\": \"pve2\""));
}

#[test]
fn p02_unknown_missing_mistyped_and_null_fields_are_refused() {
    refused(with("\"op\":", "\"force\": \"1\", \"op\":"));
    refused(with("\"id\": \"pve1\"", "\"id\": \"pve1\", \"name\": \"pve1\""));
    refused(with("\"op\": \"destroy\"", "\"Op\": \"destroy\""));
    let bytes = text();
    let value: serde_json::Value = serde_json::from_str(&bytes).unwrap();
    for name in value.as_object().unwrap().keys() {
        let mut without = value.clone();
        without.as_object_mut().unwrap().remove(name);
        refused(without.to_string());
        for other in [serde_json::json!(null), true.into(), 1.5.into(), serde_json::json!([])] {
            let mut mistyped = value.clone();
            mistyped[name] = other;
            refused(mistyped.to_string());
        }
    }
    refused(with("\"purge\": \"0\"", "\"purge\": 0"));
    refused(with("\"purge\": \"0\"", "\"purge\": false"));
    refused(with("\"purge\": \"0\"", "\"purge\": null"));
    // A list in the order of the fields is no object.
    refused("[\"evenkeel/statement/v1\"]");
    refused(with("evenkeel/statement/v1", "evenkeel/statement/v2"));
    refused(with("evenkeel/statement/v1", "evenkeel/rotate/v1"));
}

#[test]
fn p03_a_second_copy_beside_the_payload_is_refused() {
    let payload = statement().to_bytes().unwrap();
    let sealed = Envelope::seal(&payload, &[&alice().sign(Namespace::Op, &payload)]).unwrap();
    let copied = sealed.replacen('{', "{\"statement\": {\"guest\": \"qemu/102\"},", 1);
    assert_eq!(Envelope::parse(copied.as_bytes()).unwrap_err().reason, R::Envelope);
    let twice = sealed.replacen('{', "{\"payload\": \"e30=\",", 1);
    assert_eq!(Envelope::parse(twice.as_bytes()).unwrap_err().reason, R::Envelope);
    assert_eq!(Envelope::parse(sealed.as_bytes()).unwrap().payload(), payload);
}

#[test]
fn p03_an_envelope_has_one_form() {
    let payload = statement().to_bytes().unwrap();
    let sealed = Envelope::seal(&payload, &[&alice().sign(Namespace::Op, &payload)]).unwrap();
    assert!(Envelope::parse(sealed.as_bytes()).is_ok());
    let bent = [
        format!("{sealed}\n"),
        format!(" {sealed}"),
        format!("{sealed}{sealed}"),
        format!("\u{feff}{sealed}"),
        sealed.replacen("\"signatures\": [", "\"signatures\": [1,", 1),
        sealed.replacen("\"payload\": \"", "\"payload\": \"*", 1),
        sealed.replacen("\"payload\": \"e", "\"payload\": \"\\ne", 1),
        "{}".to_owned(),
        "[]".to_owned(),
        String::new(),
        format!("{}{}", sealed.trim_end(), " ".repeat(200_000)),
    ];
    for text in bent {
        assert_eq!(Envelope::parse(text.as_bytes()).unwrap_err().reason, R::Envelope);
    }
}

#[test]
fn p04_the_same_json_written_anew_does_not_verify() {
    let payload = statement().to_bytes().unwrap();
    let armour = alice().sign(Namespace::Op, &payload);
    let value: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    for again in [value.to_string(), text().replace('\n', ""), text().replace(": ", ":")] {
        assert!(Statement::parse(again.as_bytes()).is_ok(), "it says the same");
        let sealed = Envelope::seal(again.as_bytes(), &[&armour]).unwrap();
        let envelope = Envelope::parse(sealed.as_bytes()).unwrap();
        assert_eq!(reason(&envelope, &act()), R::SigInvalid);
    }
}

#[test]
fn p05_a_number_has_one_spelling() {
    for guest in [
        "qemu/101.0",
        "qemu/1.01e2",
        "qemu/0101",
        "qemu/-101",
        "qemu/4294967397",
        "qemu/+101",
        "qemu/ 101",
        "101",
        "qemu/101 ",
    ] {
        refused(with("qemu/101", guest));
    }
    refused(with("\"qemu/101\"", "101"));
    for number in ["1.0", "1e0", "-1", "01", "\"1\"", "18446744073709551616", "1e400", "-0", "1E2"]
    {
        refused(with("\"trust_version\": 1", &format!("\"trust_version\": {number}")));
    }
}

#[test]
fn p06_text_that_two_readers_could_read_differently_is_refused() {
    let good = text();
    refused(format!("\u{feff}{good}"));
    let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    refused(utf16);
    refused(with("old test box", "\\ud800"));
    refused(with("old test box", "\\udc00\\ud800"));
    refused(with("old test box", "a\\u0000b"));
    refused(with("\"purge\"", "\"pur\\u0000ge\""));
    // Where any text goes, a NUL does not.
    let free =
        with("\"destroy\"", "\"set_config\"").replacen("\"purge\": \"0\"", "\"name\": \"x\"", 1);
    assert!(Statement::parse(free.as_bytes()).is_ok());
    refused(free.replacen("\"x\"", "\"x\\u0000y\"", 1));
    let place = good.find("old test box").unwrap();
    for bytes in [&[0xc0, 0x80][..], &[0xed, 0xa0, 0x80], &[0xff], &[0xf5, 0x80, 0x80, 0x80]] {
        let mut bent = good.as_bytes().to_vec();
        bent.splice(place..=place, bytes.iter().copied());
        refused(bent);
    }
}

#[test]
fn p07_size_and_depth_are_bounded_before_anything_is_built() {
    refused("[".repeat(10_000));
    refused(format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000)));
    for (lists, too_deep) in [(7, false), (8, true)] {
        let nested = format!("{{\"a\":{}1{}}}", "[".repeat(lists), "]".repeat(lists));
        let refusal = Statement::parse(nested.as_bytes()).unwrap_err();
        assert_eq!(refusal.detail.contains("nested deeper"), too_deep, "{refusal}");
    }
    refused(vec![b'{'; STATEMENT_BYTES_MAX + 1]);
    refused(format!("{{{}}}", " ".repeat(64 * 1024 * 1024)));
    let mut long = statement();
    long.reason = "x".repeat(1025);
    assert_eq!(long.to_bytes().unwrap_err().reason, R::Payload);
    let mut many = statement();
    many.op = K::SetConfig;
    many.params = (0..300).map(|n| (format!("key{n}"), String::new())).collect();
    assert_eq!(many.to_bytes().unwrap_err().reason, R::Payload);
    // An envelope too large is refused by its length.
    let large = vec![b'{'; 1024 * 1024];
    assert_eq!(Envelope::parse(&large).unwrap_err().reason, R::Envelope);
    let payload = vec![b' '; STATEMENT_BYTES_MAX + 1];
    let armour = alice().sign(Namespace::Op, &payload);
    assert_eq!(Envelope::seal(&payload, &[&armour]).unwrap_err().reason, R::Envelope);
}

#[test]
fn p08_nothing_may_follow_or_precede_the_one_object() {
    let good = text();
    for bent in [
        format!("{good}\n"),
        format!("{good} "),
        format!(" {good}"),
        format!("{good}{good}"),
        format!("{good}\n{good}"),
        format!("{good},{{}}"),
        format!("{good}//"),
        good.replacen("\"op\"", "/* */ \"op\"", 1),
        good[..good.len() - 1].to_owned(),
    ] {
        refused(bent);
    }
}

#[test]
fn p10_every_parameter_must_be_spelled_out() {
    let all = [
        "destroy-unreferenced-disks",
        "final_backup",
        "not_in_backup",
        "purge",
        "stop",
        "unprotect",
    ];
    for name in all {
        let mut short = statement();
        short.params.remove(name);
        assert_eq!(short.to_bytes().unwrap_err().reason, R::Payload, "{name}");
    }
    let mut container = statement();
    container.guest = "lxc/101".parse().unwrap();
    assert_eq!(container.to_bytes().unwrap_err().reason, R::Payload, "a container has `force` too");
    container.params.insert("force".to_owned(), "0".to_owned());
    assert!(container.to_bytes().is_ok());
    for (op, needed) in [
        (K::Rollback, &[("snapname", "pre"), ("snaptime", "1700000000"), ("start", "0")][..]),
        (K::DeleteSnapshot, &[("snapname", "pre"), ("snaptime", "1700000000"), ("force", "0")]),
        (K::DeleteVolume, &[("slot", "unused0"), ("volume", "local-lvm:vm-101-disk-1")]),
        (K::MoveVolume, &[("delete", "1")]),
        (K::Restore, &[("force", "1")]),
    ] {
        let mut whole = statement();
        (whole.op, whole.params) = (op, params(needed));
        assert!(whole.to_bytes().is_ok(), "{op}: {:?}", whole.to_bytes());
        for (name, _) in needed {
            let mut short = whole.clone();
            short.params.remove(*name);
            assert_eq!(short.to_bytes().unwrap_err().reason, R::Payload, "{op} without {name}");
        }
    }
}

#[test]
fn p09_a_parameter_the_op_does_not_have_is_refused() {
    for extra in ["skiplock", "force", "Purge", "purge ", "pu&rge", "", "p=1"] {
        let mut more = statement();
        more.params.insert(extra.to_owned(), "1".to_owned());
        assert_eq!(more.to_bytes().unwrap_err().reason, R::Payload, "{extra}");
    }
}

#[test]
fn p11_a_value_is_one_value_whatever_it_holds() {
    let mut write = statement();
    write.op = K::SetConfig;
    write.params = params(&[("name", "x&purge=1"), ("description", "a\nb=%00\r\n\u{202e}")]);
    let bytes = write.to_bytes().unwrap();
    assert_eq!(Statement::parse(&bytes).unwrap().params, write.params, "kept exactly");
    for (name, value) in [("purge", "0&x=1"), ("stop", "yes"), ("stop", ""), ("unprotect", "2")] {
        let mut bent = statement();
        bent.params.insert(name.to_owned(), value.to_owned());
        assert_eq!(bent.to_bytes().unwrap_err().reason, R::Payload, "{name}={value}");
    }
    for (value, good) in [
        ("net0,scsi0", true),
        ("net0", true),
        ("net0, scsi0", false),
        ("", false),
        ("net0;scsi0", false),
        ("net0&force=1", false),
        ("net0,", false),
    ] {
        write.params = params(&[("delete", value)]);
        assert_eq!(write.to_bytes().is_ok(), good, "{value}");
    }
}

#[test]
fn p22_names_that_end_in_a_path_are_held_to_their_grammar() {
    let bent = [
        "..",
        "../x",
        "a/../b",
        "..%2f",
        "%2e%2e",
        "a?b",
        "a#b",
        "a b",
        "a\nb",
        "",
        "a\\b",
        "/etc/passwd",
        "local:",
        ":x",
        "local:a//b",
        "local:../x",
        "local:a/./b",
    ];
    let named = [
        (K::DeleteVolume, "volume", vec![("slot", "unused0")], "local-lvm:vm-101-disk-1"),
        (K::DeleteVolume, "slot", vec![("volume", "local:101/vm-101-disk-0.qcow2")], "unused0"),
        (K::Rollback, "snapname", vec![("snaptime", "1"), ("start", "0")], "before_upgrade-2"),
        (K::Migrate, "target", vec![], "pve2"),
        (K::MoveVolume, "storage", vec![("delete", "0")], "local-lvm"),
        (K::Restore, "archive", vec![("force", "1")], "pbs:backup/vm/101/2026-01-01T00:00:00Z"),
    ];
    for (op, name, others, good) in named {
        let mut whole = statement();
        whole.op = op;
        whole.params = params(&others);
        whole.params.insert(name.to_owned(), good.to_owned());
        assert!(whole.to_bytes().is_ok(), "{op} {name}={good}");
        for value in bent {
            whole.params.insert(name.to_owned(), value.to_owned());
            let answer = whole.to_bytes().map_err(|refusal| refusal.reason);
            assert_eq!(answer, Err(R::Payload), "{op} {name}={value}");
        }
    }
    for host in ["pve1/../x", "pve1?x", "", "-pve"] {
        refused(with("\"id\": \"pve1\"", &format!("\"id\": \"{host}\"")));
    }
}

#[test]
fn hashes_digests_and_fingerprints_have_one_spelling() {
    refused(with(IDENTITY, &IDENTITY.replace('1', "A")));
    refused(with(IDENTITY, &IDENTITY[1..]));
    refused(with(IDENTITY, "free"));
    refused(with("2222222222", "222222222"));
    refused(with("2222222222222222222222222222222222222222", "free"));
    refused(with("SHA256:", "MD5:"));
    refused(with("SHA256:", "SHA256:="));
    let mut free = statement();
    free.expected = evenkeel_core::sign::Expected::Free;
    assert_eq!(Statement::parse(&free.to_bytes().unwrap()).unwrap(), free);
}

#[test]
fn a_statement_of_one_kind_is_not_read_as_another() {
    assert!(PendingItem::parse(text().as_bytes()).is_err());
    for authority in evenkeel_core::sign::RotationAuthority::ALL {
        let read = evenkeel_core::sign::Rotation::parse(text().as_bytes(), authority);
        assert_eq!(read.unwrap_err().reason, R::Payload);
    }
    let not_json = sealed(b"DESTROY qemu/101", Namespace::Op, &[&alice()]);
    assert_eq!(reason(&not_json, &act()), R::Payload);
    assert_eq!(reason(&approved(&statement()), &act()), R::AllowedSigned);
}

proptest! {
    #[test]
    fn any_reason_and_value_come_back_exactly(why in "[^\\p{Cc}]{0,60}", value in "[^\\x00]{0,60}") {
        let mut made = statement();
        made.reason = why;
        made.op = K::SetConfig;
        made.params = params(&[("description", &value)]);
        let bytes = made.to_bytes().unwrap();
        prop_assert_eq!(Statement::parse(&bytes).unwrap(), made);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Statement::parse(&bytes);
        let _ = Envelope::parse(&bytes);
        let _ = PendingItem::parse(&bytes);
    }

    #[test]
    fn a_statement_cut_or_spliced_is_refused_or_says_exactly_what_it_says(
        place in 0_usize..700, length in 0_usize..40, put in "[ -~]{0,20}",
    ) {
        let good = text();
        let (place, end) = (place.min(good.len()), (place + length).min(good.len()));
        let spliced = format!("{}{put}{}", &good[..place], &good[end..]);
        if let Ok(read) = Statement::parse(spliced.as_bytes()) {
            // What reads is complete: written out and read again it is the same statement.
            prop_assert_eq!(Statement::parse(&read.to_bytes().unwrap()).unwrap(), read);
        }
    }
}
