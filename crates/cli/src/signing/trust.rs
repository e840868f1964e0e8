//! The signers of a host from files: its trust file, and the rotations it took after that.

use std::io::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::clock::{self, ClockReading, WallClock};
use evenkeel_core::sign::{
    AnyStatement, ClockChange, ENVELOPE_BYTES_MAX, Envelope, Lineage, Occasion, Rotation,
    STATEMENT_LIFE_MAX_S, TrustedSigners, trust_file,
};
use evenkeel_core::words::diagnostic::{Diagnostic, FILE_BYTES_MAX, FileId, Sources};

use super::file;
use super::refusal::refused;
use crate::error::{CommandFailure, Exit};
use crate::render::diagnostic::render;

/// The signers after all rotations.
pub(crate) fn load(
    path: &Utf8Path,
    rotations: &[Utf8PathBuf],
) -> Result<TrustedSigners, CommandFailure> {
    let text = file::read_text(path, FILE_BYTES_MAX)?;
    let mut sources = Sources::default();
    let id = sources.add(path.as_str(), text);
    let source = sources.get(id).expect("it was added just above");
    let first = trust_file::load(source).map_err(|errors| mistakes(&errors, &sources))?;
    let mut lineage = Lineage::new(first);
    for rotation in rotations {
        lineage = follow(&lineage, &file::read(rotation, ENVELOPE_BYTES_MAX)?)
            .map_err(|refusal| refused(&refusal).in_file(rotation))?;
    }
    Ok(lineage.current().clone())
}

/// One rotation that a host took, judged at the moment its window opened: when it was taken is in the
/// host's journal and not here.
fn follow(lineage: &Lineage, bytes: &[u8]) -> Result<Lineage, Refusal> {
    let envelope = Envelope::parse(bytes)?;
    let rotation = match AnyStatement::parse(envelope.payload())? {
        AnyStatement::Rotation(rotation) => rotation,
        AnyStatement::Op(_) | AnyStatement::Deny(_) | AnyStatement::Acknowledge(_) => {
            let detail = "it approves an act and changes no signers";
            return Err(Refusal::new(ReasonCode::Payload, detail));
        }
    };
    let reading = reading(&rotation, rotation.window.not_before());
    let host = &rotation.host;
    let life = STATEMENT_LIFE_MAX_S;
    let (_, next) = lineage.follow(
        &envelope,
        rotation.authority,
        host,
        &reading,
        (life, Occasion::AcceptedBefore),
    )?;
    Ok(next)
}

/// The clock of a host that takes a rotation now, if its clock is right. A clock change is made for a host whose
/// time is wrong: there the mark is the one that the change names.
pub(crate) fn reading(rotation: &Rotation, now: UnixSeconds) -> ClockReading {
    match rotation.clock {
        ClockChange::Keep => ClockReading { now, mark: now, doubt: None },
        ClockChange::Set { from, to: _ } => {
            clock::read(Some(from), WallClock { at: now, synchronised: false })
        }
    }
}

/// Tells every mistake in a trust file.
pub(crate) fn mistakes(errors: &[Diagnostic], sources: &Sources) -> CommandFailure {
    // There is nobody left to tell if stderr is gone.
    let _ = writeln!(anstream::stderr(), "{}", render(errors, sources));
    let path = sources.get(FileId(0)).map_or("it", |file| file.path.as_str());
    CommandFailure::new(
        Exit::Invalid,
        format!("{path} is not a valid trust file; evenkeel uses nothing of it"),
    )
    .hint("correct the marked places above")
}
