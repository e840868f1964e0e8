//! `evenkeel verify FILE`: which keys signed, and what a host with these signers would allow by it.
//!
//! "Valid" and "authorised" are two answers: without a trust file only the first is given. What cannot be
//! known from files (which guest is there now, which nonces are spent, the host's clock) is said to be open.

use std::fmt::Write as _;
use std::io::Write as _;

use evenkeel_core::fleet::{AcknowledgeStatement, Acknowledged};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::clock::ClockReading;
use evenkeel_core::sign::{
    Act, AnyStatement, ApprovalDecision, ApprovalDemand, DenialStatement, ENVELOPE_BYTES_MAX,
    Envelope, Expected, FoundGuest, KeyTouch, Lookup, Namespace, PublicKey, Rotation,
    STATEMENT_LIFE_MAX_S, SpentNonces, Statement, StatementLimits, TrustedSigners, authorise,
    render, rotate,
};

use crate::cli::{OutputFormat, VerifyArgs};
use crate::error::{CommandFailure, Exit};
use crate::format;
use crate::format::verify::{
    DecisionFormat, HostFormat, SignatureFormat, TouchFormat, VerifyFormat,
};
use crate::signing::known_hosts::KnownHosts;
use crate::signing::offer::item_and_key;
use crate::signing::refusal::{exit, refused};
use crate::signing::{file, now, trust};

pub(crate) fn run(arguments: &VerifyArgs) -> Result<Exit, CommandFailure> {
    let bytes = file::read(&arguments.file, ENVELOPE_BYTES_MAX)?;
    let trust = match &arguments.trust {
        Some(path) => Some(trust::load(path, &arguments.rotation)?),
        None => None,
    };
    let judged = match Envelope::parse(&bytes) {
        Ok(envelope) if envelope.claimed_namespace() == Some(Namespace::Pending) => {
            return pending(&envelope, arguments);
        }
        Ok(envelope) => judge(&envelope, trust.as_ref(), now()),
        Err(refusal) => Err(refusal),
    };
    match (judged, arguments.output.output) {
        (Ok(finding), OutputFormat::Table) => write!(std::io::stdout(), "{}", finding.text())?,
        (Ok(finding), OutputFormat::Json) => format::print(&finding.as_format())?,
        (Err(refusal), OutputFormat::Table | OutputFormat::Json) => {
            return refuse(&refusal, arguments);
        }
    }
    Ok(Exit::Ok)
}

/// What was found in an envelope that holds.
struct VerifyFinding {
    statement: AnyStatement,
    words: String,
    signatures: Vec<SignerLine>,
    /// Whether a trust file allowed it; without one nobody was asked.
    allowed: bool,
}

