//! Names that stand in paths and parameters, checked before they get there.
//!
//! A name that PVE would not take is refused here; a name that could bend a path (`..`, a slash)
//! or smuggle a second key into a list (a comma) cannot be built.

pub use evenkeel_core::operation::StorageName;

evenkeel_core::name! {
    /// A snapshot of a guest.
    SnapshotName, "snapshot name", is_snapshot,
    "it must have 2 to 40 letters, digits, `-` or `_`, beginning with a letter, and not be reserved"
}

evenkeel_core::name! {
    /// One key of a guest's config, such as `cores` or `net0`.
    ConfigKey, "config key", is_config_key,
    "it must be lower-case letters, digits, `-` or `_`, and not a parameter of the call itself"
}

evenkeel_core::name! {
    /// The digest of a config as it was read: what a write is bound to. Never empty, because PVE
    /// skips the check for an empty one.
    ConfigDigest, "config digest", is_digest, "it must be 40 hexadecimal digits"
}

fn is_snapshot(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (2..=40).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(inner)
        && !["current", "vzdump", "pending"].contains(&text)
}

/// Parameters that steer a call instead of setting a key. `force` destroys volumes, `skiplock`
/// ignores locks: none of them may come in disguised as configuration.
const CALL_PARAMETERS: [&str; 27] = [
    "archive",
    "background_delay",
    "bwlimit",
    "current",
    "delete",
    "destroy-unreferenced-disks",
    "digest",
    "force",
    "ha-managed",
    "ignore-unpack-errors",
    "import-working-storage",
    "live-restore",
    "node",
    "ostemplate",
    "password",
    "pool",
    "purge",
    "restore",
    "revert",
    "skiplock",
    "snapshot",
    "ssh-public-keys",
    "start",
    "storage",
    "unique",
    "vmid",
    "idlist",
];

fn is_config_key(text: &str) -> bool {
    let inner =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=40).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(inner)
        && !CALL_PARAMETERS.contains(&text)
}

fn is_digest(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_bend_a_path_cannot_be_built() {
        for text in ["", ".", "..", "a/b", "a b", "a%2e", "é1", "a,b", "a\n"] {
            assert!(text.parse::<StorageName>().is_err(), "{text}");
            assert!(text.parse::<SnapshotName>().is_err(), "{text}");
            assert!(text.parse::<ConfigKey>().is_err(), "{text}");
        }
        for text in ["local-lvm", "store.1", "ab"] {
            assert_eq!(text.parse::<StorageName>().unwrap().as_str(), text);
        }
        assert!("current".parse::<SnapshotName>().is_err());
        assert_eq!("before-update".parse::<SnapshotName>().unwrap().as_str(), "before-update");
    }

    #[test]
    fn a_parameter_of_the_call_is_not_a_config_key() {
        for text in ["force", "skiplock", "delete", "digest", "vmid", "restore"] {
            assert!(text.parse::<ConfigKey>().is_err(), "{text}");
        }
        for text in ["cores", "net0", "allow-ksm", "migrate_speed"] {
            assert_eq!(text.parse::<ConfigKey>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn an_empty_digest_cannot_be_sent() {
        assert!("".parse::<ConfigDigest>().is_err());
        assert!("da39a3ee5e6b4b0d3255bfef95601890afd80709".parse::<ConfigDigest>().is_ok());
    }
}
