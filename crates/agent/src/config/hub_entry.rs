//! Writes `hub = { … }` under `[desired]` into the text of an `agent.toml`, and leaves every other byte as it is.
//!
//! Called by `evenkeel enrol`. An edit counts only if the file reads afterwards as it did before, but for that one entry;
//! what is laid out in a way this does not follow is left to a person.

use std::ops::Range;

use evenkeel_core::desired::syntax;
use evenkeel_core::desired::tree::{Node, Tree};
use evenkeel_core::words::diagnostic::{FileId, SourceFile};
use toml::{Table, Value};

use crate::hub_link::config::HubConfig;

/// The header under which the entry stands.
const HEADER: &str = "[desired]";

/// What an `agent.toml` is like with a hub in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubEdit {
    /// The text with the hub.
    pub text: String,
    /// The directory of desired files that the hub takes the place of.
    pub replaced_dir: Option<String>,
}

/// Why the hub cannot be written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HubEditError {
    /// The file is laid out in another way than this follows, or is not valid.
    #[error("the file is laid out in a way that is edited by hand only")]
    ByHand,
    /// A path is not text.
    #[error("a path that would stand in the file is not text")]
    Path,
}

/// The line that says which hub, as it stands under `[desired]`.
pub fn hub_line(hub: &HubConfig) -> Result<String, HubEditError> {
    let entries = entries(hub)?.into_iter().map(|(key, value)| format!("{key} = {value}"));
    Ok(format!("hub = {{ {} }}", entries.collect::<Vec<_>>().join(", ")))
}

/// The text of an `agent.toml` in which this hub says what is desired.
pub fn with_hub(text: &str, hub: &HubConfig) -> Result<HubEdit, HubEditError> {
    let line = hub_line(hub)?;
    let (value, replaced_dir) = wanted(text, hub)?;
    let source = SourceFile::new(FileId(0), "agent.toml", text);
    let top = syntax::parse_toml(&source).map_err(|_| HubEditError::ByHand)?;
    let (place, new) = place(text, &top, &line).ok_or(HubEditError::ByHand)?;
    let (before, after) =
        text.get(..place.start).zip(text.get(place.end..)).ok_or(HubEditError::ByHand)?;
    let edited = format!("{before}{new}{after}");
    match edited.parse::<Table>() {
        Ok(read) if read == value => Ok(HubEdit { text: edited, replaced_dir }),
        Ok(_) | Err(_) => Err(HubEditError::ByHand),
    }
}

/// What the file must say in the end, and the directory that it says no longer.
fn wanted(text: &str, hub: &HubConfig) -> Result<(Table, Option<String>), HubEditError> {
    let mut table: Table = text.parse().map_err(|_| HubEditError::ByHand)?;
    let desired = table.entry("desired").or_insert_with(|| Value::Table(Table::new()));
    let desired = desired.as_table_mut().ok_or(HubEditError::ByHand)?;
    let dir = desired.remove("dir").and_then(|dir| dir.as_str().map(str::to_owned));
    desired.insert("hub".to_owned(), Value::Table(entries(hub)?.into_iter().collect()));
    Ok((table, dir))
}

/// Which bytes are replaced, and by what.
fn place(text: &str, top: &Node, line: &str) -> Option<(Range<usize>, String)> {
    let Some(desired) = top.entry("desired") else {
        let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let blank = if text.is_empty() { "" } else { "\n" };
        let end = text.len();
        return Some((end..end, format!("{newline}{blank}{HEADER}\n{line}\n")));
    };
    if let Some(there) = desired.value.entry("hub").or_else(|| desired.value.entry("dir")) {
        let whole = there.key_span.start..there.value.span.end;
        return Some((whole, line.to_owned()));
    }
    let is_table = matches!(desired.value.value, Tree::Table(_));
    let mut end = 0;
    for each in text.split_inclusive('\n') {
        end += each.len();
        let rest = each.trim_start().strip_prefix(HEADER).map(str::trim);
        if is_table && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#')) {
            let newline = if each.ends_with('\n') { "" } else { "\n" };
            return Some((end..end, format!("{newline}{line}\n")));
        }
    }
    None
}

