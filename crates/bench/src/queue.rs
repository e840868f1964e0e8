//! What a lane costs: submitting an operation and hearing of its end, beside a bare task with a oneshot.

use std::sync::Arc;

use evenkeel_agent::queue::{JobEvent, LaneWork, Queue};
use evenkeel_core::model::id::{OperationId, VmId};
use evenkeel_core::operate::lane::{Job, LaneOutcome, LaneTable};
use evenkeel_core::operate::operation::UnixSeconds;
use futures_util::FutureExt as _;
use tokio::sync::oneshot;

use crate::BenchRow;
use crate::measure::by_turns;

/// Guests at work at a time.
const IN_FLIGHT: u32 = 64;
/// Batches of a run.
const BATCHES: u32 = 200;
/// Runs; the median counts.
const RUNS: usize = 15;

pub(crate) fn run() -> Vec<BenchRow> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without drivers can be built");
    let operations = f64::from(IN_FLIGHT) * f64::from(BATCHES);
    let (lanes, bare) =
        by_turns(RUNS, || runtime.block_on(through_lanes()), || runtime.block_on(bare_tasks()));
    vec![BenchRow::new("queue, 64 in flight", "ns/op", lanes / operations, bare / operations)]
}

async fn through_lanes() {
    let mut queue: Queue<u32> = Queue::new(LaneTable::default(), Arc::new(|| UnixSeconds(1)));
    for batch in 0..BATCHES {
        for guest in 0..IN_FLIGHT {
            let vmid = VmId::try_from(100 + guest).expect("a small number is a guest's");
            let op = OperationId::from_parts(u64::from(batch), u128::from(guest));
            let job = Job { op, target: vmid, source: None, storage: None };
            let work: LaneWork<u32> =
                Box::new(move |_| async move { (LaneOutcome::Succeeded, batch) }.boxed());
            queue.submit(vmid, vec![(job, work)]).expect("every lane is free");
        }
        while let Some(event) = queue.next().await.expect("no bug") {
            assert!(matches!(event, JobEvent::Ended { .. }), "every operation ends");
        }
    }
}

async fn bare_tasks() {
    for batch in 0..BATCHES {
        let answers: Vec<_> = (0..IN_FLIGHT)
            .map(|_| {
                let (answer, answered) = oneshot::channel();
                tokio::spawn(async move { answer.send(std::hint::black_box(batch)) });
                answered
            })
            .collect();
        for answered in answers {
            answered.await.expect("the task answers");
        }
    }
}
