//! What the journal remembers of the hub: the floor of documents, heads told, the epoch, and a rollback.
//!
//! Written by the engine and the link, through the journal's kept values; replayed with everything else. What does not read
//! back counts as not there, and what is not there allows nothing: a host without a floor takes no document.

use evenkeel_core::fleet::{
    AuthorWord, DocumentFloor, EffectiveDocument, FloorState, Generation, HubId, JournalHead,
    ManifestHash, PayloadHash,
};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::SignerName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::authority::trust_version_of;
use crate::journal::{Head, JournalState, Kept, KeptSubject};

const FLOOR: &str = "floor";
const TOLD: &str = "told";
const AUTHOR_WORD: &str = "author_word";
const EPOCH: &str = "epoch";
const DISRUPTIVE: &str = "disruptive";

/// The shape of these values.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FloorLine {
    hub_id: HubId,
    generation: Generation,
    manifest: Option<ManifestHash>,
    signer: Option<String>,
    /// What is in effect since an earlier enrolment; then no document of this one was taken yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inherited: Option<InheritedLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InheritedLine {
    hub_id: HubId,
    generation: Generation,
    manifest: ManifestHash,
    signer: Option<String>,
}

/// The last document that was taken; none on a host that is not enrolled.
pub fn floor(state: &JournalState) -> Option<DocumentFloor> {
    let FloorLine { hub_id, generation, manifest, signer, inherited } = kept(state, FLOOR)?;
    let document = |generation, manifest, signer: Option<String>| {
        let signer: Option<SignerName> = signer.map(|name| name.parse()).transpose().ok()?;
        Some(EffectiveDocument { generation, manifest, signer, signed_at: None })
    };
    let state = match (manifest, inherited) {
        (Some(manifest), None) => FloorState::Taken(document(generation, manifest, signer)?),
        (None, None) => FloorState::Empty,
        (None, Some(InheritedLine { hub_id, generation, manifest, signer })) => {
            FloorState::Inherited { hub_id, document: document(generation, manifest, signer)? }
        }
        (Some(_), Some(_)) => return None,
    };
    Some(DocumentFloor { hub_id, state })
}

/// The record that makes a floor durable.
pub fn floor_record(floor: &DocumentFloor) -> Kept {
    let DocumentFloor { hub_id, state } = floor.clone();
    let text = |signer: Option<SignerName>| signer.map(|name| name.to_string());
    let empty = FloorLine {
        hub_id,
        generation: Generation::NONE,
        manifest: None,
        signer: None,
        inherited: None,
    };
    let line = match state {
        FloorState::Empty => empty,
        FloorState::Taken(EffectiveDocument { generation, manifest, signer, signed_at: _ }) => {
            FloorLine { generation, manifest: Some(manifest), signer: text(signer), ..empty }
        }
        FloorState::Inherited { hub_id, document } => {
            let EffectiveDocument { generation, manifest, signer, signed_at: _ } = document;
            let signer = text(signer);
            let inherited = Some(InheritedLine { hub_id, generation, manifest, signer });
            FloorLine { inherited, ..empty }
        }
    };
    put(FLOOR, &line)
}

/// The last document that an author signed and this host took; none if an earlier version took it.
pub fn author_word(state: &JournalState) -> Option<AuthorWord> {
    kept(state, AUTHOR_WORD)
}

/// The record of a floor's document, if its author's signature was judged just now.
pub fn author_word_record(floor: &DocumentFloor, taken_at: UnixSeconds) -> Option<Kept> {
    let EffectiveDocument { generation, manifest: _, signer, signed_at } = floor.in_effect()?;
    let signer = signer.as_ref()?.to_string();
    let signed_at = (*signed_at)?;
    Some(put(AUTHOR_WORD, &AuthorWord { generation: *generation, signer, signed_at, taken_at }))
}

/// Heads that the hub was told, or may have been: each is written down before it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToldHeads {
    /// The newest that the hub said it keeps.
    pub acknowledged: Option<JournalHead>,
    /// One that was sent since.
    pub sent: Option<JournalHead>,
}

impl ToldHeads {
    /// All of them.
    pub fn all(self) -> Vec<JournalHead> {
        [self.acknowledged, self.sent].into_iter().flatten().collect()
    }
}

/// The heads that the hub may have.
pub fn told(state: &JournalState) -> ToldHeads {
    kept(state, TOLD).unwrap_or_default()
}

/// The record that must be durable before a head leaves.
pub fn told_record(told: ToldHeads) -> Kept {
    put(TOLD, &told)
}

/// Which journal this is, counted by acknowledged rollbacks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalEpoch {
    /// Its number, from 0.
    pub number: u64,
    /// What was signed to begin before this moment is stale.
    pub since: Option<UnixSeconds>,
    /// Who acknowledged the rollback before.
    pub signer: Option<String>,
    /// A rollback that nobody acknowledged yet: everything destructive is off.
    pub rollback: Option<FoundRollback>,
}

/// A journal that is older than it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundRollback {
    /// How far it had come, by the hub's anchor.
    pub anchored: JournalHead,
    /// How far it was found to be at start.
    pub found: JournalHead,
}

/// The epoch of this journal.
pub fn epoch(state: &JournalState) -> JournalEpoch {
    kept(state, EPOCH).unwrap_or_default()
}

/// The record of an epoch. Written on a full disk too: it takes power away.
pub fn epoch_record(epoch: &JournalEpoch) -> Kept {
    put(EPOCH, epoch).from_the_reserve()
}

/// When disruptive acts of the hub began, as far as they count.
pub fn disruptive(state: &JournalState) -> Vec<UnixSeconds> {
    kept(state, DISRUPTIVE).unwrap_or_default()
}