/// The entry, key by key.
fn entries(hub: &HubConfig) -> Result<Vec<(String, Value)>, HubEditError> {
    let HubConfig { url, ca_file, fingerprint, credential_file } = hub;
    let text = |path: &std::path::PathBuf| {
        path.to_str().map(|path| Value::String(path.to_owned())).ok_or(HubEditError::Path)
    };
    let mut entries = Vec::new();
    if let Some(url) = url {
        entries.push(("url".to_owned(), Value::String(url.clone())));
    }
    match fingerprint.0.as_slice() {
        [] => {}
        [one] => entries.push(("fingerprint".to_owned(), Value::String(one.clone()))),
        many => {
            let many = many.iter().cloned().map(Value::String).collect();
            entries.push(("fingerprint".to_owned(), Value::Array(many)));
        }
    }
    if let Some(path) = ca_file {
        entries.push(("ca_file".to_owned(), text(path)?));
    }
    if let Some(path) = credential_file {
        entries.push(("credential_file".to_owned(), text(path)?));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AgentConfig, OneOrMany};

    fn hub() -> HubConfig {
        HubConfig {
            url: Some("https://hub.example:8443".to_owned()),
            ca_file: None,
            fingerprint: OneOrMany(vec!["AB:CD".to_owned()]),
            credential_file: Some("/etc/evenkeel/hub-credential".into()),
        }
    }

    const LINE: &str = "hub = { url = \"https://hub.example:8443\", fingerprint = \"AB:CD\", \
                        credential_file = \"/etc/evenkeel/hub-credential\" }";

    #[track_caller]
    fn edited(text: &str) -> String {
        let edit = with_hub(text, &hub()).unwrap();
        let read: AgentConfig = toml::from_str(&edit.text).unwrap();
        assert_eq!(read.desired.hub, Some(hub()));
        edit.text
    }

    #[test]
    fn the_line_comes_under_its_header_and_every_other_byte_stays() {
        let pve =
            "# mine\nhost_id = \"pve1\"   # kept\n\n[pve]\nurl = \"https://localhost:8006\"\n";
        assert_eq!(edited(""), format!("[desired]\n{LINE}\n"));
        assert_eq!(edited(pve), format!("{pve}\n[desired]\n{LINE}\n"));
        let head = "  [desired]  # from where\n";
        let tail = "\n# hub = { }\n[state]\ndir = '/x'\n";
        assert_eq!(edited(&format!("{pve}{head}{tail}")), format!("{pve}{head}{LINE}\n{tail}"));
        assert_eq!(edited("interval = 9\n[desired]"), format!("interval = 9\n[desired]\n{LINE}\n"));
        let old = "[desired]\r\nhub = { url = 'https://old' } # the old one\r\n[state]\r\n";
        let new = format!("[desired]\r\n{LINE} # the old one\r\n[state]\r\n");
        assert_eq!(edited(old), new);
        assert_eq!(edited(&new), new, "twice is once");
    }

    #[test]
    fn a_directory_is_replaced_and_named() {
        let text = "[desired]\n# files\ndir = \"/etc/evenkeel/desired\" # here\n[state]\n";
        let edit = with_hub(text, &hub()).unwrap();
        assert_eq!(edit.text, format!("[desired]\n# files\n{LINE} # here\n[state]\n"));
        assert_eq!(edit.replaced_dir.as_deref(), Some("/etc/evenkeel/desired"));
        assert_eq!(with_hub(&edit.text, &hub()).unwrap().replaced_dir, None);
    }

    #[test]
    fn what_is_laid_out_otherwise_is_left_to_a_person() {
        for text in [
            "[desired.hub]\nurl = \"https://old\"\n",
            "desired.hub.url = \"https://old\"\n",
            "desired = {}\n",
            "desired = 1\n",
            "[desired]\nhub = {",
        ] {
            assert_eq!(with_hub(text, &hub()), Err(HubEditError::ByHand), "{text}");
        }
        let inside = "[pve]\nurl = \"\"\"\n[desired]\n\"\"\"\n[desired]\n";
        assert_eq!(with_hub(inside, &hub()), Err(HubEditError::ByHand), "a header inside a text");
    }
}
