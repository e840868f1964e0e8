//! The shapes of `audit -o json` and `validate -o json`, for their schemas: the values are made where they are read.
//!
//! The end-to-end tests hold real answers against the schemas, so that the two cannot part.

use schemars::JsonSchema;

/// Who allowed or refused what.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
pub(super) struct AuditFormat {
    /// 1.
    format_version: u32,
    /// Whether the whole chain was found good.
    verified: bool,
    /// Where it breaks; the entries before that are good.
    damage: Option<BreakFormat>,
    /// The newest record.
    head: Option<super::journal::HeadFormat>,
    /// Oldest first.
    entries: Vec<EntryFormat>,
}

/// Where the chain breaks.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct BreakFormat {
    /// The file.
    file: Option<String>,
    /// The byte.
    offset: Option<u64>,
    /// What is wrong.
    message: String,
}

/// One entry; what is empty is left out.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct EntryFormat {
    /// The number of the record.
    seq: u64,
    /// When it was written.
    at: String,
    /// Such as `started`, `decision`, `pending`.
    event: String,
    /// Such as `lxc/101`.
    guest: Option<String>,
    /// What was done or asked.
    kind: Option<String>,
    /// The operation.
    op: Option<String>,
    /// The reason code.
    reason: Option<String>,
    /// `benign`, `disruptive` or `destructive`.
    class: Option<String>,
    /// Why, in words.
    why: Option<String>,
    /// Why, in the words of whoever signed.
    statement_reason: Option<String>,
    /// Who signed.
    signed_by: Option<Vec<SignedByFormat>>,
    /// The nonce that was spent.
    nonce: Option<String>,
    /// The SHA-256 of the statement's bytes.
    payload: Option<String>,
}

/// A key that signed.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct SignedByFormat {
    /// Whose, if the record names them.
    name: Option<String>,
    /// The fingerprint of the key.
    key: String,
    /// What a security key said, if it is one.
    touch: Option<String>,
}

/// Whether desired files are valid.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
pub(super) struct ValidateFormat {
    /// 1.
    format_version: u32,
    /// Whether nothing is wrong.
    valid: bool,
    /// How many guests are declared.
    guests: usize,
    /// Everything that is wrong.
    errors: Vec<MistakeFormat>,
}

/// One mistake.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct MistakeFormat {
    /// Its code, such as `E0101`.
    code: String,
    /// What is wrong.
    message: String,
    /// Where; null if it is about no place.
    at: Option<LineFormat>,
    /// What to do about it.
    hints: Vec<String>,
}

/// A place in a file.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct LineFormat {
    /// The file.
    file: String,
    /// The line, from 1.
    line: usize,
    /// The column, from 1.
    column: usize,
}
