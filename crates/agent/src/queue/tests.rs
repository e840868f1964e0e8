//! The lanes at work, on a paused clock: nothing sleeps, every order is the same each time.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::sleep;

use super::*;

type Log = Arc<Mutex<Vec<String>>>;

fn op(number: u64) -> OperationId {
    OperationId::from_parts(number, 0)
}

fn vmid(number: u32) -> VmId {
    VmId::try_from(number).unwrap()
}

fn job(number: u64, guest: u32) -> Job {
    Job { op: op(number), target: vmid(guest), source: None, storage: None }
}

fn queue() -> Queue<String> {
    Queue::new(LaneTable::default(), Arc::new(|| UnixSeconds(1)))
}

/// Work that takes a turn for `ms`, says when it began and ended, and ends so.
fn writes(log: &Log, number: u64, ms: u64, outcome: LaneOutcome) -> LaneWork<String> {
    let log = Arc::clone(log);
    Box::new(move |mut turn| {
        async move {
            let Some(permit) = turn.take().await else {
                log.lock().unwrap().push(format!("no {number}"));
                return ended(number, LaneOutcome::Failed);
            };
            log.lock().unwrap().push(format!("+{number}"));
            sleep(Duration::from_millis(ms)).await;
            log.lock().unwrap().push(format!("-{number}"));
            drop(permit);
            ended(number, outcome)
        }
        .boxed()
    })
}

/// How a job ends that tells so itself.
fn ended(number: u64, outcome: LaneOutcome) -> (LaneOutcome, String) {
    (outcome, format!("{number} {outcome:?}"))
}

async fn drain(queue: &mut Queue<String>) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(event) = queue.next().await.unwrap() {
        told.push(match event {
            JobEvent::Ended { result, .. } => result,
            JobEvent::Panicked { message, .. } => format!("panicked: {message}"),
            JobEvent::Skipped(skipped) => {
                format!("skipped {}", if skipped == op(2) { 2 } else { 3 })
            }
        });
    }
    told
}

#[tokio::test(start_paused = true)]
async fn one_guest_is_served_in_order_and_one_at_a_time() {
    let mut queue = queue();
    let log = Log::default();
    let jobs = [1, 2].map(|n| (job(n, 100), writes(&log, n, 10, LaneOutcome::Succeeded)));
    queue.submit(vmid(100), jobs.into()).unwrap();
    assert_eq!(queue.busy(vmid(100)).map(|busy| busy.op), Some(op(1)));
    assert_eq!(drain(&mut queue).await, ["1 Succeeded", "2 Succeeded"]);
    assert_eq!(*log.lock().unwrap(), ["+1", "-1", "+2", "-2"]);
    assert_eq!(queue.busy(vmid(100)), None);
}

