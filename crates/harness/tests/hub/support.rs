//! A hub in the same process that can be told to lie, and a life of the agent with the link beside the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_agent::ambient::Ambient;
use evenkeel_agent::engine::{AnchorState, EngineEvent};
use evenkeel_agent::hub_link::picture::HostPicture;
use evenkeel_agent::hub_link::{
    DeskNews, DocumentReader, HubDesk, HubExchange, HubFailure, HubFuture, HubLink, HubOutcome,
    HubRequest, LinkIdentity, LinkView,
};
use evenkeel_core::fleet::{
    AnchorAnswer, DesiredStatement, DocumentBase, DocumentFiles, DocumentFloor, EnvelopeVerdict,
    Generation, HeadStatement, HostReport, HubId, ManifestHash, PollAnswer, ReportAnswer,
    SealedText, SignedBase, WaitingEnvelope, WireDocument,
};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{Role, Window};
use evenkeel_harness::{Operator, Rig};
use evenkeel_sim::{Event, Scenario, Simulator};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) fn hub_id() -> HubId {
    "0123456789abcdef0123456789abcdef".parse().unwrap()
}

pub(crate) fn ada() -> Operator {
    Operator::new("ada", 3)
}

pub(crate) fn anna() -> Operator {
    Operator::new("anna", 1)
}

/// A document that wants so many cores of lxc/100.
pub(crate) fn cores(count: u32) -> String {
    format!("[guest.100]\nkind = \"lxc\"\ncores = {count}\n")
}

/// What stands for a document of one file.
pub(crate) fn manifest_of(text: &str) -> ManifestHash {
    let files = DocumentFiles::new([("web.toml".to_owned(), text.to_owned())]).unwrap();
    files.manifest().hash()
}

/// How a hub answers.
#[derive(Debug, Clone, Default)]
pub(crate) enum Manner {
    /// As it should.
    #[default]
    Honest,
    /// Nobody listens.
    Gone,
    /// It takes every request and answers none.
    Hangs,
    /// It answers everything with this.
    Says(u16, Vec<u8>),
    /// It answers every poll at once, with nothing new.
    Floods,
}

#[derive(Default)]
struct Held {
    manner: Manner,
    wanted: Generation,
    documents: BTreeMap<Generation, Vec<u8>>,
    envelopes: Vec<WaitingEnvelope>,
    anchor: Option<SealedText>,
    freezes_anchor: bool,
    reports: Vec<HostReport>,
    requests: Vec<SentRequest>,
}

/// A request as the hub got it.
struct SentRequest {
    at: Instant,
    target: String,
    bytes: usize,
}

/// A hub; clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct FakeHub(Arc<Mutex<Held>>);

