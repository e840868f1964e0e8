use super::*;

fn candidates() -> Vec<Candidate> {
    let guest = |id: &str, name: &str, tags: &str| {
        Candidate::listed(id.parse().unwrap(), Some(name.to_owned()), tags)
    };
    vec![
        guest("lxc/101", "web-1", "prod;web"),
        guest("lxc/102", "web-2", "web"),
        guest("qemu/200", "db", "Prod"),
        guest("qemu/201", "twin", ""),
        guest("lxc/300", "twin", ""),
    ]
}

fn chosen(selection: &Selection) -> Result<Vec<u32>, SelectionError> {
    let found = selection.choose(&candidates(), DECLARED)?;
    Ok(found.into_iter().map(VmId::get).collect())
}

fn guests(names: &[&str]) -> Selection {
    let guests = names.iter().map(|name| name.parse().unwrap()).collect();
    Selection { guests, ..Selection::default() }
}

#[test]
fn a_guest_is_named_by_number_by_kind_and_number_or_by_a_name_of_its_own() {
    for name in ["101", "lxc/101", "web-1", "WEB-1"] {
        assert_eq!(chosen(&guests(&[name])), Ok(vec![101]), "{name}");
    }
    assert_eq!(chosen(&guests(&["db", "101"])), Ok(vec![101, 200]));
    for text in ["", "lxc/", "vm/100", "99", "a b", "0101", "$x"] {
        assert!(text.parse::<GuestName>().is_err(), "{text}");
    }
}

#[test]
fn a_name_of_two_guests_is_an_error_that_names_both() {
    let error = chosen(&guests(&["twin"])).unwrap_err();
    assert_eq!(error.to_string(), "twin is the name of qemu/201 and of lxc/300");
    assert_eq!(error.hint(), "write the one that is meant with its number, such as qemu/201");
}

#[test]
fn conditions_of_different_kinds_must_all_hold_and_of_one_kind_any() {
    let tags = |tags: &[&str]| Selection {
        tags: tags.iter().map(ToString::to_string).collect(),
        ..Selection::default()
    };
    assert_eq!(chosen(&tags(&["prod"])), Ok(vec![101, 200]));
    assert_eq!(chosen(&tags(&["prod", "web"])), Ok(vec![101, 102, 200]));
    let kind = Some(GuestKind::Lxc);
    assert_eq!(chosen(&Selection { kind, ..tags(&["prod"]) }), Ok(vec![101]));
    let names = vec!["web-*".parse().unwrap()];
    assert_eq!(chosen(&Selection { names, ..Selection::default() }), Ok(vec![101, 102]));
    assert_eq!(chosen(&Selection::default()).map(|all| all.len()), Ok(5));
}

#[test]
fn a_choice_that_fits_nothing_says_what_there_is() {
    let missing = chosen(&guests(&["105"])).unwrap_err();
    assert_eq!(missing.to_string(), "there is no guest 105 among those declared");
    assert!(
        missing.hint().starts_with("there are lxc/101 web-1, lxc/102 web-2"),
        "{}",
        missing.hint()
    );
    assert_eq!(chosen(&guests(&["qemu/101"])).unwrap_err().hint(), "101 is lxc/101 web-1");
    let tags = Selection { tags: vec!["test".into()], ..Selection::default() };
    let none = chosen(&tags).unwrap_err();
    assert_eq!(none.to_string(), "no guest among those declared fits --tag test");
    assert_eq!(none.hint(), "the tags among those declared: Prod, prod, web");
}

#[test]
fn a_pattern_fits_whole_names() {
    for (pattern, name, fits) in [
        ("web-*", "web-1", true),
        ("web-*", "a-web-1", false),
        ("*", "", true),
        ("w?b*1", "WEB-11", true),
        ("w?b", "web-1", false),
        ("*-*-c", "a-b-b-c", true),
        ("a*b", "ab", true),
        ("a*b", "a", false),
    ] {
        assert_eq!(pattern.parse::<NamePattern>().unwrap().fits(name), fits, "{pattern} {name}");
    }
    // No pattern takes time that grows faster than both lengths together.
    let hard: NamePattern = "*a".repeat(120).parse().unwrap();
    assert!(!hard.fits(&"a".repeat(119)));
}
