//! Whether a storage takes one more backup of a guest: its retention, and how many may be protected.
//!
//! Asked before the guest is stopped for its backup. It only refuses; nothing here makes room.

use super::Archive;
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::StorageName;

/// How many protected backups of a guest Proxmox lets somebody have who may not configure the storage, unless the
/// storage says otherwise.
const PROTECTED_MAX: u64 = 5;

/// What bounds the backups of one guest on a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackupLimits {
    /// How many that are not protected retention keeps; none if it keeps all.
    pub kept: Option<u64>,
    /// How many may be protected; none if any number may.
    pub protected: Option<u64>,
}

impl BackupLimits {
    /// By the storage's retention, and by what it says of protected backups where we may read that. Who may not configure
    /// a storage is bound to a few.
    pub fn of(retention: &str, configured: Option<ProtectedLimit>) -> Self {
        let protected = match configured {
            Some(ProtectedLimit(limit)) => limit,
            None => Some(PROTECTED_MAX),
        };
        Self { kept: keep_total(retention), protected }
    }

    /// Refuses a further backup that Proxmox would refuse: with `remove=0` nothing makes room for it.
    pub fn judge(self, storage: &StorageName, listed: &[Archive]) -> Result<(), Refusal> {
        let count = |protected| {
            listed.iter().filter(|archive| archive.protected == protected).count() as u64
        };
        let full = |what: &str, limit: u64| {
            let why = format!(
                "{storage} accepts no further backup of this guest: it keeps {limit} {what}; remove one, or name another \
                 storage"
            );
            Err(Refusal::new(ReasonCode::Storage, why))
        };
        match (self.kept, self.protected) {
            (Some(limit), _) if count(false) >= limit => full("by its retention", limit),
            (_, Some(limit)) if count(true) >= limit => full("that are protected", limit),
            (_, _) => Ok(()),
        }
    }
}

/// What a storage's own configuration says of protected backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectedLimit(Option<u64>);

impl ProtectedLimit {
    /// `max-protected-backups` as it is configured: a negative number is no limit, and neither is nothing, for whoever
    /// may read it.
    pub fn configured(text: Option<&str>) -> Self {
        Self(text.and_then(|text| text.trim().parse().ok()))
    }
}

/// How many backups a retention keeps in all, as Proxmox adds it up; none if it keeps all. Read from a property string
/// and from JSON alike, because releases differ.
fn keep_total(retention: &str) -> Option<u64> {
    let mut words =
        retention.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    let mut total = 0_u64;
    while let Some(word) = words.next() {
        if word.starts_with("keep-") {
            let number = words.by_ref().find(|next| !next.is_empty());
            let number: u64 = number.and_then(|number| number.parse().ok()).unwrap_or(0);
            if word == "keep-all" && number > 0 {
                return None;
            }
            total = total.saturating_add(number);
        }
    }
    (total > 0).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_that_proxmox_would_find_full_is_full() {
        for (retention, kept) in [
            ("", None),
            ("keep-all=1", None),
            ("keep-all=0", None),
            ("keep-last=3", Some(3)),
            ("keep-last=3,keep-daily=7", Some(10)),
            ("{\"keep-last\":\"3\",\"keep-weekly\":2}", Some(5)),
            ("{\"keep-all\":1}", None),
        ] {
            assert_eq!(BackupLimits::of(retention, None).kept, kept, "{retention}");
        }
        let configured =
            |text| BackupLimits::of("", Some(ProtectedLimit::configured(text))).protected;
        assert_eq!(
            [configured(None), configured(Some("-1")), configured(Some("2"))],
            [None, None, Some(2)]
        );
        assert_eq!(
            BackupLimits::of("", None).protected,
            Some(PROTECTED_MAX),
            "who may not read it"
        );
        let listed = |plain: usize, protected: usize| {
            let archive = |protected| Archive {
                volume: "store:backup/a".parse().unwrap(),
                size_bytes: Some(1),
                notes: String::new(),
                protected,
            };
            let plain = std::iter::repeat_n(archive(false), plain);
            plain.chain(std::iter::repeat_n(archive(true), protected)).collect::<Vec<_>>()
        };
        let limits = BackupLimits { kept: Some(2), protected: Some(1) };
        for (plain, protected, room) in [(0, 0, true), (1, 0, true), (2, 0, false), (0, 1, false)] {
            let judged = limits.judge(&"store".parse().unwrap(), &listed(plain, protected));
            assert_eq!(judged.is_ok(), room, "{plain} and {protected}");
        }
    }
}