impl FakeHub {
    fn with<T>(&self, act: impl FnOnce(&mut Held) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    pub(crate) fn behaves(&self, manner: Manner) {
        self.with(|held| held.manner = manner);
    }

    /// Offers whatever bytes under a number, and says it is the newest.
    pub(crate) fn offers(&self, generation: u64, body: Vec<u8>) {
        self.with(|held| {
            held.wanted = Generation(generation);
            held.documents.insert(Generation(generation), body);
        });
    }

    /// Says that another number is the newest.
    pub(crate) fn wants(&self, generation: u64) {
        self.with(|held| held.wanted = Generation(generation));
    }

    pub(crate) fn queues(&self, envelope: &str) -> String {
        let envelope = SealedText::of(envelope).unwrap();
        self.with(|held| {
            let cursor = held.envelopes.len() as u64 + 1;
            let id = format!("env_{cursor:032x}");
            held.envelopes.push(WaitingEnvelope { cursor, id: id.parse().unwrap(), envelope });
            id
        })
    }

    /// Gives all envelopes back to front, and as if they were new.
    pub(crate) fn reorders(&self) {
        self.with(|held| {
            let mut again: Vec<_> = held.envelopes.iter().rev().cloned().collect();
            let first = held.envelopes.len() as u64 + 1;
            for (place, envelope) in again.iter_mut().enumerate() {
                envelope.cursor = first + place as u64;
            }
            held.envelopes.extend(again);
        });
    }

    pub(crate) fn anchors(&self, head: Option<SealedText>) {
        self.with(|held| (held.anchor, held.freezes_anchor) = (head, true));
    }

    pub(crate) fn anchor(&self) -> Option<SealedText> {
        self.with(|held| held.anchor.clone())
    }

    pub(crate) fn verdicts(&self) -> BTreeMap<String, EnvelopeVerdict> {
        self.with(|held| {
            let told = held.reports.iter().flat_map(|report| report.verdicts.clone());
            told.map(|verdict| (verdict.envelope.to_string(), verdict)).collect()
        })
    }

    /// What was refused last, as the hub was told: the code.
    pub(crate) fn refused(&self) -> Option<String> {
        self.with(|held| {
            held.reports.iter().rev().find_map(|report| Some(report.refused.as_ref()?.code.clone()))
        })
    }

    /// The codes of all that was refused, as the hub was told, each once.
    pub(crate) fn refused_ever(&self) -> Vec<String> {
        self.with(|held| {
            let refused = held.reports.iter().filter_map(|report| report.refused.as_ref());
            let refused = refused.filter(|refused| refused.generation != Generation::NONE);
            refused
                .map(|refused| refused.code.clone())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect()
        })
    }

    pub(crate) fn generation_told(&self) -> Option<Generation> {
        self.with(|held| {
            held.reports.iter().rev().find_map(|report| Some(report.generation.as_ref()?.number))
        })
    }

    pub(crate) fn reports(&self) -> usize {
        self.with(|held| held.reports.len())
    }

    /// The times of requests whose target begins so.
    pub(crate) fn asked(&self, target: &str) -> Vec<Instant> {
        self.with(|held| {
            let of = held.requests.iter().filter(|sent| sent.target.starts_with(target));
            of.map(|sent| sent.at).collect()
        })
    }

    /// The targets of requests since a moment.
    pub(crate) fn targets_since(&self, since: Instant) -> Vec<String> {
        self.with(|held| {
            let of = held.requests.iter().filter(|sent| sent.at >= since);
            of.map(|sent| sent.target.clone()).collect()
        })
    }

    /// How much was sent since a moment, as it is on the wire: every line of every request, and the bodies.
    pub(crate) fn bytes_since(&self, since: Instant) -> usize {
        self.with(|held| {
            let of = held.requests.iter().filter(|sent| sent.at >= since);
            of.map(|sent| sent.bytes).sum()
        })
    }

    /// The reports since a number of them.
    pub(crate) fn reports_after(&self, count: usize) -> Vec<HostReport> {
        self.with(|held| held.reports[count..].to_vec())
    }

    async fn answer(&self, request: HubRequest) -> HubOutcome {
        let bytes = wire_bytes(&request);
        let HubRequest { target, body, .. } = request;
        let sent = SentRequest { at: Instant::now(), target: target.clone(), bytes };
        self.with(|held| held.requests.push(sent));
        match self.with(|held| held.manner.clone()) {
            Manner::Honest => {}
            Manner::Gone => return HubOutcome::Failed(HubFailure::Connect("refused".to_owned())),
            Manner::Hangs => std::future::pending().await,
            Manner::Says(status, body) => return HubOutcome::Answered { status, body },
            Manner::Floods => {
                let said =
                    PollAnswer { generation: self.with(|held| held.wanted), envelopes: Vec::new() };
                return answered(&said);
            }
        }
        if let Some(query) = target.strip_prefix("/v1/agent/poll?") {
            return self.polled(query).await;
        }
        if let Some(generation) = target.strip_prefix("/v1/agent/documents/") {
            let generation = Generation(generation.parse().unwrap());
            return match self.with(|held| held.documents.get(&generation).cloned()) {
                Some(body) => HubOutcome::Answered { status: 200, body },
                None => HubOutcome::Answered { status: 404, body: Vec::new() },
            };
        }
        match target.as_str() {
            "/v1/agent/anchor" => answered(&AnchorAnswer { head: self.anchor() }),
            "/v1/agent/reports" => {
                let report = HostReport::read(&body).unwrap();
                self.with(|held| {
                    if let (Some(head), false) = (&report.head, held.freezes_anchor) {
                        held.anchor = Some(head.clone());
                    }
                    held.reports.push(report);
                });
                answered(&ReportAnswer { seq: 1 })
            }
            other => panic!("{other}"),
        }
    }

    async fn polled(&self, query: &str) -> HubOutcome {
        let number = |name: &str| -> u64 {
            let value =
                query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.unwrap().parse().unwrap()
        };
        let generation = Generation(number("generation"));
        let cursor = number("cursor");
        let wait = number("wait");
        for _ in 0..wait {
            let verdicts = self.verdicts();
            let (wanted, envelopes) = self.with(|held| {
                let waits = |waiting: &&WaitingEnvelope| {
                    waiting.cursor > cursor && !verdicts.contains_key(waiting.id.as_str())
                };
                (
                    held.wanted,
                    held.envelopes.iter().filter(waits).take(8).cloned().collect::<Vec<_>>(),
                )
            });
            if wanted != generation || !envelopes.is_empty() {
                return answered(&PollAnswer { generation: wanted, envelopes });
            }
            sleep(Duration::from_secs(1)).await;
        }
        HubOutcome::Answered { status: 204, body: Vec::new() }
    }
}

/// What a request takes in HTTP/1.1, with the headers that the agent's client adds.
fn wire_bytes(request: &HubRequest) -> usize {
    let HubRequest { method, target, headers, body, .. } = request;
    let credential = format!("evkc_{}", "0".repeat(64));
    let mut text = format!(
        "{method:?} {target} HTTP/1.1\r\nauthorization: Bearer {credential}\r\naccept: */*\r\n\
         host: hub.example:8443\r\n"
    );
    for (name, value) in headers {
        text.extend([name, ": ", value.as_str(), "\r\n"]);
    }
    if !body.is_empty() {
        text.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
    }
    text.len() + "\r\n".len() + body.len()
}

fn answered(value: &impl serde::Serialize) -> HubOutcome {
    HubOutcome::Answered { status: 200, body: serde_json::to_vec(value).unwrap() }
}

impl HubExchange for FakeHub {
    fn exchange(&self, request: HubRequest) -> HubFuture<'_> {
        Box::pin(self.answer(request))
    }
}

