//! The signers of a host from files: its trust file, and the rotations it took after that.

use std::io::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use evenkeel_core::diagnostic::{Diagnostic, FILE_BYTES_MAX, FileId, Sources};
use evenkeel_core::operation::UnixSeconds;
use evenkeel_core::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::clock::Reading;
use evenkeel_core::sign::{
    AnyStatement, ClockChange, ENVELOPE_BYTES_MAX, Envelope, Rotation, STATEMENT_LIFE_MAX_S, Trust,
    rotate, trust_file,
};

use super::file;
use super::refusal::refused;
use crate::error::{Exit, Failure};
use crate::render::diagnostic::render;

/// The signers after all rotations.
pub(crate) fn load(path: &Utf8Path, rotations: &[Utf8PathBuf]) -> Result<Trust, Failure> {
    let text = file::read_text(path, FILE_BYTES_MAX)?;
    let mut sources = Sources::default();
    let id = sources.add(path.as_str(), text);
    let source = sources.get(id).expect("it was added just above");
    let mut trust = trust_file::load(source).map_err(|errors| mistakes(&errors, &sources))?;
    for rotation in rotations {
        trust = follow(&trust, &file::read(rotation, ENVELOPE_BYTES_MAX)?)
            .map_err(|refusal| refused(&refusal).in_file(rotation))?;
    }
    Ok(trust)
}

/// One rotation that a host took, judged at the moment its window opened: when it was taken is in the
/// host's journal and not here.
fn follow(trust: &Trust, bytes: &[u8]) -> Result<Trust, Refusal> {
    let envelope = Envelope::parse(bytes)?;
    let rotation = match AnyStatement::parse(envelope.payload())? {
        AnyStatement::Rotation(rotation) => rotation,
        AnyStatement::Op(_) => {
            let detail = "it approves an act and changes no signers";
            return Err(Refusal::new(ReasonCode::Payload, detail));
        }
    };
    let reading = reading(&rotation, rotation.window.not_before());
    let host = &rotation.host;
    let life = STATEMENT_LIFE_MAX_S;
    Ok(rotate(&envelope, rotation.authority, trust, host, &reading, life)?.trust)
}

/// The clock of a host that takes a rotation now. A clock change is made for a host whose time is wrong:
/// there it is the mark that the change names.
pub(crate) fn reading(rotation: &Rotation, now: UnixSeconds) -> Reading {
    let now = match rotation.clock {
        ClockChange::Keep => now,
        ClockChange::Set { from, to: _ } => from,
    };
    Reading { now, mark: now, doubt: None }
}

/// Tells every mistake in a trust file.
pub(crate) fn mistakes(errors: &[Diagnostic], sources: &Sources) -> Failure {
    // There is nobody left to tell if stderr is gone.
    let _ = writeln!(anstream::stderr(), "{}", render(errors, sources));
    let path = sources.get(FileId(0)).map_or("it", |file| file.path.as_str());
    Failure::new(Exit::Invalid, format!("{path} is not a trust file; nothing is taken from it"))
        .hint("correct what is marked above")
}
