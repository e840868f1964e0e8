//! The campaign in small: every run of it must be clean, and replayable.

use evenkeel_harness::{Outcome, run};

fn clean(seeds: std::ops::Range<u64>) {
    let broken: Vec<Outcome> =
        seeds.map(|seed| run(seed, 120)).filter(|outcome| !outcome.broken.is_empty()).collect();
    let told: Vec<_> = broken.iter().map(|outcome| (outcome.seed, &outcome.broken)).collect();
    assert!(told.is_empty(), "{told:#?}");
}

// In four parts, so that they run side by side.
#[test]
fn a_hundred_seeds_break_nothing_first_quarter() {
    clean(0..25);
}

#[test]
fn a_hundred_seeds_break_nothing_second_quarter() {
    clean(25..50);
}

#[test]
fn a_hundred_seeds_break_nothing_third_quarter() {
    clean(50..75);
}

#[test]
fn a_hundred_seeds_break_nothing_fourth_quarter() {
    clean(75..100);
}

#[test]
fn the_same_seed_makes_the_same_run() {
    for seed in [1, 2, 3] {
        let (one, other) = (run(seed, 100), run(seed, 100));
        assert_eq!((one.trace, one.writes, one.lives), (other.trace, other.writes, other.lives));
        assert_ne!(one.trace, run(seed + 1_000, 100).trace);
    }
}