/// A signature that holds.
struct SignerLine {
    key: PublicKey,
    touch: Option<KeyTouch>,
    /// Name and role, if a trust file has the key.
    signer: Option<(String, &'static str)>,
}

fn judge(
    envelope: &Envelope,
    trust: Option<&TrustedSigners>,
    now: UnixSeconds,
) -> Result<VerifyFinding, Refusal> {
    let namespace = envelope.claimed_namespace().ok_or_else(|| {
        let detail = "the signatures are for different purposes, or for none of evenkeel's";
        Refusal::new(ReasonCode::SigNamespace, detail)
    })?;
    let signatures = who_signed(envelope, namespace, trust)?;
    let statement = AnyStatement::parse(envelope.payload())?;
    if statement.namespace() != namespace {
        let is = namespace.as_str();
        let wants = statement.namespace().as_str();
        let detail =
            format!("it is signed for `{is}`, and what it says must be signed for `{wants}`");
        return Err(Refusal::new(ReasonCode::SigNamespace, detail));
    }
    if let Some(trust) = trust {
        match &statement {
            AnyStatement::Op(statement) => would_allow(envelope, statement, trust, now)?,
            AnyStatement::Deny(denial) => would_deny(envelope, denial, trust, now)?,
            AnyStatement::Rotation(rotation) => would_rotate(envelope, rotation, trust, now)?,
            AnyStatement::Acknowledge(statement) => {
                would_acknowledge(envelope, statement, trust, now)?;
            }
        }
    }
    let words = render::any_statement(envelope.payload())?;
    Ok(VerifyFinding { statement, words, signatures, allowed: trust.is_some() })
}

fn who_signed(
    envelope: &Envelope,
    namespace: Namespace,
    trust: Option<&TrustedSigners>,
) -> Result<Vec<SignerLine>, Refusal> {
    let one = |signature: &evenkeel_core::sign::SshSig| {
        let key = PublicKey::from_blob(signature.key_blob())?;
        let touch = signature.verify(&key, namespace, envelope.payload())?;
        let signer = trust.and_then(|trust| match trust.lookup(key.blob()) {
            Lookup::Trusted(signer) => Some((signer.name.to_string(), signer.role.as_str())),
            Lookup::Retired { .. } | Lookup::Unknown { .. } => None,
        });
        Ok(SignerLine { key, touch, signer })
    };
    envelope.signatures().iter().map(one).collect()
}

/// Asks the host's own judgement, on a host where the guest is as it was when signed and nothing is spent.
fn would_allow(
    envelope: &Envelope,
    statement: &Statement,
    trust: &TrustedSigners,
    now: UnixSeconds,
) -> Result<(), Refusal> {
    let found = match &statement.expected {
        Expected::Guest { identity, digest } => {
            FoundGuest::Guest { identity: *identity, digest: digest.clone() }
        }
        Expected::Free => FoundGuest::Free,
    };
    let act = Act {
        op: statement.op,
        host: statement.host.clone(),
        guest: statement.guest,
        found,
        params: statement.params.clone(),
        item: statement.item,
        demand: ApprovalDemand::one(),
    };
    let clock = ClockReading { now, mark: now, doubt: None };
    let spent = SpentNonces::default();
    match authorise(envelope, &act, trust, &clock, &spent, StatementLimits::default()) {
        ApprovalDecision::Allowed(_) => Ok(()),
        ApprovalDecision::Refused(refusal) => Err(refusal),
        ApprovalDecision::Replay { op, .. } => {
            Err(Refusal::new(ReasonCode::Replay, format!("it was executed by {op}")))
        }
    }
}

/// Whether the denial would end its item, if that waits.
fn would_deny(
    envelope: &Envelope,
    denial: &DenialStatement,
    trust: &TrustedSigners,
    now: UnixSeconds,
) -> Result<(), Refusal> {
    let clock = ClockReading { now, mark: now, doubt: None };
    let limits = StatementLimits::default();
    DenialStatement::judge(envelope, &denial.host, trust, &clock, limits).map(drop)
}

/// Whether the statement would hold on its host, if the journal is as it says.
fn would_acknowledge(
    envelope: &Envelope,
    statement: &AcknowledgeStatement,
    trust: &TrustedSigners,
    now: UnixSeconds,
) -> Result<(), Refusal> {
    let AcknowledgeStatement { host, hub_id, anchored, found, .. } = statement.clone();
    let about = Acknowledged { host, hub_id, anchored, found };
    AcknowledgeStatement::judge(envelope, &about, trust, now, STATEMENT_LIFE_MAX_S).map(drop)
}

fn would_rotate(
    envelope: &Envelope,
    rotation: &Rotation,
    trust: &TrustedSigners,
    now: UnixSeconds,
) -> Result<(), Refusal> {
    let clock = trust::reading(rotation, now);
    let authority = rotation.authority;
    let host = &rotation.host;
    rotate(envelope, authority, trust, host, &clock, STATEMENT_LIFE_MAX_S).map(|_| ())
}

impl VerifyFinding {
    fn text(&self) -> String {
        let mut text = String::new();
        for SignerLine { key, touch, signer } in &self.signatures {
            let kind = key.key_type();
            let print = key.fingerprint();
            let _ = write!(text, "signed by {kind} {print}");
            if let Some((name, role)) = signer {
                let _ = write!(text, ", {name}, {role}");
            } else if self.allowed {
                text += ", a new key";
            }
            if let Some(touch) = touch {
                text +=
                    if touch.user_verified() { ", touched, PIN or finger" } else { ", touched" };
            }
            text.push('\n');
        }
        text += match (&self.statement, self.allowed) {
            (_, false) => "who may sign was not asked (no --trust); it says\n\n",
            (AnyStatement::Op(_), true) => {
                "allowed_signed: on its host, if the guest is still as it was, the nonce unspent, and the host's rules ask for \
                 no more signers\n\n"
            }
            (AnyStatement::Deny(_), true) => {
                "allowed_signed: on its host, while the item it denies waits\n\n"
            }
            (AnyStatement::Acknowledge(_), true) => {
                "allowed_signed: on its host, while it waits for exactly this rollback\n\n"
            }
            (AnyStatement::Rotation(_), true) => "allowed_signed: it would change the signers\n\n",
        };
        text + &self.words
    }

