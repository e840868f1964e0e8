//! The hub's place in the loop: what the link brings is taken between two turns, and a document makes a pass due.
//!
//! The loop owns the desk; the link has a task of its own. Without a credential there is no link, and the last good document
//! holds all the same.

use std::sync::Arc;

use evenkeel_core::desired::Desired;
use evenkeel_core::fleet::{DocumentFloor, InstanceId, stale_word};
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::AgentLoop;
use super::inputs::LoopInputs;
use super::status::{AuthorWordStatus, HubStatus};
use crate::config::AgentConfig;
use crate::engine::{AnchorState, Fatal};
use crate::hub_link::config::{HubConfigError, HubUrl};
use crate::hub_link::history::{HistorySource, ToldHistory};
use crate::hub_link::http::HubHttp;
use crate::hub_link::picture::{DocumentPlaces, HostPicture, found_by};
use crate::hub_link::{
    DeskNews, DeskRequest, DocumentReader, HubDesired, HubDesk, HubLink, LinkIdentity, LinkView,
    memory,
};
use crate::journal::{DiskFailure, ReadOnlyDirectory};
use crate::preview::Preview;
use crate::pve::tls::TlsTrust;

/// Requests of the link that wait for the loop; more make the link wait.
const REQUESTS_MAX: usize = 4;

/// What the loop keeps of the hub.
#[derive(Debug)]
pub(super) struct HubSide {
    pub(super) desk: HubDesk,
    url: HubUrl,
    floor: Option<DocumentFloor>,
    view: LinkView,
    /// Why there is no link.
    no_link: Option<String>,
    /// Where everything in the document stands.
    places: Option<DocumentPlaces>,
}

/// A hub as it is configured.
pub(super) struct ConfiguredHub {
    url: HubUrl,
    trust: TlsTrust,
    credential: Result<SecretString, HubConfigError>,
}

/// Reads how the hub is dialled. What makes no sense stops the start; a credential that is not there does not.
pub(super) fn prepare(config: &AgentConfig) -> Result<Option<ConfiguredHub>, HubConfigError> {
    let Some(hub) = &config.desired.hub else { return Ok(None) };
    let url = hub.address()?;
    let trust = hub.trust()?;
    let credential = hub.credential();
    Ok(Some(ConfiguredHub { url, trust, credential }))
}

impl AgentLoop {
    /// Takes the last good document and prepares the link; none if it cannot be dialled.
    pub(super) async fn open_hub(
        &mut self,
        configured: ConfiguredHub,
        inputs: &mut LoopInputs,
    ) -> Result<Option<HubLink>, super::DaemonError> {
        let ConfiguredHub { url, trust, credential } = configured;
        let (desk, desired, trouble) = HubDesk::open(self.state.path(), &mut self.engine).await?;
        let now = self.ambient.now();
        let mut places = None;
        if let Some(HubDesired { desired, places: known }) = desired {
            tracing::info!(guests = desired.guests.len(), "the last document of the hub holds");
            self.declared.taken(desired, now);
            self.shared_status.declared(self.declared.desired().as_deref());
            places = Some(known);
        }
        self.shared_status.report_facts().policy(&self.config.policy);
        if let Some(why) = trouble {
            tracing::error!("{why}");
            self.declared.unusable(why, now);
        }
        let floor = self.engine.floor().await?;
        let view = LinkView::default();
        let shown = url.clone();
        let mut side = HubSide { desk, url, floor: floor.clone(), view, no_link: None, places };
        let link = match (credential, floor) {
            (Ok(credential), Some(floor)) => {
                let exchange = HubHttp::new(shown, &trust, Some(credential));
                let exchange = Arc::new(exchange.map_err(HubConfigError::from)?);
                let (requests, requested) = mpsc::channel(REQUESTS_MAX);
                inputs.hear_hub(requested);
                let view = side.view.clone();
                self.link(exchange, floor, requests, view).await
            }
            (Err(error), _) => {
                tracing::error!(hint = error.hint(), "{error}");
                side.no_link = Some(error.to_string());
                None
            }
            (Ok(_), None) => {
                side.no_link = Some("this host is not enrolled: evenkeel enrol URL".to_owned());
                None
            }
        };
        if link.is_some() {
            self.engine.set_anchor(AnchorState::Asking);
        }
        self.hub = Some(side);
        Ok(link)
    }

