//! Bytes that must come back exactly: envelopes and host-signed items, kept in a record.
//!
//! Written as base64 without padding. As plain text they would pass the mask that takes secrets out of records,
//! and one that happened to hold `secret=` would come back changed and no longer verify.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};

/// Exact bytes in a kept value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExactBytes(pub Vec<u8>);

/// A text that holds no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is not base64 without padding")]
pub struct NotExactBytes;

impl TryFrom<String> for ExactBytes {
    type Error = NotExactBytes;

    fn try_from(text: String) -> Result<Self, NotExactBytes> {
        STANDARD_NO_PAD.decode(text).map(Self).map_err(|_| NotExactBytes)
    }
}

impl From<ExactBytes> for String {
    fn from(bytes: ExactBytes) -> Self {
        STANDARD_NO_PAD.encode(bytes.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Kept, KeptSubject};

    #[test]
    fn bytes_that_look_like_a_secret_pass_the_mask_unchanged() {
        // `token` and `secret` in the encoded text too.
        let hostile =
            ["password=hunter2,secret=1", "\u{b6}\u{89}\u{1e}", "{\"payload\":\"secretAA==\"}"];
        for text in hostile {
            let bytes = ExactBytes(text.as_bytes().to_vec());
            let value = serde_json::json!({ "envelope": bytes });
            let kept = Kept::put(KeptSubject::Trust, "2", 1, value).value.unwrap().value;
            let back: ExactBytes = serde_json::from_value(kept["envelope"].clone()).unwrap();
            assert_eq!(back, bytes);
        }
    }

    #[test]
    fn a_text_that_spells_secret_in_base64_passes_too() {
        let text = "secrettokenpasswordA".to_owned();
        let bytes = ExactBytes::try_from(text.clone()).unwrap();
        let kept = Kept::put(KeptSubject::Trust, "2", 1, serde_json::json!({ "envelope": bytes }));
        assert_eq!(kept.value.unwrap().value["envelope"], text);
    }
}
