//! The host key against real OpenSSH, a real file system, and files that are not right.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{Expected, HostBinding, TrustVersion, verify};
use tempfile::TempDir;

use super::*;

fn state() -> (TempDir, std::path::PathBuf) {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("state");
    (dir, state)
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn ssh_keygen(arguments: &[&str]) -> String {
    let output = Command::new("ssh-keygen").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn item(key: &HostKey) -> PendingItem {
    let names = ["destroy-unreferenced-disks", "purge", "stop", "unprotect"];
    PendingItem {
        op: ActionKind::Destroy,
        host: HostBinding { id: "pve1".parse().unwrap(), key: key.public().fingerprint() },
        guest: "qemu/101".parse().unwrap(),
        guest_name: "web".to_owned(),
        expected: Expected::Free,
        params: names
            .map(|name| (name.to_owned(), "0".to_owned()))
            .into_iter()
            .chain(["final_backup", "not_in_backup"].map(|name| (name.to_owned(), String::new())))
            .collect(),
        losses: Vec::new(),
        last_backup: evenkeel_core::sign::LastBackup::Never,
        serial: evenkeel_core::sign::Nonce::from_random([5; 16]).unwrap(),
        raised_at: UnixSeconds(1_800_000_000),
        trust_version: TrustVersion(1),
    }
}

#[test]
fn a_first_start_makes_a_private_key_that_ssh_keygen_reads_and_later_starts_keep_it() {
    let (_dir, state) = state();
    let key = HostKey::load_or_create(&state).unwrap();
    assert_eq!((mode(&state), mode(&state.join(PRIVATE))), (0o700, 0o600));
    let read = ssh_keygen(&["-y", "-f", state.join(PRIVATE).to_str().unwrap()]);
    assert_eq!(PublicKey::from_line(&read).unwrap(), *key.public());
    let published = std::fs::read_to_string(state.join(PUBLIC)).unwrap();
    assert_eq!(published, read, "the comment in the private file is that of the public one");
    let before = std::fs::read(state.join(PRIVATE)).unwrap();
    let again = HostKey::load_or_create(&state).unwrap();
    assert_eq!(again.public(), key.public());
    assert_eq!(std::fs::read(state.join(PRIVATE)).unwrap(), before);
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 2, "nothing else is left behind");
}

#[test]
fn two_hosts_have_two_keys() {
    let (_one, one) = state();
    let (_two, two) = state();
    let keys = [&one, &two].map(|state| HostKey::load_or_create(state).unwrap());
    assert_ne!(keys[0].public(), keys[1].public());
}

#[test]
fn starts_at_the_same_time_agree_on_one_key() {
    let (_dir, state) = state();
    std::fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
    let keys: Vec<PublicKey> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| HostKey::load_or_create(&state).unwrap().public().clone()))
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn a_key_that_is_there_is_never_replaced() {
    let (_dir, state) = state();
    let key = HostKey::load_or_create(&state).unwrap();
    // As if another start had been first, between our looking and our making.
    create(&state).unwrap();
    install(&state, PUBLIC, b"other", 0o644).unwrap();
    assert_eq!(HostKey::load_or_create(&state).unwrap().public(), key.public());
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 2);
}

