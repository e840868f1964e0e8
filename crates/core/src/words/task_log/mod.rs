//! What a person must see of a task's log: the lines that say why it failed, or what it warns of.
//!
//! A task tells its end in one line (`start failed: QEMU exited with code 1`), while the cause stands in the lines before
//! it. Called when a task has ended and its log was read; whoever could not read one tells the exit text alone. Every
//! line is another's text: it is masked, escaped and bounded here, and nothing is ever decided by it.

use crate::action_registry::ActionKind;
use crate::model::secret::masked_log_line;

/// How many lines of a log are shown: what a person reads beside the exit text.
pub const LINES_MAX: usize = 3;

/// The longest line, in bytes. Three of them and an exit text fit into a journal's reason.
pub const LINE_BYTES_MAX: usize = 180;

/// The longest exit text beside such lines, in bytes: a whole command line may stand in it.
pub const EXIT_BYTES_MAX: usize = 320;

/// What stands between two lines of a log where they are shown as one text.
const BETWEEN: &str = " | ";

/// What stands for the middle of a long line: its begin says who speaks, its end says why.
const CUT: &str = " … ";

/// What a line is worth to a person who asks for the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineWorth {
    /// It says something.
    Word,
    /// It follows from a line before it: shown where nothing better is there.
    Echo,
    /// Progress, bookkeeping, or the exit text again.
    Noise,
}

/// The last lines of a failed task's log that say why, in their order, masked, escaped and bounded.
pub fn cause_lines<S: AsRef<str>>(log: &[S], exit: &str) -> Vec<String> {
    let exit = exit.trim();
    let mut lines: Vec<(LineWorth, &str)> = Vec::new();
    for line in log.iter().map(|line| newest_part(line.as_ref())) {
        let worth = if repeats(exit, line) { LineWorth::Noise } else { worth_of(line) };
        if worth != LineWorth::Noise {
            // Of a line that comes again and again the last one counts.
            lines.retain(|(_, before)| *before != line);
            lines.push((worth, line));
        }
    }
    let words = lines.iter().filter(|(worth, _)| *worth == LineWorth::Word).count();
    let mut echoes = LINES_MAX.saturating_sub(words);
    let mut chosen: Vec<&str> = Vec::new();
    for (worth, line) in lines.into_iter().rev() {
        match worth {
            LineWorth::Echo if echoes == 0 => continue,
            LineWorth::Echo => echoes -= 1,
            LineWorth::Word | LineWorth::Noise => {}
        }
        chosen.push(line);
        if chosen.len() == LINES_MAX {
            break;
        }
    }
    chosen.into_iter().rev().map(shown).collect()
}

/// The last warnings of a task that ended well, in their order, masked, escaped and bounded.
pub fn warning_lines<S: AsRef<str>>(log: &[S]) -> Vec<String> {
    let mut lines: Vec<&str> = Vec::new();
    for line in log.iter().map(|line| newest_part(line.as_ref())).filter(|line| warns(line)) {
        lines.retain(|before| *before != line);
        lines.push(line);
    }
    let first = lines.len().saturating_sub(LINES_MAX);
    lines[first..].iter().map(|line| shown(line)).collect()
}

/// Why it came to nothing, by the decision's own words, how its task ended and what the task's log says.
pub fn failure_text(reason: &str, exit: &str, lines: &[String]) -> String {
    let exit = bounded(exit, EXIT_BYTES_MAX);
    let reason = if lines.is_empty() { reason } else { without_referral(reason) };
    quoting(&format!("{reason}: {exit}"), lines)
}

/// Whether a task of this kind can end `OK` although its log warns of something that matters: data is copied, or a file
/// system grown, and what could not be done is only said.
pub fn log_may_warn(kind: ActionKind) -> bool {
    match kind {
        ActionKind::Resize
        | ActionKind::Clone
        | ActionKind::Restore
        | ActionKind::MoveVolume
        | ActionKind::Migrate => true,
        ActionKind::SetConfig
        | ActionKind::Start
        | ActionKind::Shutdown
        | ActionKind::Stop
        | ActionKind::Create
        | ActionKind::Snapshot
        | ActionKind::Backup
        | ActionKind::Destroy
        | ActionKind::Rollback
        | ActionKind::DeleteSnapshot
        | ActionKind::DeleteVolume
        | ActionKind::Template
        | ActionKind::WipeStorage
        | ActionKind::Decommission => false,
    }
}

