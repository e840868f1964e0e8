//! Names that stand in paths and parameters, checked before they get there.
//!
//! A name that PVE would not take is refused here; a name that could bend a path (`..`, a slash)
//! or smuggle a second key into a list (a comma) cannot be built.

use crate::registry::KeyRef;

crate::name! {
    /// A snapshot of a guest.
    SnapshotName, "snapshot name", is_snapshot,
    "it must have 2 to 40 letters, digits, `-` or `_`, beginning with a letter, and not be reserved"
}

crate::name! {
    /// One key of a guest's config, such as `cores` or `net0`.
    ConfigKey, "config key", is_config_key,
    "it must be lower-case letters, digits, `-` or `_`, and not a parameter of the call itself"
}

impl From<KeyRef> for ConfigKey {
    /// The registry has no key that is a parameter of a call.
    fn from(key: KeyRef) -> Self {
        Self(key.to_string())
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::GuestKind;
    use crate::operate::operation::StorageName;
    use crate::registry::{find, table};

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
    fn every_key_of_the_registry_is_a_config_key() {
        for kind in GuestKind::ALL {
            for row in table(kind) {
                let name = row.slots.map_or(row.name.to_owned(), |_| format!("{}0", row.name));
                let key = find(kind, &name).unwrap();
                assert_eq!(name.parse(), Ok(ConfigKey::from(key)));
            }
        }
    }
}
