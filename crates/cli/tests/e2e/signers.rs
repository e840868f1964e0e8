//! `signers`: who may sign, from the first file over rotations to recovery, with real keys.

use evenkeel_agent::ambient::Machine;
use evenkeel_agent::authority::Authority;
use evenkeel_agent::effective_clock::wall;
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::sign::HostBinding;

use crate::keys::{KINDS, Operator, steady};

const ROTATE: [&str; 6] = ["signers", "rotate", "--host", "pve1", "--trust", "trust.toml"];
const RECOVER: [&str; 6] = ["signers", "recover", "--host", "pve1", "--trust", "trust.toml"];

fn with<'a>(verb: &[&'a str], rest: &[&'a str]) -> Vec<&'a str> {
    [verb, rest].concat()
}

fn names(operator: &Operator, rotations: &[&str]) -> Vec<String> {
    let mut list = vec!["signers", "list", "--trust", "trust.toml", "-o", "json"];
    for rotation in rotations {
        list.extend_from_slice(&["--rotation", rotation]);
    }
    let told = operator.run(&list).ends_with(0).json();
    let signers = told["signers"].as_array().unwrap();
    signers.iter().map(|signer| signer["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_first_trust_file_is_made_key_by_key_and_listed() {
    let operator = Operator::new();
    operator.generate("ed25519", "alice");
    operator.generate("ecdsa", "vault");
    let told = operator.enrol("alice", "operational").ends_with(0);
    assert!(told.stderr.contains("a key of the role recovery"), "{}", told.stderr);
    let list = ["signers", "list", "--trust", "trust.toml"];
    operator.run(&list).ends_with(3);
    let told = operator.enrol("vault", "recovery").ends_with(0);
    assert_eq!(told.stderr, "");
    let told = operator.run(&list).ends_with(0);
    insta::assert_snapshot!("signers-of-a-trust-file", steady(&told.story()));
    assert_eq!(names(&operator, &[]), ["alice", "vault"]);
}

#[test]
fn a_line_of_allowed_signers_is_enrolled_with_its_validity_or_not_at_all() {
    let operator = Operator::new();
    operator.generate("ed25519", "alice");
    let key = operator.desk.read("alice.pub");
    let enrol = ["signers", "enrol", "line", "--role", "operational", "--trust", "trust.toml"];
    operator.desk.write("line", &format!("alice valid-before=\"20300101Z\" {key}"));
    operator.run(&enrol).ends_with(0);
    let text = operator.desk.read("trust.toml");
    assert!(text.contains("valid_until = \"2030-01-01T00:00:00Z\""), "{text}");
    for (line, why) in [
        (format!("bob cert-authority {key}"), "cannot be taken over"),
        (format!("bob namespaces=\"git\" {key}"), "does not allow"),
        (format!("*@example.com {key}"), "a signer's name"),
        (format!("bob {key}carol {key}"), "more than one line"),
        (key.clone(), "add --name NAME"),
    ] {
        operator.desk.write("line", &line);
        let told = operator.run(&enrol);
        assert_ne!(told.code, 0, "{line}");
        assert!(told.stderr.contains(why), "{line}: {}", told.stderr);
    }
    assert_eq!(operator.desk.read("trust.toml"), text, "nothing was written");
}

#[test]
fn v06_v24_weak_keys_and_keys_of_other_types_are_not_enrolled() {
    let operator = Operator::new();
    // A point of small order, the key of a standard, and RSA.
    let small = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let published =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea";
    for (key, reason) in [(small, "weak_key"), (published, "weak_key")] {
        operator.desk.write("alice.pub", key);
        let told = operator.enrol("alice", "operational").ends_with(4);
        assert!(told.stderr.contains(&format!("refused as {reason}")), "{}", told.stderr);
    }
    operator.generate_with(&["-t", "rsa", "-b", "2048", "-N", ""], "bob");
    let told = operator.enrol("bob", "operational").ends_with(4);
    assert!(told.stderr.contains("refused as key_type"), "{}", told.stderr);
    assert!(!operator.has("trust.toml"));
}

#[test]
fn what_cannot_be_enrolled_is_told_and_the_file_stays_as_it_is() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let before = operator.desk.read("trust.toml");
    // T14: one key under both roles, one name twice.
    let told = operator.enrol("alice", "recovery").ends_with(3);
    insta::assert_snapshot!("a-key-that-is-enrolled-already", told.story());
    operator.generate("ed25519", "other");
    let enrol = |file: &str, more: &[&str]| {
        let verb = ["signers", "enrol", file, "--role", "operational", "--trust", "trust.toml"];
        operator.run(&with(&verb, more))
    };
    let told = enrol("other.pub", &["--name", "alice"]).ends_with(3);
    assert!(told.stderr.contains("the same name"), "{}", told.stderr);
    let told = enrol("other", &["--name", "other"]).ends_with(3);
    assert!(told.stderr.contains("is a private key"), "{}", told.stderr);
    let told = enrol("other.pub", &["--name", "other", "--sk", "verification"]).ends_with(64);
    assert!(told.stderr.contains("is no FIDO key"), "{}", told.stderr);
    enrol("other.pub", &["--name", "two words"]).ends_with(64);
    assert_eq!(operator.desk.read("trust.toml"), before);
    // A file that does not read is not edited.
    operator.desk.write("trust.toml", "version = 1\n");
    enrol("other.pub", &["--name", "other"]).ends_with(3);
    assert_eq!(operator.desk.read("trust.toml"), "version = 1\n");
}

#[test]
fn a_rotation_is_signed_by_the_old_and_the_new_key_and_the_next_one_follows_it() {
    for kind in KINDS {
        let operator = Operator::new();
        operator.trust(kind);
        operator.generate(kind, "bob");
        let change = ["--add", "bob=bob.pub", "--remove", "alice", "--key", "alice"];
        let rest = ["--out", "r2.json", "--reason", "yearly change"];
        let told = operator.agrees(&with(&ROTATE, &[&change[..], &rest[..]].concat())).ends_with(0);
        assert!(told.stderr.contains("added        bob operational SHA256:"), "{}", told.stderr);
        assert!(told.stderr.contains("removed      alice operational SHA256:"), "{}", told.stderr);
        let verify = ["verify", "r2.json", "--trust", "trust.toml"];
        let told = operator.run(&verify).ends_with(0);
        if kind == KINDS[0] {
            insta::assert_snapshot!("a-rotation-that-holds", steady(&told.story()));
        }
        assert_eq!(names(&operator, &["r2.json"]), ["bob", "vault"]);

        operator.generate(kind, "carol");
        let change = ["--add", "carol=carol.pub", "--key", "bob", "--out", "r3.json"];
        // Without the rotation before it, bob is nobody.
        let told = operator.agrees(&with(&ROTATE, &change)).ends_with(4);
        assert!(told.stderr.contains("refused as unknown_signer"), "{}", told.stderr);
        let after = with(&ROTATE, &["--rotation", "r2.json"]);
        operator.agrees(&with(&after, &change)).ends_with(0);
        assert_eq!(names(&operator, &["r2.json", "r3.json"]), ["bob", "carol", "vault"]);
        // Out of order, or twice, the chain does not go on.
        let list = ["signers", "list", "--trust", "trust.toml", "--rotation"];
        for order in [&["r3.json"][..], &["r2.json", "--rotation", "r2.json"]] {
            let told = operator.run(&with(&list, order));
            assert_ne!(told.code, 0, "{order:?}");
        }
        // Everything signed before is void.
        operator.approve("approval.json").ends_with(0);
        let verify = ["verify", "approval.json", "--trust", "trust.toml", "--rotation", "r2.json"];
        let told = operator.run(&verify).ends_with(4);
        assert!(told.stderr.contains("refused as key_revoked"), "{}", told.stderr);
    }
}

#[test]
fn t12_t13_roles_are_kept_apart_and_nothing_is_written_against_them() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.generate("ed25519", "bob");
    for (verb, change, key) in [
        (&ROTATE, &["--add-recovery", "bob=bob.pub"][..], "alice"),
        (&ROTATE, &["--add", "bob=bob.pub"], "vault"),
        (&RECOVER, &["--add", "bob=bob.pub"], "alice"),
    ] {
        let rest = ["--key", key, "--out", "r.json"];
        let told = operator.agrees(&with(verb, &[change, &rest].concat())).ends_with(4);
        assert!(told.stderr.contains("refused as role_denied"), "{}", told.stderr);
        assert!(!operator.has("r.json"));
    }
}

#[test]
fn t17_a_rotation_that_would_lock_everybody_out_is_refused_before_anybody_signs() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let rest = ["--remove", "alice", "--key", "alice", "--out", "r.json"];
    let told = operator.run(&with(&ROTATE, &rest)).ends_with(3);
    insta::assert_snapshot!("a-rotation-without-operational-keys", told.story());
    assert!(!operator.has("r.json"));
}