/// A volume that an act made larger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrownVolume {
    /// `mp0`.
    pub slot: String,
    /// Its size now, as it was asked for.
    pub size: String,
}

/// What is odd about a success whose log has warnings; `decided` is what is odd about it besides.
pub fn warning_text(
    decided: Option<&str>,
    grown: Option<&GrownVolume>,
    lines: &[String],
) -> Option<String> {
    if lines.is_empty() {
        return decided.map(str::to_owned);
    }
    let file_system = lines.iter().any(|line| line.contains(FILE_SYSTEM_KEPT));
    let sentence = match (grown.filter(|_| file_system), decided) {
        (Some(GrownVolume { slot, size }), _) => {
            let size = with_unit(size);
            format!("the volume of {slot} is {size}, the file system inside is not")
        }
        (None, Some(decided)) => decided.to_owned(),
        (None, None) => "the task ended OK, but warns".to_owned(),
    };
    Some(quoting(&sentence, lines))
}

/// A sentence with lines of a log behind it.
pub fn quoting(sentence: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return sentence.to_owned();
    }
    format!("{}; its log: {}", without_referral(sentence), lines.join(BETWEEN))
}

/// `2G`, as Proxmox VE is sent it, is `2 GiB` to a person.
fn with_unit(size: &str) -> String {
    match size.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(number) => format!("{number} {}iB", &size[number.len()..]),
        None => size.to_owned(),
    }
}

/// What Proxmox VE says when a container's volume grew and the file system on it did not.
const FILE_SYSTEM_KEPT: &str = "update the container's filesystem";

/// How a sentence ends that sends its reader to the log, which is not needed where the log is quoted.
const REFERRALS: [&str; 3] =
    ["; its log says why", "; its log says which", "; its task log says more"];

fn without_referral(sentence: &str) -> &str {
    REFERRALS.iter().find_map(|end| sentence.strip_suffix(end)).unwrap_or(sentence)
}

/// A line as it may be shown: secrets masked before anything is cut, so that no cut hides a name from its value.
fn shown(line: &str) -> String {
    bounded(&masked_log_line(line), LINE_BYTES_MAX)
}

/// Without control characters and such that turn a text around, and with its middle left out where it is too long.
fn bounded(text: &str, bytes_max: usize) -> String {
    let mut clean = String::with_capacity(text.len());
    for letter in text.trim().chars() {
        match letter {
            '\t' | '\n' => clean.push(' '),
            letter if letter.is_control() || turns_text(letter) => {
                clean.extend(letter.escape_unicode());
            }
            letter => clean.push(letter),
        }
    }
    if clean.len() <= bytes_max {
        return clean;
    }
    let room = bytes_max - CUT.len();
    let head = clean.floor_char_boundary(room * 2 / 5);
    let tail = clean.ceil_char_boundary(clean.len() - (room - head));
    format!("{}{CUT}{}", clean[..head].trim_end(), clean[tail..].trim_start())
}

/// Characters that change the order or the presence of their neighbours on a screen.
fn turns_text(letter: char) -> bool {
    matches!(letter,
        '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

/// A progress bar writes over itself: its last state counts.
fn newest_part(line: &str) -> &str {
    line.rsplit('\r').map(str::trim).find(|part| !part.is_empty()).unwrap_or_default()
}

/// Whether a line says no more than the exit text, which is shown beside it.
fn repeats(exit: &str, line: &str) -> bool {
    let line = line.strip_prefix("ERROR: ").unwrap_or(line);
    !line.is_empty() && exit.contains(line)
}

fn worth_of(line: &str) -> LineWorth {
    if let Some(told) = line.strip_prefix("INFO: ").map(str::trim) {
        return if has_any(told, &INFO_TROUBLE) && !begins(told, &INFO_ENDS) {
            worth_of(told)
        } else {
            LineWorth::Noise
        };
    }
    if line.is_empty() || is_numbers(line) || is_progress(line) || begins(line, &NOISE) {
        return LineWorth::Noise;
    }
    if NOISE_WHOLE.contains(&line) || line.contains(": successfully created disk '") {
        return LineWorth::Noise;
    }
    let is_echo = begins(line, &ECHOES) || has_any(line, &ECHO_PARTS);
    if is_echo { LineWorth::Echo } else { LineWorth::Word }
}

/// Whether a line of a task that ended well is a warning.
fn warns(line: &str) -> bool {
    let line = line.strip_prefix("INFO: ").map_or(line, str::trim);
    let lower = line.to_ascii_lowercase();
    begins(&lower, &WARNINGS) || lower.contains("unable to parse value of ")
}

fn begins(line: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| line.starts_with(start))
}

fn has_any(line: &str, parts: &[&str]) -> bool {
    let lower = line.to_ascii_lowercase();
    parts.iter().any(|part| lower.contains(part))
}

/// Block numbers that `mke2fs` prints below each other.
fn is_numbers(line: &str) -> bool {
    line.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, ',' | ' '))
}

