//! What stands around every page: where one is, who one is, and what waits.

use super::assets;
use crate::access::CameWith;
use crate::call::Call;
use crate::people::session;
use crate::problem::Problem;
use crate::routes::Hub;
use crate::store::PersonRole;

/// Where one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PagePlace {
    Fleet,
    Approvals,
    Audit,
    Accounts,
}

/// What stands around a page.
#[derive(Debug, Clone)]
pub(super) struct Shell {
    pub(super) title: String,
    pub(super) place: PagePlace,
    pub(super) account: String,
    pub(super) role: &'static str,
    pub(super) scope: String,
    /// What every form of the page carries.
    pub(super) csrf: String,
    /// What stands behind the addresses of the console's files.
    pub(super) version: &'static str,
    /// How many items wait for a signature.
    pub(super) waiting: u64,
    /// Whether forms of editors are shown: a button that would be refused is none.
    pub(super) can_edit: bool,
    /// Whether forms of admins are shown, for hosts of their scope.
    pub(super) can_manage: bool,
    /// Whether accounts are shown: to admins of the whole hub.
    pub(super) can_manage_accounts: bool,
    /// The page itself, to be read again.
    pub(super) address: String,
    /// Which changes are in it: its stream of events begins there.
    pub(super) live_from: String,
}

impl Shell {
    pub(super) async fn new(
        hub: &Hub,
        call: &Call,
        place: PagePlace,
        title: &str,
        address: String,
    ) -> Result<Self, Problem> {
        let person = call.person();
        let csrf = match person.came_with {
            CameWith::ApiToken(_) => None,
            CameWith::Session(_) => session::from_cookie(hub.public_url(), &call.headers),
        };
        let can_manage = person.account.role >= PersonRole::Admin;
        let fleet = hub.people().fleet.seen_by(hub, person).await?;
        Ok(Self {
            title: title.to_owned(),
            place,
            account: person.account.name.clone(),
            role: person.account.role.as_str(),
            scope: person.account.scope.clone(),
            csrf: csrf.map(|cookie| session::csrf_token(&cookie)).unwrap_or_default(),
            version: assets::version(),
            waiting: fleet.tally.pending,
            can_edit: person.account.role >= PersonRole::Editor,
            can_manage,
            can_manage_accounts: can_manage && person.account.scope == "*",
            address,
            live_from: call.live_from.clone(),
        })
    }

    /// Whether this is the place; for the mark in the navigation.
    pub(super) fn is(&self, place: PagePlace) -> bool {
        self.place == place
    }
}
