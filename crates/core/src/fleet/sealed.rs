//! An envelope as it stands inside of other JSON: the same two fields, taken over without being believed.

use serde::{Deserialize, Serialize};

use crate::model::reason::{ReasonCode, Refusal};
use crate::sign::{Envelope, Namespace, PublicKey};

/// Signed bytes in base64 and the signatures over them, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedText {
    /// The exact bytes, in base64.
    pub payload: String,
    /// Armoured signatures.
    pub signatures: Vec<String>,
}

impl SealedText {
    /// The same envelope as a part of other JSON. What is signed stands in base64 and stays as it is.
    pub fn of(envelope: &str) -> Result<Self, Refusal> {
        Envelope::parse(envelope.as_bytes())?;
        serde_json::from_str(envelope)
            .map_err(|error| Refusal::new(ReasonCode::Envelope, error.to_string()))
    }

    /// The envelope as a file would hold it, to be read by [`Envelope::parse`] and handed in as from a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts can always be written as JSON")
    }

    /// The envelope, read and not yet verified.
    pub fn envelope(&self) -> Result<Envelope, Refusal> {
        Envelope::parse(&self.to_bytes())
    }
}

/// The exact bytes that one key, and no other, signed for a purpose.
pub(super) fn payload_by_one_key<'e>(
    envelope: &'e Envelope,
    key: &PublicKey,
    namespace: Namespace,
) -> Result<&'e [u8], Refusal> {
    let [signature] = envelope.signatures() else {
        return Err(Refusal::new(ReasonCode::Envelope, "it must have one signature, of the host"));
    };
    if signature.key_blob() != key.blob() {
        let detail = "it is not signed by the key of its host";
        return Err(Refusal::new(ReasonCode::UnknownSigner, detail));
    }
    signature.verify(key, namespace, envelope.payload())?;
    Ok(envelope.payload())
}
