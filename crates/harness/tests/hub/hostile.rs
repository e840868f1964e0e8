//! A hostile hub: each attack between two documents that are taken, with drift healed all along.

use std::time::Duration;

use evenkeel_core::fleet::{
    AcknowledgeStatement, DesiredStatement, DocumentBase, Generation, HeadStatement, JournalHead,
    SealedText, SignedBase, WireDocument,
};
use evenkeel_core::sign::{Namespace, Nonce, PayloadHash, TrustVersion, Window};
use evenkeel_harness::{Operator, Rig};

use crate::support::{Fleet, Manner, ada, anna, cores, hub_id, manifest_of, minutes};

/// Lets a hub attack a host that keeps guest 100 at three cores; then it repents. What was written in the end.
async fn survives(fleet: &Fleet, attack: impl FnOnce(&Fleet)) -> Vec<String> {
    fleet.push(1, &cores(3));
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"), "a good document before");

    attack(fleet);
    fleet.edit("lxc/100", "cores", "1");
    fleet.live(minutes(12)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"), "drift is healed meanwhile");

    fleet.hub.behaves(Manner::Honest);
    fleet.push(9, &cores(4));
    fleet.live(minutes(6)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("4"), "a good document after");
    let writes = fleet.writes();
    assert_eq!(writes, ["PUT lxc/100 config", "PUT lxc/100 config", "PUT lxc/100 config"]);
    writes
}

#[tokio::test(start_paused = true)]
async fn a_generation_that_goes_down_changes_nothing_and_is_told() {
    let fleet = Fleet::new().await;
    fleet.push(1, &cores(2));
    fleet.live(minutes(1)).await;
    let old = fleet.signed(1, &cores(2));
    let fleet = Fleet::new().await;
    fleet.push(5, &cores(3));
    fleet.live(minutes(3)).await;
    fleet.offer(1, &old);
    fleet.edit("lxc/100", "cores", "1");
    fleet.live(minutes(12)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"));
    assert_eq!(fleet.hub.refused().as_deref(), Some("generation_rollback"));
    assert_eq!(fleet.hub.generation_told(), Some(Generation(5)), "the hub can go on from there");
    fleet.push(6, &cores(4));
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("4"));
}

#[tokio::test(start_paused = true)]
async fn a_hash_that_does_not_fit_changes_nothing() {
    let fleet = Fleet::new().await;
    survives(&fleet, |fleet| {
        let mut bent = fleet.signed(2, &cores(3));
        bent.files[0].text = cores(7);
        fleet.offer(2, &bent);
    })
    .await;
    let fleet = Fleet::new().await;
    survives(&fleet, |fleet| {
        let other = fleet.signed(2, &cores(7));
        let bent = WireDocument { manifest: other.manifest, ..fleet.signed(2, &cores(3)) };
        fleet.offer(2, &bent);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_document_of_another_host_or_hub_changes_nothing() {
    for bend in [0, 1, 2] {
        let fleet = Fleet::new().await;
        survives(&fleet, |fleet| {
            let text = cores(7);
            let mut host = Rig::host();
            let mut said = hub_id();
            match bend {
                0 => host.id = "other".parse().unwrap(),
                1 => host.key = anna().key.fingerprint(),
                _ => said = "f".repeat(32).parse().unwrap(),
            }
            let statement = DesiredStatement {
                hub_id: said.clone(),
                host: host.clone(),
                generation: Generation(2),
                manifest: manifest_of(&text),
                base: fleet.base(),
                window: Window::new(fleet.now(), fleet.now().plus(3_600)).unwrap(),
            };
            let sealed = ada().seal(Namespace::Desired, &statement.to_bytes().unwrap());
            let author = Some(SealedText::of(&sealed).unwrap());
            // As it was signed, and dressed up as ours.
            let dressed = WireDocument { author: author.clone(), ..Fleet::document(2, &text) };
            let as_it_is = WireDocument { hub_id: said, host: host.id, ..dressed.clone() };
            fleet.offer(2, &as_it_is);
            fleet.offer(3, &dressed);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unsigned_document_or_one_by_the_wrong_key_changes_nothing() {
    for key in [None, Some(anna()), Some(Operator::new("mallory", 66))] {
        let fleet = Fleet::new().await;
        survives(&fleet, |fleet| {
            let mut document = fleet.signed(2, &cores(7));
            let payload = document.author.take().unwrap().envelope().unwrap().payload().to_vec();
            document.author =
                key.map(|key| SealedText::of(&key.seal(Namespace::Desired, &payload)).unwrap());
            fleet.offer(2, &document);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_document_under_another_number_changes_nothing() {
    let fleet = Fleet::new().await;
    survives(&fleet, |fleet| {
        let first = fleet.signed(2, &cores(7));
        fleet.offer(3, &WireDocument { generation: Generation(3), ..first });
    })
    .await;
    // And one number has one document.
    let fleet = Fleet::new().await;
    survives(&fleet, |fleet| {
        let other = fleet.signed(1, &cores(7));
        fleet.offer(1, &other);
        fleet.hub.wants(2);
        fleet.offer(2, &other);
    })
    .await;
}

/// An hour from now.
fn an_hour(fleet: &Fleet) -> Window {
    Window::new(fleet.now(), fleet.now().plus(3_600)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn z01_a_document_signed_over_another_base_than_what_is_in_effect_changes_nothing() {
    let other = DocumentBase { generation: Generation(1), manifest: manifest_of(&cores(2)) };
    for base in [SignedBase::First, SignedBase::Over(other)] {
        let fleet = Fleet::new().await;
        let hub = fleet.hub.clone();
        survives(&fleet, |fleet| {
            fleet.offer(2, &Fleet::signed_over(base, an_hour(fleet), 2, &cores(7)));
        })
        .await;
        assert_eq!(hub.refused_ever(), ["stale"], "{base:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn z01_a_document_in_the_old_format_changes_nothing_and_one_that_is_in_effect_stays() {
    let mut fleet = Fleet::new().await;
    let hub = fleet.hub.clone();
    survives(&fleet, |fleet| {
        fleet.offer(2, &Fleet::signed_over(SignedBase::Unsaid, an_hour(fleet), 2, &cores(7)));
    })
    .await;
    assert_eq!(hub.refused_ever(), ["policy"]);
    // Root lets one in for a while.
    let allowed = |fleet: &mut Fleet, is_allowed: bool| {
        fleet.rig.approvals.as_mut().unwrap().policy.desired_without_base = is_allowed;
    };
    allowed(&mut fleet, true);
    let old = Fleet::signed_over(SignedBase::Unsaid, an_hour(&fleet), 11, &cores(6));
    fleet.offer(11, &old);
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("6"), "in effect");
    allowed(&mut fleet, false);
    fleet.edit("lxc/100", "cores", "1");
    fleet.live(minutes(12)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("6"), "it holds over restarts");
    fleet.push(12, &cores(5));
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("5"), "and is a base");
}

#[tokio::test(start_paused = true)]
async fn z04_a_push_that_the_hub_kept_back_is_refused_after_a_newer_one() {
    let fleet = Fleet::new().await;
    let hub = fleet.hub.clone();
    fleet.push(1, &cores(2));
    fleet.live(minutes(3)).await;
    // The author is told that this was refused, and signs another document under a lower number.
    let kept_back = fleet.signed(7, &cores(7));
    fleet.push(2, &cores(3));
    fleet.live(minutes(3)).await;
    fleet.offer(7, &kept_back);
    fleet.edit("lxc/100", "cores", "1");
    fleet.live(minutes(12)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"));
    assert_eq!(hub.refused_ever(), ["stale"]);
}

#[tokio::test(start_paused = true)]
async fn z23_after_a_new_enrolment_old_documents_are_refused_and_what_is_in_effect_stays() {
    let fleet = Fleet::new().await;
    let hub = fleet.hub.clone();
    let first = fleet.signed(1, &cores(7));
    fleet.offer(1, &first);
    fleet.live(minutes(3)).await;
    let second = fleet.signed(2, &cores(3));
    fleet.offer(2, &second);
    fleet.live(minutes(3)).await;
    fleet.enrol_again().await;
    // The hub begins with the old ones, which are in their window.
    fleet.offer(1, &first);
    fleet.edit("lxc/100", "cores", "1");
    fleet.live(minutes(12)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"), "what was in effect holds");
    assert_eq!(hub.refused_ever(), ["stale"]);
    assert_eq!(hub.generation_told(), Some(Generation(2)), "and the hub is told so");
    // What is in effect is known again; the next one goes on from there.
    fleet.offer(2, &second);
    fleet.live(minutes(3)).await;
    fleet.push(3, &cores(4));
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("4"));
    assert_eq!(hub.refused_ever(), ["stale"], "nothing else was refused");
}

#[tokio::test(start_paused = true)]
async fn a_number_that_leaps_uses_no_numbers_up() {
    let fleet = Fleet::new().await;
    survives(&fleet, |fleet| fleet.push(u64::MAX, &cores(7))).await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_never_answers_delays_no_pass() {
    let fleet = Fleet::new().await;
    survives(&fleet, |fleet| fleet.hub.behaves(Manner::Hangs)).await;
}

#[tokio::test(start_paused = true)]
async fn garbage_errors_and_redirects_change_nothing_and_are_asked_slowly() {
    for (status, body) in [
        (200, b"<html>".to_vec()),
        (200, b"{}".to_vec()),
        (200, b"null".to_vec()),
        (200, vec![0xff; 1_000]),
        (200, br#"{"generation":18446744073709551615,"envelopes":[]}"#.to_vec()),
        (200, br#"{"generation":-1}"#.to_vec()),
        (302, Vec::new()),
        (401, Vec::new()),
        (403, b"{\"detail\":\"no\"}".to_vec()),
        (404, Vec::new()),
        (429, Vec::new()),
        (500, Vec::new()),
        (502, Vec::new()),
    ] {
        let fleet = Fleet::new().await;
        let hub = fleet.hub.clone();
        survives(&fleet, |fleet| fleet.hub.behaves(Manner::Says(status, body.clone()))).await;
        let polls = hub.asked("/v1/agent/poll").len() + hub.asked("/v1/agent/documents").len();
        assert!(polls < 1_500, "{status} was asked {polls} times in 21 minutes");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_longer_than_allowed_is_not_read() {
    let fleet = Fleet::new().await;
    survives(&fleet, |fleet| {
        let mut huge = serde_json::to_vec(&fleet.signed(2, &cores(7))).unwrap();
        huge.resize(13 << 20, b' ');
        fleet.hub.offers(2, huge);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_answers_at_once_for_ever_is_asked_once_a_second() {
    let fleet = Fleet::new().await;
    let hub = fleet.hub.clone();
    survives(&fleet, |fleet| fleet.hub.behaves(Manner::Floods)).await;
    let polls = hub.asked("/v1/agent/poll");
    let busiest = polls.iter().map(|at| {
        polls
            .iter()
            .filter(|other| **other >= *at && **other < *at + Duration::from_secs(10))
            .count()
    });
    assert!(busiest.max().unwrap() <= 11, "{}", polls.len());
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_envelopes_is_verified_slowly_and_written_down_hardly() {
    let fleet = Fleet::new().await;
    survives(&fleet, |fleet| {
        let mallory = Operator::new("mallory", 66);
        for number in 0..400_u32 {
            fleet
                .hub
                .queues(&mallory.seal(Namespace::Op, format!("{{\"n\":{number}}}").as_bytes()));
        }
    })
    .await;
    let lines = evenkeel_harness::script::journal(&fleet.rig);
    let refusals = lines.iter().filter(|line| line["type"] == "decision");
    let refusals = refusals.filter(|line| line["value"]["op"] == "approval").count();
    assert!((1..=40).contains(&refusals), "two hours at most: {refusals}");
    assert!(fleet.hub.verdicts().len() >= 300, "each is answered: {}", fleet.hub.verdicts().len());
}

/// A destroy of guest 102 waits, signed by anna.
async fn signed_destroy(fleet: &Fleet) -> String {
    let absent = "[guest.102]\nkind = \"lxc\"\nstate = \"absent\"\n";
    fleet.push(1, absent);
    fleet.live(minutes(3)).await;
    let item = fleet.rig.live(async |engine| {
        let items = engine.pending().await?;
        Ok(items.into_values().next().unwrap().0)
    });
    let item = item.await.unwrap().unwrap();
    anna().approve(&item, 7, fleet.now())
}

#[tokio::test(start_paused = true)]
async fn envelopes_that_are_repeated_and_reordered_are_executed_once() {
    let fleet = Fleet::new().await;
    let approval = signed_destroy(&fleet).await;
    let id = fleet.hub.queues(&approval);
    fleet.hub.queues(&approval);
    fleet.live(minutes(10)).await;
    fleet.hub.reorders();
    fleet.live(minutes(10)).await;
    let destroys = fleet.writes().into_iter().filter(|write| write.starts_with("DELETE")).count();
    assert_eq!(destroys, 1, "{:?}", fleet.writes());
    let verdict = fleet.hub.verdicts().remove(&id).unwrap();
    assert!(verdict.op.is_some(), "{verdict:?}");
    fleet.push(9, &cores(4));
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("4"));
}

#[tokio::test(start_paused = true)]
async fn a_document_that_claims_what_only_the_journal_knows_destroys_nothing() {
    let fleet = Fleet::new().await;
    survives(&fleet, |fleet| {
        let claims = "[guest.102]\nkind = \"lxc\"\nstate = \"absent\"\n[guest.100]\nkind = \"lxc\"\ncores = 3\n\
                      scratch = true\nsource = { template = \"local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst\" }\n";
        fleet.push(2, claims);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_forged_acknowledgement_changes_nothing() {
    let fleet = Fleet::new().await;
    survives(&fleet, |fleet| {
        let head = JournalHead {
            epoch: 0,
            seq: 9,
            sum: PayloadHash([7; 32]),
            trust_version: TrustVersion(1),
        };
        let statement = AcknowledgeStatement {
            host: Rig::host(),
            hub_id: hub_id(),
            anchored: head,
            found: JournalHead { seq: 3, ..head },
            nonce: Nonce::from_random([9; 16]).unwrap(),
            window: Window::new(fleet.now(), fleet.now().plus(600)).unwrap(),
            trust_version: TrustVersion(1),
            reason: "forged".to_owned(),
        };
        let bytes = statement.to_bytes().unwrap();
        fleet.hub.queues(&Operator::new("mallory", 66).seal(Namespace::Acknowledge, &bytes));
        // By a real key, but nothing was rolled back.
        fleet.hub.queues(&anna().seal(Namespace::Acknowledge, &bytes));
    })
    .await;
    let codes: Vec<String> =
        fleet.hub.verdicts().into_values().map(|verdict| verdict.code).collect();
    assert_eq!(codes, ["not_pending", "not_pending"]);
}

#[tokio::test(start_paused = true)]
async fn lies_about_the_anchor_take_nothing_away_and_give_nothing() {
    for lie in 0..3 {
        let fleet = Fleet::new().await;
        survives(&fleet, |fleet| {
            let head = JournalHead {
                epoch: 0,
                seq: 999_999,
                sum: PayloadHash([7; 32]),
                trust_version: TrustVersion(1),
            };
            let statement = HeadStatement { hub_id: hub_id(), host: Rig::host(), head };
            let bytes = statement.to_bytes().unwrap();
            let forged = Operator::new("mallory", 66).seal(Namespace::Head, &bytes);
            let for_other = Operator::new("host", 200).seal(Namespace::Pending, &bytes);
            fleet.hub.anchors(match lie {
                0 => None,
                1 => Some(SealedText::of(&forged).unwrap()),
                _ => Some(SealedText::of(&for_other).unwrap()),
            });
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_documents_is_fetched_slowly() {
    let fleet = Fleet::unsigned().await;
    let hub = fleet.hub.clone();
    let flood = async {
        for generation in 2..100_000_u64 {
            let count = 2 + u32::try_from(generation % 2).unwrap();
            fleet.offer(generation, &Fleet::document(generation, &cores(count)));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = fleet.live(minutes(20)) => {}
        () = flood => {}
    }
    let fetched = hub.asked("/v1/agent/documents").len();
    assert!((20..=210).contains(&fetched), "{fetched} in 20 minutes");
    assert!(fleet.writes().iter().all(|write| write == "PUT lxc/100 config"));
}
