use super::*;

#[test]
fn a_report_that_says_nothing_is_nearly_empty() {
    let quiet = HostReport { at: "2026-11-17T10:00:00Z".into(), ..HostReport::default() };
    assert!(quiet.is_empty());
    assert_eq!(quiet.to_bytes(), br#"{"at":"2026-11-17T10:00:00Z"}"#);
    let said = HostReport { gone: vec!["lxc/101".into()], ..quiet };
    assert!(!said.is_empty());
    assert_eq!(HostReport::read(&said.to_bytes()).unwrap(), said);
}

#[test]
fn whatever_a_guest_is_what_is_told_of_it_is_bounded_and_says_so() {
    let large = |count: usize| (0..count).map(|n| (format!("mp{n}"), "x".repeat(400)));
    let fits = GuestReport { actual: large(20).collect(), ..GuestReport::default() };
    assert_eq!(fits.clone().bounded(), fits);
    let long = GuestReport {
        actual: large(200).collect(),
        declared: [("cores".to_owned(), Some("4".to_owned()))].into(),
        ..GuestReport::default()
    };
    let long = long.bounded();
    assert!(long.cut && long.actual.is_empty() && long.declared.len() == 1, "{long:?}");
    let worst = GuestReport {
        problems: vec!["é".repeat(10_000); 1_000],
        held: vec![HeldReport { why: "y".repeat(10_000), ..HeldReport::default() }; 100],
        declared: large(200).map(|(key, text)| (key, Some(text))).collect(),
        ..GuestReport::default()
    };
    let worst = worst.bounded();
    assert!(worst.cut && worst.to_bytes_for_test() <= GUEST_BYTES_MAX);
    assert_eq!((worst.problems.len(), worst.held.len()), (1, 1));
}

impl GuestReport {
    fn to_bytes_for_test(&self) -> usize {
        serde_json::to_vec(self).unwrap().len()
    }
}

#[test]
fn what_a_newer_agent_says_is_passed_over_and_lists_are_bounded() {
    let newer = br#"{"guests":[{"guest":"lxc/101","mood":"fine"}],"weather":{"x":1}}"#;
    assert_eq!(HostReport::read(newer).unwrap().guests[0].guest, "lxc/101");
    let many = HostReport { gone: vec![String::new(); ENTRIES_MAX + 1], ..HostReport::default() };
    assert!(matches!(HostReport::read(&many.to_bytes()), Err(UnreadableReport::TooMany)));
    let long = vec![b' '; REPORT_BYTES_MAX + 1];
    assert!(matches!(HostReport::read(&long), Err(UnreadableReport::TooLong)));
    assert!(matches!(HostReport::read(b"7"), Err(UnreadableReport::Malformed(_))));
}
