//! What is wrong with `agent.toml`, told as a mistake in a desired file is: place, reason, what to write instead.
//!
//! Called when the file could not be read as an [`AgentConfig`]. The types of the configuration stay the one authority:
//! each key is read by itself through them, so that all mistakes are told at once and this file knows no rule of its own,
//! only words. It must never show a token that somebody wrote into the file: the text that is kept for drawing is
//! blotted.

use evenkeel_core::desired::syntax;
use evenkeel_core::desired::tree::{Node, Tree, TreeEntry};
use evenkeel_core::model::secret::masked_text;
use evenkeel_core::words::diagnostic::{self, Code, Diagnostic, Sources, Span, did_you_mean};

use super::AgentConfig;

/// A configuration that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMistakes {
    /// The file without what must not be shown, places unchanged.
    pub sources: Sources,
    /// All that is wrong, in the order of the text.
    pub errors: Vec<Diagnostic>,
}

/// Everything that is wrong with a text that is not a configuration.
pub(super) fn all_of(path: &str, text: &str, first: &toml::de::Error) -> ConfigMistakes {
    let mut sources = Sources::default();
    let id = sources.add(path, text);
    let mut errors = match sources.get(id).map(syntax::parse_toml) {
        Some(Ok(tree)) => of_tree(&tree, &sources),
        Some(Err(errors)) => errors,
        None => Vec::new(),
    };
    if errors.is_empty() {
        let span = first.span().unwrap_or(0..0);
        let message = first.message().to_owned();
        let at = Span::new(id, span.start, span.end);
        errors.push(Diagnostic::new(Code::BadValue, message).at(at, ""));
    }
    diagnostic::sort(&mut errors);
    let mut shown = Sources::default();
    shown.add(path, blotted(text));
    ConfigMistakes { sources: shown, errors }
}

/// A file that is no text at all.
pub(super) fn not_text(path: &str) -> ConfigMistakes {
    let message = format!("`{path}` is not UTF-8 text");
    let error = Diagnostic::new(Code::Encoding, message).hint("save the file as UTF-8");
    ConfigMistakes { sources: Sources::default(), errors: vec![error] }
}

fn of_tree(top: &Node, sources: &Sources) -> Vec<Diagnostic> {
    let mut errors = Vec::new();
    if let Tree::Table(entries) = &top.value {
        of_section(None, entries, sources, &mut errors);
    }
    errors
}

/// Every mistake in a section and in those below it.
fn of_section(
    section: Option<&str>,
    entries: &[TreeEntry],
    sources: &Sources,
    errors: &mut Vec<Diagnostic>,
) {
    for entry in entries {
        let path = section.map_or(entry.key.clone(), |section| format!("{section}.{}", entry.key));
        match &entry.value.value {
            Tree::Table(keys) if is_section(&path) => {
                of_section(Some(&path), keys, sources, errors);
            }
            Tree::Null
            | Tree::Bool(_)
            | Tree::Integer(_)
            | Tree::Float(_)
            | Tree::Text(_)
            | Tree::List(_)
            | Tree::Table(_) => errors.extend(mistake(section, entry, sources)),
        }
    }
}

/// Whether an empty section of that name is taken.
fn is_section(path: &str) -> bool {
    toml::from_str::<AgentConfig>(&heading(path)).is_ok()
}

/// `[policy.create]`, with every name in quotes.
fn heading(path: &str) -> String {
    format!("[{}]\n", path.split('.').map(quoted).collect::<Vec<_>>().join("."))
}

/// What is wrong with one key, read by itself.
fn mistake(section: Option<&str>, entry: &TreeEntry, sources: &Sources) -> Option<Diagnostic> {
    let value = value_text(&entry.value, sources)?;
    let heading = section.map(heading).unwrap_or_default();
    let alone = format!("{heading}{} = {value}\n", quoted(&entry.key));
    let error = toml::from_str::<AgentConfig>(&alone).err()?;
    let place = section.map_or("agent.toml".to_owned(), |name| format!("[{name}]"));
    let message = error.message();
    if message.starts_with("unknown field") {
        return Some(unknown(section, entry, &place, message));
    }
    let name = section.map_or(entry.key.clone(), |name| format!("{name}.{}", entry.key));
    let typed = ["invalid type", "invalid value", "invalid socket", "data did not match"];
    let expected = expected(section, &entry.key);
    let why = match expected {
        Some((expected, _)) if typed.iter().any(|start| message.starts_with(start)) => {
            format!("`{name}` must be {expected}")
        }
        Some(_) | None => format!("`{name}`: {message}"),
    };
    let example = expected.map(|(_, example)| match section {
        None if example.is_empty() => {
            format!("write a heading [{}], and its keys below it", entry.key)
        }
        Some(_) | None => format!("write {} = {example}", entry.key),
    });
    Some(Diagnostic::new(Code::BadValue, why).at(entry.value.span, "").hints(example))
}