#[test]
fn t16_a_new_key_that_is_not_here_cannot_sign_and_its_holder_signs_elsewhere() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.generate("ecdsa", "bob");
    operator.shell("mkdir bobs && mv bob bobs/bob").ends_with(0);
    let change = with(&ROTATE, &["--add", "bob=bob.pub", "--key", "alice"]);
    let told = operator.agrees(&with(&change, &["--out", "r.json"])).ends_with(4);
    assert!(told.stderr.contains("--elsewhere bob"), "{}", told.stderr);
    assert!(!operator.has("r.json"));
    let told = operator.agrees(&with(&change, &["--elsewhere", "bob", "--out", "half.json"]));
    assert!(told.ends_with(0).stderr.contains("note: bob still has to sign"));
    let verify = ["verify", "half.json", "--trust", "trust.toml"];
    let told = operator.run(&verify).ends_with(3);
    assert!(told.stderr.contains("the new key of bob did not sign"), "{}", told.stderr);
    operator.agrees(&["sign", "half.json", "--key", "bobs/bob", "--out", "r.json"]).ends_with(0);
    operator.run(&["verify", "r.json", "--trust", "trust.toml"]).ends_with(0);
    assert_eq!(names(&operator, &["r.json"]), ["alice", "bob", "vault"]);
}