#[tokio::test(start_paused = true)]
async fn guests_run_side_by_side_and_two_requests_at_most_are_under_way() {
    let mut queue = queue();
    let log = Log::default();
    for number in 1..=4_u32 {
        let number = u64::from(number);
        let work = writes(&log, number, 10 * number, LaneOutcome::Succeeded);
        let guest = 100 + u32::try_from(number).unwrap();
        queue.submit(vmid(guest), vec![(job(number, guest), work)]).unwrap();
    }
    assert_eq!(queue.running(), 4, "all lanes run, whoever may send");
    drain(&mut queue).await;
    let mut under_way = 0_i32;
    for entry in log.lock().unwrap().iter() {
        under_way += if entry.starts_with('+') { 1 } else { -1 };
        assert!((0..=2).contains(&under_way), "{log:?}");
    }
    assert_eq!(&log.lock().unwrap()[..3], ["+1", "+2", "-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_skips_the_rest_of_its_guest_and_nobody_elses() {
    let mut queue = queue();
    let log = Log::default();
    let first = (job(1, 100), writes(&log, 1, 10, LaneOutcome::Failed));
    let second = (job(2, 100), writes(&log, 2, 10, LaneOutcome::Succeeded));
    queue.submit(vmid(100), vec![first, second]).unwrap();
    let other = (job(4, 101), writes(&log, 4, 50, LaneOutcome::Succeeded));
    queue.submit(vmid(101), vec![other]).unwrap();
    assert_eq!(drain(&mut queue).await, ["1 Failed", "skipped 2", "4 Succeeded"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_one_operation_and_holds_one_lane() {
    let mut queue = queue();
    let log = Log::default();
    let bad: LaneWork<String> = Box::new(|mut turn| {
        async move {
            let _permit = turn.take().await;
            panic!("out of order");
        }
        .boxed()
    });
    queue.submit(vmid(100), vec![(job(1, 100), bad)]).unwrap();
    for number in [5, 6, 7] {
        let guest = u32::try_from(number).unwrap() + 100;
        let work = writes(&log, number, 10, LaneOutcome::Succeeded);
        queue.submit(vmid(guest), vec![(job(number, guest), work)]).unwrap();
    }
    let told = drain(&mut queue).await;
    assert_eq!(told[0], "panicked: out of order");
    assert_eq!(told.len(), 4, "the turn of the one that panicked came back: {told:?}");
    let again = (job(8, 100), writes(&log, 8, 10, LaneOutcome::Succeeded));
    let refused = queue.submit(vmid(100), vec![again]).unwrap_err().refusal().unwrap();
    assert!(matches!(refused, LaneRefusal::Busy(LaneBusy { op: held, .. }) if held == op(1)));
    queue.release(op(1)).unwrap();
    assert_eq!(queue.busy(vmid(100)), None);
}

#[tokio::test(start_paused = true)]
async fn going_down_awaits_what_was_sent_and_lets_nothing_else_begin() {
    let mut queue = queue();
    let log = Log::default();
    for (number, guest) in [(1, 100), (4, 101), (5, 102)] {
        let jobs = [number, 2 * number]
            .map(|n| (job(n, guest), writes(&log, n, 10, LaneOutcome::Succeeded)));
        queue.submit(vmid(guest), jobs.into()).unwrap();
    }
    // Two have their turn, the third waits for one.
    assert!(tokio::time::timeout(Duration::from_millis(5), queue.next()).await.is_err());
    queue.shut_down().unwrap();
    let told = drain(&mut queue).await;
    assert_eq!(told.iter().filter(|told| told.starts_with("skipped")).count(), 3, "{told:?}");
    assert_eq!(*log.lock().unwrap(), ["+1", "+4", "no 5", "-1", "-4"]);
    let late = (job(7, 103), writes(&log, 7, 10, LaneOutcome::Succeeded));
    let refused = queue.submit(vmid(103), vec![late]).unwrap_err().refusal();
    assert_eq!(refused, Ok(LaneRefusal::ShuttingDown));
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_with_a_shutdown_and_no_turn_comes_after_it() {
    let mut queue = queue();
    let work: LaneWork<String> = Box::new(|mut turn| {
        async move {
            let began = tokio::time::Instant::now();
            turn.pause(Duration::from_mins(1)).await;
            let seconds = began.elapsed().as_secs();
            let denied = turn.take().await.is_none();
            let outcome = if denied { LaneOutcome::Failed } else { LaneOutcome::Succeeded };
            ended(seconds, outcome)
        }
        .boxed()
    });
    queue.submit(vmid(100), vec![(job(1, 100), work)]).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(2), queue.next()).await.is_err());
    queue.shut_down().unwrap();
    assert_eq!(drain(&mut queue).await, ["2 Failed"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_queue_drops_what_runs_as_a_crash_would() {
    let mut queue = queue();
    let log = Log::default();
    let work = writes(&log, 1, 1_000, LaneOutcome::Succeeded);
    queue.submit(vmid(100), vec![(job(1, 100), work)]).unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(10), queue.next()).await;
    assert!(waited.is_err(), "it is still at work");
    drop(queue);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(*log.lock().unwrap(), ["+1"], "it began and never ended");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_queue_can_be_given_up_without_loss() {
    let mut queue = queue();
    let log = Log::default();
    let work = writes(&log, 1, 100, LaneOutcome::Succeeded);
    queue.submit(vmid(100), vec![(job(1, 100), work)]).unwrap();
    for _ in 0..5 {
        let _ = tokio::time::timeout(Duration::from_millis(10), queue.next()).await;
    }
    assert_eq!(drain(&mut queue).await, ["1 Succeeded"]);
}

/// What was read before a turn may serve only if nobody had to be waited for.
#[tokio::test(start_paused = true)]
async fn who_had_to_wait_for_a_turn_is_told_so() {
    let mut queue = queue();
    let log = Log::default();
    for number in 1..=3_u32 {
        let log = Arc::clone(&log);
        let work: LaneWork<String> = Box::new(move |mut turn| {
            async move {
                let permit = turn.take().await.expect("nothing shuts down");
                log.lock().unwrap().push(format!("{number} {}", permit.was_free()));
                sleep(Duration::from_millis(10)).await;
                drop(permit);
                ended(u64::from(number), LaneOutcome::Succeeded)
            }
            .boxed()
        });
        let guest = 100 + number;
        queue.submit(vmid(guest), vec![(job(u64::from(number), guest), work)]).unwrap();
    }
    drain(&mut queue).await;
    assert_eq!(*log.lock().unwrap(), ["1 true", "2 true", "3 false"]);
}
