//! What a configuration file may say, and what is said about one that does not.

use super::*;

fn read(text: &str) -> Result<AgentConfig, ConfigError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs_err::write(file.path(), text).unwrap();
    AgentConfig::from_file(file.path())
}

/// Every mistake with its place, a line each.
fn told(error: &ConfigError) -> String {
    let ConfigError::Malformed { mistakes, .. } = error else { panic!("{error}") };
    places(&mistakes.errors, &mistakes.sources)
}

#[test]
fn an_interval_is_written_as_people_write_times() {
    for (text, seconds) in [
        ("60", 60),
        ("\"60s\"", 60),
        ("\"60\"", 60),
        ("\"5m\"", 300),
        ("\"5 min\"", 300),
        ("\"1h\"", 3600),
        ("\"1d\"", 86_400),
    ] {
        assert_eq!(read(&format!("interval = {text}\n")).unwrap().interval, seconds, "{text}");
    }
    for text in
        ["\"\"", "\"s\"", "\"1w\"", "\"1.5h\"", "4", "\"2d\"", "true", "\"99999999999999999999h\""]
    {
        let error = read(&format!("interval = {text}\n")).unwrap_err();
        let told = told(&error);
        assert!(told.contains(":1:12: ") && told.contains("write interval ="), "{told}");
    }
}

#[test]
fn z24_how_old_an_authors_last_word_may_be_is_roots_to_say_and_off_by_default() {
    let of = |more: &str| {
        read(&format!("[desired]\nhub = {{ url = \"https://hub.example:8443\" }}\n{more}\n"))
            .map(|config| config.desired.fresh_within_s)
    };
    assert_eq!(of("").unwrap(), None);
    assert_eq!(of("fresh_within = \"7d\"").unwrap(), Some(7 * 86_400));
    assert_eq!(of("fresh_within = 3600").unwrap(), Some(3_600));
    for text in ["\"59m\"", "\"367d\"", "\"soon\"", "true", "-1"] {
        let error = of(&format!("fresh_within = {text}")).unwrap_err();
        let told = told(&error);
        assert!(told.contains("fresh_within"), "{text}: {told}");
    }
    let error = read("[desired]\nfresh_within = \"7d\"\n").unwrap_err();
    assert!(told(&error).contains("there is none"), "{}", told(&error));
}

#[test]
fn all_mistakes_are_told_at_once_each_with_its_place() {
    let text = "intervall = 5\nurl = \"x\"\n[pve]\nnode = 7\ntoken = \"x\"\n[policy]\npending_items = 0\n[metrcs]\n";
    let error = read(text).unwrap_err();
    let told = told(&error);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 6, "{told}");
    let parts = [
        (":1:1: ", "did you mean `interval`?"),
        (":2:1: ", "belongs under [pve]"),
        (":4:8: ", "the name of a node"),
        (":5:1: ", "token_file"),
        (":7:17: ", "1 to 1000"),
        (":8:2: ", "did you mean `metrics`?"),
    ];
    for (line, (place, words)) in lines.iter().zip(parts) {
        assert!(line.contains(place) && line.contains(words), "{line}");
    }
}

#[test]
fn a_hub_and_a_directory_at_once_are_refused_and_a_hub_alone_is_not() {
    let hub = "hub = { url = \"https://hub.example\", credential_file = \"/etc/c\" }\n";
    let config = read(&format!("[desired]\n{hub}")).unwrap();
    assert_eq!(config.desired.hub.unwrap().url.as_deref(), Some("https://hub.example"));
    assert!(config.policy.desired_signed, "unless root says otherwise");
    let both = read(&format!("[desired]\ndir = \"/etc/evenkeel/desired\"\n{hub}")).unwrap_err();
    assert!(told(&both).contains("keep one of them"), "{}", told(&both));
    for (text, words) in [
        ("[desired]\nhub = { url = \"https://hub\", token = \"x\" }\n", "evenkeel enrol"),
        ("[desired.hub]\naddress = \"https://hub\"\n", "write url ="),
        ("[desired]\nhub_url = \"https://hub\"\n", "write hub = { url ="),
        ("[desired.hub]\nurl = 7\n", "an address in quotes"),
    ] {
        let error = read(text).unwrap_err();
        assert!(told(&error).contains(words), "{text}: {}", told(&error));
    }
}

#[test]
fn a_misspelt_key_is_refused_with_its_place() {
    let error = read("host_id = \"a\"\n[pve]\nurll = \"https://x\"\n").unwrap_err();
    let told = told(&error);
    assert!(told.contains("urll") && told.contains(":3:1: "), "{told}");
    assert!(told.contains("did you mean `url`?"), "{told}");
    assert!(!error.hint().is_empty());
}

