//! `plan`: a pass over guests that are as declared, the state a fleet is in nearly always.
//!
//! The floor walks both sides' fields in order and compares the same values with `==`, and does nothing else.

use std::hint::black_box;

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::{Desired, WantedState};
use evenkeel_core::plan::{PlanContext, plan};

use crate::BenchRow;
use crate::fleet;
use crate::measure::by_turns;

pub(crate) fn run() -> Vec<BenchRow> {
    let sizes: [(u32, usize); 3] = [(1_000, 201), (10_000, 41), (100_000, 9)];
    let measured: Vec<(u32, f64, f64)> =
        sizes.into_iter().map(|(guests, repetitions)| per_guest(guests, repetitions)).collect();
    let mut rows: Vec<BenchRow> = measured
        .iter()
        .map(|(guests, value, floor)| {
            BenchRow::new(format!("plan/{guests} guests"), "ns/guest", *value, *floor)
        })
        .collect();
    // Linear: what a guest costs grows with the number of guests no more than in the bare loop, which only
    // pays for memory that no longer fits the caches.
    for (few, many) in measured.iter().zip(&measured[1..]) {
        let name = format!("plan/growth {} to {} guests", few.0, many.0);
        rows.push(BenchRow::new(name, "times", many.1 / few.1, many.2 / few.2));
    }
    rows
}

/// Nanoseconds a guest, of the planner and of the floor.
fn per_guest(guests: u32, repetitions: usize) -> (u32, f64, f64) {
    let (desired, actual) = fleet::as_declared(guests);
    let context = PlanContext::default();
    let planned = plan(&desired, &actual, &context);
    assert_eq!(planned.guests, [], "the fleet must be as declared");
    assert_eq!(planned.in_sync, desired.guests.len());
    let (value, floor) = by_turns(
        repetitions,
        || {
            black_box(plan(black_box(&desired), black_box(&actual), &context));
        },
        || {
            black_box(equal_fields(black_box(&desired), black_box(&actual)));
        },
    );
    (guests, value / f64::from(guests), floor / f64::from(guests))
}

/// The bare loop: how many declared values equal what is stored, field by field.
fn equal_fields(desired: &Desired, actual: &Snapshot) -> usize {
    let mut equal = 0;
    for (want, have) in desired.guests.values().zip(actual.guests.values()) {
        let (WantedState::Present(spec), Ok(config)) = (&want.state, &have.config) else {
            continue;
        };
        for (want, have) in spec.fields.iter().zip(&*config.fields) {
            let stored = have.current.as_ref().map(|reading| &reading.value);
            equal += usize::from(black_box(want.want.as_ref() == stored));
        }
    }
    equal
}