/// A host with a hub.
pub(crate) struct Fleet {
    pub(crate) rig: Rig,
    pub(crate) hub: FakeHub,
    pub(crate) state: tempfile::TempDir,
    pub(crate) view: LinkView,
    /// What it tells of its guests.
    pub(crate) picture: Arc<dyn Fn() -> HostPicture + Send + Sync>,
    /// Requests before this one were not about the hub.
    since: usize,
}

impl Fleet {
    /// An enrolled host of four guests, whose author is ada and whose operator is anna.
    pub(crate) async fn new() -> Self {
        let world = Scenario { guests: 4, ..Scenario::default() }.build();
        let rig = Rig::new(Simulator::new(world), 1).judged_by(vec![
            anna().signer(Role::Operational),
            Operator::new("vault", 2).signer(Role::Recovery),
            ada().signer(Role::Author),
        ]);
        let hub = FakeHub::default();
        let view = LinkView::default();
        let state = tempfile::tempdir().unwrap();
        let picture = Arc::new(HostPicture::default);
        let mut fleet = Self { rig, hub, state, view, picture, since: 0 };
        // A task older than anything that is raised, and two containers that run.
        let wanted = "guest.100 = { kind = \"lxc\", run = \"running\" }\nguest.102 = { kind = \"lxc\", run = \"running\" }";
        let wanted = evenkeel_harness::script::desired(wanted);
        let enrolled = fleet.rig.live(async |engine| {
            evenkeel_harness::script::pass(engine, &wanted).await?;
            engine.keep_floor(&DocumentFloor::enrolled(hub_id())).await.unwrap();
            Ok(())
        });
        enrolled.await.unwrap().unwrap();
        sleep(Duration::from_secs(30)).await;
        fleet.since = fleet.rig.node.with(|sim| sim.records().len());
        fleet
    }

    /// The same where root lets the hub go without signatures.
    pub(crate) async fn unsigned() -> Self {
        let mut fleet = Self::new().await;
        fleet.rig.approvals.as_mut().unwrap().policy.desired_signed = false;
        fleet
    }

    pub(crate) fn now(&self) -> UnixSeconds {
        UnixSeconds(u64::try_from(self.rig.ambient.now().as_second()).unwrap())
    }

    /// A document of this host.
    pub(crate) fn document(generation: u64, text: &str) -> WireDocument {
        let files = DocumentFiles::new([("web.toml".to_owned(), text.to_owned())]).unwrap();
        WireDocument::of(hub_id(), Rig::host().id, Generation(generation), &files, None)
    }

    /// The same with an author's signature.
    pub(crate) fn signed(&self, generation: u64, text: &str) -> WireDocument {
        let window = Window::new(self.now(), self.now().plus(3_600)).unwrap();
        Self::signed_over(self.base(), window, generation, text)
    }

    /// The same with a base and a window of its own.
    pub(crate) fn signed_over(
        base: SignedBase,
        window: Window,
        generation: u64,
        text: &str,
    ) -> WireDocument {
        let document = Self::document(generation, text);
        let statement = DesiredStatement {
            hub_id: hub_id(),
            host: Rig::host(),
            generation: Generation(generation),
            manifest: manifest_of(text),
            base,
            window,
        };
        let sealed = ada().seal(statement.namespace(), &statement.to_bytes().unwrap());
        WireDocument { author: Some(SealedText::of(&sealed).unwrap()), ..document }
    }

    /// What is in effect by the host's journal, whatever enrolment it is of: what an author compares with.
    pub(crate) fn base(&self) -> SignedBase {
        let lines = evenkeel_harness::script::journal(&self.rig);
        let floors = lines.iter().filter(|line| line["type"] == "hub" && line["key"] == "floor");
        let mut taken = floors.filter_map(|line| {
            let manifest = line["value"]["manifest"].as_str()?.parse().unwrap();
            let generation = Generation(line["value"]["generation"].as_u64()?);
            Some(DocumentBase { generation, manifest })
        });
        SignedBase::after(taken.next_back())
    }

