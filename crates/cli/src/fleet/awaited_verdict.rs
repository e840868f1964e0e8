//! What became of something that was handed in, as its host says it: verified by the pinned key of the host, about the bytes
//! that were handed in, or told as unverified. The hub's own words are never taken for the host's.

use evenkeel_core::fleet::{EnvelopeVerdict, HandedIn, VerdictStatement};
use evenkeel_core::sign::{AnyStatement, Envelope, PublicKey};

use super::hub_client::HubClient;
use super::known_hubs::KnownHubs;
use crate::error::{CommandFailure, Exit};
use crate::signing::known_hosts::KnownHosts;

/// What a verdict must be about, and by whose key.
pub(crate) struct AwaitedVerdict {
    handed_in: HandedIn,
    /// None if the host is not pinned here.
    key: Option<PublicKey>,
}

impl AwaitedVerdict {
    /// Takes both from what is handed in and from this person's own pins, before the hub is asked anything.
    pub(crate) fn of(
        client: &HubClient,
        envelope: &str,
        known: &KnownHosts,
    ) -> Result<Self, CommandFailure> {
        let envelope = Envelope::parse(envelope.as_bytes())?;
        let host = AnyStatement::parse(envelope.payload())?.host().id.clone();
        let hubs = KnownHubs::read()?;
        let Some(hub) = hubs.get(client.origin()) else {
            let message = format!("the hub at {} is not known here", client.origin());
            return Err(CommandFailure::new(Exit::Denied, message)
                .hint("log in: evenkeel fleet login URL --key KEY"));
        };
        let hub_id = hub.hub_id.clone();
        let key = known.key_of(&host).ok().cloned();
        let payload = envelope.payload_hash();
        Ok(Self { handed_in: HandedIn { hub_id, host, payload }, key })
    }

    /// What the host said; or why what the hub tells proves nothing.
    pub(crate) fn read(&self, told: &EnvelopeVerdict) -> Result<VerdictStatement, String> {
        let Some(key) = &self.key else {
            return Err(format!("the key of {} is not pinned here", self.handed_in.host));
        };
        VerdictStatement::about(told, key, &self.handed_in).map_err(|refusal| refusal.detail)
    }
}
