//! Signing by the installed `ssh-keygen`, as a child: it owns keys, agents, passphrases, PINs and touches.
//!
//! What it gives back is believed only after core has verified it over the bytes that were shown.

use std::io::IsTerminal as _;
use std::process::{Command, Stdio};

use camino::Utf8Path;
use evenkeel_core::sign::armour::ARMOUR_BYTES_MAX;
use evenkeel_core::sign::{Namespace, VerifiedSignature, verify};

use super::file;
use super::refusal::refused;
use crate::error::{CommandFailure, Exit};

/// A signature that holds, and who made it.
pub(crate) struct MadeSignature {
    pub(crate) armour: String,
    pub(crate) by: VerifiedSignature,
}

/// Has exact bytes signed by a key. Its prompts go to the terminal, if there is one.
pub(crate) fn sign(
    key: &Utf8Path,
    namespace: Namespace,
    bytes: &[u8],
) -> Result<MadeSignature, CommandFailure> {
    // Said here, because ssh-keygen would take a missing file for a wrong passphrase.
    if !key.as_std_path().exists() {
        let message = format!("there is no key {key}");
        return Err(CommandFailure::new(Exit::NotFound, message).hint(KEY));
    }
    let cannot =
        |error| CommandFailure::new(Exit::Failed, "cannot write the statement").because(error);
    let directory = tempfile::Builder::new().prefix("evenkeel-").tempdir().map_err(cannot)?;
    let statement = directory.path().join("statement");
    fs_err::write(&statement, bytes).map_err(cannot)?;
    // The file and not stdin holds the statement: ssh-keygen asks for a passphrase on stdin.
    let terminal = std::io::stdin().is_terminal();
    let status = Command::new("ssh-keygen")
        .args(["-q", "-Y", "sign", "-n", namespace.as_str(), "-f", key.as_str()])
        .arg(&statement)
        .stdin(if terminal { Stdio::inherit() } else { Stdio::null() })
        .stdout(Stdio::null())
        .status()
        .map_err(|error| {
            CommandFailure::new(Exit::Failed, "cannot run ssh-keygen")
                .because(error)
                .hint("install OpenSSH 8.2 or later: apt install openssh-client")
        })?;
    if !status.success() {
        let message = format!("ssh-keygen did not sign with {key}");
        return Err(CommandFailure::new(Exit::Denied, message).hint(KEY));
    }
    let made = statement.with_extension("sig");
    let made = Utf8Path::from_path(&made).ok_or_else(|| {
        CommandFailure::new(
            Exit::Failed,
            "the directory for temporary files has a name that is not UTF-8",
        )
    })?;
    check(file::read_text(made, ARMOUR_BYTES_MAX)?, namespace, bytes)
}

const KEY: &str = "give a private key file, or the .pub file of a key that `ssh-add -L` lists";

/// Takes a signature somebody made elsewhere over the same bytes.
pub(crate) fn take(
    from: &Utf8Path,
    namespace: Namespace,
    bytes: &[u8],
) -> Result<MadeSignature, CommandFailure> {
    check(file::read_text(from, ARMOUR_BYTES_MAX)?, namespace, bytes)
}

fn check(
    armour: String,
    namespace: Namespace,
    bytes: &[u8],
) -> Result<MadeSignature, CommandFailure> {
    let by = verify(&armour, namespace, bytes).map_err(|refusal| refused(&refusal))?;
    Ok(MadeSignature { armour, by })
}

/// The command that makes the same signature by hand.
pub(crate) fn by_hand(key: &str, namespace: Namespace, statement: &str) -> String {
    let namespace = namespace.as_str();
    format!("ssh-keygen -Y sign -n {namespace} -f {} {}", quoted(key), quoted(statement))
}

/// A word as a shell takes it for one word.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=@%:,~".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_word_stays_one_word_in_a_shell() {
        for word in ["id_ed25519", "a b", "it's", "", "$(reboot)", "~/.ssh/id", "a\nb", "*"] {
            let script = format!("printf %s {}", quoted(word));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            // The shell spells the home directory out, which is what is meant.
            assert!(printed == word || word.starts_with('~'), "{word:?} became {printed:?}");
        }
    }
}
