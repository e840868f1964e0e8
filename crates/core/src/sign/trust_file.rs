//! `trust.toml`: the signers root installed, read strictly and edited as text.
//!
//! ```toml
//! format = "evenkeel/trust/v1"
//! version = 1
//!
//! [[signer]]
//! name = "alice"
//! role = "operational"        # or "recovery"; one role per key, at least one key of each; or "author"
//! key = "ssh-ed25519 AAAA… alice@desk"
//! valid_from = "2026-01-01T00:00:00Z"    # optional, UTC
//! valid_until = "2027-01-01T00:00:00Z"   # optional, UTC
//! sk = "verification"         # optional: "presence" (a touch) or "verification" (a PIN or finger too)
//! ```
//!
//! The agent loads it at start: a file with any mistake is refused whole, with every mistake told. The
//! command line adds and removes signers by [`add`] and [`remove`], which keep comments and order. It
//! never takes a part of a file.

use std::fmt::Write as _;

use super::key::PublicKey;
use super::time;
use super::trust::{Role, Signer, SignerName, SkPolicy, TrustVersion, TrustedSigners, Validity};
use crate::desired::syntax;
use crate::desired::tree::{Node, Tree, TreeEntry};
use crate::operate::operation::UnixSeconds;
use crate::words::diagnostic::{self, Code, Diagnostic, FileId, SourceFile, Span, did_you_mean};

const FORMAT: &str = "evenkeel/trust/v1";
const TOP_KEYS: [&str; 3] = ["format", "version", "signer"];
const SIGNER_KEYS: [&str; 6] = ["name", "role", "key", "valid_from", "valid_until", "sk"];

/// A trust file that reads. It may still lack a role: see [`load`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFile {
    /// The version the chain begins with.
    pub version: TrustVersion,
    /// The signers, in the order of the file.
    pub signers: Vec<Signer>,
}

/// The trust store a file stands for.
pub fn load(file: &SourceFile) -> Result<TrustedSigners, Vec<Diagnostic>> {
    let TrustFile { version, signers } = parse(file)?;
    TrustedSigners::genesis(version, signers).map_err(|refusal| {
        let whole = Span::new(file.id, 0, file.text.len());
        let hint = "a host needs an operational key and, kept elsewhere, a recovery key";
        vec![Diagnostic::new(Code::Structure, refusal.detail).at(whole, "").hint(hint)]
    })
}

/// Reads a trust file; every mistake at once, in the order of the text.
pub fn parse(file: &SourceFile) -> Result<TrustFile, Vec<Diagnostic>> {
    // Whatever the file is called, it is TOML.
    let toml = SourceFile { id: file.id, path: "trust.toml".to_owned(), text: file.text.clone() };
    let top = syntax::parse(&toml)?;
    let mut checker = TrustChecker { mistakes: Vec::new() };
    let read = checker.file(&top);
    match read {
        Some(file) if checker.mistakes.is_empty() => Ok(file),
        Some(_) | None => {
            diagnostic::sort(&mut checker.mistakes);
            Err(checker.mistakes)
        }
    }
}

/// Why a trust file cannot be edited so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The file, before or after the edit, is not a trust file.
    #[error("the trust file does not read; nothing was changed")]
    File(Vec<Diagnostic>),
    /// No signer has that name.
    #[error("the trust file has no signer named {0}")]
    NoSuchSigner(SignerName),
    /// The file is laid out in a way the editor does not follow, or the signer cannot stand in a file.
    #[error("{0} cannot be added or removed by line; edit the trust file by hand")]
    ByHand(SignerName),
}

/// The text of a trust file without signers.
pub fn empty() -> String {
    format!(
        "# Who may sign on this host. Installed by root; later changes are signed rotations.\nformat = \"{FORMAT}\"\nversion = 1\n"
    )
}

