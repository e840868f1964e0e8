//! What judging a destructive act needs: whose host this is, whom it trusts, what root allows.
//!
//! Opened once at the start, from the host key, root's trust file and the rotations in the journal. Who holds the
//! authority for reading while it judges keeps a rotation out until the decision is on disk: what was allowed under
//! one list of signers never begins under the next.

use std::fmt;
use std::sync::Arc;

use evenkeel_core::model::id::{HostId, IdError, NodeName};
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::sign::{HostBinding, Namespace, PendingItem, PublicKey};
use tokio::sync::{Mutex, RwLock};

use crate::ambient::Ambient;
use crate::authority::{Authority, AuthorityError};
use crate::config::AgentConfig;
use crate::effective_clock;
use crate::engine::approvals::hub::{AnchorState, AnchorWatch};
use crate::host_key::{HostKey, HostKeyError};
use crate::journal::{AppendError, JournalHandle};
use crate::policy::Policy;
use crate::state_dir::StateDir;

/// The judge's bench of one host.
#[derive(Clone)]
pub struct ApprovalContext {
    /// Who may sign, on which host.
    pub authority: Arc<RwLock<Authority>>,
    /// The host key's signature around an item that waits.
    pub seal: ItemSeal,
    /// Root's limits.
    pub policy: Policy,
    /// Who holds it judges: lanes that did so side by side would each find room in the budget for one more act. Who holds
    /// it must not ask for the authority.
    pub judging_lock: Arc<Mutex<()>>,
    /// The public part of the host key.
    pub host_key: PublicKey,
    /// The host key's signature for a hub, over an enrolment, a report or a head.
    pub vouch: HubSigner,
    /// What is known of the journal's anchor in this life.
    pub anchor: AnchorWatch,
}

/// Signs exact bytes for one of the purposes a hub knows; the answer is the armoured signature.
pub type HubSigner = Arc<dyn Fn(Namespace, &[u8]) -> Result<String, Refusal> + Send + Sync>;

/// Puts the host key's signature around an item; the answer is the envelope.
pub type ItemSeal = Arc<dyn Fn(&PendingItem) -> Result<String, Refusal> + Send + Sync>;

/// Why nothing can be judged, and the agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalContextError {
    /// The host key cannot be used.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The trust file or the chain of rotations cannot be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The node's name is no name for a host.
    #[error("`host_id` is not set, and the node's name cannot stand for it")]
    HostId(#[source] IdError),
    /// The journal does not take what the start found.
    #[error("the journal cannot be written")]
    Journal(#[from] AppendError),
}

impl ApprovalContext {
    /// Opens it. No trust file means that nobody may sign, and everything destructive waits; one that is there and
    /// wrong means that nothing starts.
    pub async fn open(
        config: &AgentConfig,
        state: &StateDir,
        node: &NodeName,
        journal: &JournalHandle,
        ambient: &dyn Ambient,
    ) -> Result<Self, ApprovalContextError> {
        let key = HostKey::load_or_create(state.path())?.claimed()?;
        let id: HostId = match &config.host_id {
            Some(id) => id.clone(),
            None => node.as_str().parse().map_err(ApprovalContextError::HostId)?,
        };
        let host = HostBinding { id, key: key.public().fingerprint() };
        let trust = config.trust.path();
        let loaded = journal.read(move |state, _| Authority::load(Some(&trust), host, state));
        let authority = loaded.await??.with_rules(&config.policy.approve);
        for record in authority.owed() {
            journal.append(record.clone()).await?;
        }
        let reading = effective_clock::read(ambient, journal).await?;
        if let Some(record) = authority.undone_mark(&reading) {
            journal.append(record).await?;
        }
        let host_key = key.public().clone();
        let key = Arc::new(key);
        let vouching = Arc::clone(&key);
        let anchor = AnchorWatch::default();
        if config.desired.hub.is_some() {
            // Nobody has asked yet; a running agent does at once.
            anchor.set(AnchorState::Unreachable);
        }
        Ok(Self {
            authority: Arc::new(RwLock::new(authority)),
            seal: Arc::new(move |item| key.sign_pending(item)),
            host_key,
            vouch: Arc::new(move |namespace, bytes| vouching.sign_for_hub(namespace, bytes)),
            anchor,
            policy: config.policy.clone(),
            judging_lock: Arc::default(),
        })
    }

    /// This host, as statements name it.
    pub(in crate::engine) async fn host(&self) -> HostBinding {
        self.authority.read().await.host().clone()
    }
}

impl ApprovalContextError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::HostKey(error) => error.hint(),
            Self::Authority(error) => error.hint(),
            Self::HostId(_) => "set `host_id` in agent.toml".to_owned(),
            Self::Journal(_) => "mend the disk of the state directory, then start again".to_owned(),
        }
    }
}

impl fmt::Debug for ApprovalContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApprovalContext").field("policy", &self.policy).finish_non_exhaustive()
    }
}
