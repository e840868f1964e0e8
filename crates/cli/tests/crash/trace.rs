//! What a run did, in the order the kernel saw it: read from the log of `strace`.
//!
//! A call is told when it begins and when it ends, and a thread goes on only after strace has written that its call
//! ended. So a request that stands after the end of a sync in the log left after it.

use std::collections::BTreeMap;

/// The calls that are logged; faults are injected into these only.
pub(crate) const CALLS: &str =
    "pwrite64,fdatasync,fsync,rename,ftruncate,unlink,fallocate,writev,sendto";

/// One thing a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Bytes are in a file.
    Wrote { path: String, offset: u64, bytes: Vec<u8> },
    /// What was written to a file is on disk.
    Synced { path: String },
    /// A request that asks for a change began to leave.
    Sent { method: String, target: String },
    /// The fault struck: the call did nothing and returned an error.
    Refused { call: String },
}

/// Everything in the log, oldest first.
pub(crate) fn events(log: &str) -> Vec<Event> {
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut events = Vec::new();
    for line in log.lines() {
        let Some((thread, told)) = line.split_once(' ') else { continue };
        let told = told.trim_start();
        if let Some(beginning) = told.strip_suffix(" <unfinished ...>") {
            events.extend(sent(beginning));
            begun.insert(thread, beginning);
        } else if let Some(resumed) = told.strip_prefix("<... ") {
            let beginning = begun.remove(thread).unwrap_or_default();
            let rest = resumed.split_once(" resumed>").map_or("", |(_, rest)| rest);
            events.extend(ended(&format!("{beginning}{rest}")));
        } else {
            events.extend(sent(told));
            events.extend(ended(told));
        }
    }
    events
}

/// How often the journal's own thread made a call, and how often the thread that opens the journal did. strace
/// counts for each thread.
pub(crate) fn counts(log: &str, call: &str) -> (usize, usize) {
    let threads = |line: &str| line.split_once(' ').map(|(thread, _)| thread.to_owned());
    let opener = log.lines().find_map(threads).unwrap_or_default();
    let begins = format!(" {call}(");
    let made = log.lines().filter(|line| line.contains(&begins));
    let (opening, writing): (Vec<&str>, Vec<&str>) =
        made.partition(|line| line.starts_with(&format!("{opener} ")));
    (writing.len(), opening.len())
}

/// How often the thread that made a call most often did. strace counts for each thread.
pub(crate) fn most_by_one_thread(log: &str, call: &str) -> usize {
    let begins = format!("{call}(");
    let mut made: BTreeMap<&str, usize> = BTreeMap::new();
    for line in log.lines() {
        let Some((thread, told)) = line.split_once(' ') else { continue };
        *made.entry(thread).or_default() += usize::from(told.trim_start().starts_with(&begins));
    }
    made.into_values().max().unwrap_or(0)
}

/// The request a call begins to send, if it asks for a change.
fn sent(told: &str) -> Option<Event> {
    let text = told.strip_prefix("writev(").or_else(|| told.strip_prefix("sendto("))?;
    let (_, text) = text.split_once('"')?;
    let (request, _) = text.split_once(" HTTP/1.1")?;
    let (method, target) = request.split_once(' ')?;
    (method != "GET").then(|| Event::Sent { method: method.to_owned(), target: target.to_owned() })
}

/// What a call that ended came to.
fn ended(told: &str) -> Option<Event> {
    let (call, arguments) = told.split_once('(')?;
    if told.ends_with("(INJECTED)") {
        return Some(Event::Refused { call: call.to_owned() });
    }
    let (arguments, returned) = arguments.rsplit_once(" = ")?;
    let returned: u64 = returned.split(' ').next()?.parse().ok()?;
    let path = || Some(arguments.split_once('<')?.1.split_once('>')?.0.to_owned());
    match call {
        "fdatasync" | "fsync" => Some(Event::Synced { path: path()? }),
        "pwrite64" => {
            let mut bytes = unescaped(arguments.split_once('"')?.1);
            bytes.truncate(usize::try_from(returned).ok()?);
            let offset = arguments.rsplit_once(", ")?.1.trim_end().strip_suffix(')')?;
            Some(Event::Wrote { path: path()?, offset: offset.parse().ok()?, bytes })
        }
        _ => None,
    }
}

/// The bytes of a text as C writes it, up to its closing quote.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'"', _) => break,
            (b'\\', [escape, after @ ..]) => {
                rest = after;
                bytes.push(match escape {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'v' => 0x0b,
                    b'f' => 0x0c,
                    b'0'..=b'7' => {
                        let digits =
                            1 + after.iter().take(2).take_while(|b| b.is_ascii_digit()).count();
                        let octal = std::iter::once(escape).chain(&after[..digits - 1]);
                        rest = &after[digits - 1..];
                        octal.fold(0_u8, |byte, digit| byte.wrapping_mul(8) + (digit - b'0'))
                    }
                    other => *other,
                });
            }
            (byte, _) => bytes.push(*byte),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_two_threads_is_read_in_the_order_of_what_happened() {
        let log = r#"7 writev(9<socket:[1]>, [{iov_base="GET /a HTTP/1.1\r\n", iov_len=3}], 1) = 3
8 pwrite64(5</j/s.jsonl>, "{\"a\":\"\303\274\"}\n", 11, 592) = 11
8 fdatasync(5</j/s.jsonl> <unfinished ...>
7 writev(9<socket:[1]>, [{iov_base="PUT /api2/json/x HTTP/1.1\r\n", iov_len=3}], 1 <unfinished ...>
8 <... fdatasync resumed>)          = 0
7 <... writev resumed>)             = 3
8 fdatasync(5</j/s.jsonl>) = -1 EIO (Input/output error) (INJECTED)
8 fdatasync(5</j/s.jsonl>)          = ?
7 +++ killed by SIGKILL +++"#;
        let path = || "/j/s.jsonl".to_owned();
        assert_eq!(
            events(log),
            [
                Event::Wrote { path: path(), offset: 592, bytes: "{\"a\":\"ü\"}\n".into() },
                Event::Sent { method: "PUT".into(), target: "/api2/json/x".into() },
                Event::Synced { path: path() },
                Event::Refused { call: "fdatasync".into() },
            ]
        );
        assert_eq!(counts(log, "fdatasync"), (3, 0));
    }
}