#[test]
fn x08_a_token_written_into_the_configuration_is_not_shown() {
    for line in [
        "token = \"agent@pve!keel=marked\"",
        "password = \"marked\"",
        "url = \"https://x\"\ntokn = \"agent@pve!keel=marked\"",
        "token_file = agent@pve!keel=marked",
    ] {
        let error = read(&format!("[pve]\n{line}\n")).unwrap_err();
        let told = format!("{error} {error:?} {}", error.hint());
        assert!(!told.contains("marked"), "{told}");
        assert!(self::told(&error).contains(":2:") || self::told(&error).contains(":3:"), "{told}");
    }
    let config = read("[pve]\ntoken_file = \"agent@pve!keel=marked\"\n").unwrap();
    let error = config.pve.token().unwrap_err();
    let told = format!("{error} {error:?} {}", error.hint());
    assert!(!told.contains("marked") && told.contains("token_file"), "{told}");
}

#[test]
fn g27_a_limit_that_cannot_hold_is_refused_with_its_place() {
    let error = read("[policy]\ndestructive_per_day = 5\nstatement_life_s = 90000\n").unwrap_err();
    let told = told(&error);
    assert!(told.contains("60 to 86400") && told.contains(":3:20: "), "{told}");
    let config = read("[trust]\nfile = \"/t.toml\"\n[policy]\npending_items = 7\n").unwrap();
    assert_eq!((config.trust.path(), config.policy.pending_items), ("/t.toml".into(), 7));
}

#[test]
fn metrics_listen_on_loopback_or_ask_for_a_token() {
    assert_eq!(read("").unwrap().metrics.listen, None);
    for here in ["127.0.0.1:9469", "[::1]:0"] {
        let config = read(&format!("[metrics]\nlisten = \"{here}\"\n")).unwrap();
        assert_eq!(config.metrics.listen.unwrap().to_string(), here);
    }
    for wrong in ["0.0.0.0:9469", "192.0.2.1:9469", "[::]:9469", "localhost:9469", "9469"] {
        let error = read(&format!("[metrics]\nlisten = \"{wrong}\"\n")).unwrap_err();
        assert!(matches!(error, ConfigError::Malformed { .. }), "{wrong}: {error}");
        assert!(told(&error).contains(":2:10: "), "the place is told: {error}");
    }
    let told = told(&read("[metrics]\nlisten = \"0.0.0.0:9469\"\n").unwrap_err());
    assert!(told.contains("token_file") && told.contains("0.0.0.0:9469"), "{told}");
    let config = read("[metrics]\nlisten = \"0.0.0.0:9469\"\ntoken_file = \"/t\"\n").unwrap();
    assert_eq!(config.metrics.token_file.unwrap(), PathBuf::from("/t"));
}

#[test]
fn one_fingerprint_or_several_are_pinned() {
    let pin = ["AB"; 32].join(":");
    let one = read(&format!("[pve]\nfingerprint = \"{pin}\"\n")).unwrap();
    let two = read(&format!("[pve]\nfingerprint = [\"{pin}\", \"{pin}\"]\n")).unwrap();
    for (config, count) in [(one, 1), (two, 2)] {
        assert!(
            matches!(config.pve.trust().unwrap(), TlsTrust::Pinned(pins) if pins.len() == count)
        );
    }
    let wrong = read("[pve]\nfingerprint = \"AB:CD\"\n").unwrap();
    assert!(matches!(wrong.pve.trust(), Err(ConfigError::Fingerprint(_))));
}

#[test]
fn only_one_thing_decides_whom_to_trust() {
    let pin = ["AB"; 32].join(":");
    let both = read(&format!("[pve]\nca_file = \"/ca.pem\"\nfingerprint = \"{pin}\"\n")).unwrap();
    assert!(matches!(both.pve.trust(), Err(ConfigError::TwoTrusts)));
    assert!(matches!(read("").unwrap().pve.trust(), Ok(TlsTrust::Platform)));
}

#[test]
fn what_is_missing_is_said_with_the_next_step() {
    let empty = read("").unwrap();
    assert!(matches!(empty.pve.endpoint(), Err(ConfigError::NoUrl)));
    assert!(matches!(empty.pve.token(), Err(ConfigError::NoToken)));
    assert!(ConfigError::NoUrl.hint().contains("PROXMOX_VE_ENDPOINT"));
}

#[test]
fn a_token_that_the_service_manager_hands_over_is_taken_before_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("on-disk");
    fs_err::write(&file, "agent@pve!disk=secret").unwrap();
    let pve = PveConfig { token_file: Some(file.clone()), ..PveConfig::default() };
    let exposed = pve.token_beside(Some(directory.path())).unwrap_err();
    assert!(exposed.to_string().contains("mode"), "a file of ours must be its owner's: {exposed}");
    let copy = directory.path().join("token");
    fs_err::write(&copy, "agent@pve!copy=secret\n").unwrap();
    assert_eq!(pve.token_beside(Some(directory.path())).unwrap().id(), "agent@pve!copy");
    assert!(pve.token_beside(None).is_err(), "nobody else's copy is looked for");
}