    /// Root enrols the host once more, with the same hub.
    pub(crate) async fn enrol_again(&self) {
        let enrolled = self.rig.live(async |engine| {
            let floor = engine.floor().await?.unwrap().enrolled_again(hub_id());
            engine.keep_floor(&floor).await.unwrap();
            Ok(())
        });
        Box::pin(enrolled).await.unwrap().unwrap();
    }

    pub(crate) fn push(&self, generation: u64, text: &str) {
        self.offer(generation, &self.signed(generation, text));
    }

    pub(crate) fn offer(&self, generation: u64, document: &WireDocument) {
        self.hub.offers(generation, serde_json::to_vec(document).unwrap());
    }

    /// Somebody changes a key of a guest by hand.
    pub(crate) fn edit(&self, guest: &str, key: &str, value: &str) {
        let set = BTreeMap::from([(key.to_owned(), Some(value.to_owned()))]);
        let guest: GuestId = guest.parse().unwrap();
        self.rig.node.with(|sim| sim.happen(Event::Edit { guest, set }));
    }

    /// What a key of a guest is.
    pub(crate) fn actual(&self, guest: &str, key: &str) -> Option<String> {
        let guest: GuestId = guest.parse().unwrap();
        self.rig.node.with(|sim| {
            let found = sim.world.guests.values().find(|other| other.id == guest).unwrap();
            found.config.active.get(key).cloned()
        })
    }

    /// Every request that changed something: method, guest, last part of the path.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.rig.node.with(|sim| {
            let told = sim.records().iter().skip(self.since).filter(|record| record.mutating);
            told.map(|record| {
                let guest = record.guest.map(|guest| guest.to_string()).unwrap_or_default();
                format!("{} {guest} {}", record.method, record.path.rsplit('/').next().unwrap())
            })
            .collect()
        })
    }

    /// Lets the agent live so long, from start to stop, with a pass a minute and the link beside it.
    pub(crate) async fn live(&self, life: Duration) {
        let (requests, mut requested) = mpsc::channel(4);
        let rig = &self.rig;
        let lived = rig.live(async |engine| {
            let (mut desk, mut desired, _) = HubDesk::open(self.state.path(), engine).await?;
            engine.set_anchor(AnchorState::Asking);
            let link = self.link(engine, requests).run();
            tokio::pin!(link);
            let end = Instant::now() + life;
            let mut due = Instant::now();
            let mut linked = true;
            loop {
                let (request, event) = tokio::select! {
                    () = &mut link, if linked => { linked = false; continue }
                    Some(request) = requested.recv() => (Some(request), None),
                    event = engine.work() => (None, Some(event?)),
                    () = sleep_until(due) => (None, None),
                    () = sleep_until(end) => return Ok(()),
                };
                match (request, event) {
                    (Some(request), _) => {
                        if let DeskNews::Desired(new) = desk.take(engine, request).await? {
                            (desired, due) = (Some(*new), Instant::now());
                        }
                    }
                    (None, Some(EngineEvent::Op(report))) => desk.ended(&report),
                    (None, Some(EngineEvent::Settled(_) | EngineEvent::Pass { .. })) => {}
                    (None, None) => {
                        due = Instant::now() + Duration::from_mins(1);
                        if let Some(desired) = &desired {
                            engine.pass(&desired.desired).await.unwrap();
                        }
                    }
                }
            }
        });
        Box::pin(lived).await.unwrap().unwrap();
    }

    fn link(
        &self,
        engine: &evenkeel_agent::engine::Engine,
        desk: mpsc::Sender<evenkeel_agent::hub_link::DeskRequest>,
    ) -> HubLink {
        let bench = self.rig.approvals.clone().unwrap();
        let instance = format!("{:016x}", self.rig.ambient.next());
        HubLink {
            exchange: Arc::new(self.hub.clone()),
            identity: LinkIdentity {
                hub_id: hub_id(),
                host: Rig::host(),
                key: bench.host_key,
                instance: instance.parse().unwrap(),
                vouch: bench.vouch,
            },
            journal: engine.journal().clone(),
            ambient: Arc::clone(&self.rig.ambient) as Arc<dyn Ambient>,
            desk,
            reader: DocumentReader::beside(),
            picture: Arc::clone(&self.picture),
            view: self.view.clone(),
            anchor: bench.anchor,
            history: None,
        }
    }

    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }
}

/// The head in an envelope, whoever signed it.
pub(crate) fn head_in(sealed: &SealedText) -> HeadStatement {
    HeadStatement::parse(sealed.envelope().unwrap().payload()).unwrap()
}

pub(crate) fn minutes(count: u64) -> Duration {
    Duration::from_mins(count)
}