/// The record that spends one of them.
pub fn disruptive_record(begun: &[UnixSeconds]) -> Kept {
    put(DISRUPTIVE, &begun)
}

/// A journal's newest record, as the hub is told it.
pub fn head_of(state: &JournalState, head: Head) -> Option<JournalHead> {
    let sum: PayloadHash = head.sum.as_str().parse().ok()?;
    let trust_version = trust_version_of(state);
    Some(JournalHead { epoch: epoch(state).number, seq: head.seq.0, sum, trust_version })
}

fn kept<T: DeserializeOwned>(state: &JournalState, name: &str) -> Option<T> {
    let (_, found) = state.kept(KeptSubject::Hub).find(|(key, _)| *key == name)?;
    serde_json::from_value(found.value.clone()).ok()
}

fn put(name: &str, value: &impl Serialize) -> Kept {
    let value =
        serde_json::to_value(value).expect("texts and numbers can always be written as JSON");
    Kept::put(KeptSubject::Hub, name, VERSION, value)
}

#[cfg(test)]
mod tests {
    use evenkeel_core::sign::TrustVersion;

    use super::*;
    use crate::journal::Record;

    fn taken() -> DocumentFloor {
        DocumentFloor {
            hub_id: "0123456789abcdef0123456789abcdef".parse().unwrap(),
            state: FloorState::Taken(EffectiveDocument {
                generation: Generation(7),
                manifest: ManifestHash([1; 32]),
                signer: Some("ada@desk".parse().unwrap()),
                signed_at: None,
            }),
        }
    }

    #[test]
    fn a_floor_of_an_earlier_version_is_read_and_a_new_enrolment_keeps_what_is_in_effect() {
        let line = serde_json::json!({
            "hub_id": "0123456789abcdef0123456789abcdef", "generation": 7,
            "manifest": ManifestHash([1; 32]), "signer": "ada@desk",
        });
        let read = |line: serde_json::Value| {
            let mut state = JournalState::default();
            state.apply(Record::Kept(Kept::put(KeptSubject::Hub, FLOOR, VERSION, line))).unwrap();
            floor(&state)
        };
        assert_eq!(read(line), Some(taken()), "as version 0.2 wrote it");
        let empty = serde_json::json!({
            "hub_id": "0123456789abcdef0123456789abcdef", "generation": 0, "manifest": null, "signer": null,
        });
        assert_eq!(read(empty), Some(DocumentFloor::enrolled(taken().hub_id)));
        let again = taken().enrolled_again("f".repeat(32).parse().unwrap());
        let mut state = JournalState::default();
        state.apply(Record::Kept(floor_record(&again))).unwrap();
        assert_eq!(floor(&state), Some(again.clone()));
        assert_eq!((again.generation(), again.base()), (Generation::NONE, taken().base()));
    }

    #[test]
    fn z24_a_signed_word_outlives_an_unsigned_document_and_a_new_enrolment() {
        let mut state = JournalState::default();
        let mut keep = |floor: &DocumentFloor| {
            let word = author_word_record(floor, UnixSeconds(9));
            for record in word.into_iter().chain([floor_record(floor)]) {
                state.apply(Record::Kept(record)).unwrap();
            }
            author_word(&state)
        };
        assert_eq!(keep(&taken()), None, "read back from a journal it is no new word");
        let of = |generation, signer: Option<&str>, signed_at| {
            let signer = signer.map(|name| name.parse().unwrap());
            let generation = Generation(generation);
            let manifest = ManifestHash([1; 32]);
            let document = EffectiveDocument { generation, manifest, signer, signed_at };
            DocumentFloor { state: FloorState::Taken(document), ..taken() }
        };
        let word = keep(&of(8, Some("ada@desk"), Some(UnixSeconds(5)))).unwrap();
        let generation = Generation(8);
        let signer = "ada@desk".to_owned();
        let signed_at = UnixSeconds(5);
        let taken_at = UnixSeconds(9);
        assert_eq!(word, AuthorWord { generation, signer, signed_at, taken_at });
        assert_eq!(keep(&of(9, None, None)).as_ref(), Some(&word));
        assert_eq!(keep(&taken().enrolled_again("f".repeat(32).parse().unwrap())), Some(word));
    }

    #[test]
    fn what_is_written_is_read_back_and_what_is_not_there_allows_nothing() {
        let mut state = JournalState::default();
        assert_eq!((floor(&state), told(&state)), (None, ToldHeads::default()));
        assert_eq!(epoch(&state), JournalEpoch::default());
        let trust_version = TrustVersion(3);
        let head = JournalHead { epoch: 2, seq: 9, sum: PayloadHash([7; 32]), trust_version };
        let taken = taken();
        let heads = ToldHeads { acknowledged: None, sent: Some(head) };
        let rolled = FoundRollback { anchored: head, found: JournalHead { seq: 3, ..head } };
        let third = JournalEpoch {
            number: 2,
            since: Some(UnixSeconds(5)),
            signer: Some("alice".into()),
            rollback: Some(rolled),
        };
        let begun = [UnixSeconds(1), UnixSeconds(2)];
        for record in [
            floor_record(&taken),
            told_record(heads),
            epoch_record(&third),
            disruptive_record(&begun),
        ] {
            state.apply(Record::Kept(record)).unwrap();
        }
        let state: JournalState =
            serde_json::from_value(serde_json::to_value(state.compacted()).unwrap()).unwrap();
        assert_eq!(floor(&state), Some(taken), "a snapshot keeps it");
        assert_eq!((told(&state), epoch(&state)), (heads, third));
        assert_eq!(disruptive(&state), begun);
    }
}
