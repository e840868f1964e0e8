//! Arguments of the verbs that sign, and of those that say who may.

use camino::Utf8PathBuf;
use clap::{ArgGroup, Args, Subcommand};
use evenkeel_core::model::id::HostId;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{Role, STATEMENT_LIFE_MAX_S, SignerName, SkPolicy, time};

use super::{LocalArgs, OutputArgs, StatePlace};

/// Arguments of `sign`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("how").required(true).args(["key", "signature", "prepare"])))]
pub(crate) struct SignArgs {
    /// The beginning of the name of a pending item of this host; or a file: a pending item, a statement, or an
    /// envelope that needs another signature
    #[arg(value_name = "PENDING|FILE")]
    pub(crate) subject: Utf8PathBuf,
    /// Sign with this key: a private key file, that of a FIDO key, or the `.pub` file of a key in ssh-agent
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<Utf8PathBuf>,
    /// Take a signature made elsewhere by `ssh-keygen -Y sign`; may be given several times
    #[arg(long, value_name = "FILE.sig")]
    pub(crate) signature: Vec<Utf8PathBuf>,
    /// Write the statement to this file and sign nothing, so that you can sign it on another machine
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    pub(crate) prepare: Option<Utf8PathBuf>,
    /// The file to write to; it must not exist [default: `approval-` and the beginning of the item's name]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<Utf8PathBuf>,
    /// The reason, for the journal; only with a pending item
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// How long the approval is valid: 30m, 12h, at most 1d; only with a pending item [default: 1h]
    #[arg(long = "life", value_name = "TIME", value_parser = life)]
    pub(crate) life_s: Option<u64>,
    /// Fetch the item from a hub instead of this host [default URL: the hub of your last login]
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["config", "state"])]
    pub(crate) hub: Option<String>,
    #[command(flatten)]
    pub(crate) place: StatePlace,
    #[command(flatten)]
    pub(crate) hosts: KnownHostsArgs,
    #[command(flatten)]
    pub(crate) writing: WritingArgs,
}

/// Arguments of `approve`.
#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// The beginning of a pending item's name, with --hub at least 16 digits of it; or a guest with exactly one item
    #[arg(value_name = "PENDING|GUEST")]
    pub(crate) subject: String,
    /// Sign with this key: a private key file, that of a FIDO key, or the `.pub` file of a key in ssh-agent
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Utf8PathBuf,
    /// Fetch the item from a hub, and send the approval there [default URL: the hub of your last login]
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["config", "state"])]
    pub(crate) hub: Option<String>,
    /// Deny the item: it ends, even if others signed it; needs --reason
    #[arg(long)]
    pub(crate) deny: bool,
    /// The reason, for the journal
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    /// How long the approval is valid: 30m, 12h, at most 1d
    #[arg(long = "life", value_name = "TIME", default_value = "1h", value_parser = life)]
    pub(crate) life_s: u64,
    /// Wait so many seconds for the result; the act goes on if the time runs out
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) wait: u64,
    /// Do not ask before signing and sending; an unknown host is refused all the same
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) place: StatePlace,
    #[command(flatten)]
    pub(crate) hosts: KnownHostsArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// An envelope: an approval, a rotation, a recovery or a pending item
    pub(crate) file: Utf8PathBuf,
    /// The host's trust file; without it, verify checks the signatures but not the signers' permission
    #[arg(long, value_name = "FILE")]
    pub(crate) trust: Option<Utf8PathBuf>,
    /// A rotation that the host accepted after its trust file, as an envelope; name all of them, in order
    #[arg(long, value_name = "FILE", requires = "trust")]
    pub(crate) rotation: Vec<Utf8PathBuf>,
    #[command(flatten)]
    pub(crate) hosts: KnownHostsArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The verbs of `signers`.
#[derive(Debug, Subcommand)]
pub(crate) enum SignersVerb {
    /// List the signers of this host, or those of a trust file and the rotations after it
    List(ListArgs),
    /// Add a key to a trust file, before the host's agent first starts with it
    Enrol(EnrolArgs),
    /// Change the operational keys of a host; an operational key and each new key must sign
    Rotate(RotateArgs),
    /// Change any keys of a host; a recovery key and each new key must sign
    Recover(RotateArgs),
}

/// Arguments of `signers list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// A trust file, instead of this host's own
    #[arg(long, value_name = "FILE")]
    pub(crate) trust: Option<Utf8PathBuf>,
    /// A rotation that the host accepted after that file, as an envelope; name all of them, in order
    #[arg(long, value_name = "FILE", requires = "trust")]
    pub(crate) rotation: Vec<Utf8PathBuf>,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Arguments of `signers enrol`.
#[derive(Debug, Args)]
pub(crate) struct EnrolArgs {
    /// A `.pub` file, or a file with one line of `allowed_signers`
    #[arg(value_name = "KEY.pub|LINE")]
    pub(crate) key: Utf8PathBuf,
    /// The key's role: operational (acts and rotations), recovery (recoveries only) or author (documents of a hub only)
    #[arg(long)]
    pub(crate) role: Role,
    /// The signer's name; without it the file must be a line of `allowed_signers`, which names its principal
    #[arg(long)]
    pub(crate) name: Option<SignerName>,
    /// The proof that a FIDO key demands at each signature: presence (a touch) or verification (PIN or finger too)
    #[arg(long, value_name = "POLICY")]
    pub(crate) sk: Option<SkPolicy>,
    /// The trust file; enrol makes it if it does not exist
    #[arg(long, value_name = "FILE", default_value = DEFAULT_TRUST)]
    pub(crate) trust: Utf8PathBuf,
    /// This host's agent, if there is one: once it started with a trust file, only a rotation changes that file
    #[command(flatten)]
    pub(crate) place: StatePlace,
}