#[test]
fn a_key_made_by_ssh_keygen_is_taken_whatever_its_comment() {
    let (_dir, state) = state();
    std::fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
    for comment in
        ["", "a", "ab", "abc", "root@pve1.example", "nine char", "x".repeat(300).as_str()]
    {
        let path = state.join(PRIVATE);
        ssh_keygen(&["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path.to_str().unwrap()]);
        let key = HostKey::load_or_create(&state).unwrap();
        let read = ssh_keygen(&["-y", "-f", path.to_str().unwrap()]);
        assert_eq!(PublicKey::from_line(&read).unwrap(), *key.public(), "{comment:?}");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(state.join(PUBLIC)).unwrap();
    }
}

#[test]
fn a_pending_item_is_signed_so_that_openssh_and_the_operators_tool_verify_it() {
    let (dir, state) = state();
    let key = HostKey::load_or_create(&state).unwrap();
    let sealed = key.sign_pending(&item(&key)).unwrap();
    let envelope = Envelope::parse(sealed.as_bytes()).unwrap();
    assert_eq!(PendingItem::verify(&envelope, key.public()).unwrap(), item(&key));

    let json: serde_json::Value = serde_json::from_str(&sealed).unwrap();
    let armour = json["signatures"][0].as_str().unwrap();
    assert_eq!(verify(armour, Namespace::Pending, envelope.payload()).unwrap().key, *key.public());
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("allowed"), format!("pve1 {}\n", key.public())).unwrap();
    std::fs::write(at("sig"), armour).unwrap();
    std::fs::write(at("payload"), envelope.payload()).unwrap();
    let verified = Command::new("ssh-keygen")
        .args(["-Y", "verify", "-f", "allowed", "-I", "pve1", "-n", "evenkeel.pending.v1"])
        .args(["-s", "sig"])
        .stdin(std::fs::File::open(at("payload")).unwrap())
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn an_item_of_another_host_is_not_signed() {
    let (_one, one) = state();
    let (_two, two) = state();
    let [one, two] = [&one, &two].map(|state| HostKey::load_or_create(state).unwrap());
    let refusal = one.sign_pending(&item(&two)).unwrap_err();
    assert_eq!(refusal.reason, ReasonCode::HostMismatch);
}

#[test]
fn a_key_or_a_directory_others_can_reach_is_refused_by_its_mode() {
    for bits in [0o640, 0o604, 0o620, 0o601, 0o660] {
        let (_dir, state) = state();
        HostKey::load_or_create(&state).unwrap();
        chmod(&state.join(PRIVATE), bits);
        let error = HostKey::load_or_create(&state).unwrap_err();
        assert!(matches!(error, HostKeyError::Exposed { mode, .. } if mode == bits), "{error}");
        assert!(error.to_string().contains(&format!("mode {bits:04o}")), "{error}");
    }
    let (_dir, state) = state();
    HostKey::load_or_create(&state).unwrap();
    chmod(&state, 0o750);
    let error = HostKey::load_or_create(&state).unwrap_err();
    assert!(matches!(error, HostKeyError::Exposed { .. }), "{error}");
}

#[test]
fn a_directory_that_others_can_only_see_and_that_holds_no_key_is_tightened() {
    for bits in [0o755, 0o750, 0o711] {
        let (_dir, state) = state();
        std::fs::create_dir(&state).unwrap();
        chmod(&state, bits);
        HostKey::load_or_create(&state).unwrap();
        assert_eq!(mode(&state), 0o700, "{bits:o}");
        chmod(&state, bits);
        let error = HostKey::load_or_create(&state).unwrap_err();
        assert!(matches!(error, HostKeyError::Exposed { .. }), "it holds a key: {error}");
        assert_eq!(mode(&state), bits, "what is refused is not changed");
    }
    for bits in [0o777, 0o770, 0o722, 0o1777] {
        let (_dir, state) = state();
        std::fs::create_dir(&state).unwrap();
        chmod(&state, bits);
        let error = HostKey::load_or_create(&state).unwrap_err();
        assert!(matches!(error, HostKeyError::Exposed { .. }), "others may have written: {error}");
    }
}

#[test]
fn a_key_or_a_directory_of_another_user_is_refused_by_its_owner() {
    if !rustix::process::geteuid().is_root() {
        // Only root can give a file away; the check itself is what the next line of defence needs.
        return;
    }
    for name in [PRIVATE, ""] {
        let (_dir, state) = state();
        HostKey::load_or_create(&state).unwrap();
        std::os::unix::fs::chown(state.join(name), Some(12_345), None).unwrap();
        let error = HostKey::load_or_create(&state).unwrap_err();
        assert!(matches!(error, HostKeyError::Owner { owner: 12_345, .. }), "{error}");
        std::os::unix::fs::chown(state.join(name), Some(0), None).unwrap();
    }
}

#[test]
fn a_link_in_place_of_the_key_or_its_directory_is_refused() {
    let (dir, state) = state();
    HostKey::load_or_create(&state).unwrap();
    std::fs::rename(state.join(PRIVATE), dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), state.join(PRIVATE)).unwrap();
    assert!(matches!(HostKey::load_or_create(&state), Err(HostKeyError::Io(_))));
    let linked = dir.path().join("linked");
    std::os::unix::fs::symlink(&state, &linked).unwrap();
    let error = HostKey::load_or_create(&linked).unwrap_err();
    assert!(matches!(error, HostKeyError::Kind { .. }), "{error}");
}

#[test]
fn a_file_that_is_no_such_key_is_refused_and_left_as_it_is() {
    let (dir, state) = state();
    let key = HostKey::load_or_create(&state).unwrap();
    let path = state.join(PRIVATE);
    let good = std::fs::read_to_string(&path).unwrap();
    let made = |kind: &str, passphrase: &str| {
        let file = dir.path().join(format!("{kind}{passphrase}"));
        let file = file.to_str().unwrap();
        ssh_keygen(&["-q", "-t", kind, "-N", passphrase, "-f", file]);
        std::fs::read_to_string(file).unwrap()
    };
    let bad = [
        String::new(),
        "not a key\n".to_owned(),
        good.trim_end().to_owned(),
        format!("{good}\n"),
        good.replacen("b3BlbnNzaC", "b3BlbnNzaD", 1),
        made("ecdsa", ""),
        made("ed25519", "secret"),
    ];
    for text in bad {
        std::fs::write(&path, &text).unwrap();
        let error = HostKey::load_or_create(&state).unwrap_err();
        assert!(matches!(error, HostKeyError::Malformed { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it was overwritten");
    }
    std::fs::write(&path, good).unwrap();
    assert_eq!(HostKey::load_or_create(&state).unwrap().public(), key.public());
}

/// Every byte of the decoded file is held by a rule, but for the check numbers together and the comment.
#[test]
fn one_byte_changed_anywhere_in_a_key_is_noticed_or_leaves_the_key_the_same() {
    let secret = SigningKey::from_bytes(&[7; 32]);
    let text = openssh::encode(&secret, 1, "c");
    let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let decode = |bytes: &[u8]| {
        use base64::Engine as _;
        let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
        let armoured = format!(
            "-----BEGIN OPENSSH PRIVATE KEY-----\n{base64}\n-----END OPENSSH PRIVATE KEY-----\n"
        );
        openssh::decode(&armoured)
    };
    let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, body).unwrap();
    assert_eq!(decode(&bytes).unwrap(), secret);
    let mut unnoticed = 0;
    for place in 0..bytes.len() {
        let mut bent = bytes.clone();
        bent[place] ^= 1;
        if let Ok(key) = decode(&bent) {
            assert_eq!(key, secret);
            unnoticed += 1;
        }
    }
    assert_eq!(unnoticed, 1, "only the letter of the comment may change unnoticed");
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "cut to {length}");
    }
    // Padding must fill a block and no more, whatever the length before it says.
    let private_bytes: u8 = 8 + 15 + 36 + 68 + 5 + 4;
    let length_at = bytes.len() - usize::from(private_bytes) - 1;
    assert_eq!(bytes[length_at], private_bytes, "the place of the private part's length");
    for more in [-4_i16, -1, 1, 8] {
        let mut bent = bytes.clone();
        bent[length_at] = u8::try_from(i16::from(private_bytes) + more).unwrap();
        bent.truncate(bytes.len().min(bytes.len().wrapping_add_signed(isize::from(more))));
        bent.extend((0..more).map(|pad| u8::try_from(pad + 5).unwrap()));
        assert_eq!(decode(&bent), Err("its padding is wrong"), "{more}");
    }
}

#[test]
fn a_public_file_of_another_key_is_refused_and_a_missing_one_is_written() {
    let (_dir, state) = state();
    let key = HostKey::load_or_create(&state).unwrap();
    let path = state.join(PUBLIC);
    std::fs::remove_file(&path).unwrap();
    HostKey::load_or_create(&state).unwrap();
    let line = std::fs::read_to_string(&path).unwrap();
    assert_eq!(PublicKey::from_line(&line).unwrap(), *key.public());
    std::fs::write(&path, "ssh-ed25519 AAAA other\n").unwrap();
    let error = HostKey::load_or_create(&state).unwrap_err();
    assert!(matches!(error, HostKeyError::OtherPublic { .. }), "{error}");
}

#[test]
fn what_a_crash_left_is_taken_away_at_the_next_start() {
    let (_dir, state) = state();
    HostKey::load_or_create(&state).unwrap();
    let left = state.join(format!("{UNFINISHED}0123456789abcdef"));
    // As after a crash between the link and the removal of the temporary name.
    std::fs::hard_link(state.join(PRIVATE), &left).unwrap();
    HostKey::load_or_create(&state).unwrap();
    assert!(!left.exists());
}

#[test]
fn the_secret_is_in_no_debug_text_and_no_error() {
    let (_dir, state) = state();
    let key = HostKey::load_or_create(&state).unwrap();
    let text = std::fs::read_to_string(state.join(PRIVATE)).unwrap();
    let secret_line = text.lines().nth(3).unwrap();
    let hex = evenkeel_core::operate::operation::IdentityHash(key.secret.to_bytes()).to_string();
    let shown = format!("{key:?}");
    assert!(shown.contains("ssh-ed25519") && !shown.contains(&hex), "{shown}");
    assert!(!shown.contains(&format!("{:?}", key.secret.to_bytes())), "{shown}");
    std::fs::write(state.join(PRIVATE), text.replace("END", "ENDE")).unwrap();
    let error = HostKey::load_or_create(&state).unwrap_err();
    assert!(!format!("{error:?} {error}").contains(secret_line));
}
