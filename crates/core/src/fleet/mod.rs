//! The fleet as values: what hub, hosts and authors say to each other, and what a host makes of it.
//!
//! ```text
//!   document (files, manifest) ── author's statement ──> judge_document ──> taken, or refused whole
//!   journal's head ── host's statement ──> hub keeps it ──> judge_anchor at the next start
//!   what happened ── host's statement ──> report
//! ```
//!
//! The hub is trusted with nothing: every judgement here is made on the host, from what root installed and what the
//! journal remembers. The bytes are those of docs/formats/hub.md. Nothing here signs, sends or stores.

mod acknowledge;
mod anchor;
mod author;
mod document;
mod floor;
mod fresh_word;
mod guest_picture;
mod host_statement;
mod inline_secret;
mod link;
mod login;
mod name;
mod opening;
mod report;
mod sealed;
mod verdict;

pub use acknowledge::{ACKNOWLEDGE_FORMAT, AcknowledgeStatement, Acknowledged};
pub use anchor::{
    Anchor, EPOCH_STEP_MAX, HEAD_NUMBER_MAX, JournalHead, RememberedHeads, judge_anchor,
};
pub use author::{
    AUTHOR_WINDOW_MAX_S, DESIRED_FORMAT, DESIRED_FORMAT_V1, DesiredStatement, DocumentBase,
    SignedBase,
};
pub use document::{
    DOCUMENT_BYTES_MAX, DOCUMENT_FILES_MAX, DocumentError, DocumentFiles, FILE_NAME_BYTES_MAX,
    LoadedDocument, MANIFEST_BYTES_MAX, Manifest,
};
pub use floor::{
    DocumentAdmission, DocumentFloor, DocumentTerms, DocumentVerdict, EffectiveDocument,
    FIRST_GENERATION_MAX, FloorState, GENERATION_STEP_MAX, OfferedDocument, TakenDocument,
    admit_document, document_next_step, judge_document, read_admitted, refuse_mistakes,
};
pub use fresh_word::{AuthorWord, AuthorWordReport, stale_word};
pub use guest_picture::told_origins;
pub use host_statement::{EnrolStatement, HeadStatement, ReportStatement};
pub use link::{
    AnchorAnswer, EnrolAnswer, EnrolRequest, HubProblem, PollAnswer, ReportAnswer, WaitingEnvelope,
    WireDocument, WireFile,
};
pub use login::LoginStatement;
pub use name::{EnvelopeId, Generation, HubId, InstanceId, NotAHubName};
pub use opening::{opened_by, opened_by_step};
pub use report::{
    AgentState, EnvelopeVerdict, GenerationState, GuestDifference, GuestReport, HeldReport,
    HostReport, OpChange, PassReport, PendingReport, REPORT_BYTES_MAX, RefusedGeneration,
    ReportedDecision, ReportedOrigin, ToldOperation, UnreadableReport,
};
pub use sealed::SealedText;
pub use verdict::{HandedIn, VerdictStatement};

pub use crate::sign::{ManifestHash, PayloadHash};