#[test]
fn t18_recovery_takes_a_host_back_with_a_key_that_never_leaves_its_safe() {
    let operator = Operator::new();
    operator.trust("ed25519");
    // Whoever has alice's key makes theirs the only one.
    operator.generate("ed25519", "mallory");
    let theft = ["--add", "mallory=mallory.pub", "--remove", "alice", "--key", "alice"];
    operator.agrees(&with(&ROTATE, &[&theft[..], &["--out", "r2.json"]].concat())).ends_with(0);
    operator.generate("ed25519", "carol");
    operator.generate("ecdsa", "vault2");
    let change = ["--rotation", "r2.json", "--remove", "mallory", "--add", "carol=carol.pub"];
    let change =
        [&change[..], &["--remove", "vault", "--add-recovery", "vault2=vault2.pub"]].concat();
    let told = operator
        .run(&with(&with(&RECOVER, &change), &["--prepare", "statement.json"]))
        .ends_with(0);
    insta::assert_snapshot!("a-recovery-that-is-prepared", steady(&told.story()));
    // The printed commands, with the key of the safe.
    let commands: Vec<String> = told
        .stderr
        .lines()
        .skip_while(|line| !line.starts_with("Sign it where"))
        .filter(|line| line.starts_with("  "))
        .map(|line| line.replace("-f KEY", "-f vault"))
        .collect();
    operator.shell(&commands.join("\n")).ends_with(0);
    let verify = ["verify", "rotation.json", "--trust", "trust.toml", "--rotation", "r2.json"];
    operator.run(&verify).ends_with(0);
    assert_eq!(names(&operator, &["r2.json", "rotation.json"]), ["carol", "vault2"]);
}

#[test]
fn t10_a_clock_change_is_made_for_the_mark_the_host_reports() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap();
    let now = now.to_string();
    let set = ["--set-clock", "2046-01-01T00:00:00Z", &now];
    let rest = ["--key", "vault", "--out", "r.json"];
    let told = operator.agrees(&with(&RECOVER, &[&set[..], &rest].concat())).ends_with(0);
    let change = format!("2046-01-01T00:00:00Z -> {now}");
    assert!(told.stderr.contains(&change), "{}", told.stderr);
    operator.run(&["verify", "r.json", "--trust", "trust.toml"]).ends_with(0);
    assert_eq!(names(&operator, &["r.json"]), ["alice", "vault"]);
    let bad = ["--set-clock", "2046-01-01", "2026-01-01T00:00:00Z"];
    operator.run(&with(&RECOVER, &[&bad[..], &rest].concat())).ends_with(64);
}

#[test]
fn x05_a_clock_change_is_signed_by_a_recovery_key_and_for_about_now() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let far = ["--set-clock", "2046-01-01T00:00:00Z", "2036-01-01T00:00:00Z"];
    let rest = ["--key", "vault", "--out", "r.json"];
    let told = operator.agrees(&with(&RECOVER, &[&far[..], &rest].concat()));
    assert_ne!(told.code, 0);
    assert!(told.stderr.contains("set the clock right first"), "{}", told.stderr);
    let rest = ["--key", "alice", "--out", "r.json"];
    let told = operator.run(&with(&ROTATE, &[&far[..], &rest].concat())).ends_with(4);
    assert!(told.stderr.contains("only a recovery key sets the mark of time"), "{}", told.stderr);
    assert!(!operator.has("r.json"));
}

#[test]
fn a_rotation_needs_a_pinned_host_and_a_change() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let rest = ["--key", "alice", "--out", "r.json"];
    let told = operator.run(&with(&ROTATE, &rest)).ends_with(64);
    assert!(told.stderr.contains("nothing would change"), "{}", told.stderr);
    operator.generate("ed25519", "bob");
    let add = ["--add", "bob=bob.pub"];
    let other = ["signers", "rotate", "--host", "pve2", "--trust", "trust.toml"];
    let told = operator.run(&with(&other, &[&add[..], &rest].concat())).ends_with(4);
    insta::assert_snapshot!("a-rotation-for-a-host-that-is-not-pinned", steady(&told.story()));
    let told =
        operator.run(&with(&ROTATE, &[&["--remove", "zoe"], &rest[..]].concat())).ends_with(5);
    assert!(told.stderr.contains("there is no signer zoe"), "{}", told.stderr);
    assert!(!operator.has("r.json"));
}

