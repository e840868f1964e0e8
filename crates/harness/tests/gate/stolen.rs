//! An operational key is stolen. Whatever its thief does to a host, and in whatever combination, the recovery key takes
//! the host back by one envelope, made by somebody who knows nothing but root's trust file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use evenkeel_agent::authority::Authority;
use evenkeel_agent::engine::{Engine, OpOutcome, Submitted};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{
    self, ClockChange, PLANNED_LINKS_MAX, PendingItem, Role, Rotation, Signer, TrustVersion,
    TrustedSigners, Validity,
};
use evenkeel_harness::{Operator, Rig};
use tokio::sync::RwLock;

use crate::support::*;

const DAY: u64 = 86_400;

/// Items that may wait, and acts that may begin in a day, on these hosts.
const FEW: u64 = 2;

fn mallory() -> Operator {
    Operator::new("mallory", 66)
}

fn carol() -> Operator {
    Operator::new("carol", 4)
}

/// What a thief did.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "every combination of them is tried")]
struct Theft {
    keys_removed: bool,
    clock_moved: bool,
    pending_filled: bool,
    budget_spent: bool,
    chain_advanced: usize,
}

impl Theft {
    /// Every combination, with so many rotations where the chain is advanced.
    fn all(rotations: usize) -> impl Iterator<Item = Self> {
        (0..32_u32).map(move |bits| Self {
            keys_removed: bits & 1 > 0,
            clock_moved: bits & 2 > 0,
            pending_filled: bits & 4 > 0,
            budget_spent: bits & 8 > 0,
            chain_advanced: if bits & 16 > 0 { rotations } else { 0 },
        })
    }
}

/// The recovery key is replaced every year.
fn dated_vault(rig: &Rig) -> Signer {
    let validity = Validity { from: now(rig).minus(DAY), until: now(rig).plus(360 * DAY) };
    Signer { validity, ..vault().signer(Role::Recovery) }
}

/// A host whose recovery key is dated, its first list, and that key.
async fn host() -> (Rig, TrustedSigners, Signer) {
    let rig = rig().await;
    let vault = dated_vault(&rig);
    let mut rig = rig.judged_by(vec![anna().signer(Role::Operational), vault.clone()]);
    let policy = &mut rig.approvals.as_mut().unwrap().policy;
    (policy.pending_items, policy.destructive_per_day) = (FEW, FEW);
    let first = current(&rig).await;
    (rig, first, vault)
}

async fn current(rig: &Rig) -> TrustedSigners {
    rig.approvals.as_ref().unwrap().authority.read().await.trust().unwrap().clone()
}

/// Carol beside anna, made for this list, with room for every rotation a thief can make.
fn recovery(rig: &Rig, known: &TrustedSigners, vault_key: Signer) -> String {
    let signers =
        vec![anna().signer(Role::Operational), carol().signer(Role::Operational), vault_key];
    let version = TrustVersion(known.version().0 + PLANNED_LINKS_MAX as u64 + 1);
    let change = following(rig, known, sign::RotationAuthority::Recovery, signers);
    envelope(&Rotation { version, ..change }, &[&vault(), &carol()])
}

async fn destroy_item(engine: &mut Engine, guest: &str) -> PendingItem {
    let guest: GuestId = guest.parse().unwrap();
    let asked = engine.request(ActionKind::Destroy, guest, BTreeMap::new()).await;
    let id = asked.unwrap();
    engine.pending().await.unwrap().remove(&id).unwrap().0
}

/// Does what a theft is made of, with anna's key and then with the thief's own.
async fn steal(rig: &Rig, engine: &mut Engine, theft: Theft, vault_key: &Signer) {
    let planned = sign::RotationAuthority::Planned;
    if theft.budget_spent {
        for (nonce, guest) in (20..).zip(["lxc/102", "qemu/103"]) {
            let item = destroy_item(engine, guest).await;
            let approval = anna().approve(&item, nonce, now(rig));
            carried_out(engine, &approval).await;
        }
    }
    if theft.pending_filled {
        for guest in ["lxc/100", "qemu/101"] {
            destroy_item(engine, guest).await;
        }
        assert_eq!(engine.pending().await.unwrap().len() as u64, FEW);
    }
    let mut by = anna();
    let rotations = theft.chain_advanced.max(usize::from(theft.keys_removed));
    for number in 0..rotations {
        let next = if theft.keys_removed { mallory() } else { anna() };
        let trust = current(rig).await;
        let signers = vec![next.signer(Role::Operational), vault_key.clone()];
        let change = Rotation {
            reason: format!("number {number}"),
            ..following(rig, &trust, planned, signers)
        };
        let new = (next.key != by.key).then_some(&next);
        let signed: Vec<&Operator> = std::iter::once(&by).chain(new).collect();
        let paper = envelope(&change, &signed);
        let rotated = engine.submit_approval(paper.as_bytes()).await.unwrap();
        assert!(matches!(rotated, Submitted::Rotated(_)), "{rotated:?}");
        by = next;
    }
    if theft.clock_moved {
        let trust = current(rig).await;
        let signers: Vec<Signer> = trust.signers().cloned().collect();
        let ahead = ClockChange::Set { from: now(rig), to: now(rig).plus(20 * 365 * DAY) };
        let change = Rotation { clock: ahead, ..following(rig, &trust, planned, signers) };
        let paper = envelope(&change, &[&by]);
        assert_eq!(refused(engine, &paper).await, ReasonCode::RoleDenied);
    }
}

