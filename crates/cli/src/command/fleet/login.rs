//! `fleet login`: how a person comes to a hub.

use evenkeel_agent::pve::endpoint::Endpoint;
use evenkeel_agent::pve::tls::TlsTrust;
use evenkeel_core::fleet::{HubId, LoginStatement, SealedText};
use evenkeel_core::sign::{Envelope, Namespace, Nonce};
use evenkeel_hub::people::wire::{ChallengeAnswer, ChallengeRequest, LoginAnswer, LoginRequest};
use secrecy::SecretString;

use crate::cli::{FleetLoginArgs, OutputFormat};
use crate::error::{CommandFailure, Exit};
use crate::fleet::hub_client::{HubClient, endpoint};
use crate::fleet::known_hubs::{HubProof, KnownHub, KnownHubs};
use crate::fleet::logins::{HubLogin, HubLogins};
use crate::format;
use crate::format::fleet::FleetLoginFormat;
use crate::render::tamed;
use crate::signing::keygen;
use crate::terminal;

pub(super) async fn login(arguments: &FleetLoginArgs) -> Result<Exit, CommandFailure> {
    let endpoint = endpoint(&arguments.url)?;
    let origin = endpoint.origin().to_owned();
    let mut known = KnownHubs::read()?;
    let proof = match known.get(&origin) {
        Some(hub) => known_proof(&known, hub, arguments)?,
        None => new_proof(&endpoint, arguments).await?,
    };
    let client = HubClient::new(endpoint, &proof.trust()?)?;
    let account = account(arguments)?;
    let challenge: ChallengeAnswer = client
        .post("/v1/login/challenge", &ChallengeRequest { account: account.clone() }, None)
        .await?;
    let (hub_id, nonce) = read_challenge(&challenge)?;
    known.demand(&origin, &hub_id)?;
    let statement = LoginStatement {
        hub_id: hub_id.clone(),
        origin: origin.clone(),
        account: account.clone(),
        nonce,
    };
    let bytes = statement.to_bytes()?;
    let made = keygen::sign(&arguments.key, Namespace::Login, &bytes)?;
    let sealed = SealedText::of(&Envelope::seal(&bytes, &[&made.armour])?)?;
    let request = LoginRequest { account: account.clone(), login: sealed.into() };
    let answer: LoginAnswer =
        client.post("/v1/login", &request, None).await.map_err(|failure| {
            failure.hint(format!(
                "is {} a key of the account {account}? an admin adds it with `evenkeel hub account`",
                made.by.key.fingerprint()
            ))
        })?;
    known.add(KnownHub { origin: origin.clone(), hub_id: hub_id.clone(), proof })?;
    let LoginAnswer { token, expires_at, role, scope } = answer;
    let token = SecretString::from(token);
    let login = HubLogin {
        origin: origin.clone(),
        account: account.clone(),
        token,
        expires_at: expires_at.clone(),
        browser: None,
    };
    HubLogins::read()?.keep(login)?;
    let hub_id = hub_id.to_string();
    let logged_in = FleetLoginFormat {
        format_version: 1,
        hub: origin,
        hub_id,
        account,
        role,
        scope,
        expires_at,
    };
    tell(&logged_in, arguments.output.output)?;
    Ok(Exit::Ok)
}

/// Who is logged in now, as what and until when.
fn tell(logged_in: &FleetLoginFormat, output: OutputFormat) -> Result<(), CommandFailure> {
    match output {
        OutputFormat::Json => format::print(logged_in),
        OutputFormat::Table => {
            let FleetLoginFormat { hub, account, role, scope, expires_at, .. } = logged_in;
            let as_whom = [account, role, scope, expires_at].map(|text| tamed(text, 253));
            let [account, role, scope, until] = as_whom;
            let told = format!("logged in at {hub} as {account}, {role} of {scope}");
            terminal::print(&format!("{told}, until {until}\n"))
        }
    }
}

/// The account that is named, or that of this machine's user.
fn account(arguments: &FleetLoginArgs) -> Result<String, CommandFailure> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let account = arguments.account.clone().or_else(|| set("USER")).or_else(|| set("LOGNAME"));
    account.ok_or_else(|| {
        CommandFailure::new(Exit::Usage, "nothing says which account is yours")
            .hint("add --as NAME")
    })
}

fn read_challenge(challenge: &ChallengeAnswer) -> Result<(HubId, Nonce), CommandFailure> {
    let malformed = |what: &str| {
        CommandFailure::new(Exit::Failed, format!("the hub's challenge has no {what}"))
            .hint("is this the address of a hub?")
    };
    let hub_id = challenge.hub_id.parse().map_err(|_| malformed("hub's id"))?;
    let nonce = challenge.nonce.parse().map_err(|_| malformed("nonce"))?;
    Ok((hub_id, nonce))
}

/// What was pinned stands; a flag that says otherwise is a reason to stop.
fn known_proof(
    known: &KnownHubs,
    hub: &KnownHub,
    arguments: &FleetLoginArgs,
) -> Result<HubProof, CommandFailure> {
    let flag = flag_proof(arguments)?;
    if flag.is_some_and(|flag| flag != hub.proof) {
        let message = format!("{} was pinned otherwise than you say now", hub.origin);
        return Err(CommandFailure::new(Exit::Denied, message).hint(known.forget(&hub.origin)));
    }
    Ok(hub.proof.clone())
}

fn flag_proof(arguments: &FleetLoginArgs) -> Result<Option<HubProof>, CommandFailure> {
    if let Some(text) = &arguments.fingerprint {
        let print =
            text.parse().map_err(|error| CommandFailure::new(Exit::Usage, format!("{error}")))?;
        return Ok(Some(HubProof::Certificate(print)));
    }
    let Some(path) = &arguments.ca_file else { return Ok(None) };
    let path = path.canonicalize_utf8().map_err(|error| {
        CommandFailure::new(Exit::NotFound, format!("cannot read {path}")).because(error)
    })?;
    Ok(Some(HubProof::AuthorityFile(path)))
}

/// What proves a hub that is new: what the person brought, an authority of this system, or a certificate that the person
/// says yes to.
async fn new_proof(
    endpoint: &Endpoint,
    arguments: &FleetLoginArgs,
) -> Result<HubProof, CommandFailure> {
    if let Some(proof) = flag_proof(arguments)? {
        return Ok(proof);
    }
    if !endpoint.is_encrypted() {
        return Ok(HubProof::System);
    }
    let client = HubClient::new(endpoint.clone(), &TlsTrust::Platform);
    if let Ok(client) = client
        && client.answers().await
    {
        return Ok(HubProof::System);
    }
    let print = HubClient::certificate(endpoint).await?;
    let origin = endpoint.origin();
    let told = format!(
        "No authority that this system knows vouches for {origin}. Its certificate is\n  {print}\n\
         The hub printed the same when it started.\n"
    );
    terminal::tell(&told)?;
    if terminal::is_there() && terminal::agrees("Is this the hub's certificate?")? {
        return Ok(HubProof::Certificate(print));
    }
    let message = format!("the hub {origin} is not known here");
    Err(CommandFailure::new(Exit::Denied, message)
        .hint("if the fingerprint is the hub's, add --fingerprint with it"))
}
