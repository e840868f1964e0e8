//! A worker that its daemon lost, in the middle of what an operator signed: evidence ends it, nothing is sent again.

use evenkeel_agent::engine::OpOutcome;
use evenkeel_harness::script::fault;
use evenkeel_sim::{Effect, LostWorker};

use super::support::{ABSENT, approved, carried_out, desired, exists, live, pass, rig, writes};

#[tokio::test(start_paused = true)]
async fn y23_a_signed_destroy_whose_worker_is_lost_is_ended_by_evidence_and_never_sent_again() {
    for worker in
        [LostWorker::Unborn, LostWorker::Killed, LostWorker::Orphaned, LostWorker::Working]
    {
        let rig = rig().await;
        let declared = desired(ABSENT);
        fault(&rig, Effect::WorkerLost { worker }, "DELETE", "/lxc/100", 1);
        let report = live(&rig, async |engine| {
            let approval = approved(&rig, engine, &declared).await;
            let report = carried_out(engine, &approval).await;
            // Whoever looks again sends nothing either.
            tokio::time::sleep(std::time::Duration::from_mins(5)).await;
            pass(engine, &declared).await?;
            Ok(report)
        })
        .await;
        let deletes: Vec<String> =
            writes(&rig, "lxc/100").into_iter().filter(|sent| sent.starts_with("DELETE")).collect();
        assert_eq!(deletes.len(), 1, "{worker:?}: {deletes:?}");
        let is_done = matches!(report.end, OpOutcome::Succeeded { .. });
        assert_eq!(is_done, worker == LostWorker::Working, "{worker:?}: {:?}", report.end);
        assert_eq!(exists(&rig, "lxc/100"), !is_done, "{worker:?}");
        assert!(
            is_done || matches!(report.end, OpOutcome::Failed { .. }),
            "{worker:?}: {report:?}"
        );
    }
}

/// The stop before the act is a preparation: it is not sent again, the act is not sent, and the approval is spent.
#[tokio::test(start_paused = true)]
async fn y23_a_lost_worker_of_a_preparation_ends_the_destroy_before_its_act() {
    let rig = rig().await;
    let declared = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    let lost = Effect::WorkerLost { worker: LostWorker::Killed };
    fault(&rig, lost, "POST", "/lxc/102/status/stop", 1);
    let before = writes(&rig, "lxc/102").len();
    let report = live(&rig, async |engine| {
        let approval = approved(&rig, engine, &declared).await;
        Ok(carried_out(engine, &approval).await)
    })
    .await;
    assert!(matches!(report.end, OpOutcome::Failed { .. }), "{report:?}");
    assert_eq!(writes(&rig, "lxc/102")[before..], ["POST stop".to_owned()]);
    assert!(exists(&rig, "lxc/102"));
}