/// The text with one more signer at its end.
pub fn add(text: &str, signer: &Signer) -> Result<String, EditError> {
    let before = parse_text(text)?;
    let Signer { name, role, key, validity: Validity { from, until }, sk } = signer;
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let mut edited = format!(
        "{text}{newline}\n[[signer]]\nname = \"{name}\"\nrole = \"{role}\"\nkey = \"{key}\"\n"
    );
    if *from != Validity::ALWAYS.from {
        let _ = writeln!(edited, "valid_from = \"{}\"", time::print(*from));
    }
    if *until != Validity::ALWAYS.until {
        let _ = writeln!(edited, "valid_until = \"{}\"", time::print(*until));
    }
    if key.key_type().is_security_key() {
        let _ = writeln!(edited, "sk = \"{}\"", sk.as_str());
    }
    let after = parse_text(&edited)?;
    let mut wanted = before;
    wanted.signers.push(signer.clone());
    if after == wanted { Ok(edited) } else { Err(EditError::ByHand(name.clone())) }
}

/// The text without one signer: its block from `[[signer]]` to the next one, comments inside included.
pub fn remove(text: &str, name: &SignerName) -> Result<String, EditError> {
    let before = parse_text(text)?;
    let Some(place) = before.signers.iter().position(|signer| signer.name == *name) else {
        return Err(EditError::NoSuchSigner(name.clone()));
    };
    let by_hand = || EditError::ByHand(name.clone());
    let mut headers = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "[[signer]]" {
            headers.push(offset);
        }
        offset += line.len();
    }
    let start = *headers.get(place).ok_or_else(by_hand)?;
    let end = headers.get(place + 1).copied().unwrap_or(text.len());
    let edited = format!("{}{}", &text[..start], &text[end..]);
    let mut wanted = before;
    wanted.signers.remove(place);
    match parse_text(&edited) {
        Ok(after) if after == wanted => Ok(edited),
        Ok(_) | Err(_) => Err(by_hand()),
    }
}

fn parse_text(text: &str) -> Result<TrustFile, EditError> {
    parse(&SourceFile::new(FileId(0), "trust.toml", text)).map_err(EditError::File)
}

struct TrustChecker {
    mistakes: Vec<Diagnostic>,
}

impl TrustChecker {
    fn file(&mut self, top: &Node) -> Option<TrustFile> {
        self.known_keys(top, &TOP_KEYS);
        let format = self.text(top, "format");
        if let Some((format, span)) = format
            && format != FORMAT
        {
            self.bad(span, format!("`format` must be `{FORMAT}`"));
        }
        let version = self.version(top);
        let mut signers: Vec<(Signer, Span)> = Vec::new();
        let blocks: &[Node] = match top.entry("signer").map(|entry| &entry.value) {
            None => &[],
            Some(Node { value: Tree::List(blocks), .. }) => blocks,
            Some(other) => {
                self.wrong_type(other, "`[[signer]]` blocks");
                &[]
            }
        };
        for block in blocks {
            if let Some(signer) = self.signer(block) {
                self.unique(&signer, block.span, &signers);
                signers.push((signer, block.span));
            }
        }
        let signers = signers.into_iter().map(|(signer, _)| signer).collect();
        Some(TrustFile { version: version?, signers })
    }

    fn version(&mut self, top: &Node) -> Option<TrustVersion> {
        match self.required(top, "version")? {
            Node { value: Tree::Integer(number), span } => match u64::try_from(*number) {
                Ok(number) if number > 0 => Some(TrustVersion(number)),
                Ok(_) | Err(_) => {
                    self.bad(*span, "versions count from 1");
                    None
                }
            },
            other => {
                self.wrong_type(other, "a whole number");
                None
            }
        }
    }

