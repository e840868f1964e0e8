//! Reads what tells whether a guest of ours may be removed unsigned. Core's `compensation` judges.
//!
//! Called by `findings` beside a pass, so that a plan says what will happen; in the lane on a fresh read; and directly before
//! the DELETE leaves. The task list is read after the guest, and the token's right to see all of it is asked each time.

use evenkeel_core::actual::Guest;
use evenkeel_core::actual::identity_proof::TaskListMark;
use evenkeel_core::actual::surroundings::GuestSurroundings;
use evenkeel_core::desired::DeclaredGuest;
use evenkeel_core::gate::compensation::{
    RemovalEvidence, RemovalGround, RemovalVerdict, SourceNow, is_ours_to_remove,
};
use evenkeel_core::gate::new_guest::SourceReading;
use evenkeel_core::model::id::OperationId;
use evenkeel_core::model::vmid_ranges::VmidRanges;
use evenkeel_core::operate::operation::{MadeGuest, Provenance, SourceMark, UnixSeconds, VolumeId};
use evenkeel_core::plan::{PlanContext, removal_candidate};
use evenkeel_core::sign::ConfigDigest;
use tokio::time::Instant;

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::engine::gate::identity_proof::list_tasks;
use crate::engine::gate::make::{listed, observed_source};
use crate::engine::gate::surroundings::observe_surroundings;
use crate::journal::seconds;
use crate::pve::Client;

/// Who reads, and the numbers at which scratch counts.
pub(crate) struct RemovalReader<'a> {
    pub(crate) client: &'a Client,
    pub(crate) scratch_vmids: &'a VmidRanges,
}

impl RemovalReader<'_> {
    /// Whether this guest, as it was read a moment ago, may be removed. What is kept under its number is read last, unless
    /// the caller has just read it.
    pub(crate) async fn judge(
        &self,
        ground: RemovalGround,
        made: &MadeGuest,
        provenance: &Provenance,
        fresh: &Guest,
        around: Option<&GuestSurroundings>,
    ) -> RemovalVerdict {
        let source = match ground {
            RemovalGround::HalfMade => self.source(made).await,
            RemovalGround::Scratch => SourceNow::There(SourceMark::Nothing),
        };
        let tasks = list_tasks(self.client, || self.node_now()).await?;
        let evidence = RemovalEvidence {
            fresh,
            made,
            provenance,
            tasks: &tasks,
            source: &source,
            scratch_vmids: self.scratch_vmids,
        };
        let ours = is_ours_to_remove(ground, &evidence)?;
        match around {
            Some(around) => ours.may_go(around),
            None => ours.may_go(&observe_surroundings(self.client, fresh.id).await),
        }
    }

    /// The node's time; without it no list reaches back.
    fn node_now(&self) -> UnixSeconds {
        let now = self.client.node_clock().map(|clock| clock.at(Instant::now()));
        now.map_or(UnixSeconds(0), seconds)
    }

    async fn source(&self, made: &MadeGuest) -> SourceNow {
        let reading = match &made.source {
            None => SourceReading::Unreadable("it was not written down".to_owned()),
            Some(SourceMark::Nothing) => SourceReading::None,
            Some(SourceMark::Volume { volume, .. }) => match content_of(volume) {
                Some(content) => listed(self.client, volume, content).await,
                None => SourceReading::Unreadable(format!("{volume} is of no content it knows")),
            },
            Some(SourceMark::Guest { guest, .. }) => observed_source(self.client, *guest).await,
        };
        SourceNow::of(&reading)
    }
}

/// What a volume is listed as, by its name.
fn content_of(volume: &VolumeId) -> Option<&'static str> {
    let (_, name) = volume.as_str().split_once(':')?;
    let (content, _) = name.split_once('/')?;
    ["vztmpl", "import", "backup"].into_iter().find(|known| *known == content)
}

/// What our journal knew of a guest when the gate looked. Once its removal has begun, the journal no longer knows it as
/// ours to remove, so what proves that is kept until the DELETE has left.
#[derive(Debug, Clone)]
pub(in crate::engine) struct RemovalProof {
    ground: RemovalGround,
    made: MadeGuest,
    provenance: Provenance,
    /// Its configuration by then.
    pub(in crate::engine) digest: ConfigDigest,
}

impl RemovalProof {
    /// What our journal knows of a guest that shall be removed; none if it does not know it as ours to remove.
    pub(in crate::engine) async fn of(
        context: &EngineContext,
        declared: &DeclaredGuest,
        fresh: &Guest,
    ) -> Result<Option<Self>, Fatal> {
        let digest = fresh.config.as_ref().ok().and_then(|config| config.digest.parse().ok());
        let id = fresh.id;
        let known = PlanContext { making: context.making().await?, ..PlanContext::default() };
        let candidate = removal_candidate(&declared.state, fresh, &known);
        let (Some((ground, made)), Some(digest)) = (candidate, digest) else {
            return Ok(None);
        };
        let provenance = context.journal.read(move |state, _| state.ledger().provenance(id));
        let provenance = provenance.await.map_err(Fatal::Journal)?;
        Ok(Some(Self { ground, made: made.clone(), provenance, digest }))
    }

    /// Whether the guest, as it was read a moment ago, may be removed by everything that is read now. Who has just read
    /// what is kept under its number says so.
    pub(in crate::engine) async fn judge(
        &self,
        context: &EngineContext,
        fresh: &Guest,
        around: Option<&GuestSurroundings>,
    ) -> RemovalVerdict {
        let client = &context.client;
        let scratch_vmids = &context.limits.scratch_vmids;
        let reader = RemovalReader { client, scratch_vmids };
        let mut made = self.made.clone();
        // The stop before a removal is a task of ours. A journal that cannot be read adds none, and then it refuses.
        if let Ok(memory) = context.making().await {
            made.tasks.extend(memory.own_tasks(made.guest.vmid, made.making));
        }
        reader.judge(self.ground, &made, &self.provenance, fresh, around).await
    }

    /// The task list when the making began.
    pub(in crate::engine) fn mark(&self) -> &TaskListMark {
        &self.made.mark
    }

    /// The making that it undoes.
    pub(in crate::engine) fn making(&self) -> OperationId {
        self.made.making
    }
}
