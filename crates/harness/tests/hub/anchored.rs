//! A journal that is put back is found out by its anchor, and nothing destructive runs until an operator says so.

use evenkeel_agent::policy::AnchorPolicy;
use evenkeel_core::fleet::{AcknowledgeStatement, HandedIn, JournalHead, VerdictStatement};
use evenkeel_core::sign::{Envelope, Namespace, Nonce, TrustVersion, Window};
use evenkeel_harness::Rig;

use crate::support::{Fleet, Manner, anna, head_in, hub_id, minutes};

const ABSENT: &str = "[guest.102]\nkind = \"lxc\"\nstate = \"absent\"\n";

async fn approval(fleet: &Fleet, nonce: u128) -> String {
    let item = fleet.rig.live(async |engine| {
        let items = engine.pending().await?;
        Ok(items.into_values().next().expect("an item waits").0)
    });
    let item = item.await.unwrap().unwrap();
    anna().approve(&item, nonce, fleet.now())
}

fn destroys(fleet: &Fleet) -> usize {
    fleet.writes().iter().filter(|write| write.starts_with("DELETE")).count()
}

/// A host whose disk was put back to before its last heads were told.
async fn rolled_back() -> Fleet {
    let mut fleet = Fleet::new().await;
    fleet.push(1, ABSENT);
    fleet.live(minutes(5)).await;
    let backup = fleet.rig.disk.copy();
    fleet.push(2, &format!("{ABSENT}[guest.100]\nkind = \"lxc\"\ncores = 3\n"));
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"));
    fleet.rig.disk = backup;
    fleet
}

