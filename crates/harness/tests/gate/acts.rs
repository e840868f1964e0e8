//! What was signed is done once, and what was not is not done.

use evenkeel_agent::engine::{OpOutcome, Submitted};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{Envelope, Namespace, Nonce, OpResult, PendingItem, TrustVersion};
use evenkeel_harness::{Operator, statement};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn t04_a_signed_destroy_is_done_once_and_a_replay_is_answered_with_the_first_ones_result() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        pass(engine, &absent).await?;
        assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new(), "nothing without a signature");
        let item = item(engine).await;
        assert_eq!(item.op, ActionKind::Destroy);
        assert!(item.losses.iter().any(|loss| loss.what.contains("vm-100-disk")), "{item:?}");
        let approval = anna().approve(&item, 7, now(&rig));
        let report = carried_out(engine, &approval).await;
        assert_eq!(report.end, OpOutcome::Succeeded { warning: None }, "{report:?}");
        assert!(!exists(&rig, "lxc/100"));
        let again = engine.submit_approval(approval.as_bytes()).await?;
        assert_eq!(again, Submitted::Replay { op: report.op, result: OpResult::Succeeded });
        pass(engine, &absent).await?;
        assert!(engine.pending().await?.is_empty());
        Ok(())
    })
    .await;
    let deletes =
        writes(&rig, "lxc/100").iter().filter(|write| write.starts_with("DELETE")).count();
    assert_eq!(deletes, 1, "{:?}", writes(&rig, "lxc/100"));
}

#[tokio::test(start_paused = true)]
async fn g24_p12_t13_who_is_not_an_operator_or_bent_the_item_moves_nothing() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        pass(engine, &absent).await?;
        let item = item(engine).await;
        let stranger = Operator::new("mallory", 66);
        let mut tampered = statement(&item, 9, now(&rig));
        tampered.params.insert("purge".to_owned(), "1".to_owned());
        let mut other_guest = statement(&item, 10, now(&rig));
        other_guest.guest = "lxc/102".parse().unwrap();
        let mut late = statement(&item, 11, now(&rig).minus(7_200));
        late.reason = "too late".to_owned();
        let mut old_trust = statement(&item, 12, now(&rig));
        old_trust.trust_version = TrustVersion(0);
        let mut elsewhere = statement(&item, 13, now(&rig));
        elsewhere.host.id = "other".parse().unwrap();
        for (envelope, reason) in [
            (stranger.approve(&item, 8, now(&rig)), ReasonCode::UnknownSigner),
            (vault().approve(&item, 8, now(&rig)), ReasonCode::RoleDenied),
            (anna().sign(&tampered), ReasonCode::Stale),
            (anna().sign(&other_guest), ReasonCode::Stale),
            (anna().sign(&late), ReasonCode::Expired),
            (anna().sign(&old_trust), ReasonCode::TrustVersion),
            (anna().sign(&elsewhere), ReasonCode::HostMismatch),
            ("{}".to_owned(), ReasonCode::Envelope),
        ] {
            let Submitted::Refused(refusal) = engine.submit_approval(envelope.as_bytes()).await?
            else {
                panic!("{reason} was not refused");
            };
            assert_eq!(refusal.reason, reason, "{refusal}");
        }
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

/// A thief of the host key signs what the host itself would say, down to the identity and the digest.
#[tokio::test(start_paused = true)]
async fn an_item_that_the_host_never_raised_is_not_executed_whoever_signed_it() {
    let absent = desired(ABSENT);
    let other = rig().await;
    let true_item = live(&other, async |engine| {
        pass(engine, &absent).await?;
        Ok(item(engine).await)
    })
    .await;
    let serial = Nonce::from_random([66; 16]).unwrap();
    let false_item = PendingItem { serial, ..true_item };
    let host = Operator::new("host", 200);
    let sealed = host.seal(Namespace::Pending, &false_item.to_bytes().unwrap());
    let sealed = Envelope::parse(sealed.as_bytes()).unwrap();
    let believed = PendingItem::verify(&sealed, &host.key).unwrap();
    assert_eq!(believed, false_item, "an operator's tool believes it");
    let rig = rig().await;
    live(&rig, async |engine| {
        let approval = anna().approve(&believed, 7, now(&rig));
        assert_eq!(reason_of_refusal(engine, &approval).await, ReasonCode::NotPending);
        // Nor when the host has an item of its own for the same act.
        pass(engine, &absent).await?;
        let own = item(engine).await;
        let same = (&own.expected, &own.params) == (&believed.expected, &believed.params);
        assert!(same, "it says the truth about the guest");
        assert_eq!(reason_of_refusal(engine, &approval).await, ReasonCode::Stale);
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
    assert!(exists(&rig, "lxc/100"));
}

#[tokio::test(start_paused = true)]
async fn p14_a_guest_that_took_the_number_is_not_destroyed_for_the_former_one() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        rig.node.with(|sim| {
            sim.happen(evenkeel_sim::Event::Reuse { guest: "lxc/100".parse().unwrap() });
        });
        let report = carried_out(engine, &approval).await;
        let OpOutcome::Held { reason, .. } = &report.end else { panic!("{report:?}") };
        assert!(
            [ReasonCode::IdentityMismatch, ReasonCode::IdentityUnproven, ReasonCode::Stale]
                .contains(reason),
            "{report:?}"
        );
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
    assert!(exists(&rig, "lxc/100"));
}

#[tokio::test(start_paused = true)]
async fn t03_sixty_four_deliveries_at_once_are_one_act() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        let first = engine.submit_approval(approval.as_bytes()).await?;
        let Submitted::Accepted(op) = first else { panic!("{first:?}") };
        for _ in 0..63 {
            let again = engine.submit_approval(approval.as_bytes()).await?;
            assert_eq!(again, Submitted::Replay { op, result: OpResult::InFlight });
        }
        ended(engine, first).await;
        Ok(())
    })
    .await;
    let deletes =
        writes(&rig, "lxc/100").iter().filter(|write| write.starts_with("DELETE")).count();
    assert_eq!(deletes, 1);
}

#[tokio::test(start_paused = true)]
async fn a_running_protected_guest_is_stopped_and_unprotected_as_signed() {
    let rig = rig().await;
    protect(&rig, "lxc/102");
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    live(&rig, async |engine| {
        pass(engine, &absent).await?;
        let item = item(engine).await;
        assert_eq!(item.params["stop"], "1");
        assert_eq!(item.params["unprotect"], "1");
        let approval = anna().approve(&item, 7, now(&rig));
        let report = carried_out(engine, &approval).await;
        assert_eq!(report.end, OpOutcome::Succeeded { warning: None }, "{report:?}");
        Ok(())
    })
    .await;
    let sent = writes(&rig, "lxc/102");
    assert_eq!(sent[sent.len() - 3..], ["POST stop", "PUT config", "DELETE 102"], "{sent:?}");
}
