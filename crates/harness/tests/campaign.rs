//! The campaign in small: every run of it must be clean, and replayable.

#![expect(clippy::print_stdout, reason = "which seeds a failed test has run is told by its output")]

use std::process::Command;

use evenkeel_harness::{RunOutcome, run};

/// So many seeds in each of the parts, which run side by side.
const SEEDS: u64 = 25;

/// Seeds that once broke something.
const REGRESSIONS: &str = include_str!("../seeds.txt");

fn clean(runs: impl Iterator<Item = (u64, u64)>) {
    let broken: Vec<RunOutcome> = runs
        .map(|(seed, steps)| run(seed, steps))
        .filter(|outcome| !outcome.broken.is_empty())
        .collect();
    let told: Vec<_> = broken.iter().map(|outcome| (outcome.seed, &outcome.broken)).collect();
    assert!(told.is_empty(), "{told:#?}");
}

/// Every commit looks at other seeds: those that follow the first digits of its hash. `EVENKEEL_FIRST_SEED` says others.
fn first_seed() -> u64 {
    if let Some(seed) = std::env::var("EVENKEEL_FIRST_SEED").ok().and_then(|s| s.parse().ok()) {
        return seed;
    }
    let asked = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let hash = asked.map(|asked| asked.stdout).unwrap_or_default();
    let digits = hash.get(..8).and_then(|digits| str::from_utf8(digits).ok()).unwrap_or("0");
    u64::from_str_radix(digits, 16).unwrap_or(0)
}

fn part(number: u64) {
    let first = first_seed() + number * SEEDS;
    println!("seeds {first}..{} of 120 steps", first + SEEDS);
    clean((first..first + SEEDS).map(|seed| (seed, 120)));
}

#[test]
fn a_hundred_fresh_seeds_break_nothing_first_quarter() {
    part(0);
}

#[test]
fn a_hundred_fresh_seeds_break_nothing_second_quarter() {
    part(1);
}

#[test]
fn a_hundred_fresh_seeds_break_nothing_third_quarter() {
    part(2);
}

#[test]
fn a_hundred_fresh_seeds_break_nothing_fourth_quarter() {
    part(3);
}

#[test]
fn no_seed_that_once_broke_something_breaks_anything_again() {
    let lines = REGRESSIONS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    clean(lines.map(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse().ok());
        match (words.next().flatten(), words.next().flatten()) {
            (Some(seed), Some(steps)) => (seed, steps),
            (_, _) => panic!("a line of seeds.txt begins with two numbers: {line}"),
        }
    }));
}

#[test]
fn the_same_seed_makes_the_same_run() {
    for seed in [1, 2, 3] {
        let one = run(seed, 100);
        let other = run(seed, 100);
        assert_eq!((one.trace, one.writes, one.lives), (other.trace, other.writes, other.lives));
        assert_ne!(one.trace, run(seed + 1_000, 100).trace);
    }
}