    fn signer(&mut self, block: &Node) -> Option<Signer> {
        let Tree::Table(_) = block.value else {
            self.wrong_type(block, "a `[[signer]]` block");
            return None;
        };
        self.known_keys(block, &SIGNER_KEYS);
        let name = self.text(block, "name");
        let name = self.parsed::<SignerName>(name);
        let role = self.text(block, "role");
        let role = self.parsed::<Role>(role);
        let key = self.text(block, "key").and_then(|(line, span)| {
            PublicKey::from_line(line).map_err(|refusal| self.bad(span, refusal.to_string())).ok()
        });
        let from = self.moment(block, "valid_from", Validity::ALWAYS.from);
        let until = self.moment(block, "valid_until", Validity::ALWAYS.until);
        if from >= until {
            self.bad(block.span, "the key would never be valid");
        }
        let sk = if block.entry("sk").is_some() {
            let sk = self.text(block, "sk");
            self.parsed(sk)
        } else {
            Some(SkPolicy::Presence)
        };
        let key = key?;
        let sk = sk?;
        if let (Some(entry), false) = (block.entry("sk"), key.key_type().is_security_key()) {
            self.bad(entry.value.span, "only a security key asks for a touch or a PIN");
        }
        let validity = Validity { from, until };
        Some(Signer { name: name?, role: role?, key, validity, sk })
    }

    fn unique(&mut self, signer: &Signer, span: Span, earlier: &[(Signer, Span)]) {
        for (other, first) in earlier {
            let what = if other.key == signer.key {
                "the same key"
            } else if other.name == signer.name {
                "the same name"
            } else {
                continue;
            };
            let message = format!("{} and {} have {what}", other.name, signer.name);
            let mistake = Diagnostic::new(Code::Duplicate, message).at(span, "again here");
            self.mistakes.push(mistake.related(*first, "first here"));
        }
    }

    fn known_keys(&mut self, table: &Node, known: &[&str]) {
        let Tree::Table(entries) = &table.value else { return };
        for TreeEntry { key, key_span, .. } in entries {
            if !known.contains(&key.as_str()) {
                let message = format!("unknown key `{}`", key.escape_debug());
                let mut mistake = Diagnostic::new(Code::UnknownKey, message).at(*key_span, "");
                if let Some(meant) = did_you_mean(key, known.iter().copied()) {
                    mistake = mistake.hint(format!("did you mean `{meant}`?"));
                }
                self.mistakes.push(mistake);
            }
        }
    }

    fn required<'a>(&mut self, table: &'a Node, key: &str) -> Option<&'a Node> {
        let entry = table.entry(key);
        if entry.is_none() {
            let message = format!("`{key}` is missing");
            self.mistakes.push(Diagnostic::new(Code::Structure, message).at(table.span, ""));
        }
        entry.map(|entry| &entry.value)
    }

    fn text<'a>(&mut self, table: &'a Node, key: &str) -> Option<(&'a str, Span)> {
        match self.required(table, key)? {
            Node { value: Tree::Text(text), span } => Some((text, *span)),
            other => {
                self.wrong_type(other, "text");
                None
            }
        }
    }

    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        text: Option<(&str, Span)>,
    ) -> Option<T> {
        let (text, span) = text?;
        text.parse().map_err(|error: T::Err| self.bad(span, error.to_string())).ok()
    }

    fn moment(&mut self, block: &Node, key: &str, absent: UnixSeconds) -> UnixSeconds {
        if block.entry(key).is_none() {
            return absent;
        }
        let Some((text, span)) = self.text(block, key) else { return absent };
        time::parse(text).unwrap_or_else(|| {
            self.bad(span, "a moment is written in UTC: 2026-01-01T00:00:00Z");
            absent
        })
    }

    fn bad(&mut self, span: Span, message: impl Into<String>) {
        self.mistakes.push(Diagnostic::new(Code::BadValue, message).at(span, ""));
    }

    fn wrong_type(&mut self, node: &Node, wanted: &str) {
        let message = format!("{wanted} is wanted here");
        let label = format!("this is {}", node.value.kind_name());
        self.mistakes.push(Diagnostic::new(Code::WrongType, message).at(node.span, label));
    }
}
