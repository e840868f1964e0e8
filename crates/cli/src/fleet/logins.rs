//! The tokens a person holds, one a hub, in a file that nobody else can read.
//!
//! A token is good for twelve hours. It is never printed, and never an argument.

use camino::Utf8PathBuf;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::place::state_dir;
use crate::error::{CommandFailure, Exit};
use crate::signing::file;

/// The largest file that is read.
const LOGINS_BYTES_MAX: usize = 1024 * 1024;

/// One login.
#[derive(Debug, Clone)]
pub(crate) struct HubLogin {
    pub(crate) origin: String,
    pub(crate) account: String,
    pub(crate) token: SecretString,
    /// By the hub's clock, as it said.
    pub(crate) expires_at: String,
    /// The word of the browser that the last link to the console was for. It is no secret.
    pub(crate) browser: Option<String>,
}

/// All of them, the last one made first.
#[derive(Debug)]
pub(crate) struct HubLogins {
    path: Utf8PathBuf,
    logins: Vec<HubLogin>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLogin {
    origin: String,
    account: String,
    token: String,
    expires_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    browser: Option<String>,
}

impl HubLogins {
    /// Reads the file in the user's state, which need not be there.
    pub(crate) fn read() -> Result<Self, CommandFailure> {
        Self::read_from(state_dir()?.join("hub_logins"))
    }

    fn read_from(path: Utf8PathBuf) -> Result<Self, CommandFailure> {
        let Some(is_private) = file::is_private(&path) else {
            return Ok(Self { path, logins: Vec::new() });
        };
        if !is_private {
            let message = format!("others can read {path}, which holds your tokens");
            let hint = format!("log out everywhere, then: chmod 600 {path}");
            return Err(CommandFailure::new(Exit::Denied, message).hint(hint));
        }
        let bytes = file::read(&path, LOGINS_BYTES_MAX)?;
        let written: Vec<WrittenLogin> = serde_json::from_slice(&bytes).map_err(|_| {
            CommandFailure::new(Exit::Invalid, format!("{path} is not a file of logins"))
                .hint("remove it and log in again")
        })?;
        let login = |WrittenLogin { origin, account, token, expires_at, browser }| HubLogin {
            origin,
            account,
            token: SecretString::from(token),
            expires_at,
            browser,
        };
        Ok(Self { path, logins: written.into_iter().map(login).collect() })
    }

    /// The login at a hub, or the last one that was made.
    pub(crate) fn find(&self, origin: Option<&str>) -> Result<&HubLogin, CommandFailure> {
        let found = match origin {
            Some(origin) => self.logins.iter().find(|login| login.origin == origin),
            None => self.logins.first(),
        };
        found.ok_or_else(|| {
            let message = match origin {
                Some(origin) => format!("you are not logged in at {origin}"),
                None => "you are logged in at no hub".to_owned(),
            };
            CommandFailure::new(Exit::Denied, message).hint("evenkeel fleet login URL --key KEY")
        })
    }

    /// Keeps a login, in place of an earlier one at the same hub. The browser stays the same.
    pub(crate) fn keep(mut self, mut login: HubLogin) -> Result<(), CommandFailure> {
        let earlier = self.logins.iter().find(|other| other.origin == login.origin);
        login.browser = login.browser.or_else(|| earlier?.browser.clone());
        self.logins.retain(|other| other.origin != login.origin);
        self.logins.insert(0, login);
        self.write()
    }

    /// Remembers which browser links are for.
    pub(crate) fn remember_browser(
        mut self,
        origin: &str,
        word: &str,
    ) -> Result<(), CommandFailure> {
        for login in self.logins.iter_mut().filter(|login| login.origin == origin) {
            login.browser = Some(word.to_owned());
        }
        self.write()
    }

    /// Forgets the login at a hub.
    pub(crate) fn forget(mut self, origin: &str) -> Result<(), CommandFailure> {
        self.logins.retain(|login| login.origin != origin);
        self.write()
    }

    fn write(&self) -> Result<(), CommandFailure> {
        let written: Vec<WrittenLogin> = self.logins.iter().map(WrittenLogin::of).collect();
        let bytes = serde_json::to_vec_pretty(&written).expect("texts are JSON");
        file::write_private(&self.path, &bytes)
    }
}

impl WrittenLogin {
    fn of(login: &HubLogin) -> Self {
        let HubLogin { origin, account, token, expires_at, browser } = login.clone();
        Self { origin, account, token: token.expose_secret().to_owned(), expires_at, browser }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn login(origin: &str, token: &str) -> HubLogin {
        HubLogin {
            origin: origin.to_owned(),
            account: "alice".to_owned(),
            token: SecretString::from(token),
            expires_at: "2026-11-17T12:00:00Z".to_owned(),
            browser: None,
        }
    }

    #[test]
    fn a_token_is_kept_where_only_its_owner_reads_it_and_the_last_login_is_meant() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(directory.path().join("state/hub_logins")).unwrap();
        let read = || HubLogins::read_from(path.clone());
        assert_eq!(read().unwrap().find(None).unwrap_err().exit, Exit::Denied);
        read().unwrap().keep(login("https://a:1", "evka_a")).unwrap();
        read().unwrap().remember_browser("https://a:1", "4f7k-q2mx").unwrap();
        read().unwrap().keep(login("https://b:1", "evka_b")).unwrap();
        assert_eq!(path.as_std_path().metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(read().unwrap().find(None).unwrap().origin, "https://b:1");
        read().unwrap().keep(login("https://a:1", "evka_c")).unwrap();
        let logins = read().unwrap();
        assert_eq!(logins.find(None).unwrap().token.expose_secret(), "evka_c");
        assert_eq!(logins.find(None).unwrap().browser.as_deref(), Some("4f7k-q2mx"));
        assert_eq!(logins.find(Some("https://b:1")).unwrap().browser, None);
        assert_eq!(logins.logins.len(), 2);
        assert!(!format!("{logins:?}").contains("evka_c"));
        logins.forget("https://a:1").unwrap();
        assert_eq!(read().unwrap().find(Some("https://a:1")).unwrap_err().exit, Exit::Denied);
    }

    #[test]
    fn a_file_that_others_can_read_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(directory.path().join("hub_logins")).unwrap();
        HubLogins::read_from(path.clone()).unwrap().keep(login("https://a:1", "evka_a")).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(HubLogins::read_from(path).unwrap_err().exit, Exit::Denied);
    }
}
