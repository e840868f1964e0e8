//! `campaign --seeds A..B --steps N`: runs every seed from A up to, not including, B. With `--first` it ends at the
//! first seed that breaks something, with `--story` it prints what happened, with `--traces` two numbers a seed that stay
//! the same while the agent's behaviour does. Exit code 1 if anything was broken.
#![expect(clippy::print_stdout, reason = "this is a program that reports")]

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    // The last one counts, so that a script's own options can be overruled.
    let after =
        |name: &str| args.iter().rposition(|arg| arg == name).and_then(|at| args.get(at + 1));
    let seeds = after("--seeds").map_or("0..100", String::as_str);
    let Some((Ok(from), Ok(to))) =
        seeds.split_once("..").map(|(from, to)| (from.parse(), to.parse()))
    else {
        println!("--seeds takes A..B, two numbers");
        return ExitCode::from(64);
    };
    let steps: u64 = after("--steps").and_then(|steps| steps.parse().ok()).unwrap_or(1_000);
    let only_first = args.iter().any(|arg| arg == "--first");
    let told = args.iter().any(|arg| arg == "--story");
    let traced = args.iter().any(|arg| arg == "--traces");
    println!("seeds {from}..{to} of {steps} steps");
    let began = Instant::now();
    let (mut writes, mut acts, mut lives, mut resolved, mut bad) = (0, 0, 0, 0, 0);
    for seed in from..to {
        let outcome = evenkeel_harness::run_told(seed, steps, told);
        outcome.story.iter().for_each(|line| println!("{line}"));
        if traced {
            let (requests, lines) = outcome.trace;
            println!("{seed} {requests:016x} {lines:016x}");
        }
        writes += outcome.writes;
        acts += outcome.acts;
        lives += outcome.lives;
        resolved += outcome.resolved;
        if let Some(first) = outcome.broken.first() {
            bad += 1;
            println!("seed {seed}: {first}");
            if only_first {
                println!("found after {} seeds", seed - from + 1);
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} seeds of {steps} steps: {bad} broken; {lives} lives, {writes} requests that change something, \
         {acts} signed acts, {resolved} operations closed by hand; {seconds:.1} s",
        to - from
    );
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
