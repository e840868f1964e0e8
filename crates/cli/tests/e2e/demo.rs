//! `evenkeel demo`: it checks itself while it tells, so a whole story is a test of the whole program.

use std::time::{Duration, Instant};

use crate::keys::Operator;
use crate::support::{Desk, Run};

/// Far more than a busy machine needs: it takes 25 s on an idle one.
const TOLD_WITHIN: Duration = Duration::from_mins(10);

/// Runs the demo with a directory for temporary files of its own, and checks that nothing is left of it.
fn told(desk: &Desk, path: &str) -> Run {
    let temporary = desk.work.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = desk.command("demo");
    command.arg("--headless").env("TMPDIR", &temporary).env("PATH", path);
    let begun = Instant::now();
    let run = desk.finish(command).ends_with(0);
    assert!(begun.elapsed() < TOLD_WITHIN, "it took {:?}", begun.elapsed());
    assert!(desk.names("tmp").is_empty(), "left behind: {:?}", desk.names("tmp"));
    assert_eq!(desk.names("").len(), 1, "the home directory is not touched: {:?}", desk.names(""));
    assert_eq!(run.stderr, "");
    run
}

#[track_caller]
fn has_in_order(run: &Run, parts: &[&str]) {
    let mut rest = run.stdout.as_str();
    for part in parts {
        let found = rest.split_once(part);
        let (_, after) = found.unwrap_or_else(|| panic!("no `{part}` from here on:\n{rest}"));
        rest = after;
    }
}

#[test]
fn the_demo_tells_its_story_and_ends_by_itself() {
    let run = told(&Desk::new(), "/usr/bin:/bin");
    has_in_order(
        &run,
        &[
            "$ evenkeel import",
            "nothing to run; 6 guests as declared",
            "cores 8 -> 2, tags oops",
            "nothing to run; 6 guests as declared",
            "$ kill -9 ",
            "task_running",
            "an earlier operation is done",
            "POST   /nodes/pve1/qemu/202/status/start\n\n  ✓ one operation, one task, one POST",
            "2 items wait for a signature",
            "error: envelope: ",
            "error: unknown_signer: ",
            "error: role_denied: ",
            "error: sig_invalid: ",
            "✓ four refusals",
            "destroy of lxc/190: done (op_",
            "replay: it was executed before, by op_",
            "DELETE /nodes/pve1/lxc/190\n\n  ✓ lxc/190 is gone, destroyed once",
            "$ evenkeel submit approval-shop.json",
            "✓ an approval is for a guest, not for a number",
            "final_backup = \"store\"",
            "destroy of lxc/120: done (op_",
            "POST   /nodes/pve1/lxc/120/status/stop\n  POST   /nodes/pve1/vzdump\n  DELETE /nodes/pve1/lxc/120",
            "✓ saved first, then destroyed",
            "source = { backup = \"store:backup/vzdump-lxc-120-",
            "✓ the wiki is back, restored once",
            "the journal is whole",
            "✓ qemu/202 was started once; guests destroyed: 2",
            "Where to go next",
        ],
    );
    assert_eq!(run.stdout.matches("press Enter").count(), 0, "nobody is asked");
}

#[test]
fn without_ssh_keygen_the_demo_says_so_and_tells_the_rest() {
    let run = told(&Desk::new(), "/nonexistent");
    has_in_order(
        &run,
        &[
            "✓ one operation, one task, one POST",
            "2 items wait",
            "SKIPPED: ssh-keygen",
            "destroyed: 0",
        ],
    );
    assert!(!run.stdout.contains("DELETE"), "{}", run.stdout);
}

#[test]
fn on_a_terminal_the_demo_waits_for_its_reader_and_ends_at_ctrl_c() {
    let first = Operator::without_pin().on_a_terminal("demo").shows("press Enter ");
    let second = first.types("").shows("1. Your guests").shows("press Enter ");
    // The code is that of the shell in between, which the key ends as well.
    let (_, seen) = second.types("\x03").ends();
    assert!(seen.contains("nothing to run") && seen.contains("interrupted"), "{seen}");
}
