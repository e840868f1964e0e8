//! Many points at once, and the table of what came of them.
//!
//! A point waits for a minute when an answer was lost, and hardly computes: many run beside each other.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::scene::Scene;

/// One place where something goes wrong.
pub(crate) struct Point {
    /// The row of the table it belongs to.
    pub(crate) row: String,
    /// What tells it from others of its row.
    pub(crate) name: String,
    pub(crate) run: Box<dyn FnOnce() -> Outcome + Send>,
}

/// What came of a point.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How often the process was killed or refused a call. None if the run never came to that place.
    pub(crate) strikes: u32,
    pub(crate) restarts: u32,
    pub(crate) violations: Vec<String>,
    /// What was struck, and how it ended.
    pub(crate) end: Option<(&'static str, &'static str)>,
}

impl Outcome {
    pub(crate) fn of(mut scene: Scene, strikes: u32) -> Self {
        let restarts = scene.restarts;
        let violations = scene.violations();
        Self { strikes, restarts, violations, end: None }
    }
}

/// The sums of a row.
#[derive(Debug, Default)]
struct Sums {
    points: u32,
    reached: u32,
    strikes: u32,
    restarts: u32,
    violations: u32,
    longest: Duration,
}

/// What came of all points.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<String, Sums>,
    /// How what was struck ended, where a point tells.
    ends: BTreeMap<&'static str, BTreeMap<&'static str, u32>>,
    /// Each with the point it belongs to.
    pub(crate) violations: Vec<String>,
    took: Duration,
}

/// Runs all points, so many at once.
pub(crate) fn run(points: Vec<Point>, parallel: usize) -> Table {
    let begun = Instant::now();
    let waiting = Mutex::new(VecDeque::from(points));
    let table = Mutex::new(Table::default());
    std::thread::scope(|scope| {
        for _ in 0..parallel {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop_front();
                    let Some(Point { row, name, run }) = next else { break };
                    let begun = Instant::now();
                    let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Outcome {
                        violations: vec!["the point itself failed; see above".to_owned()],
                        ..Outcome::default()
                    });
                    table.lock().unwrap().add(&row, &name, &outcome, begun.elapsed());
                }
            });
        }
    });
    let mut table = table.into_inner().unwrap();
    table.took = begun.elapsed();
    table
}

impl Table {
    fn add(&mut self, row: &str, name: &str, outcome: &Outcome, took: Duration) {
        let Outcome { strikes, restarts, violations, end } = outcome;
        if let Some((what, how)) = end {
            *self.ends.entry(what).or_default().entry(how).or_default() += 1;
        }
        let sums = self.rows.entry(row.to_owned()).or_default();
        sums.points += 1;
        sums.reached += u32::from(*strikes > 0);
        sums.strikes += strikes;
        sums.restarts += restarts;
        sums.violations += u32::from(!violations.is_empty());
        sums.longest = sums.longest.max(took);
        for violation in violations {
            let told = format!("{row}, {name}: {violation}");
            eprintln!("VIOLATION {told}");
            self.violations.push(told);
        }
    }

    /// How many points the runs never came to.
    pub(crate) fn unreached(&self) -> u32 {
        self.rows.values().map(|sums| sums.points - sums.reached).sum()
    }

    /// The table as it is printed.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        let mut line = |row: &str, cells: [String; 6]| {
            let [points, reached, strikes, restarts, violations, longest] = cells;
            writeln!(
                text,
                "{row:<64} {points:>7} {reached:>8} {strikes:>8} {restarts:>9} {violations:>11} {longest:>8}"
            )
            .unwrap();
        };
        let titles = ["points", "reached", "strikes", "restarts", "violations", "longest"];
        line("", titles.map(ToOwned::to_owned));
        let mut all = Sums::default();
        for (row, sums) in &self.rows {
            line(row, cells(sums));
            all.points += sums.points;
            all.reached += sums.reached;
            all.strikes += sums.strikes;
            all.restarts += sums.restarts;
            all.violations += sums.violations;
            all.longest = all.longest.max(sums.longest);
        }
        line("all", cells(&all));
        for (what, ends) in &self.ends {
            let told: Vec<String> =
                ends.iter().map(|(how, count)| format!("{count} {how}")).collect();
            writeln!(text, "{what}: {}", told.join(", ")).unwrap();
        }
        writeln!(text, "took {} s", self.took.as_secs()).unwrap();
        text
    }
}

fn cells(sums: &Sums) -> [String; 6] {
    let Sums { points, reached, strikes, restarts, violations, longest } = sums;
    let longest = longest.as_secs();
    [
        points.to_string(),
        reached.to_string(),
        strikes.to_string(),
        restarts.to_string(),
        violations.to_string(),
        format!("{longest} s"),
    ]
}
