//! Acts that take several signers: what is kept, what it becomes, and a signed no.

use evenkeel_agent::engine::Submitted;
use evenkeel_core::desired::Desired;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{
    ApprovalRules, DenialStatement, Namespace, PendingId, PendingItem, Role, RotationAuthority,
    Window,
};
use evenkeel_harness::{Operator, Rig};
use evenkeel_sim::Event;

use crate::support::{
    anna, carried_out, desired, envelope, exists, following, item, live, now, pass, refused, rig,
    vault, writes,
};

fn ben() -> Operator {
    Operator::new("ben", 3)
}

fn cleo() -> Operator {
    Operator::new("cleo", 4)
}

fn gone() -> Desired {
    desired("guest.100 = { kind = \"lxc\", state = \"absent\" }")
}

/// A rig with three operators whose root wrote these rules.
async fn rig_with(rules: &str) -> Rig {
    let rig = rig().await;
    let signers = [anna(), ben(), cleo()].map(|by| by.signer(Role::Operational));
    let signers = signers.into_iter().chain([vault().signer(Role::Recovery)]).collect();
    let rig = rig.judged_by(signers);
    let rules: ApprovalRules = serde_json::from_str(rules).unwrap();
    {
        let mut authority = rig.approvals.as_ref().unwrap().authority.try_write().unwrap();
        *authority = authority.clone().with_rules(&rules);
    }
    rig
}

const TWO: &str = r#"[{"op": "destroy", "signers": 2}]"#;

/// Somebody's no to an item.
fn denied(rig: &Rig, item: &PendingItem, by: &Operator) -> String {
    let denial = DenialStatement {
        host: Rig::host(),
        item: PendingItem::id(&item.to_bytes().unwrap()),
        window: Window::new(now(rig), now(rig).plus(600)).unwrap(),
        trust_version: item.trust_version,
        reason: "we still need it".to_owned(),
    };
    by.seal(Namespace::Deny, &denial.to_bytes().unwrap())
}

/// What is in the journal beside the items.
fn kept(rig: &Rig) -> usize {
    let journal = rig.open_journal(rig.disk.clone()).unwrap();
    journal.state().kept(evenkeel_agent::journal::KeptSubject::Approval).count()
}

#[tokio::test(start_paused = true)]
async fn z08_one_signature_of_two_is_kept_and_the_second_has_it_done_once() {
    let rig = rig_with(TWO).await;
    let signed = now(&rig);
    let item = live(&rig, async |engine| {
        pass(engine, &gone()).await?;
        let item = item(engine).await;
        let first = anna().approve(&item, 7, signed);
        for _ in 0..3 {
            let kept = engine.submit_approval(first.as_bytes()).await?;
            let Submitted::Collected(missing) = kept else { panic!("{kept:?}") };
            assert_eq!(missing.detail, "1 of 2 signatures: anna");
        }
        pass(engine, &gone()).await?;
        Ok(item)
    })
    .await;
    assert!(exists(&rig, "lxc/100"));
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new(), "nothing is sent upon one signature");
    // The agent starts again in between: what is kept is on disk.
    live(&rig, async |engine| {
        let second = ben().approve(&item, 7, signed);
        let report = carried_out(engine, &second).await;
        assert!(report.end.reason().is_none(), "{:?}", report.end);
        let again = engine.submit_approval(second.as_bytes()).await?;
        assert!(matches!(again, Submitted::Replay { .. }), "{again:?}");
        pass(engine, &gone()).await
    })
    .await;
    assert!(!exists(&rig, "lxc/100"));
    let deletes = writes(&rig, "lxc/100").iter().filter(|w| w.starts_with("DELETE")).count();
    assert_eq!(deletes, 1);
}

