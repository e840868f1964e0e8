//! The server: starts, says where it is, and serves until it is told to end.

use std::io::Write as _;

use camino::Utf8Path;
use evenkeel_agent::daemon::systemd::Systemd;
use evenkeel_hub::secret_text::SecretHash;
use evenkeel_hub::server::{
    self, CertificateFiles, RunningHub, ServeLimits, ServerOptions, StartError, TlsChoice,
    TrustedProxies,
};
use serde_json::json;

use crate::cli::{HubArgs, OutputFormat};
use crate::error::{CommandFailure, Exit};
use crate::interrupt::Interrupts;
use crate::logging;
use crate::signing::file;

pub(super) async fn run(arguments: &HubArgs) -> Result<Exit, CommandFailure> {
    logging::begin(arguments.log, arguments.log_format);
    let options = options(arguments)?;
    // Before anybody can know of us: a stop signal at any later moment ends it in an orderly way.
    let mut stop = Interrupts::listen()?;
    let hub = server::start(options).await?;
    announce(&hub, arguments)?;
    let systemd = Systemd::from_environment();
    systemd.ready("serving");
    stop.next().await;
    systemd.stopping();
    hub.stop().await;
    Ok(Exit::Ok)
}

fn options(arguments: &HubArgs) -> Result<ServerOptions, CommandFailure> {
    let tls = match (&arguments.tls_cert, &arguments.tls_key, arguments.plain_http) {
        (Some(certificate), Some(key), _) => {
            let certificate = certificate.as_std_path().to_owned();
            let key = key.as_std_path().to_owned();
            TlsChoice::Files(CertificateFiles { certificate, key })
        }
        (_, _, true) => TlsChoice::Plain,
        (_, _, false) => TlsChoice::SelfSigned,
    };
    if let Some(url) = &arguments.public_url
        && !(url.starts_with("https://") || url.starts_with("http://"))
    {
        let message = format!("--public-url is not an address: {url}");
        return Err(
            CommandFailure::new(Exit::Usage, message).hint("such as https://hub.example.org")
        );
    }
    Ok(ServerOptions {
        listen: arguments.listen,
        state: arguments.place.state.as_std_path().to_owned(),
        database: arguments.place.database.clone(),
        public_url: arguments.public_url.clone(),
        tls,
        limits: ServeLimits::default(),
        proxies: proxies(arguments)?,
        audit_archive: arguments
            .place
            .audit_archive
            .as_deref()
            .map(|path| path.as_std_path().to_owned()),
        metrics_token: arguments.metrics_token_file.as_deref().map(metrics_token).transpose()?,
    })
}

fn proxies(arguments: &HubArgs) -> Result<TrustedProxies, CommandFailure> {
    let header = arguments.client_address_header.parse().map_err(|_| {
        let message =
            format!("--client-address-header is no header: {}", arguments.client_address_header);
        CommandFailure::new(Exit::Usage, message).hint("such as x-forwarded-for")
    })?;
    Ok(TrustedProxies { ranges: arguments.trusted_proxy.clone(), header })
}

/// The hash of the token in a file. What is short can be guessed.
fn metrics_token(path: &Utf8Path) -> Result<SecretHash, CommandFailure> {
    const TOKEN_BYTES_MAX: usize = 1024;
    const TOKEN_BYTES_MIN: usize = 16;
    let text = file::read_text(path, TOKEN_BYTES_MAX)?;
    let token = text.trim_end();
    if token.len() < TOKEN_BYTES_MIN {
        let message = format!("the token in {path} is shorter than {TOKEN_BYTES_MIN} characters");
        return Err(
            CommandFailure::new(Exit::Invalid, message).hint("openssl rand -hex 32 makes one")
        );
    }
    Ok(SecretHash::of(token))
}

/// Says where it is, in a form a script can read. The link is a secret: it is shown here and nowhere else.
fn announce(hub: &RunningHub, arguments: &HubArgs) -> Result<(), CommandFailure> {
    let out = &mut std::io::stdout();
    match arguments.output.output {
        OutputFormat::Json => {
            let ready = json!({
                "format_version": 1, "url": hub.url, "fingerprint": hub.fingerprint, "admin_link": hub.admin_link,
            });
            writeln!(out, "{ready}")?;
        }
        OutputFormat::Table => {
            writeln!(out, "url          {}", hub.url)?;
            if let Some(fingerprint) = &hub.fingerprint {
                writeln!(out, "fingerprint  {fingerprint}")?;
            }
            if let Some(link) = &hub.admin_link {
                writeln!(out, "first admin  {link}")?;
                writeln!(
                    out,
                    "\nNobody has an account yet. The link makes the first one, once, within a day; or:\n"
                )?;
                writeln!(
                    out,
                    "  evenkeel hub account add NAME --role admin --key ~/.ssh/id_ed25519.pub"
                )?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

impl From<StartError> for CommandFailure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Store(error) => error.into(),
            StartError::Certificate(_) => Self::wrapping(Exit::Invalid, error),
            StartError::Listen { .. } => Self::wrapping(Exit::Failed, error)
                .hint("is the port taken? --listen names another"),
            StartError::File(_) => Self::wrapping(Exit::Failed, error),
        }
    }
}
