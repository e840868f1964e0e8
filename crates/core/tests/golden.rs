//! Golden cases: each file under `cases/plan` is one behaviour of the planner.
//!
//! A case is a sentence, desired state, actual state and the plan. `EVENKEEL_BLESS=1` writes the plan
//! that came out into the file, to be reviewed as a diff. Every case is planned a second time, with all configurations
//! compared early, as a pass does that remembers them.
#![expect(clippy::disallowed_methods, reason = "a test reads its own cases")]

#[path = "support/early.rs"]
mod early;
mod support;

use std::path::Path;

use evenkeel_core::plan::plan;

datatest_stable::harness! {
    { test = planned_as_written, root = "tests/cases/plan", pattern = r"\.case$" },
}

fn planned_as_written(path: &Path) -> datatest_stable::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let case = Case::read(&text);
    let (snapshot, context) = support::actual(case.actual);
    let desired = support::desired(case.desired);
    let planned = plan(&desired, &snapshot, &context);
    if early::compared_early(&desired, &snapshot).plan(&snapshot, &context) != planned {
        return Err(format!("{}: comparing early makes another plan", path.display()).into());
    }
    let shown = support::shown(&planned);
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        let blessed = format!("{}\n--- plan\n{shown}", case.head.trim_end_matches('\n'));
        std::fs::write(path, blessed)?;
        return Ok(());
    }
    if shown != case.plan {
        return Err(
            format!("{}\nexpected:\n{}\nplanned:\n{shown}", path.display(), case.plan).into()
        );
    }
    Ok(())
}

/// The parts of a case file.
struct Case<'a> {
    head: &'a str,
    desired: &'a str,
    actual: &'a str,
    plan: &'a str,
}

impl<'a> Case<'a> {
    fn read(text: &'a str) -> Self {
        let (head, plan) = text.split_once("--- plan\n").expect("a case has a plan");
        let (sentence, rest) = head.split_once("--- desired\n").expect("a case has desired state");
        assert!(!sentence.trim().is_empty(), "a case begins with the sentence it stands for");
        let (desired, actual) = rest.split_once("--- actual\n").expect("a case has actual state");
        Self { head, desired, actual, plan }
    }
}