#[tokio::test(start_paused = true)]
async fn z08_other_statements_and_the_same_key_add_nothing_up() {
    let rig = rig_with(TWO).await;
    live(&rig, async |engine| {
        pass(engine, &gone()).await?;
        let item = item(engine).await;
        let signed = now(&rig);
        for (approval, reason) in [
            (anna().approve(&item, 7, signed), ReasonCode::PendingSignature),
            (anna().approve(&item, 7, signed), ReasonCode::PendingSignature),
            (ben().approve(&item, 8, signed), ReasonCode::BindingMismatch),
            (vault().approve(&item, 7, signed), ReasonCode::RoleDenied),
            (Operator::new("mallory", 66).approve(&item, 7, signed), ReasonCode::UnknownSigner),
            (anna().approve(&item, 9, signed), ReasonCode::BindingMismatch),
        ] {
            assert_eq!(refused(engine, &approval).await, reason);
        }
        pass(engine, &gone()).await
    })
    .await;
    assert!(exists(&rig, "lxc/100"));
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn z08_who_asked_is_no_second_signer_where_root_says_so_and_must_say_who_asks() {
    let rig = rig_with(r#"[{"signers": 2, "requester_counts": false}]"#).await;
    live(&rig, async |engine| {
        let op = evenkeel_core::action_registry::ActionKind::Destroy;
        let guest = "lxc/100";
        let guest = guest.parse().unwrap();
        let nobody = engine.request(op, guest, [].into()).await.unwrap_err();
        assert_eq!(nobody.refusal()?.reason, ReasonCode::Policy);
        let other = Some("zoe".to_owned());
        let stranger = engine.request_as(op, guest, [].into(), other).await.unwrap_err();
        assert_eq!(stranger.refusal()?.reason, ReasonCode::UnknownSigner);
        engine.request_as(op, guest, [].into(), Some("anna".to_owned())).await.unwrap();
        let item = item(engine).await;
        let signed = now(&rig);
        for by in [anna(), ben()] {
            let reason = refused(engine, &by.approve(&item, 7, signed)).await;
            assert_eq!(reason, ReasonCode::PendingSignature);
        }
        assert!(exists(&rig, "lxc/100"), "anna asked and does not count");
        carried_out(engine, &cleo().approve(&item, 7, signed)).await;
        Ok(())
    })
    .await;
    assert!(!exists(&rig, "lxc/100"));
}

#[tokio::test(start_paused = true)]
async fn z08_a_denial_ends_the_item_and_no_pass_raises_the_same_again() {
    let rig = rig_with(TWO).await;
    live(&rig, async |engine| {
        pass(engine, &gone()).await?;
        let item = item(engine).await;
        let signed = now(&rig);
        let first = anna().approve(&item, 7, signed);
        assert_eq!(refused(engine, &first).await, ReasonCode::PendingSignature);
        let by_vault = denied(&rig, &item, &vault());
        assert_eq!(refused(engine, &by_vault).await, ReasonCode::RoleDenied);
        let no = denied(&rig, &item, &ben());
        let ended = engine.submit_approval(no.as_bytes()).await?;
        let id: PendingId = PendingItem::id(&item.to_bytes().unwrap());
        assert_eq!(ended, Submitted::Denied(id));
        assert_eq!(refused(engine, &no).await, ReasonCode::NotPending);
        let second = cleo().approve(&item, 7, signed);
        assert_eq!(refused(engine, &second).await, ReasonCode::NotPending, "denial after one");
        for _ in 0..3 {
            pass(engine, &gone()).await?;
            assert!(engine.pending().await?.is_empty(), "denied is denied");
        }
        // The guest is another than the one that was denied: it is put before people again.
        let set = [("description".to_owned(), Some("changed".to_owned()))].into();
        rig.node.with(|sim| sim.happen(Event::Edit { guest: "lxc/100".parse().unwrap(), set }));
        pass(engine, &gone()).await?;
        assert_eq!(engine.pending().await?.len(), 1);
        pass(engine, &gone()).await
    })
    .await;
    assert!(exists(&rig, "lxc/100"));
    assert_eq!(kept(&rig), 0, "what was denied and what was signed is forgotten");
}

#[tokio::test(start_paused = true)]
async fn z08_signatures_end_with_their_window_and_a_journal_forgets_them() {
    let rig = rig_with(TWO).await;
    live(&rig, async |engine| {
        pass(engine, &gone()).await?;
        let item = item(engine).await;
        let first = anna().approve(&item, 7, now(&rig));
        assert_eq!(refused(engine, &first).await, ReasonCode::PendingSignature);
        tokio::time::sleep(std::time::Duration::from_mins(61)).await;
        let late = ben().approve(&item, 8, now(&rig));
        assert_eq!(
            refused(engine, &late).await,
            ReasonCode::PendingSignature,
            "it is the first now"
        );
        tokio::time::sleep(std::time::Duration::from_mins(61)).await;
        pass(engine, &gone()).await
    })
    .await;
    assert_eq!(kept(&rig), 0);
    assert!(exists(&rig, "lxc/100"));
}

#[tokio::test(start_paused = true)]
async fn z08_a_rotation_takes_as_many_as_the_strictest_rule_and_lowers_what_it_says() {
    let rig = rig_with(TWO).await;
    let approvals = rig.approvals.clone().unwrap();
    let trust = approvals.authority.try_read().unwrap().trust().unwrap().clone();
    let signers = trust.signers().cloned().collect();
    let mut change = following(&rig, &trust, RotationAuthority::Planned, signers);
    change.approve = Some(ApprovalRules::default());
    live(&rig, async |engine| {
        let alone = envelope(&change, &[&anna()]);
        assert_eq!(refused(engine, &alone).await, ReasonCode::PendingSignature);
        let both = envelope(&change, &[&anna(), &ben()]);
        let rotated = engine.submit_approval(both.as_bytes()).await?;
        assert!(matches!(rotated, Submitted::Rotated(_)), "{rotated:?}");
        Ok(())
    })
    .await;
    let rules = approvals.authority.try_read().unwrap().rules();
    let file: ApprovalRules = serde_json::from_str(TWO).unwrap();
    assert_eq!(rules, file, "root's file still says two; taken out of it, one will do");
}