    async fn link(
        &self,
        exchange: Arc<HubHttp>,
        floor: DocumentFloor,
        desk: mpsc::Sender<DeskRequest>,
        view: LinkView,
    ) -> Option<HubLink> {
        let bench = self.engine.approvals()?;
        let instance = format!("{:016x}", self.ambient.random() & u128::from(u64::MAX));
        let instance: InstanceId = instance.parse().ok()?;
        let host = bench.authority.read().await.host().clone();
        let identity = LinkIdentity {
            hub_id: floor.hub_id,
            host,
            key: bench.host_key.clone(),
            instance,
            vouch: Arc::clone(&bench.vouch),
        };
        let status = self.shared_status.clone();
        let picture = Arc::new(move || status.picture());
        let files = self.state.journal();
        let history: HistorySource = Arc::new(move |after| {
            let open = ReadOnlyDirectory::open(&files);
            let open = open.map_err(|error| DiskFailure::new("open", "the directory", error))?;
            ToldHistory::read(&open, after)
        });
        Some(HubLink {
            exchange,
            identity,
            journal: self.engine.journal().clone(),
            ambient: Arc::clone(&self.ambient),
            desk,
            reader: DocumentReader::beside(),
            picture,
            view,
            anchor: bench.anchor.clone(),
            history: Some(history),
        })
    }

    /// Takes in what the link brings.
    pub(super) async fn take_from_hub(&mut self, request: DeskRequest) -> Result<(), Fatal> {
        let Some(hub) = &mut self.hub else { return Ok(()) };
        match hub.desk.take(&mut self.engine, request).await? {
            DeskNews::Nothing => {}
            DeskNews::Desired(taken) => {
                let HubDesired { desired, places } = *taken;
                hub.floor = self.engine.floor().await?;
                hub.places = Some(places);
                self.declared.taken(desired, self.ambient.now());
                self.shared_status.declared(self.declared.desired().as_deref());
                self.schedule.at_once(Instant::now());
            }
            DeskNews::Authority => self.schedule.soon(Instant::now()),
        }
        self.show_hub().await;
        Ok(())
    }

    /// Puts how the hub stands into the shared status at once.
    pub(super) async fn show_hub(&self) {
        let hub = self.hub_status().await;
        self.shared_status.agent().desired.hub = hub;
    }

    /// How the hub stands; none if there is none.
    pub(super) async fn hub_status(&self) -> Option<HubStatus> {
        let HubSide { url, floor, view, no_link, .. } = self.hub.as_ref()?;
        let health = view.health();
        let document = floor.as_ref().and_then(DocumentFloor::in_effect);
        let signer = document.and_then(|document| document.signer.clone());
        let signer_is_trusted = match &signer {
            Some(name) => self.engine.author_is_trusted(name).await,
            None => false,
        };
        let epoch = self.engine.journal().read(|state, _| memory::epoch(state)).await.ok();
        let (word, now) = self.engine.author_word().await.ok()?;
        let within = self.config.desired.fresh_within_s;
        Some(HubStatus {
            url: url.to_string(),
            generation: document.map_or(0, |document| document.generation.0),
            signer: signer.map(|name| name.to_string()),
            signer_is_trusted,
            heard: health.heard,
            trouble: no_link.clone().or(health.trouble),
            refused: health
                .refused
                .map(|refused| format!("generation {}: {}", refused.generation, refused.why)),
            journal_rollback: epoch.is_some_and(|epoch| epoch.rollback.is_some()),
            stale: within.and_then(|within| stale_word(word.as_ref(), within, now)),
            author_word: word.as_ref().and_then(AuthorWordStatus::of),
        })
    }
}

impl AgentLoop {
    /// What the hub is told of the guests that a pass looked at. Without a hub nobody asks for it.
    pub(super) fn show_found(&self, desired: &Desired, preview: &Preview) {
        if let Some(hub) = &self.hub {
            let found = found_by(preview, desired, hub.places.as_ref());
            let mut facts = self.shared_status.report_facts();
            facts.policy(&self.config.policy);
            facts.found(&preview.scope, found);
        }
    }
}

impl super::SharedStatus {
    /// How the host stands, as a hub is told.
    fn picture(&self) -> HostPicture {
        let agent = self.agent().clone();
        let declared = self.declared_guests();
        let frozen = self.frozen_since();
        HostPicture::of(&agent, &declared, frozen, &self.report_facts())
    }
}