#[test]
fn z02_yes_on_the_command_line_signs_no_rotation_no_recovery_and_no_acknowledgement() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.generate("ed25519", "bob");
    let change = ["--add", "bob=bob.pub", "--yes", "--key"];
    for (verb, key, what) in [(&ROTATE, "alice", "a rotation"), (&RECOVER, "vault", "a recovery")] {
        let line = with(verb, &[&change[..], &[key, "--out", "r.json"]].concat());
        let told = operator.run(&line).ends_with(64);
        let refused = format!("nothing was signed: {what} of the signers is signed by a person");
        assert!(told.stderr.contains(&refused), "{}", told.stderr);
        assert!(told.stderr.contains("hint: a script gives --prepare FILE"), "{}", told.stderr);
        // Nor where the same is in a file.
        operator.run(&with(verb, &["--add", "bob=bob.pub", "--prepare", "s.json"])).ends_with(0);
        let sign = ["sign", "s.json", "--key", key, "--out", "r.json", "--yes"];
        let told = operator.run(&sign).ends_with(64);
        assert!(told.stderr.contains(&refused), "{}", told.stderr);
        assert!(!operator.has("r.json"));
        // A person is asked although they said yes before.
        let line = sign.join(" ");
        let asked = operator.on_a_terminal(&line).shows("[y/N] ").types("n").ends();
        assert_eq!(asked.0, 1, "{}", asked.1);
        assert!(!operator.has("r.json"));
        operator.shell("rm s.json").ends_with(0);
    }
}

/// What the agent's first start leaves in its journal.
fn first_start(operator: &Operator) {
    let state = StateDir::new(operator.path("state"));
    let mut journal = state.lock_journal(&Machine).unwrap();
    let host = operator.host.public().fingerprint();
    let host = HostBinding { id: "pve1".parse().unwrap(), key: host };
    let trust = operator.path("trust.toml");
    let authority = Authority::load(Some(&trust), host, journal.state()).unwrap();
    for record in authority.owed() {
        journal.append(record.clone(), wall(&Machine)).unwrap();
    }
}

#[test]
fn a_file_the_agent_was_started_with_takes_no_key_and_the_rotation_is_printed() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let trust = operator.path("trust.toml").display().to_string();
    let state = operator.path("state").display().to_string();
    operator.desk.write(
        "agent.toml",
        &format!("host_id = \"pve1\"\n[state]\ndir = \"{state}\"\n[trust]\nfile = \"{trust}\"\n"),
    );
    for name in ["early", "late", "vault2"] {
        operator.generate("ed25519", name);
    }
    let enrol = |name: &str, role: &str, file: &str| {
        let key = format!("{name}.pub");
        operator.run(&[
            "signers",
            "enrol",
            &key,
            "--name",
            name,
            "--role",
            role,
            "--trust",
            file,
            "-c",
            "agent.toml",
        ])
    };
    // Before the first start it is a file as any other.
    enrol("early", "author", "trust.toml").ends_with(0);
    first_start(&operator);
    let before = operator.desk.read("trust.toml");
    for (name, role, command) in [
        (
            "late",
            "author",
            "signers rotate --host pve1 --add-author late=late.pub --trust trust.toml",
        ),
        (
            "late",
            "operational",
            "signers rotate --host pve1 --add late=late.pub --trust trust.toml",
        ),
        ("vault2", "recovery", "signers recover --host pve1 --add-recovery vault2=vault2.pub"),
    ] {
        let told = enrol(name, role, "trust.toml").ends_with(1);
        assert!(told.stderr.contains(command), "{}", told.stderr);
        assert!(told.stderr.contains("evenkeel submit rotation.json"), "{}", told.stderr);
        assert_eq!(operator.desk.read("trust.toml"), before, "nothing was written");
    }
    // A copy of it would not do either; a file for another host, or one of a higher version, is no concern of this agent.
    operator.desk.write("copy.toml", &before);
    enrol("late", "author", "copy.toml").ends_with(1);
    enrol("late", "operational", "elsewhere.toml").ends_with(0);
    operator.desk.write("trust.toml", &before.replace("version = 1", "version = 2"));
    enrol("late", "author", "trust.toml").ends_with(0);
    // The agent starts with that, and would not with the file it refused to write.
    first_start(&operator);
}
