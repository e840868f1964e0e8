//! Somebody else was faster: what they pushed meanwhile, for whoever is late and decides again. Nothing is merged for them.

use super::line_diff::{LineDiff, line_diff};
use super::words::host_path;
use crate::people::documents::stored;
use crate::people::hosts::find;
use crate::people::wire::DifferenceBody;
use crate::problem::Problem;
use crate::routes::Hub;

/// What somebody else pushed.
pub(super) struct Overtaken {
    pub(super) newest: i64,
    pub(super) by: String,
    pub(super) message: String,
    pub(super) difference: Vec<DifferenceBody>,
    pub(super) lines: LineDiff,
}

/// What was pushed since a generation was seen. `problem` is the refusal that says so.
pub(super) async fn overtaken(
    hub: &Hub,
    host: &str,
    seen: i64,
    problem: &Problem,
) -> Result<Overtaken, Problem> {
    let row = find(hub, host).await?;
    let before = stored(hub, host, seen).await?.map(|document| document.files);
    let newest = stored(hub, host, row.wanted).await?;
    let texts = newest.as_ref().map(|document| document.files.clone()).unwrap_or_default();
    let lines = line_diff(before.unwrap_or_default(), texts, None).await?;
    let difference = problem.difference.clone().unwrap_or_default();
    let newest = newest.map(|document| document.row);
    Ok(Overtaken {
        newest: row.wanted,
        by: newest.as_ref().map(|row| row.pushed_by.clone()).unwrap_or_default(),
        message: newest.map(|row| row.message).unwrap_or_default(),
        difference: serde_json::from_value(difference).unwrap_or_default(),
        lines: lines.with_more(format!(
            "{}/documents/{}?from={seen}&file=",
            host_path(host),
            row.wanted
        )),
    })
}
