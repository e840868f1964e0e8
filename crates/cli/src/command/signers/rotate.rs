//! `evenkeel signers rotate` and `recover`: a signed change of signers, as a file for the host.
//!
//! ```text
//! trust.toml + rotations ─► changes ─► statement ─► shown ─► signed by the authorising key
//!                                                         └─► and by each new key ─► judged ─► written
//! ```

use std::fmt::Write as _;
use std::io::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use evenkeel_core::sign::{
    ApprovalRules, ClockChange, Envelope, HostBinding, Lookup, PLANNED_LINKS_MAX, Role, Rotation,
    RotationAuthority, STATEMENT_LIFE_MAX_S, Signer, SignerName, TrustVersion, TrustedSigners,
    enrol, render, rotate,
};
use evenkeel_core::words::diagnostic::FILE_BYTES_MAX;

use super::enrol::one_line;
use crate::cli::{Addition, RotateArgs};
use crate::error::{CommandFailure, Exit};
use crate::signing::keygen::{self, MadeSignature, quoted};
use crate::signing::known_hosts::KnownHosts;
use crate::signing::{file, now, trust, window};
use crate::terminal;

/// What a script does instead of answering.
const IN_A_SCRIPT: &str = "a script gives --prepare FILE in place of --key and --out, and runs the commands that this \
                           prints: they name what is signed";

pub(crate) fn run(
    arguments: &RotateArgs,
    authority: RotationAuthority,
) -> Result<Exit, CommandFailure> {
    for path in [&arguments.out, &arguments.prepare].into_iter().flatten() {
        file::must_be_free(path, arguments.writing.force)?;
    }
    let trust = trust::load(&arguments.trust.trust, &arguments.trust.rotation)?;
    let added = additions(arguments)?;
    let rotation = rotation(arguments, authority, &trust, &added)?;
    let bytes = rotation.to_bytes()?;
    let mut err = std::io::stderr();
    writeln!(
        err,
        "You sign:\n\n{}{}",
        render::rotation(&bytes, authority)?,
        changes(&rotation, &trust)
    )?;
    if let Some(path) = &arguments.prepare {
        return prepared(path, arguments, authority, &bytes, &added);
    }
    let out = arguments.out.as_ref().expect("clap demands --out where there is no --prepare");
    let key = arguments.key.as_ref().expect("clap demands --key where there is no --prepare");
    let question = format!("Sign this with {key} and each new key?");
    terminal::agreed_in_person(authority.in_words(), &question, IN_A_SCRIPT)?;
    let mut made = vec![keygen::sign(key, authority.namespace(), &bytes)?];
    for (signer, path) in &added {
        if !arguments.elsewhere.contains(&signer.name) {
            made.push(possession(signer, path, authority, &bytes)?);
        }
    }
    let armours: Vec<&str> = made.iter().map(|made| made.armour.as_str()).collect();
    let sealed = Envelope::seal(&bytes, &armours)?;
    judged(&sealed, &rotation, &trust, arguments)?;
    file::write(out, sealed.as_bytes(), arguments.writing.force)?;
    tell(out, &rotation, arguments)
}

/// The signers to add, with the file each came from.
fn additions(arguments: &RotateArgs) -> Result<Vec<(Signer, Utf8PathBuf)>, CommandFailure> {
    let one = |Addition { name, key }: &Addition, role: Role| {
        let made = enrol::from_public_key(&name.to_string(), role, &one_line(key)?);
        let mut signer = made.map_err(|refusal| CommandFailure::from(refusal).in_file(key))?;
        if signer.key.key_type().is_security_key() {
            signer.sk = arguments.sk;
        }
        Ok((signer, key.clone()))
    };
    let operational = arguments.add.iter().map(|added| one(added, Role::Operational));
    let recovery = arguments.add_recovery.iter().map(|added| one(added, Role::Recovery));
    let author = arguments.add_author.iter().map(|added| one(added, Role::Author));
    operational.chain(recovery).chain(author).collect()
}

