//! The benches of evenkeel, by name; `./bench` at the root calls it.
//!
//! Each bench measures its floor in the same run, interleaved with what it measures, so that a busy or slow
//! machine moves both. It prints a table for people and writes rows for machines; it judges nothing.
#![expect(clippy::print_stdout, reason = "the table is the output")]

mod console;
mod create;
mod fleet;
mod gate;
mod hub;
mod hung_hub;
mod journal;
mod measure;
mod node;
mod observe;
mod plan;
mod plan_one;
mod queue;
mod repair;
mod server;
mod verify;

use std::process::ExitCode;

use serde::Serialize;

/// One figure.
#[derive(Debug, Serialize)]
struct BenchRow {
    /// What was measured.
    name: String,
    /// The median.
    value: f64,
    /// The unit of `value` and `floor`.
    unit: &'static str,
    /// The median of the least that could be done, from the same run.
    floor: f64,
    /// `value / floor`.
    ratio: f64,
}

impl BenchRow {
    fn new(name: impl Into<String>, unit: &'static str, value: f64, floor: f64) -> Self {
        Self { name: name.into(), value, unit, floor, ratio: value / floor }
    }
}

/// Measures, and tells the figures.
type Bench = fn() -> Vec<BenchRow>;

/// The benches, in the order they run.
const BENCHES: &[(&str, Bench)] = &[
    ("plan", plan::run),
    ("plan-one", plan_one::run),
    ("observe", observe::run),
    ("node", node::run),
    ("repair", repair::run),
    ("journal", journal::run),
    ("queue", queue::run),
    ("verify", verify::run),
    ("gate", gate::run),
    ("hub", hub::run),
    ("console", console::run),
    ("create", create::run),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut names = Vec::new();
    let mut out = None;
    while let Some(argument) = arguments.next() {
        if argument == "--out" {
            out = arguments.next();
        } else {
            names.push(argument);
        }
    }
    let known: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        println!("there is no bench `{unknown}`; there are {}", known.join(", "));
        return ExitCode::from(64);
    }
    let chosen = BENCHES
        .iter()
        .filter(|(name, _)| names.is_empty() || names.iter().any(|other| other == name));
    let rows: Vec<BenchRow> = chosen.flat_map(|(_, run)| run()).collect();
    print_table(&rows);
    match out.map(|path| write_rows(&path, &rows)) {
        Some(Err(error)) => {
            println!("{error}");
            ExitCode::FAILURE
        }
        Some(Ok(())) | None => ExitCode::SUCCESS,
    }
}

fn print_table(rows: &[BenchRow]) {
    println!("{:<44} {:>12} {:>12} {:<10} {:>7}", "bench", "median", "floor", "unit", "ratio");
    for BenchRow { name, value, unit, floor, ratio } in rows {
        println!("{name:<44} {value:>12.2} {floor:>12.2} {unit:<10} {ratio:>7.2}");
    }
}

fn write_rows(path: &str, rows: &[BenchRow]) -> Result<(), String> {
    let text = serde_json::to_string_pretty(rows).map_err(|error| error.to_string())?;
    std::fs::write(path, format!("{text}\n"))
        .map_err(|error| format!("cannot write {path}: {error}"))
}
