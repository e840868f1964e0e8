//! Enrolment: a signer from a `.pub` file or from one line of an `allowed_signers` file.
//!
//! `allowed_signers` is not our trust store: there a line without `namespaces` allows everything, two
//! lines add up, and a broken line is passed over. A line is imported once, in full or not at all: what
//! is not understood is refused. Called by `evenkeel signers enrol`; it edits nothing.

use super::key::PublicKey;
use super::sshsig::Namespace;
use super::time;
use super::trust::{Role, Signer, SkPolicy, Validity};
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::UnixSeconds;

/// A signer from a name and the line of a `.pub` file.
pub fn from_public_key(name: &str, role: Role, line: &str) -> Result<Signer, Refusal> {
    let name = name.parse().map_err(|error| refuse(format!("`{}`: {error}", shown(name))))?;
    let key = PublicKey::from_line(line)?;
    Ok(Signer { name, role, key, validity: Validity::ALWAYS, sk: SkPolicy::Presence })
}

/// A signer from one line of an `allowed_signers` file: one plain principal, known options, a key.
pub fn from_allowed_signers(line: &str, role: Role) -> Result<Signer, Refusal> {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let Some((principal, rest)) = line.split_once(' ') else {
        return Err(refuse("a line is a principal, options and a key"));
    };
    let starts_with_key = rest.starts_with("ssh-")
        || rest.starts_with("sk-")
        || rest.starts_with("ecdsa-")
        || rest.starts_with("rsa-");
    let (options, key) = if starts_with_key { ("", rest) } else { split_options(rest)? };
    let mut signer = from_public_key(principal, role, key)?;
    signer.validity = validity(options, role)?;
    Ok(signer)
}

/// Options end at the first blank outside of quotes.
fn split_options(rest: &str) -> Result<(&str, &str), Refusal> {
    let mut quoted = false;
    for (place, letter) in rest.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted && place > 0 => return Ok((&rest[..place], &rest[place + 1..])),
            _ => {}
        }
    }
    Err(refuse("a line is a principal, options and a key"))
}

fn validity(options: &str, role: Role) -> Result<Validity, Refusal> {
    let mut validity = Validity::ALWAYS;
    let mut seen: Vec<&str> = Vec::new();
    for option in split_list(options) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if seen.contains(&name) {
            return Err(refuse(format!("the option `{}` stands twice", shown(name))));
        }
        seen.push(name);
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        match (name, value) {
            ("valid-after", Some(moment)) => validity.from = openssh_time(moment)?,
            ("valid-before", Some(moment)) => validity.until = openssh_time(moment)?,
            ("namespaces", Some(list)) => allows_role(list, role)?,
            _ => {
                let detail = format!("the option `{}` cannot be taken over", shown(option));
                return Err(refuse(detail));
            }
        }
    }
    if validity.from >= validity.until {
        return Err(refuse("the key would never be valid"));
    }
    Ok(validity)
}

/// Options, with commas between them that are not in quotes.
fn split_list(options: &str) -> Vec<&str> {
    let mut quoted = false;
    let parts = options.split(|letter: char| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    });
    parts.filter(|_| !options.is_empty()).collect()
}

/// A key that was limited to other purposes is not widened by enrolling it.
fn allows_role(list: &str, role: Role) -> Result<(), Refusal> {
    let needed: &[Namespace] = match role {
        Role::Operational => &[Namespace::Op, Namespace::Rotate],
        Role::Recovery => &[Namespace::Recover],
        Role::Author => &[Namespace::Desired],
    };
    let listed: Vec<&str> = list.split(',').collect();
    match needed.iter().find(|needed| !listed.contains(&needed.as_str())) {
        None => Ok(()),
        Some(missing) => {
            let missing = missing.as_str();
            Err(refuse(format!("`namespaces` does not allow `{missing}`, which the role signs")))
        }
    }
}

/// `YYYYMMDDHHMMSSZ` or `YYYYMMDDZ`. Without the Z it would be the local time of whoever reads it.
fn openssh_time(text: &str) -> Result<UnixSeconds, Refusal> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    let moment = digits.and_then(|digits| {
        let clock = match digits.len() {
            8 => "000000",
            12 | 14 => digits.get(8..)?,
            _ => return None,
        };
        let year = digits.get(..4)?;
        let month = digits.get(4..6)?;
        let day = digits.get(6..8)?;
        let hour = clock.get(..2)?;
        let minute = clock.get(2..4)?;
        let second = clock.get(4..6).unwrap_or("00");
        time::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
    });
    moment.ok_or_else(|| refuse(format!("`{}` is not a UTC time ending in Z", shown(text))))
}

fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

fn refuse(why: impl Into<String>) -> Refusal {
    Refusal::new(ReasonCode::Payload, why)
}