async fn found(fleet: &Fleet) -> Option<(JournalHead, JournalHead)> {
    let read = fleet.rig.live(async |engine| {
        let epoch =
            engine.journal().read(|state, _| evenkeel_agent::hub_link::memory::epoch(state));
        Ok(epoch.await.unwrap().rollback.map(|rollback| (rollback.anchored, rollback.found)))
    });
    read.await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_is_put_back_stops_signed_work_until_it_is_acknowledged() {
    let fleet = rolled_back().await;
    fleet.live(minutes(5)).await;
    let (anchored, head) = found(&fleet).await.expect("the rollback is found");
    assert!(anchored.seq > head.seq, "{anchored:?} {head:?}");
    let old = approval(&fleet, 7).await;
    let id = fleet.hub.queues(&old);
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.hub.verdicts()[&id].code, "journal_rollback");
    assert_eq!(destroys(&fleet), 0);

    // Benign work goes on, also with the hub away, and it is not forgotten over a restart.
    fleet.hub.behaves(Manner::Gone);
    fleet.edit("lxc/100", "cores", "1");
    fleet.live(minutes(3)).await;
    assert!(found(&fleet).await.is_some());
    fleet.hub.behaves(Manner::Honest);

    let statement = AcknowledgeStatement {
        host: Rig::host(),
        hub_id: hub_id(),
        anchored,
        found: head,
        nonce: Nonce::from_random([8; 16]).unwrap(),
        window: Window::new(fleet.now(), fleet.now().plus(600)).unwrap(),
        trust_version: TrustVersion(1),
        reason: "restored from a backup".to_owned(),
    };
    let sealed = anna().seal(Namespace::Acknowledge, &statement.to_bytes().unwrap());
    let acknowledged = fleet.hub.queues(&sealed);
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.hub.verdicts()[&acknowledged].code, "allowed_signed");
    assert_eq!(found(&fleet).await, None);

    // What was signed before is stale; what is signed for the item raised anew is done once.
    let again = fleet.hub.queues(&old);
    fleet.live(minutes(5)).await;
    assert_ne!(fleet.hub.verdicts()[&again].code, "allowed_signed");
    assert_eq!(destroys(&fleet), 0);
    let fresh = approval(&fleet, 9).await;
    fleet.hub.queues(&fresh);
    fleet.live(minutes(10)).await;
    assert_eq!(destroys(&fleet), 1, "{:?}", fleet.hub.verdicts());
    assert_eq!(head_in(&fleet.hub.anchor().unwrap()).head.epoch, 1, "heads are of the next epoch");
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_went_on_after_it_was_put_back_is_found_out_too() {
    let fleet = rolled_back().await;
    fleet.hub.behaves(Manner::Gone);
    for count in 1..12 {
        fleet.edit("lxc/100", "cores", "1");
        fleet.edit("lxc/102", "description", &format!("{count}"));
        fleet.live(minutes(2)).await;
    }
    fleet.hub.behaves(Manner::Honest);
    fleet.live(minutes(3)).await;
    assert!(found(&fleet).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn without_the_hub_signed_work_runs_and_where_root_demands_an_anchor_it_waits() {
    for required in [false, true] {
        let mut fleet = Fleet::new().await;
        if required {
            let policy = &mut fleet.rig.approvals.as_mut().unwrap().policy;
            policy.anchor = AnchorPolicy::Required;
        }
        fleet.push(1, ABSENT);
        fleet.live(minutes(5)).await;
        let approval = approval(&fleet, 7).await;
        fleet.hub.behaves(Manner::Gone);
        // By other hands than the hub's.
        fleet.live(minutes(1)).await;
        let submitted = fleet.rig.live(async |engine| {
            let submitted = engine.submit_approval(approval.as_bytes()).await?;
            while !engine.is_idle() {
                engine.work().await?;
            }
            Ok(submitted)
        });
        submitted.await.unwrap().unwrap();
        assert_eq!(destroys(&fleet), usize::from(!required));
        let lines = evenkeel_harness::script::journal(&fleet.rig);
        let unanchored = lines.iter().any(|line| line.to_string().contains("unanchored"));
        assert_eq!(unanchored, !required, "what ran without an anchor says so");
    }
}

/// A host whose hub said that it keeps a head, and lost it; the disk was put back to then, so that the journal is older.
async fn forgotten(anchor: AnchorPolicy) -> Fleet {
    let mut fleet = Fleet::new().await;
    fleet.rig.approvals.as_mut().unwrap().policy.anchor = anchor;
    fleet.push(1, &format!("{ABSENT}[guest.100]\nkind = \"lxc\"\ncores = 3\n"));
    for cores in ["1", "2", "1"] {
        fleet.edit("lxc/100", "cores", cores);
        fleet.live(minutes(5)).await;
    }
    let told = fleet.rig.live(async |engine| Ok(engine.heads().await?.1));
    assert!(told.await.unwrap().unwrap().acknowledged.is_some(), "the hub said that it keeps one");
    let backup = fleet.rig.disk.copy();
    fleet.live(minutes(5)).await;
    fleet.rig.disk = backup;
    fleet.hub.anchors(None);
    fleet
}

#[tokio::test(start_paused = true)]
async fn z10_a_hub_that_lost_the_head_it_kept_holds_signed_work_where_root_demands_an_anchor() {
    for anchor in [AnchorPolicy::Optional, AnchorPolicy::Required] {
        let fleet = forgotten(anchor).await;
        let approval = approval(&fleet, 7).await;
        let id = fleet.hub.queues(&approval);
        fleet.live(minutes(10)).await;
        let verdict = &fleet.hub.verdicts()[&id];
        match anchor {
            AnchorPolicy::Optional => {
                assert_eq!((verdict.code.as_str(), destroys(&fleet)), ("allowed_signed", 1));
                let lines = evenkeel_harness::script::journal(&fleet.rig);
                assert!(lines.iter().any(|line| line.to_string().contains("unanchored")));
            }
            AnchorPolicy::Required => {
                assert_eq!((verdict.code.as_str(), destroys(&fleet)), ("journal_rollback", 0));
                // However often it starts: no head is told that would take the place of the lost one.
                fleet.live(minutes(10)).await;
                assert_eq!(fleet.hub.anchor(), None);
                assert_eq!(destroys(&fleet), 0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn z09_every_verdict_is_signed_by_the_host_about_the_bytes_that_were_handed_in() {
    let fleet = Fleet::new().await;
    fleet.push(1, ABSENT);
    fleet.live(minutes(5)).await;
    let approval = approval(&fleet, 7).await;
    let junk = anna().seal(Namespace::Report, b"{}");
    let host_key = fleet.rig.approvals.as_ref().unwrap().host_key.clone();
    for text in [approval, junk] {
        let id = fleet.hub.queues(&text);
        fleet.live(minutes(10)).await;
        let told = fleet.hub.verdicts()[&id].clone();
        let payload = Envelope::parse(text.as_bytes()).unwrap().payload_hash();
        let handed_in = HandedIn { hub_id: hub_id(), host: Rig::host().id, payload };
        let said = VerdictStatement::about(&told, &host_key, &handed_in).unwrap();
        assert_eq!((&said.code, &said.detail), (&told.code, &told.detail));
    }
}