/// `transferred 1.0 GiB of 3.0 GiB (33.33%)`, also with the drive before it.
fn is_progress(line: &str) -> bool {
    let told = line.strip_prefix("drive-").and_then(|rest| rest.split_once(": "));
    let told = told.map_or(line, |(_, told)| told);
    let begins_so = begins(told, &["transferred ", "progress ", "mirror-", "migration active"]);
    begins_so || told.trim_start().split_once('%').is_some_and(|(number, _)| is_numbers(number))
}

/// How lines begin in which a warning stands although the task ended well, in lower case.
const WARNINGS: [&str; 12] = [
    "warn:",
    "warning:",
    "error:",
    "failed to ",
    "unable to ",
    "cannot ",
    "can't ",
    "could not ",
    "mount: ",
    "resize2fs: ",
    "e2fsck: ",
    "rsync: ",
];

/// What makes a line of a backup's talk worth reading, in lower case.
const INFO_TROUBLE: [&str; 8] =
    ["error", "fail", "cannot", "can't", "unable", "no space", "denied", "timeout"];

/// The end of a backup job, which follows from what was said before.
const INFO_ENDS: [&str; 2] = ["Failed at ", "Backup job finished with errors"];

/// Lines that are noise as a whole.
const NOISE_WHOLE: [&str; 7] = [
    "OK",
    "no content",
    // What Proxmox VE answers for a log that is gone.
    "unable to open file - No such file or directory",
    "trying to acquire lock...",
    "Image resized.",
    "resume vm",
    "generating cloud-init ISO",
];

/// How lines begin that only tell what a task does.
const NOISE: [&str; 50] = [
    "TASK ERROR:",
    "TASK OK",
    "TASK WARNINGS:",
    "Formatting '",
    "Creating filesystem with",
    "Creating journal",
    "Creating SSH host key",
    "Creating snapshot",
    "Discarding device blocks",
    "Allocating group tables",
    "Writing inode tables",
    "Writing superblocks",
    "Filesystem UUID:",
    "Superblock backups stored",
    "Multiple mount protection",
    "Logical volume \"",
    "Wiping ",
    "extracting archive '",
    "Total bytes read:",
    "Total bytes sent:",
    "Total bytes received:",
    "Total file size:",
    "Total transferred file size:",
    "Number of ",
    "Literal data:",
    "Matched data:",
    "File list ",
    "sent ",
    "total size is ",
    "Detected container architecture",
    "done: SHA256:",
    "create full clone of ",
    "create linked clone of ",
    "creating a clone of ",
    "allocated target volume",
    "clone ",
    "restore vma archive:",
    "applying read rate limit",
    "CFG: ",
    "DEV: ",
    "CTIME: ",
    "new volume ID is ",
    "map 'drive-",
    "rescan volumes...",
    "recovering backed-up configuration from",
    "restoring '",
    "merging backed-up and given",
    "temporary volume '",
    "no lock found trying to remove",
    "update ",
];

/// How lines begin that follow from a line before them.
const ECHOES: [&str; 11] = [
    "tar: Exiting with failure status",
    "tar: Error is not recoverable",
    "tar: Child returned status",
    "error before or during data restore",
    "lxc_init: ",
    "__lxc_start: ",
    "lxc-start: ",
    "command 'lxc-stop ",
    "e2fsck 1.",
    "resize2fs 1.",
    "purging ",
];

/// What stands in lines that follow from a line before them, in lower case.
const ECHO_PARTS: [&str; 3] = ["migration aborted", "script exited with status", "cleanup"];

#[cfg(test)]
mod tests;
