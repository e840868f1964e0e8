//! A rotation as bytes: read strictly, and written so that it reads back; whether it may happen is never judged here.

use serde::Serialize;

use super::{ClockChange, Rotation, RotationAuthority};
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::UnixSeconds;
use crate::sign::hash::TrustHash;
use crate::sign::json::{self, Json, JsonFields, Malformed};
use crate::sign::quorum::ApprovalRules;
use crate::sign::statement::{
    STATEMENT_BYTES_MAX, WrittenHost, payload, read_host, read_reason, read_window, to_json,
};
use crate::sign::trust::{Signer, SignerRecord, TrustVersion};

impl Rotation {
    /// The rotation in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8], authority: RotationAuthority) -> Result<Self, Refusal> {
        let mut fields = json::parse(bytes, STATEMENT_BYTES_MAX).map_err(|e| payload(&e))?;
        Self::read(&mut fields, authority).map_err(|error| payload(&error)).and_then(
            |(rotation, records)| {
                fields.finish().map_err(|error| payload(&error))?;
                let signers = records.into_iter().map(Signer::try_from);
                Ok(Self { signers: signers.collect::<Result<_, _>>()?, ..rotation })
            },
        )
    }

    fn read(
        fields: &mut JsonFields,
        authority: RotationAuthority,
    ) -> Result<(Self, Vec<SignerRecord>), Malformed> {
        fields.exactly("format", authority.format())?;
        let rotation = Self {
            authority,
            host: read_host(fields)?,
            version: TrustVersion(fields.integer("version")?),
            previous: fields.parsed("previous")?,
            signers: Vec::new(),
            clock: read_clock(fields)?,
            approve: read_rules(fields)?,
            window: read_window(fields)?,
            reason: read_reason(fields)?,
        };
        let records = fields.list("signers")?.into_iter().map(read_signer);
        Ok((rotation, records.collect::<Result<_, _>>()?))
    }

    /// The bytes to be signed, read back before they are given out.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        let Self { authority, host, version, previous, signers, clock, approve, window, reason } =
            self;
        let written = WrittenRotation {
            format: authority.format(),
            host: WrittenHost::of(host),
            version: version.0,
            previous: *previous,
            signers: signers.iter().map(SignerRecord::from).collect(),
            clock: match clock {
                ClockChange::Keep => WrittenClock::Keep("keep"),
                ClockChange::Set { from, to } => WrittenClock::Set { from: from.0, to: to.0 },
            },
            approve: approve.as_ref().map(rules_text),
            not_before: window.not_before().0,
            expires_at: window.expires_at().0,
            reason,
        };
        let bytes = to_json(&written);
        if Self::parse(&bytes, *authority)? == *self {
            return Ok(bytes);
        }
        Err(Refusal::new(ReasonCode::Payload, "the rotation does not read back as it was made"))
    }
}

#[derive(Serialize)]
struct WrittenRotation<'a> {
    format: &'static str,
    host: WrittenHost,
    version: u64,
    previous: TrustHash,
    signers: Vec<SignerRecord>,
    clock: WrittenClock,
    #[serde(skip_serializing_if = "Option::is_none")]
    approve: Option<String>,
    not_before: u64,
    expires_at: u64,
    reason: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WrittenClock {
    Keep(&'static str),
    Set { from: u64, to: u64 },
}

fn read_clock(fields: &mut JsonFields) -> Result<ClockChange, Malformed> {
    match fields.take("clock")? {
        Json::Text(text) if text == "keep" => Ok(ClockChange::Keep),
        Json::Text(_) | Json::Integer(_) | Json::List(_) => {
            Err(Malformed::new("`clock` is `keep` or an object of `from` and `to`"))
        }
        Json::Object(object) => {
            let mut change = JsonFields::of("clock", Json::Object(object))?;
            let from = UnixSeconds(change.integer("from")?);
            let to = UnixSeconds(change.integer("to")?);
            change.finish()?;
            Ok(ClockChange::Set { from, to })
        }
    }
}

/// The rules in one text: they hold booleans and gaps, which no statement does.
fn rules_text(rules: &ApprovalRules) -> String {
    serde_json::to_string(rules).expect("rules are texts and numbers")
}

fn read_rules(fields: &mut JsonFields) -> Result<Option<ApprovalRules>, Malformed> {
    let Some(value) = fields.take_if_there("approve") else { return Ok(None) };
    let refuse = |why: String| Malformed::new(format!("`approve` holds no rules: {why}"));
    let Json::Text(text) = value else { return Err(refuse("it is not text".to_owned())) };
    let rules: ApprovalRules =
        serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    // One spelling, so that what is shown is all there is.
    if rules_text(&rules) == text {
        Ok(Some(rules))
    } else {
        Err(refuse("it is spelled otherwise".to_owned()))
    }
}

fn read_signer(value: Json) -> Result<SignerRecord, Malformed> {
    let mut fields = JsonFields::of("a signer", value)?;
    let record = SignerRecord {
        name: fields.text("name")?,
        role: fields.parsed("role")?,
        key: fields.text("key")?,
        valid_from: fields.integer("valid_from")?,
        valid_until: fields.integer("valid_until")?,
        sk: fields.parsed("sk")?,
    };
    fields.finish()?;
    Ok(record)
}
