//! `evenkeel signers list`: the signers a host has by its trust file and the rotations after it.

use std::fmt::Write as _;
use std::io::Write as _;

use evenkeel_core::sign::{Signer, TrustedSigners, Validity, time};
use serde_json::{Value, json};

use crate::cli::{ListArgs, OutputFormat};
use crate::error::{Exit, Failure};
use crate::signing::trust;

pub(crate) fn run(arguments: &ListArgs) -> Result<Exit, Failure> {
    let trust = trust::load(&arguments.trust.trust, &arguments.trust.rotation)?;
    let mut out = std::io::stdout();
    match arguments.output.output {
        OutputFormat::Table => write!(out, "{}", table(&trust))?,
        OutputFormat::Json => writeln!(out, "{}", as_json(&trust))?,
    }
    Ok(Exit::Ok)
}

/// By role, then by name: the order of a file or of key bytes tells a person nothing.
fn sorted(trust: &TrustedSigners) -> Vec<&Signer> {
    let mut signers: Vec<&Signer> = trust.signers().collect();
    signers.sort_by_key(|signer| (signer.role, signer.name.clone()));
    signers
}

fn table(trust: &TrustedSigners) -> String {
    let mut text = format!("version {}, head {}\n\n", trust.version(), trust.head());
    let signers = sorted(trust);
    let width = signers.iter().map(|signer| signer.name.to_string().len()).max().unwrap_or(0);
    for signer in signers {
        let Signer { name, role, key, validity: Validity { from, until }, sk } = signer;
        let (kind, print) = (key.key_type(), key.fingerprint());
        let name = name.to_string();
        let _ = write!(text, "{:<12} {name:<width$}  {print}  {kind}", role.as_str());
        if *from != Validity::ALWAYS.from {
            let _ = write!(text, ", from {}", time::print(*from));
        }
        if *until != Validity::ALWAYS.until {
            let _ = write!(text, ", until {}", time::print(*until));
        }
        if kind.is_security_key() {
            let _ = write!(text, ", {}", sk.as_str());
        }
        text.push('\n');
    }
    text
}

fn as_json(trust: &TrustedSigners) -> Value {
    let signer = |signer: &Signer| {
        let Signer { name, role, key, validity: Validity { from, until }, sk } = signer;
        json!({
            "name": name.to_string(),
            "role": role.as_str(),
            "key": key.to_string(),
            "fingerprint": key.fingerprint().to_string(),
            "valid_from": from.0,
            "valid_until": until.0,
            "sk": key.key_type().is_security_key().then_some(sk.as_str()),
        })
    };
    json!({
        "format_version": 1,
        "version": trust.version().0,
        "head": trust.head().to_string(),
        "signers": sorted(trust).into_iter().map(signer).collect::<Vec<_>>(),
    })
}
