//! `campaign --seeds A..B --steps N`: runs every seed from A up to, not including, B. With `--first` it ends at the
//! first seed that breaks something, with `--story` it prints what happened, with `--traces` two numbers a seed that stay
//! the same while the agent's behaviour does, with `--situations` how often each named situation was reached. A thousand
//! seeds or more must have been in every situation of `situations.txt`. `--threads N` takes so many seeds at once, else as many as there are cores; a
//! seed is the same on every thread. Exit code 1 if anything was broken.
#![expect(clippy::print_stdout, reason = "this is a program that reports")]

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Scope, available_parallelism};
use std::time::Instant;

use evenkeel_harness::{ReachedSituations, RunOutcome, SEEDS_THAT_REACH_ALL, run_told};

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
    let cores = available_parallelism().map_or(1, Into::into);
    let threads = after("--threads").and_then(|threads| threads.parse().ok()).unwrap_or(cores);
    // How many seeds it took to find something is counted one by one.
    let threads = if only_first { 1 } else { threads.max(1) };
    println!("seeds {from}..{to} of {steps} steps");
    let began = Instant::now();
    let mut writes = 0;
    let mut acts = 0;
    let mut lives = 0;
    let mut resolved = 0;
    let mut bad = 0;
    let mut linked = 0;
    let mut documents = 0;
    let mut put_back = 0;
    let mut reached = ReachedSituations::default();
    let next = AtomicU64::new(from);
    let found = std::thread::scope(|scope| {
        for outcome in outcomes(scope, &next, (from..to, threads), (steps, told)) {
            let seed = outcome.seed;
            outcome.story.iter().for_each(|line| println!("{line}"));
            if traced {
                let (requests, lines) = outcome.trace;
                println!("{seed} {requests:016x} {lines:016x}");
            }
            writes += outcome.writes;
            acts += outcome.acts;
            lives += outcome.lives;
            resolved += outcome.resolved;
            linked += u64::from(outcome.documents > 0);
            documents += outcome.documents;
            put_back += outcome.put_back;
            reached.add(outcome.reached);
            if let Some(first) = outcome.broken.first() {
                bad += 1;
                println!("seed {seed}: {first}");
                if only_first {
                    return Some(seed - from + 1);
                }
            }
        }
        None
    });
    if let Some(after) = found {
        println!("found after {after} seeds");
        return ExitCode::FAILURE;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} seeds of {steps} steps: {bad} broken; {lives} lives, {writes} requests that change something, \
         {acts} signed acts, {resolved} operations closed by hand; {linked} hosts with a hub, {documents} documents taken, \
         {put_back} disks put back; {seconds:.1} s",
        to - from
    );
    if args.iter().any(|arg| arg == "--situations") {
        print!("{}", reached.render());
    }
    let is_whole = judge_situations(&reached, to - from);
    if bad == 0 && is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says which situations were not reached, and whether so many seeds should have been in all.
fn judge_situations(reached: &ReachedSituations, seeds: u64) -> bool {
    let never = reached.never_reached();
    println!("{} situations were never reached", never.len());
    let must_reach = seeds >= SEEDS_THAT_REACH_ALL;
    if must_reach {
        for name in &never {
            println!("never reached: {name}");
        }
    }
    let unknown = reached.not_in_table();
    for name in &unknown {
        println!("not in situations.txt: {name}");
    }
    unknown.is_empty() && (never.is_empty() || !must_reach)
}

/// Runs the seeds on some threads; the outcomes come as they are ready. Nobody begins a seed once nobody listens.
fn outcomes<'scope>(
    scope: &'scope Scope<'scope, '_>,
    next: &'scope AtomicU64,
    (seeds, threads): (Range<u64>, usize),
    (steps, told): (u64, bool),
) -> Receiver<RunOutcome> {
    // Handed over one by one, so that a thread does not run ahead of what is printed.
    let (done, outcomes) = sync_channel(0);
    for _ in 0..threads {
        let done = done.clone();
        let end = seeds.end;
        scope.spawn(move || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end || done.send(run_told(seed, steps, told)).is_err() {
                    return;
                }
            }
        });
    }
    outcomes
}
