//! `fleet enrol-token`: an admin makes tokens at the hub, and is told what to run on the hosts.
//!
//! The tokens alone go to stdout, so that one can be piped to its host. Everything public about the line is in it, keys
//! included; the token never is: arguments are seen by every user of a machine.

use std::fmt::Write as _;
use std::io::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use evenkeel_hub::people::wire::{EnrolTokenAnswer, EnrolTokenRequest};

use super::super::signers::enrol::one_line;
use crate::cli::{FleetEnrolTokenArgs, OutputFormat};
use crate::error::{CommandFailure, Exit};
use crate::fleet::hub_client::HubClient;
use crate::fleet::known_hubs::{HubProof, KnownHubs};
use crate::format;
use crate::format::fleet::{FleetEnrolTokenFormat, MadeEnrolToken};
use crate::signing::keygen::quoted;
use crate::terminal;

const INFALLIBLE: &str = "writing to a string cannot fail";

pub(super) async fn run(arguments: &FleetEnrolTokenArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let command = setup_command(arguments, &client)?;
    let mut tokens = Vec::new();
    for host in &arguments.hosts {
        let request = EnrolTokenRequest { host: host.to_string(), replace: arguments.replace };
        let made: EnrolTokenAnswer = client.post("/v1/enrol-tokens", &request, None).await?;
        let EnrolTokenAnswer { token, expires_at } = made;
        // At once: a host that is refused takes no token of another away.
        match (arguments.fleet.output.output, arguments.hosts.len()) {
            (OutputFormat::Json, _) => {}
            (OutputFormat::Table, 1) => writeln!(std::io::stdout(), "{token}")?,
            (OutputFormat::Table, _) => writeln!(std::io::stdout(), "{host} {token}")?,
        }
        tokens.push(MadeEnrolToken { host: host.to_string(), token, expires_at });
    }
    match arguments.fleet.output.output {
        OutputFormat::Json => {
            let hub = client.origin().to_owned();
            format::print(&FleetEnrolTokenFormat { format_version: 1, hub, tokens, command })?;
        }
        OutputFormat::Table => terminal::tell(&words(&tokens, &command, &client))?,
    }
    Ok(Exit::Ok)
}

/// What is run on the hosts.
fn words(tokens: &[MadeEnrolToken], command: &str, client: &HubClient) -> String {
    let ends = tokens.first().map(|token| token.expires_at.as_str()).unwrap_or_default();
    let whose = if tokens.len() == 1 { "the host" } else { "each host" };
    format!(
        "Run this on {whose} as root; it asks for its token, which is good once and until {ends}:\n  {command}\nIf an agent \
         is already set up there: systemctl stop evenkeel; evenkeel enrol {}; systemctl start evenkeel\n",
        client.origin()
    )
}

/// `evenkeel setup --hub …` with everything that is known here and no secret.
fn setup_command(
    arguments: &FleetEnrolTokenArgs,
    client: &HubClient,
) -> Result<String, CommandFailure> {
    let mut command = format!("evenkeel setup --hub {}", client.origin());
    let known = KnownHubs::read()?;
    match known.get(client.origin()).map(|hub| &hub.proof) {
        Some(HubProof::Certificate(pin)) => {
            write!(command, " --fingerprint {pin}").expect(INFALLIBLE);
        }
        // That file is the person's own; the host needs it too.
        Some(HubProof::AuthorityFile(_)) => command.push_str(" --ca-file HUB-CA.pem"),
        Some(HubProof::System) | None => {}
    }
    let FleetEnrolTokenArgs { author, operational, recovery, .. } = arguments;
    let roles: [(&str, &[Utf8PathBuf], &str); 3] = [
        ("--operational", operational, "ALICE.pub"),
        ("--recovery", recovery, "VAULT.pub"),
        ("--author", author, "AUTHOR.pub"),
    ];
    for (flag, files, usual) in roles {
        if files.is_empty() {
            write!(command, " {flag} {usual}").expect(INFALLIBLE);
        }
        for path in files {
            write!(command, " {flag} {}", quoted(&key_line(path)?)).expect(INFALLIBLE);
        }
    }
    Ok(command)
}

/// The line of a public key; without a comment, the file's name is the signer's.
fn key_line(path: &Utf8Path) -> Result<String, CommandFailure> {
    let line = one_line(path)?.trim().to_owned();
    let name = path.file_stem().filter(|_| line.split_whitespace().count() == 2);
    Ok(name.map_or_else(|| line.clone(), |name| format!("{line} {name}")))
}
