//! `fleet logout`, `logins` and `console`: what a person has open at a hub, and how it ends.

use std::fmt::Write as _;
use std::io::Write as _;

use evenkeel_hub::people::browser_mark::BrowserWord;
use evenkeel_hub::people::wire::{CodeAnswer, CodeRequest, EndedAnswer, LoginBody, PageBody};
use serde_json::json;

use crate::cli::{FleetConsoleArgs, FleetLoginsArgs, FleetLogoutArgs, OutputFormat};
use crate::error::{CommandFailure, Exit};
use crate::fleet::hub_client::{HubClient, encoded};
use crate::fleet::logins::HubLogins;
use crate::format::fleet::{FleetConsoleFormat, FleetLoginsFormat};
use crate::render::tamed;
use crate::{format, terminal};

pub(super) async fn logout(arguments: &FleetLogoutArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let origin = client.origin().to_owned();
    if let Some(account) = &arguments.account {
        let path = format!("/v1/accounts/{}/logins", encoded(account));
        let EndedAnswer { ended } = client.end_all(&path).await?;
        return told(arguments, &origin, &format!("ended {ended} logins of {account} at {origin}"));
    }
    let ended = if arguments.all {
        client.end_all("/v1/logins").await.map(|EndedAnswer { ended }| ended)
    } else {
        client.delete("/v1/login").await.map(|()| 1)
    };
    // Here it is forgotten in any case: a hub that is gone keeps nobody logged in on this machine.
    HubLogins::read()?.forget(&origin)?;
    match ended {
        // It was over already.
        Err(failure) if failure.exit == Exit::Denied => {}
        Err(failure) => {
            return Err(
                failure.hint("the token is forgotten here, and ends at the hub within 12 hours")
            );
        }
        Ok(ended) if arguments.all => {
            let line = format!("logged out at {origin}: {ended} logins ended, wherever they were");
            return told(arguments, &origin, &line);
        }
        Ok(_) => {}
    }
    told(arguments, &origin, &format!("logged out at {origin}"))
}

fn told(arguments: &FleetLogoutArgs, origin: &str, line: &str) -> Result<Exit, CommandFailure> {
    match arguments.fleet.output.output {
        OutputFormat::Json => {
            writeln!(std::io::stdout(), "{}", json!({"format_version": 1, "hub": origin}))?;
        }
        OutputFormat::Table => terminal::print(&format!("{line}\n"))?,
    }
    Ok(Exit::Ok)
}

pub(super) async fn list(arguments: &FleetLoginsArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let path = match &arguments.account {
        Some(account) => format!("/v1/accounts/{}/logins", encoded(account)),
        None => "/v1/logins".to_owned(),
    };
    let PageBody { items: logins, .. } = client.get::<PageBody<LoginBody>>(&path).await?;
    match arguments.fleet.output.output {
        OutputFormat::Json => format::print(&FleetLoginsFormat { format_version: 1, logins })?,
        OutputFormat::Table => {
            let mut text = String::new();
            for LoginBody { login, key, made_at, expires_at, last_used_at, sessions } in &logins {
                let login = tamed(login, 12);
                let key = tamed(key, 80);
                let made = tamed(made_at, 24);
                let ends = tamed(expires_at, 24);
                let used = tamed(last_used_at, 24);
                writeln!(
                    text,
                    "{login}  by {key}  since {made}  last used {used}  until {ends}  {sessions} in a browser"
                )
                .expect("writing to a string cannot fail");
            }
            terminal::print(&text)?;
        }
    }
    Ok(Exit::Ok)
}

pub(super) async fn console(arguments: &FleetConsoleArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let origin = client.origin().to_owned();
    let word = browser_word(arguments, &origin)?;
    let request = CodeRequest { browser: word.to_string() };
    let CodeAnswer { code, expires_in_s } =
        client.post("/v1/console-codes", &request, None).await?;
    HubLogins::read()?.remember_browser(&origin, &word.to_string())?;
    // The code stands behind the #, which no browser sends to any server or proxy.
    let link = format!("{origin}/console#{code}");
    match arguments.fleet.output.output {
        OutputFormat::Json => {
            format::print(&FleetConsoleFormat { format_version: 1, link, expires_in_s })?;
        }
        OutputFormat::Table => {
            terminal::print(&format!("{}\n", tamed(&link, usize::MAX)))?;
            terminal::tell(&format!(
                "it works once, for {expires_in_s} s, in the browser that shows {word}\n"
            ))?;
        }
    }
    Ok(Exit::Ok)
}

/// The browser that is named, or that of the last link, or the one that the person reads from its page now.
fn browser_word(arguments: &FleetConsoleArgs, origin: &str) -> Result<BrowserWord, CommandFailure> {
    let logins = HubLogins::read()?;
    let known = logins.find(Some(origin))?.browser.clone();
    if let Some(word) = arguments.browser.clone().or(known) {
        return Ok(BrowserWord::read(&word)?);
    }
    let hint = format!(
        "open {origin}/console in it and add --browser with the word that the page shows; it is asked \
         for once"
    );
    let unknown = || CommandFailure::new(Exit::Usage, "nothing says which browser the link is for");
    if !terminal::is_there() {
        return Err(unknown().hint(hint));
    }
    terminal::tell(&format!("Open {origin}/console in your browser.\n"))?;
    let word = terminal::answer("Which word does it show?")?;
    BrowserWord::read(&word).map_err(|_| unknown().hint(hint))
}