/// A key that is not known, with what was likely meant. The names there are stand in serde's own message.
fn unknown(section: Option<&str>, entry: &TreeEntry, place: &str, message: &str) -> Diagnostic {
    let names: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
    let told = format!("unknown key `{}` in {place}", entry.key);
    let diagnostic = Diagnostic::new(Code::UnknownKey, told).at(entry.key_span, "not known here");
    let near = did_you_mean(&entry.key, names.iter().copied());
    let hint = match (elsewhere(section, &entry.key), near) {
        (Some(elsewhere), _) => elsewhere.to_owned(),
        (None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None) => format!("{place} has {}", names.join(", ")),
    };
    diagnostic.hint(hint)
}

/// What people write, and where it belongs.
fn elsewhere(section: Option<&str>, key: &str) -> Option<&'static str> {
    Some(match (section, key) {
        (Some("pve"), "token" | "api_token" | "password" | "token_secret" | "secret") => {
            "a token stands in a file of its own, of mode 0600: token_file = \"/etc/evenkeel/token\""
        }
        (Some("pve"), "host" | "endpoint" | "address" | "server" | "api_url") => {
            "write url = \"https://pve1.example:8006\""
        }
        (Some("pve"), "port") => {
            "the port is a part of the address: url = \"https://pve1.example:8006\""
        }
        (
            Some("pve"),
            "insecure" | "verify_ssl" | "verify" | "tls_insecure" | "skip_verify" | "verify_tls",
        ) => "a server is always verified: write its fingerprint, or ca_file",
        (Some("pve"), "ca" | "ca_cert" | "cacert" | "ca_path") => {
            "write ca_file = \"/etc/evenkeel/pve-root-ca.pem\""
        }
        (Some("desired"), "path" | "directory" | "folder" | "files" | "file") => {
            "write dir = \"/etc/evenkeel/desired\""
        }
        (Some("desired"), "hub_url" | "url" | "server") => {
            "write hub = { url = \"https://hub.example:8443\" }"
        }
        (Some("desired.hub"), "token" | "credential" | "password" | "secret") => {
            "a credential stands in a file of its own, which `evenkeel enrol` writes: credential_file = \"/etc/evenkeel/hub-credential\""
        }
        (Some("desired.hub"), "host" | "address" | "endpoint" | "server") => {
            "write url = \"https://hub.example:8443\""
        }
        (Some("desired.hub"), "insecure" | "verify" | "verify_tls" | "skip_verify") => {
            "a hub is always verified: write its fingerprint, or ca_file"
        }
        (None, "hub" | "fleet") => "write hub under [desired]",
        (Some("state"), "path" | "directory" | "folder") => "write dir = \"/var/lib/evenkeel\"",
        (Some("trust"), "path" | "dir" | "signers") => "write file = \"/etc/evenkeel/trust.toml\"",
        (Some("secrets"), "path" | "directory" | "folder" | "file") => {
            "write dir = \"/etc/evenkeel/secrets\""
        }
        (
            Some("policy"),
            "vmids" | "sources" | "storages" | "bridges" | "per_day" | "privileged"
            | "create_per_day",
        ) => "it belongs under [policy.create]",
        (Some("policy.create"), "scratch_vmids") => "it belongs under [policy]",
        (Some("policy.create"), "templates" | "images" | "clones" | "source") => {
            "write sources = [\"local:vztmpl/*\", \"clone:9000-9009\"]"
        }
        (None, "create") => "write [policy.create]",
        (None, "secrets_dir" | "secret_dir") => "write dir under [secrets]",
        (Some("metrics"), "port" | "address" | "bind" | "enabled") => {
            "write listen = \"127.0.0.1:9469\""
        }
        (
            None,
            "url" | "node" | "token_file" | "fingerprint" | "ca_file" | "endpoint" | "token"
            | "cluster_fs",
        ) => "it belongs under [pve]",
        (None, "dir" | "desired_dir" | "desired_path") => "write dir under [desired]",
        (None, "state_dir") => "write dir under [state]",
        (None, "listen") => "it belongs under [metrics]",
        (None, "hostname" | "host" | "name" | "id" | "host_name") => {
            "write host_id = \"pve1-example\""
        }
        (None, "poll" | "poll_interval" | "period" | "every" | "refresh") => {
            "write interval = \"60s\""
        }
        (None, "guest" | "guests" | "defaults" | "profile") => {
            "guests stand in desired files, in the directory that dir under [desired] names"
        }
        (None, "log" | "log_level" | "loglevel") => {
            "the log's level is a flag: `evenkeel run --log debug`"
        }
        _ => return None,
    })
}