    fn as_format(&self) -> VerifyFormat {
        let allowed = || DecisionFormat::new(ReasonCode::AllowedSigned, None);
        let host = self.statement.host();
        let window = self.statement.window();
        VerifyFormat {
            namespace: Some(self.statement.namespace().as_str()),
            signatures: self.signatures.iter().map(SignerLine::as_format).collect(),
            host: Some(HostFormat { id: host.id.to_string(), key: host.key.to_string() }),
            not_before: format::at(window.not_before()),
            expires_at: format::at(window.expires_at()),
            says: Some(self.words.clone()),
            decision: self.allowed.then(allowed),
            ..VerifyFormat::default()
        }
    }
}

impl SignerLine {
    fn as_format(&self) -> SignatureFormat {
        let Self { key, touch, signer } = self;
        let used = |touch: &KeyTouch| TouchFormat {
            verified: touch.user_verified(),
            counter: touch.counter,
        };
        SignatureFormat {
            key: key.fingerprint().to_string(),
            key_type: key.key_type().as_str(),
            name: signer.as_ref().map(|(name, _)| name.clone()),
            role: signer.as_ref().map(|(_, role)| *role),
            touch: touch.as_ref().map(used),
        }
    }
}

/// A pending item is judged by the pinned key of its host, and allows nothing.
fn pending(envelope: &Envelope, arguments: &VerifyArgs) -> Result<Exit, CommandFailure> {
    let (item, key) = match item_and_key(envelope) {
        Ok(found) => found,
        Err(refusal) => return refuse(&refusal, arguments),
    };
    let host = &item.host.id;
    let print = key.fingerprint();
    if let Err(failure) = KnownHosts::read(&arguments.hosts)?.demand(host, &key) {
        return match arguments.output.output {
            OutputFormat::Table => Err(failure),
            OutputFormat::Json => {
                refuse(&Refusal::new(ReasonCode::UnknownSigner, failure.message), arguments)
            }
        };
    }
    let words = render::pending(envelope.payload())?;
    let mut out = std::io::stdout();
    match arguments.output.output {
        OutputFormat::Table => {
            writeln!(out, "signed by the pinned key of {host}, {print}")?;
            write!(out, "it waits for an approval\n\n{words}")?;
        }
        OutputFormat::Json => {
            format::print(&VerifyFormat {
                namespace: Some(Namespace::Pending.as_str()),
                host: Some(HostFormat { id: host.to_string(), key: print.to_string() }),
                says: Some(words),
                decision: Some(DecisionFormat::new(ReasonCode::PendingSignature, None)),
                ..VerifyFormat::default()
            })?;
        }
    }
    Ok(Exit::Ok)
}

/// Tells a refusal: for a person as an error, for a program as the decision it asked for.
fn refuse(refusal: &Refusal, arguments: &VerifyArgs) -> Result<Exit, CommandFailure> {
    match arguments.output.output {
        OutputFormat::Table => Err(refused(refusal).in_file(&arguments.file)),
        OutputFormat::Json => {
            let decision = DecisionFormat::new(refusal.reason, Some(refusal.detail.clone()));
            let decision = Some(decision);
            format::print(&VerifyFormat { decision, ..VerifyFormat::default() })?;
            Ok(exit(refusal.reason))
        }
    }
}
