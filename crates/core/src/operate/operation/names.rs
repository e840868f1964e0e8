//! Names that operations carry.

use crate::model::name::is_printable;

crate::name! {
    /// The key a signed operation spends: the nonce of its statement.
    IdempotencyKey, "idempotency key", is_printable,
    "it must be 1 to 255 printable ASCII characters without blanks"
}

crate::name! {
    /// A volume as PVE names it: `local-lvm:vm-101-disk-0`.
    VolumeId, "volume", is_printable,
    "it must be 1 to 255 printable ASCII characters without blanks"
}

crate::name! {
    /// A storage as PVE's paths name it: `local-lvm`.
    StorageName, "storage name", is_storage,
    "it must have 2 to 100 letters, digits, `-`, `_` or `.`, beginning with a letter"
}

fn is_storage(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (2..=100).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(inner)
}
