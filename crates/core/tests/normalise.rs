//! Every value a real Proxmox VE was seen to store, against the comparison.
//!
//! A vector says: this was declared, that was read back, and are they the same? Further files of the
//! same form are read from `EVENKEEL_VECTORS` (paths joined by colons).
#![expect(clippy::disallowed_methods, reason = "a test reads its own vectors")]
#![expect(clippy::unwrap_used, reason = "a vector that cannot be read shall stop the test")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use evenkeel_core::model::id::{GuestKind, VmId};
use evenkeel_core::registry;
use evenkeel_core::value::compare::{Conventions, Difference, difference};
use evenkeel_core::value::read;

/// One line of a vector file. Fields that only tell a reader how the answer came about are ignored.
#[derive(serde::Deserialize)]
struct Vector {
    kind: GuestKind,
    key: String,
    #[serde(default)]
    op: Op,
    written: String,
    read: Option<String>,
    equal: bool,
    #[serde(default)]
    datacenter_cfg: String,
}

#[derive(serde::Deserialize, Default, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Op {
    Put,
    Delete,
    #[default]
    Compare,
}

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    unsupported: usize,
    report: String,
}

#[test]
fn stored_values_equal_what_was_declared() {
    let mut files: Vec<PathBuf> = ["lxc", "qemu"]
        .map(|kind| {
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/vectors/{kind}.jsonl"))
        })
        .into();
    if let Some(more) = std::env::var_os("EVENKEEL_VECTORS") {
        files.extend(std::env::split_paths(&more).filter(|path| !path.as_os_str().is_empty()));
    }
    let mut count = Count::default();
    for file in &files {
        let text = std::fs::read_to_string(file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let vector: Vector = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{}:{}: {error}", file.display(), number + 1));
            judge(&vector, &format!("{}:{}", file.display(), number + 1), &mut count);
        }
    }
    // Written past the test harness's capture, so that the counts are seen on success too.
    let Count { passed, failed, unsupported, .. } = &count;
    writeln!(
        std::io::stdout(),
        "vectors: {passed} passed, {failed} failed, {unsupported} unsupported"
    )
    .unwrap();
    assert!(count.failed == 0, "{}", count.report);
    assert!(count.passed >= 316, "the vectors of both kinds are not all there");
}

/// The numbers the vectors were made with.
fn vmid(kind: GuestKind) -> VmId {
    VmId::try_from(match kind {
        GuestKind::Lxc => 100,
        GuestKind::Qemu => 200,
    })
    .unwrap()
}

fn judge(vector: &Vector, place: &str, count: &mut Count) {
    let Some(found) = registry::find(vector.kind, &vector.key) else {
        // A key nobody knows: asking for its absence is right when it is absent.
        let absent = vector.op == Op::Delete && vector.read.is_none();
        *(if absent { &mut count.passed } else { &mut count.unsupported }) += 1;
        return;
    };
    let key = found.key();
    let have = vector.read.as_deref().filter(|text| !text.is_empty());
    let have = have.map(|text| read::stored(&key.format, text));
    let wants_nothing =
        vector.op == Op::Delete || (vector.op == Op::Compare && vector.written.is_empty());
    let want = if wants_nothing {
        Ok(None)
    } else {
        read::declared(&key.format, &vector.written).map(Some)
    };
    let conventions = Conventions {
        tags_have_case: vector.datacenter_cfg.contains("case-sensitive=1"),
        ..Conventions::default()
    };
    let equal = want.is_ok_and(|want| {
        difference(key, vmid(vector.kind), want.as_ref(), have.as_ref(), conventions)
            == Difference::Same
    });
    if equal == vector.equal {
        count.passed += 1;
    } else {
        count.failed += 1;
        let Vector { kind, key, written, read, equal: expected, .. } = vector;
        writeln!(
            count.report,
            "{place}: {kind} {key} declared {written:?}, read {read:?}: expected equal = {expected}"
        )
        .unwrap();
    }
}