/// What a key must be, and an example.
fn expected(section: Option<&str>, key: &str) -> Option<(&'static str, &'static str)> {
    Some(match (section, key) {
        (None, "interval") => {
            ("a time such as \"60s\" or \"5m\", or a number of seconds", "\"60s\"")
        }
        (None, "host_id") => ("the name of this host in quotes", "\"pve1-example\""),
        (Some("pve"), "url") => ("an address in quotes", "\"https://pve1.example:8006\""),
        (Some("pve"), "node") => ("the name of a node in quotes", "\"pve1\""),
        (Some("pve"), "token_file") => ("the path of a file in quotes", "\"/etc/evenkeel/token\""),
        (Some("pve"), "ca_file") => {
            ("the path of a file in quotes", "\"/etc/evenkeel/pve-root-ca.pem\"")
        }
        (Some("pve"), "fingerprint") => {
            ("a SHA-256 fingerprint in quotes, or a list of them", "\"9F:86:D0:81:…\"")
        }
        (Some("pve"), "cluster_fs") => ("\"auto\", \"off\" or the path of a directory", "\"auto\""),
        (Some("desired"), "dir") => {
            ("the path of a directory in quotes", "\"/etc/evenkeel/desired\"")
        }
        (Some("desired"), "hub") => {
            ("a table with an address", "{ url = \"https://hub.example:8443\" }")
        }
        (Some("desired"), "fresh_within") => ("a time in quotes", "\"7d\""),
        (Some("desired.hub"), "url") => ("an address in quotes", "\"https://hub.example:8443\""),
        (Some("desired.hub"), "ca_file") => {
            ("the path of a file in quotes", "\"/etc/evenkeel/hub-ca.pem\"")
        }
        (Some("desired.hub"), "credential_file") => {
            ("the path of a file in quotes", "\"/etc/evenkeel/hub-credential\"")
        }
        (Some("desired.hub"), "fingerprint") => {
            ("a SHA-256 fingerprint in quotes, or a list of them", "\"9F:86:D0:81:…\"")
        }
        (Some("policy"), "desired_signed" | "desired_without_base") => ("true or false", "true"),
        (Some("policy"), "anchor") => ("\"optional\" or \"required\"", "\"required\""),
        (Some("state"), "dir") => ("the path of a directory in quotes", "\"/var/lib/evenkeel\""),
        (Some("trust"), "file") => ("the path of a file in quotes", "\"/etc/evenkeel/trust.toml\""),
        (Some("metrics"), "listen") => ("an address and a port in quotes", "\"127.0.0.1:9469\""),
        (Some("policy"), "statement_life_s") => ("a number of seconds", "86400"),
        (Some("policy"), "pending_items") => ("a number", "256"),
        (Some("policy"), "pending_days" | "bin_days") => ("a number of days", "30"),
        (Some("policy"), "destructive_per_day") => ("a number", "10"),
        (Some("policy"), "disruptive_per_hour") => ("a number", "20"),
        (Some("policy"), "scratch_vmids") => ("guest numbers in quotes", "\"9100-9199\""),
        (Some("policy.create"), "vmids") => ("guest numbers in quotes", "\"1000-1999\""),
        (Some("policy.create"), "sources") => {
            ("a list of sources in quotes", "[\"local:vztmpl/*\", \"clone:9000-9009\"]")
        }
        (Some("policy.create"), "storages") => {
            ("a table of storages with sizes", "{ local-lvm = \"500GiB\" }")
        }
        (Some("policy.create.storages"), _) => ("a size in quotes", "\"500GiB\""),
        (Some("policy.create"), "bridges") => ("a list of bridges in quotes", "[\"vmbr1\"]"),
        (Some("policy.create"), "per_day") => ("a number", "10"),
        (Some("policy.create"), "privileged") => ("true or false", "false"),
        (Some("secrets"), "dir") => {
            ("the path of a directory in quotes", "\"/etc/evenkeel/secrets\"")
        }
        (None, "pve" | "desired" | "state" | "trust" | "secrets" | "policy" | "metrics") => {
            ("a section with keys of its own", "")
        }
        _ => return None,
    })
}

/// The text of a value; one that was written as a section is read as an empty table.
fn value_text<'a>(node: &Node, sources: &'a Sources) -> Option<&'a str> {
    let text = &sources.get(node.span.file)?.text;
    let written = text.get(node.span.start..node.span.end)?;
    Some(if matches!(node.value, Tree::Table(_)) { "{}" } else { written })
}

/// A key as TOML takes any.
fn quoted(key: &str) -> String {
    toml::Value::String(key.to_owned()).to_string()
}

/// The text with every line's value that may be a secret blotted out, places unchanged.
fn blotted(text: &str) -> String {
    let line = |line: &str| {
        let Some((name, value)) = line.split_once('=') else { return line.to_owned() };
        let token = value.contains(['!', '=']) && value.contains('@');
        let named = matches!(name.trim(), "token_file" | "credential_file");
        if !token && (named || masked_text(line) == line) {
            return line.to_owned();
        }
        let blot = |letter: char| match letter {
            '\n' | '\r' | ' ' => letter.to_string(),
            other => "*".repeat(other.len_utf8()),
        };
        format!("{name}={}", value.chars().map(blot).collect::<String>())
    };
    text.split_inclusive('\n').map(line).collect()
}