fn rotation(
    arguments: &RotateArgs,
    authority: RotationAuthority,
    trust: &TrustedSigners,
    added: &[(Signer, Utf8PathBuf)],
) -> Result<Rotation, CommandFailure> {
    let known = KnownHosts::read(&arguments.hosts)?;
    let host = known.key_of(&arguments.host)?;
    let host = HostBinding { id: arguments.host.clone(), key: host.fingerprint() };
    let version = next_version(authority, trust)?;
    let signers = changed(arguments, trust, added)?;
    // The rules of every list of signers, asked before anybody touches a key.
    TrustedSigners::genesis(version, signers.clone()).map_err(|refusal| {
        CommandFailure::new(Exit::Invalid, format!("these would be no signers: {}", refusal.detail))
            .hint("each role needs a key, each key and each name stands once")
    })?;
    let clock = match arguments.set_clock.as_slice() {
        [from, to] => ClockChange::Set { from: *from, to: *to },
        _ => ClockChange::Keep,
    };
    let keeps_rules = arguments.approve.is_none();
    let keeps_signers = arguments.remove.is_empty() && added.is_empty();
    if clock == ClockChange::Keep && keeps_rules && keeps_signers {
        let message = "nothing would change";
        return Err(
            CommandFailure::new(Exit::Usage, message).hint("name changes with --add and --remove")
        );
    }
    // A host judges the window by its own time: by its mark, where that is ahead.
    let from = match (clock, authority) {
        (ClockChange::Keep, RotationAuthority::Planned | RotationAuthority::Recovery) => now(),
        (ClockChange::Set { from, to: _ }, RotationAuthority::Recovery) => from.max(now()),
        (ClockChange::Set { .. }, RotationAuthority::Planned) => {
            let message = "only a recovery key sets the mark of time of a host";
            let hint = "use `evenkeel signers recover --set-clock FROM TO`";
            return Err(CommandFailure::new(Exit::Denied, message).hint(hint));
        }
    };
    Ok(Rotation {
        authority,
        host,
        version,
        previous: trust.head(),
        signers,
        clock,
        approve: arguments.approve.as_deref().map(approval_rules).transpose()?,
        window: window(from, arguments.life_s)?,
        reason: arguments.reason.clone(),
    })
}

/// The rules in a file as root's agent.toml has them; what else is in it is not looked at.
fn approval_rules(path: &Utf8Path) -> Result<ApprovalRules, CommandFailure> {
    let text = file::read_text(path, FILE_BYTES_MAX)?;
    ApprovalRules::of_agent_file(&text).map_err(|why| {
        CommandFailure::new(Exit::Invalid, format!("{path} has no rules that can be read: {why}"))
            .hint("write them as agent.toml does: [[policy.approve]], signers = 2")
    })
}

/// The number of the new list. A recovery leaves room for every planned rotation there can be since the list it
/// follows, so that it wins whatever was done with a stolen key, and whichever comes first.
fn next_version(
    authority: RotationAuthority,
    trust: &TrustedSigners,
) -> Result<TrustVersion, CommandFailure> {
    let next = match authority {
        RotationAuthority::Planned => trust.version().next(),
        RotationAuthority::Recovery => {
            trust.version().0.checked_add(PLANNED_LINKS_MAX as u64 + 1).map(TrustVersion)
        }
    };
    next.ok_or_else(|| {
        CommandFailure::new(Exit::Failed, "the version of the trust store cannot go on")
    })
}

/// The list after the changes, in an order a person can read; the store keeps it by key.
fn changed(
    arguments: &RotateArgs,
    trust: &TrustedSigners,
    added: &[(Signer, Utf8PathBuf)],
) -> Result<Vec<Signer>, CommandFailure> {
    let mut signers: Vec<Signer> = trust.signers().cloned().collect();
    for name in &arguments.remove {
        let before = signers.len();
        signers.retain(|signer| signer.name != *name);
        if signers.len() == before {
            return Err(no_such_signer(name));
        }
    }
    let is_added = |name: &SignerName| added.iter().any(|(signer, _)| signer.name == *name);
    if let Some(name) = arguments.elsewhere.iter().find(|name| !is_added(name)) {
        return Err(no_such_signer(name));
    }
    signers.extend(added.iter().map(|(signer, _)| signer.clone()));
    signers.sort_by_key(|signer| (signer.role, signer.name.clone()));
    Ok(signers)
}

fn no_such_signer(name: &SignerName) -> CommandFailure {
    CommandFailure::new(Exit::NotFound, format!("there is no signer {name}"))
        .hint("`evenkeel signers list` shows the names")
}