/// The same rig after a restart: who may sign is read from the first list and the journal.
async fn restarted(rig: Rig, first: TrustedSigners) -> Rig {
    let found = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&found);
    let read = rig.live(async |engine| {
        engine
            .keep_due(move |state| {
                let read = Authority::on(first, "trust.toml".to_owned(), Rig::host(), state);
                *slot.lock().unwrap() = Some(read.unwrap());
                Vec::new()
            })
            .await
    });
    read.await.unwrap().unwrap();
    let mut approvals = rig.approvals.clone().unwrap();
    approvals.authority = Arc::new(RwLock::new(found.lock().unwrap().take().unwrap()));
    Rig { approvals: Some(approvals), ..rig }
}

async fn taken_back(theft: Theft) {
    let (rig, first, vault_key) = host().await;
    // Signed before the theft is known in full, or even done.
    let paper = recovery(&rig, &first, vault_key.clone());
    let outstanding = rig.live(async |engine| {
        steal(&rig, engine, theft, &vault_key).await;
        let item = if theft.pending_filled {
            engine.pending().await?.into_values().next().unwrap().0
        } else {
            destroy_item(engine, "lxc/100").await
        };
        let mut statement = evenkeel_harness::statement(&item, 30, now(&rig));
        statement.trust_version = current(&rig).await.version();
        let thief = if theft.keys_removed { mallory() } else { anna() };
        let rotated = engine.submit_approval(paper.as_bytes()).await?;
        assert_eq!(rotated, Submitted::Rotated(TrustVersion(258)), "{theft:?}");
        Ok(thief.sign(&statement))
    });
    let outstanding = outstanding.await.unwrap().unwrap();
    let rig = restarted(rig, first).await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        let reason = refused(engine, &outstanding).await;
        let voids = [ReasonCode::KeyRevoked, ReasonCode::TrustVersion];
        assert!(voids.contains(&reason), "{theft:?}: {reason}");
        refused(engine, &paper).await;
        assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
        // The thief's items make room, and carol works on; only root's budget holds her, for a day.
        pass(engine, &absent).await?;
        let item = item(engine).await;
        assert_eq!(item.trust_version, TrustVersion(258));
        let approval = carol().approve(&item, 31, now(&rig));
        let end = carried_out(engine, &approval).await.end;
        if theft.budget_spent {
            assert_eq!(end.reason(), Some(ReasonCode::Budget), "{theft:?}: {end:?}");
        } else {
            assert_eq!(end, OpOutcome::Succeeded { warning: None }, "{theft:?}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn x05_t18_recovery_takes_a_host_back_from_every_state_a_stolen_key_can_make() {
    for theft in Theft::all(3) {
        Box::pin(taken_back(theft)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn x05_t18_recovery_gets_past_the_longest_chain_and_everything_else_together() {
    let theft = Theft {
        keys_removed: true,
        clock_moved: true,
        pending_filled: true,
        budget_spent: true,
        chain_advanced: PLANNED_LINKS_MAX,
    };
    Box::pin(taken_back(theft)).await;
}

/// Both are on their way for the same version; whichever comes first, the recovery is in force in the end.
#[tokio::test(start_paused = true)]
async fn t19_of_a_planned_rotation_and_a_recovery_that_race_the_recovery_wins() {
    for recovery_first in [false, true] {
        let (rig, first, vault_key) = host().await;
        let signers = vec![mallory().signer(Role::Operational), vault_key.clone()];
        let plan = following(&rig, &first, sign::RotationAuthority::Planned, signers);
        let plan = envelope(&plan, &[&anna(), &mallory()]);
        let recovery = recovery(&rig, &first, vault_key);
        live(&rig, async |engine| {
            if recovery_first {
                let rotated = engine.submit_approval(recovery.as_bytes()).await?;
                assert_eq!(rotated, Submitted::Rotated(TrustVersion(258)));
                assert_eq!(refused(engine, &plan).await, ReasonCode::TrustVersion);
            } else {
                let rotated = engine.submit_approval(plan.as_bytes()).await?;
                assert_eq!(rotated, Submitted::Rotated(TrustVersion(2)));
                let rotated = engine.submit_approval(recovery.as_bytes()).await?;
                assert_eq!(rotated, Submitted::Rotated(TrustVersion(258)));
            }
            Ok(())
        })
        .await;
        let rig = restarted(rig, first).await;
        let names: Vec<String> =
            current(&rig).await.signers().map(|signer| signer.name.to_string()).collect();
        assert!(!names.contains(&"mallory".to_owned()), "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn x14_a_recovery_is_taken_on_a_nearly_full_disk_and_nothing_else_begins() {
    for free in [0, 1 << 20] {
        let (rig, first, vault_key) = host().await;
        let planned = following(
            &rig,
            &first,
            sign::RotationAuthority::Planned,
            vec![mallory().signer(Role::Operational), vault_key.clone()],
        );
        let planned = envelope(&planned, &[&anna(), &mallory()]);
        let paper = recovery(&rig, &first, vault_key);
        live(&rig, async |engine| {
            let approval = anna().approve(&destroy_item(engine, "lxc/100").await, 7, now(&rig));
            rig.disk.limit_space(Some(free));
            assert_eq!(refused(engine, &planned).await, ReasonCode::Storage);
            let end = carried_out(engine, &approval).await.end;
            assert!(matches!(end, OpOutcome::Failed { .. }), "{end:?}");
            let rotated = engine.submit_approval(paper.as_bytes()).await?;
            assert_eq!(rotated, Submitted::Rotated(TrustVersion(258)), "{free} bytes were free");
            Ok(())
        })
        .await;
        assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
        let disk = rig.disk.after_crash(0, 0);
        let rig = restarted(Rig { disk, ..rig }, first).await;
        assert_eq!(current(&rig).await.version(), TrustVersion(258));
    }
}