/// Arguments of `signers rotate` and `signers recover`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("how").required(true).args(["key", "prepare"])))]
pub(crate) struct RotateArgs {
    /// The host; its key must be pinned
    #[arg(long, value_name = "ID")]
    pub(crate) host: HostId,
    /// Add an operational key; may be given several times
    #[arg(long, value_name = "NAME=KEY.pub", value_parser = addition)]
    pub(crate) add: Vec<Addition>,
    /// Add a recovery key; only with `recover`
    #[arg(long, value_name = "NAME=KEY.pub", value_parser = addition)]
    pub(crate) add_recovery: Vec<Addition>,
    /// Add a key that signs documents of a hub
    #[arg(long, value_name = "NAME=KEY.pub", value_parser = addition)]
    pub(crate) add_author: Vec<Addition>,
    /// Remove a signer; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) remove: Vec<SignerName>,
    /// The proof that an added FIDO key demands at each signature: presence or verification
    #[arg(long, value_name = "POLICY", default_value = "presence")]
    pub(crate) sk: SkPolicy,
    /// A file with `[[policy.approve]]`: the rules about the number of signers that the host keeps from then on [default: keep
    /// the current rules]. Rules in root's agent.toml apply as well
    #[arg(long, value_name = "FILE")]
    pub(crate) approve: Option<Utf8PathBuf>,
    /// Set the host's mark of time from FROM to TO, both written as 2026-01-01T00:00:00Z; only with `recover`, and TO must be
    /// close to the host's clock
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], value_parser = moment)]
    pub(crate) set_clock: Vec<UnixSeconds>,
    /// The key that authorises the change: a private key file, that of a FIDO key, or a `.pub` file for ssh-agent
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<Utf8PathBuf>,
    /// A new signer whose private key is on another machine: its owner runs `evenkeel sign` there; may be given several
    /// times
    #[arg(long, value_name = "NAME")]
    pub(crate) elsewhere: Vec<SignerName>,
    /// Write the statement to this file and sign nothing, so that you can sign it on another machine
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    pub(crate) prepare: Option<Utf8PathBuf>,
    /// The file to write the signed rotation to
    #[arg(long, value_name = "FILE", required_unless_present = "prepare")]
    pub(crate) out: Option<Utf8PathBuf>,
    /// The reason, for the journal
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    /// How long the host may accept it, such as `30m`
    #[arg(long = "life", value_name = "TIME", default_value = "1h", value_parser = life)]
    pub(crate) life_s: u64,
    #[command(flatten)]
    pub(crate) trust: TrustFilesArgs,
    #[command(flatten)]
    pub(crate) hosts: KnownHostsArgs,
    #[command(flatten)]
    pub(crate) writing: WritingArgs,
}

/// The signers of a host, as files.
#[derive(Debug, Args)]
pub(crate) struct TrustFilesArgs {
    /// The host's trust file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_TRUST)]
    pub(crate) trust: Utf8PathBuf,
    /// A rotation that the host accepted after that, as an envelope; name all of them, in order
    #[arg(long, value_name = "FILE")]
    pub(crate) rotation: Vec<Utf8PathBuf>,
}

/// Which host has which key.
#[derive(Debug, Default, Args)]
pub(crate) struct KnownHostsArgs {
    /// Your file of pinned host keys [default: `evenkeel/known_hosts` in `~/.config`]
    #[arg(long, value_name = "FILE")]
    pub(crate) known_hosts: Option<Utf8PathBuf>,
}

/// How carefully a signed file is made.
#[derive(Debug, Args)]
pub(crate) struct WritingArgs {
    /// Do not ask before signing an act. An unknown host, a rotation, a recovery and an acknowledgement still need an
    /// answer at the terminal
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Replace a file that exists
    #[arg(long)]
    pub(crate) force: bool,
}

/// A signer to be added.
#[derive(Debug, Clone)]
pub(crate) struct Addition {
    pub(crate) name: SignerName,
    pub(crate) key: Utf8PathBuf,
}

/// Where a host's trust file is if nobody says.
const DEFAULT_TRUST: &str = "/etc/evenkeel/trust.toml";

/// The shortest life that leaves time to carry an approval to its host.
const LIFE_MIN_S: u64 = 60;

fn life(text: &str) -> Result<u64, String> {
    let span = text.parse::<jiff::Span>().ok();
    let life =
        span.and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok());
    let life = life.ok_or_else(|| {
        "it is not a length of time; write 90s, 30m, 12h or 1d, from 60s to 24h".to_owned()
    })?;
    match u64::try_from(life.as_secs()) {
        Ok(life_s) if (LIFE_MIN_S..=STATEMENT_LIFE_MAX_S).contains(&life_s) => Ok(life_s),
        Ok(life_s) if life_s > STATEMENT_LIFE_MAX_S => {
            Err("hosts refuse an approval that is valid for longer than 24h; write at most 24h"
                .to_owned())
        }
        Ok(_) | Err(_) => {
            Err("that is too short to carry an approval to its host; write at least 60s".to_owned())
        }
    }
}

fn moment(text: &str) -> Result<UnixSeconds, String> {
    time::parse(text)
        .ok_or_else(|| "write the time in UTC, such as 2026-01-01T00:00:00Z".to_owned())
}

fn addition(text: &str) -> Result<Addition, String> {
    let (name, key) = text.split_once('=').ok_or("write it as NAME=KEY.pub")?;
    let name = name.parse().map_err(|error| format!("{error}"))?;
    Ok(Addition { name, key: key.into() })
}
