//! `evenkeel signers enrol`: one more key in a trust file that no agent has been started with.

use std::io::Write as _;

use camino::Utf8Path;
use evenkeel_core::sign::trust_file::{self, EditError};
use evenkeel_core::sign::{Role, Signer, enrol};
use evenkeel_core::words::diagnostic::{FILE_BYTES_MAX, SourceFile, Sources};

use super::started_file;
use crate::cli::EnrolArgs;
use crate::error::{CommandFailure, Exit};
use crate::signing::{file, trust};

/// The largest file read for one key: a `.pub` file has some hundred bytes.
const KEY_FILE_BYTES_MAX: usize = 64 * 1024;

/// How the line of a `.pub` file begins; a line of `allowed_signers` begins with a name.
pub(in crate::command) const KEY_TYPES: [&str; 4] = ["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"];

pub(crate) fn run(arguments: &EnrolArgs) -> Result<Exit, CommandFailure> {
    let signer = signer(arguments)?;
    let path = &arguments.trust;
    let there = path.as_std_path().exists();
    let text = if there { file::read_text(path, FILE_BYTES_MAX)? } else { trust_file::empty() };
    started_file::refuse(arguments, &text, &signer)?;
    let edited =
        trust_file::add(&text, &signer).map_err(|error| not_added(error, path, &text, &signer))?;
    file::write(path, edited.as_bytes(), there)?;
    let Signer { name, role, key, .. } = &signer;
    let mut out = std::io::stdout();
    writeln!(out, "enrolled {name}, {role}, {} {} in {path}", key.key_type(), key.fingerprint())?;
    tell_what_is_missing(path, &edited)
}

/// The signer of a `.pub` file and a name, or of a line that has both.
fn signer(arguments: &EnrolArgs) -> Result<Signer, CommandFailure> {
    let path = &arguments.key;
    let line = one_line(path)?;
    if arguments.name.is_none() && KEY_TYPES.iter().any(|kind| line.starts_with(kind)) {
        let message = format!("{path} is a public key, and nothing says whose");
        return Err(
            CommandFailure::new(Exit::Usage, message).hint("add --name NAME, such as --name anna")
        );
    }
    let signer = match &arguments.name {
        Some(name) => enrol::from_public_key(&name.to_string(), arguments.role, &line),
        None => enrol::from_allowed_signers(&line, arguments.role),
    };
    let mut signer = signer.map_err(|refusal| CommandFailure::from(refusal).in_file(path))?;
    match arguments.sk {
        Some(_) if !signer.key.key_type().is_security_key() => {
            let message =
                format!("{path} is no FIDO key, which alone can ask for a touch or a PIN");
            return Err(CommandFailure::new(Exit::Usage, message).hint("leave --sk out"));
        }
        Some(policy) => signer.sk = policy,
        None => {}
    }
    Ok(signer)
}

/// The one line of a file that is not empty and no comment.
pub(in crate::command) fn one_line(path: &Utf8Path) -> Result<String, CommandFailure> {
    let text = file::read_text(path, KEY_FILE_BYTES_MAX)?;
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    match (lines.next(), lines.next()) {
        (Some(line), None) if line.starts_with("-----BEGIN") => Err(private(path)),
        (Some(line), None) => Ok(line.to_owned()),
        (Some(first), Some(_)) if first.starts_with("-----BEGIN") => Err(private(path)),
        (Some(_), Some(_)) => {
            Err(CommandFailure::new(Exit::Invalid, format!("{path} has more than one line"))
                .hint("enrol one key at a time: put its line into a file of its own"))
        }
        (None, _) => Err(CommandFailure::new(Exit::Invalid, format!("{path} holds no key"))
            .hint("name a .pub file")),
    }
}

fn private(path: &Utf8Path) -> CommandFailure {
    CommandFailure::new(
        Exit::Invalid,
        format!("{path} is a private key; only the public part is enrolled"),
    )
    .hint(format!("name {path}.pub"))
}

fn not_added(error: EditError, path: &Utf8Path, text: &str, signer: &Signer) -> CommandFailure {
    match error {
        EditError::File(errors) => {
            let mut sources = Sources::default();
            let id = sources.add(path.as_str(), text);
            let source = sources.get(id).expect("it was added just above");
            if trust_file::parse(source).is_err() {
                return trust::mistakes(&errors, &sources);
            }
            // The file reads, so what is wrong came with the new signer: its name or key is there.
            let why = errors.first().map_or_else(String::new, |first| first.message.clone());
            CommandFailure::new(Exit::Invalid, format!("{} was not enrolled: {why}", signer.name))
                .hint("one role and one name per key; nothing was written")
        }
        EditError::NoSuchSigner(_) | EditError::ByHand(_) => {
            CommandFailure::new(Exit::Invalid, error.to_string()).hint("nothing was written")
        }
    }
}

fn tell_what_is_missing(path: &Utf8Path, text: &str) -> Result<Exit, CommandFailure> {
    let source = SourceFile::new(evenkeel_core::words::diagnostic::FileId(0), path.as_str(), text);
    let signers = trust_file::parse(&source).map(|file| file.signers).unwrap_or_default();
    for role in Role::NEEDED {
        if !signers.iter().any(|signer| signer.role == role) {
            let note = "note: a host takes this file only when it also has a key of the role";
            writeln!(std::io::stderr(), "{note} {role}")?;
        }
    }
    Ok(Exit::Ok)
}