/// Against the list that is in force, in words.
fn changes(rotation: &Rotation, trust: &TrustedSigners) -> String {
    let mut text = String::new();
    let line = |verb: &str, signer: &Signer| {
        format!("  {verb:<12} {} {} {}\n", signer.name, signer.role, signer.key.fingerprint())
    };
    for signer in &rotation.signers {
        match trust.lookup(signer.key.blob()) {
            Lookup::Trusted(_) => {}
            Lookup::Retired { .. } | Lookup::Unknown { .. } => text += &line("added", signer),
        }
    }
    let mut before: Vec<&Signer> = trust.signers().collect();
    before.sort_by_key(|signer| (signer.role, signer.name.clone()));
    for signer in before {
        if !rotation.signers.iter().any(|kept| kept.key == signer.key) {
            text += &line("removed", signer);
        }
    }
    text
}

/// The new key's own signature: its holder has it, and nobody enrols a key that is not theirs.
fn possession(
    signer: &Signer,
    path: &Utf8Path,
    authority: RotationAuthority,
    bytes: &[u8],
) -> Result<MadeSignature, CommandFailure> {
    let made = keygen::sign(path, authority.namespace(), bytes).map_err(|failure| {
        let hint = format!(
            "if the key is elsewhere, add --elsewhere {} and let its holder run `evenkeel sign`",
            signer.name
        );
        failure.hint(hint)
    })?;
    Ok(made)
}

/// Judges the result as the host will, before anything is written. What is signed elsewhere is missing yet.
fn judged(
    sealed: &str,
    rotation: &Rotation,
    trust: &TrustedSigners,
    arguments: &RotateArgs,
) -> Result<(), CommandFailure> {
    let envelope = Envelope::parse(sealed.as_bytes())?;
    let signed_by = |signer: &Signer| {
        envelope.signatures().iter().any(|signature| signature.key_blob() == signer.key.blob())
    };
    let complete = arguments.elsewhere.is_empty();
    if complete {
        let authority = rotation.authority;
        let host = &rotation.host;
        let clock = trust::reading(rotation, now());
        rotate(&envelope, authority, trust, host, &clock, STATEMENT_LIFE_MAX_S)?;
        return Ok(());
    }
    let role = rotation.authority.role();
    if trust.signers().any(|signer| signer.role == role && signed_by(signer)) {
        return Ok(());
    }
    let message = format!("none of the host's {role} keys signed");
    Err(CommandFailure::new(Exit::Denied, message)
        .hint("sign with one that `evenkeel signers list` shows"))
}

fn tell(
    out: &Utf8Path,
    rotation: &Rotation,
    arguments: &RotateArgs,
) -> Result<Exit, CommandFailure> {
    writeln!(
        std::io::stdout(),
        "wrote {out}: version {} for {}",
        rotation.version,
        rotation.host.id
    )?;
    for name in &arguments.elsewhere {
        writeln!(
            std::io::stderr(),
            "note: {name} still has to sign: evenkeel sign {out} --key KEY --out FILE"
        )?;
    }
    Ok(Exit::Ok)
}

/// Leaves the signing to wherever the keys are: a recovery key is best kept offline.
fn prepared(
    path: &Utf8Path,
    arguments: &RotateArgs,
    authority: RotationAuthority,
    bytes: &[u8],
    added: &[(Signer, Utf8PathBuf)],
) -> Result<Exit, CommandFailure> {
    file::write(path, bytes, arguments.writing.force)?;
    writeln!(std::io::stdout(), "wrote {path}, not signed yet")?;
    let mut err = std::io::stderr();
    let role = authority.role();
    writeln!(err, "Sign it where the {role} key is and where each new key is, then seal it:")?;
    let mut seal = format!("  evenkeel sign {}", quoted(path.as_str()));
    let keys = std::iter::once("KEY").chain(added.iter().map(|(_, key)| key.as_str()));
    for (place, key) in keys.enumerate() {
        let sign = keygen::by_hand(key, authority.namespace(), path.as_str());
        let signature = format!("{path}.sig");
        let kept = format!("{path}.{}.sig", place + 1);
        writeln!(err, "  {sign} && mv {} {}", quoted(&signature), quoted(&kept))?;
        let _ = write!(seal, " --signature {}", quoted(&kept));
    }
    writeln!(err, "{seal} --out rotation.json")?;
    Ok(Exit::Ok)
}
