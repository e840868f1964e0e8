//! The armour around a signature: one documented form, read and written.
//!
//! ```text
//! -----BEGIN SSH SIGNATURE-----
//! base64, every line but the last of one width, that width at most 76
//! -----END SSH SIGNATURE-----
//! ```
//!
//! Each line ends in one newline, the last one too; nothing stands before or after. `ssh-keygen` takes
//! text after the armour and the `ssh-key` crate takes text before it: two readers that see different
//! signatures in one file. Called by the signature reader; it never looks at what the bytes mean.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::model::reason::{ReasonCode, Refusal};

const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----\n";
const END: &str = "-----END SSH SIGNATURE-----\n";

/// The width `ssh-keygen` writes.
const WIDTH_WRITTEN: usize = 70;

/// The widest line the format's description suggests.
const WIDTH_MAX: usize = 76;

/// The largest armour read. The longest signature of the profile (a security key's, with a long
/// application name) is under 1 KiB; this leaves room for narrow lines and bounds the work.
pub const ARMOUR_BYTES_MAX: usize = 4096;

/// The bytes inside the armour.
pub fn decode(text: &str) -> Result<Vec<u8>, Refusal> {
    let refuse = |why: &str| Err(Refusal::new(ReasonCode::SigFormat, format!("the armour {why}")));
    if text.len() > ARMOUR_BYTES_MAX {
        return refuse("is longer than any signature");
    }
    let Some(body) = text.strip_prefix(BEGIN) else {
        return refuse("does not begin with its first line");
    };
    let Some(body) = body.strip_suffix(END) else {
        return refuse("does not end with its last line and a newline");
    };
    let Some(lines) = body.strip_suffix('\n') else {
        return refuse("has no line of base64");
    };
    let width = lines.find('\n').unwrap_or(lines.len());
    if width > WIDTH_MAX {
        return refuse("has a line of more than 76 characters");
    }
    let mut base64 = String::with_capacity(lines.len());
    let mut last_was_short = false;
    for line in lines.split('\n') {
        if last_was_short || line.is_empty() || line.len() > width {
            return refuse("has lines of different widths");
        }
        last_was_short = line.len() < width;
        base64.push_str(line);
    }
    match STANDARD.decode(&base64) {
        Ok(bytes) => Ok(bytes),
        Err(_) => refuse("does not hold canonical base64"),
    }
}

/// The armour as `ssh-keygen` writes it.
pub fn encode(blob: &[u8]) -> String {
    let base64 = STANDARD.encode(blob);
    let mut text = BEGIN.to_owned();
    for line in base64.as_bytes().chunks(WIDTH_WRITTEN) {
        text.extend(line.iter().map(|letter| char::from(*letter)));
        text.push('\n');
    }
    text.push_str(END);
    text
}
