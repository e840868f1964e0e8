//! A small ext4 of its own runs full: before the start, in the middle of the work, and before a restart.
//!
//! The reserve lets what is in flight be closed, nothing new is begun, that is said, and after somebody has made room
//! it goes on. Mounting needs root and a loop device.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::campaign::{Outcome, Point};
use crate::hook::Hook;
use crate::scene::{Applied, Scene};
use crate::trace::{self, Event};

/// Room for the reserve (4 MiB) twice, which a journal wants before it begins, and for ext4's own journal.
const IMAGE_MIB: u64 = 24;

/// The disk is filled when so many requests have left: enough is in flight, and much is not begun.
const SENT_WHEN_FULL: usize = 8;

/// The process is killed when so many operations are in flight; one may still end before it is dead. To close the
/// rest, more than a block of 1 KiB is written: what is left of the last one does not suffice.
const IN_FLIGHT: usize = 5;

/// How late the node takes a change, so that filling the disk falls into the middle of the work.
const LATENCY_MS: u32 = 500;

const ROW: &str = "a small ext4 is full";

/// Whether an image can be mounted, or what the system says.
pub(crate) fn can_mount() -> Result<(), String> {
    SmallDisk::mount().map(drop)
}

pub(crate) fn points() -> Vec<Point> {
    let point = |name: &str, run: fn() -> Outcome| Point {
        row: ROW.to_owned(),
        name: name.to_owned(),
        run: Box::new(run),
    };
    vec![
        point("before the start", full_before_the_start),
        point("in the middle", full_in_the_middle),
        point("before a restart", full_before_a_restart),
        point("to the last block before the start", no_block_left),
    ]
}

/// Nothing is begun, nothing is sent.
fn full_before_the_start() -> Outcome {
    let (mut scene, disk) = scene();
    // Enough for records, not enough for the reserve.
    disk.fill_but(5 << 20);
    let applied = scene.apply(&Hook::None);
    expect_told(&mut scene, &applied);
    if scene.oracle.sent_count() > 0 {
        scene.oracle.violation("something was sent".to_owned());
    }
    disk.make_room();
    scene.finish();
    outcome(scene, disk)
}

/// Not even a journal can be made.
fn no_block_left() -> Outcome {
    let (mut scene, disk) = scene();
    disk.fill();
    let applied = scene.apply(&Hook::None);
    for word in ["error: ", "No space left on device", "state", "hint: "] {
        if !applied.stderr.contains(word) {
            scene.oracle.violation(format!("it does not say {word:?}: {}", applied.stderr));
        }
    }
    if applied.code != Some(1) || scene.oracle.sent_count() > 0 {
        scene.oracle.violation(format!("it ends with {:?}", applied.code));
    }
    disk.make_room();
    scene.finish();
    outcome(scene, disk)
}

/// The disk runs full while operations are in flight: they are closed, and nothing new begins.
fn full_in_the_middle() -> Outcome {
    let (mut scene, disk) = scene_with_latency(LATENCY_MS);
    let mut sent_when_full = None;
    let applied = scene.apply_while(&Hook::None, |log| {
        let sent = sent(&trace::events(log));
        if sent >= SENT_WHEN_FULL && sent_when_full.is_none() {
            disk.fill();
            sent_when_full = Some(sent);
        }
    });
    expect_told(&mut scene, &applied);
    if sent_when_full.is_none() {
        scene.oracle.violation("the disk never ran full".to_owned());
    }
    let open = scene.oracle.open_count();
    if open > 0 {
        scene
            .oracle
            .violation(format!("{open} operations in flight were not closed: {}", applied.stderr));
    }
    disk.make_room();
    scene.finish();
    outcome(scene, disk)
}

/// Killed with operations in flight; full when it comes back. Recovery closes them with the reserve of the process
/// before, and begins nothing.
fn full_before_a_restart() -> Outcome {
    let (mut scene, disk) = scene();
    let killed = scene.apply(&Hook::KillInFlight { count: IN_FLIGHT });
    let before = scene.oracle.sent_count();
    let in_flight = scene.oracle.open_count();
    // On a busy machine some of them end before the signal comes.
    assert!(killed.code.is_none() && in_flight > 0, "{in_flight} operations are in flight");
    disk.fill();
    scene.restarts += 1;
    let applied = scene.apply(&Hook::None);
    expect_told(&mut scene, &applied);
    let open = scene.oracle.open_count();
    if open > 0 || scene.oracle.sent_count() > before {
        let told = format!("{open} operations are open after the recovery: {}", applied.stderr);
        scene.oracle.violation(told);
    }
    disk.make_room();
    scene.finish();
    outcome(scene, disk)
}

fn scene() -> (Scene, SmallDisk) {
    scene_with_latency(0)
}

fn scene_with_latency(latency_ms: u32) -> (Scene, SmallDisk) {
    let disk = SmallDisk::mount().unwrap();
    let mut scene = Scene::with_latency(latency_ms);
    scene.keep_state_in(disk.path().join("state"));
    (scene, disk)
}

/// The disk goes before the scene's directory is looked at by anybody else.
fn outcome(scene: Scene, disk: SmallDisk) -> Outcome {
    drop(disk);
    Outcome::of(scene, 1)
}

fn sent(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Sent { .. })).count()
}

/// It must say that the disk is full, that nothing was sent for it, what to do, and end with 1.
fn expect_told(scene: &mut Scene, applied: &Applied) {
    let Applied { stdout, code, .. } = applied;
    for word in ["state/journal is nearly full", "free some space", "nothing was sent"] {
        if !stdout.contains(word) {
            scene.oracle.violation(format!("it does not say {word:?}: {stdout}"));
        }
    }
    if *code != Some(1) {
        scene.oracle.violation(format!("it ends with {code:?}, not 1"));
    }
}

/// A mounted image; dropping it unmounts.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    fn mount() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = directory.path().join("image");
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(IMAGE_MIB << 20).map_err(|error| error.to_string())?;
        let disk = Self { directory };
        std::fs::create_dir(disk.path()).map_err(|error| error.to_string())?;
        // Without blocks for root alone, as root fills it.
        done(Command::new("mkfs.ext4").args(["-q", "-m", "0", "-b", "1024"]).arg(&image))?;
        done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.path()))?;
        Ok(disk)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    fn filling(&self) -> PathBuf {
        self.path().join("filling")
    }

    /// Takes every block there is.
    fn fill(&self) {
        self.fill_but(0);
    }

    /// Takes every block but so many bytes of them.
    fn fill_but(&self, left: u64) {
        let mut file = std::fs::File::create(self.filling()).unwrap();
        for size in [1 << 20, 1 << 10] {
            let block = vec![0; size];
            // The error is the aim.
            while file.write_all(&block).is_ok() {}
            file.sync_all().unwrap();
        }
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(left)).unwrap();
        file.sync_all().unwrap();
    }

    fn make_room(&self) {
        std::fs::remove_file(self.filling()).unwrap();
        std::fs::File::open(self.path()).unwrap().sync_all().unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Nothing to do if it was never mounted.
        let path: &Path = &self.path();
        let _ = Command::new("umount").args(["-l"]).arg(path).output();
    }
}

fn done(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
