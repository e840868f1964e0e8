//! A document: a set of desired files with names, and the manifest that stands for exactly these bytes.
//!
//! Hub, host and author's tool make the manifest's bytes by the one function here; what is signed and compared is the
//! SHA-256 of those bytes. A document is read by the same reader as the files of a directory, and refused whole if it has
//! a mistake or holds a secret: whoever reads the hub's database must find none.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::inline_secret;
use crate::desired::{self, DeclaredBy, Desired, Origins};
use crate::sign::json::{self, Json, JsonFields, Malformed};
use crate::sign::{ManifestHash, PayloadHash};
use crate::words::diagnostic::{Diagnostic, FILE_BYTES_MAX, MistakeList, Sources};

/// How many files one document may have.
pub const DOCUMENT_FILES_MAX: usize = 1_000;

/// How much text they may hold together.
pub const DOCUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The longest name of a file.
pub const FILE_NAME_BYTES_MAX: usize = 200;

/// The largest manifest: every file with the longest name.
pub const MANIFEST_BYTES_MAX: usize = 512 * 1024;

const MANIFEST_FORMAT: &str = "evenkeel/manifest/v1";

/// The endings of desired files.
const ENDINGS: [&str; 4] = [".toml", ".yaml", ".yml", ".json"];

/// Files by name, within the limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentFiles {
    files: BTreeMap<String, String>,
}

/// Why files are no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// A name that is none.
    #[error(
        "`{0}` is no name of a desired file: letters, digits, `.`, `_`, `-` and `/`, at most {FILE_NAME_BYTES_MAX} bytes, no part beginning with a dot, ending in .toml, .yaml, .yml or .json"
    )]
    Name(String),
    /// The same name twice.
    #[error("the file `{0}` stands twice")]
    Twice(String),
    /// Too many files.
    #[error("a document has at most {DOCUMENT_FILES_MAX} files")]
    Files,
    /// Too much text.
    #[error(
        "a document has at most {DOCUMENT_BYTES_MAX} bytes of text, and a file at most {FILE_BYTES_MAX}"
    )]
    Bytes,
    /// The manifest is none.
    #[error("the manifest is malformed: {0}")]
    Manifest(String),
    /// The manifest is of other files.
    #[error("the manifest does not fit the file `{0}`")]
    OtherFile(String),
}

impl DocumentFiles {
    /// Takes files as they came; refuses all if one does not fit.
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Result<Self, DocumentError> {
        let mut taken = BTreeMap::new();
        let mut bytes = 0_usize;
        for (name, text) in files {
            if !is_file_name(&name) {
                return Err(DocumentError::Name(crate::model::name::shown(&name)));
            }
            bytes = bytes.saturating_add(text.len());
            if bytes > DOCUMENT_BYTES_MAX || text.len() > FILE_BYTES_MAX {
                return Err(DocumentError::Bytes);
            }
            if taken.len() == DOCUMENT_FILES_MAX {
                return Err(DocumentError::Files);
            }
            if taken.insert(name.clone(), text).is_some() {
                return Err(DocumentError::Twice(name));
            }
        }
        Ok(Self { files: taken })
    }

    /// The files, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.files.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// The exact bytes that stand for these files.
    pub fn manifest(&self) -> Manifest {
        let mut text = format!("{{\"format\":\"{MANIFEST_FORMAT}\",\"files\":[");
        for (place, (name, content)) in self.files.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let sum = PayloadHash::of(content.as_bytes());
            let bytes = content.len();
            // A name needs no escape: the rule allows nothing that JSON would.
            let _ = write!(
                text,
                "{comma}{{\"name\":\"{name}\",\"sha256\":\"{sum}\",\"bytes\":{bytes}}}"
            );
        }
        text.push_str("]}");
        Manifest { bytes: text.into_bytes() }
    }

    /// Whether a manifest is of exactly these files: every one by its name, length and hash, and no other.
    pub fn fit(&self, manifest: &Manifest) -> Result<(), DocumentError> {
        let mut listed = manifest.files()?;
        for (name, text) in &self.files {
            match listed.remove(name) {
                Some((sum, bytes))
                    if sum == PayloadHash::of(text.as_bytes()) && bytes == text.len() as u64 => {}
                Some(_) | None => return Err(DocumentError::OtherFile(name.clone())),
            }
        }
        match listed.into_keys().next() {
            None => Ok(()),
            Some(missing) => Err(DocumentError::OtherFile(missing)),
        }
    }

    /// The files as the reader of desired state takes them.
    pub fn sources(&self) -> Sources {
        let mut sources = Sources::default();
        for (name, text) in &self.files {
            sources.add(name.clone(), text.clone());
        }
        sources
    }

    /// Reads the files as the host would: everything declared in them by somebody, or every mistake and every secret.
    pub fn load(&self, by: DeclaredBy) -> Result<LoadedDocument, Vec<Diagnostic>> {
        let sources = self.sources();
        // Secrets first: of too many mistakes they are the ones to be told.
        let mut mistakes = MistakeList::default();
        mistakes.extend(inline_secret::found(&sources));
        let loaded = desired::load_with_origins(&sources);
        let (mut desired, origins) = match (loaded, mistakes.is_empty()) {
            (Ok(loaded), true) => loaded,
            (Ok(_), false) => return Err(mistakes.finish()),
            (Err(more), _) => {
                mistakes.extend(more);
                return Err(mistakes.finish());
            }
        };
        for guest in desired.guests.values_mut() {
            guest.by = by;
        }
        Ok(LoadedDocument { desired, origins, sources })
    }
}

/// A document without mistakes.
#[derive(Debug, Clone)]
pub struct LoadedDocument {
    /// What it declares.
    pub desired: Desired,
    /// Where each value comes from.
    pub origins: Origins,
    /// The text, to show places in it.
    pub sources: Sources,
}

/// The bytes that stand for a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    bytes: Vec<u8>,
}

impl Manifest {
    /// Takes bytes as they came; [`DocumentFiles::fit`] reads them.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// The exact bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What is signed and compared.
    pub fn hash(&self) -> ManifestHash {
        ManifestHash::of(&self.bytes)
    }

    fn files(&self) -> Result<BTreeMap<String, (PayloadHash, u64)>, DocumentError> {
        self.read().map_err(|error| DocumentError::Manifest(error.to_string()))
    }

    fn read(&self) -> Result<BTreeMap<String, (PayloadHash, u64)>, Malformed> {
        let mut fields = json::parse(&self.bytes, MANIFEST_BYTES_MAX)?;
        fields.exactly("format", MANIFEST_FORMAT)?;
        let listed: Vec<Json> = fields.list("files")?;
        fields.finish()?;
        let mut files: BTreeMap<String, (PayloadHash, u64)> = BTreeMap::new();
        for file in listed {
            let mut file = JsonFields::of("a file", file)?;
            let name = file.text("name")?;
            let entry = (file.parsed("sha256")?, file.integer("bytes")?);
            file.finish()?;
            if files.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(Malformed::new("its files are not sorted by name, each once"));
            }
            files.insert(name, entry);
        }
        Ok(files)
    }
}

/// A name that leaves no directory and hides nothing.
fn is_file_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    let lower = name.to_ascii_lowercase();
    name.len() <= FILE_NAME_BYTES_MAX
        && name.bytes().all(plain)
        && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
        && ENDINGS.iter().any(|ending| lower.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WEB: &str = "[guest.101]\nkind = \"lxc\"\ncores = 2\n";

    fn document(files: &[(&str, &str)]) -> Result<DocumentFiles, DocumentError> {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        DocumentFiles::new(files.iter().map(owned))
    }

    #[test]
    fn the_bytes_of_a_manifest_are_exactly_these() {
        let files = document(&[("z.toml", ""), ("a/web.toml", "x")]).unwrap();
        let manifest = files.manifest();
        let expected = concat!(
            r#"{"format":"evenkeel/manifest/v1","files":["#,
            r#"{"name":"a/web.toml","sha256":"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881","bytes":1},"#,
            r#"{"name":"z.toml","sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","bytes":0}]}"#,
        );
        assert_eq!(String::from_utf8(manifest.as_bytes().to_vec()).unwrap(), expected);
        assert_eq!(files.fit(&manifest), Ok(()));
        assert_eq!(
            document(&[]).unwrap().manifest().as_bytes(),
            br#"{"format":"evenkeel/manifest/v1","files":[]}"#
        );
    }

    #[test]
    fn a_name_leaves_no_directory_and_hides_nothing() {
        for name in ["a.toml", "A.YAML", "site/rack-1/web_2.json", "x.y.yml"] {
            assert!(is_file_name(name), "{name}");
        }
        let long = format!("{}.toml", "x".repeat(196));
        for name in [
            "",
            "/a.toml",
            "a//b.toml",
            "../a.toml",
            "a/../b.toml",
            ".a.toml",
            "a/.b/c.toml",
            "a.txt",
            "a",
            "a b.toml",
            "ä.toml",
            "a\\b.toml",
            "a.toml/",
            "a\0.toml",
            &long,
        ] {
            assert!(!is_file_name(name), "{name}");
        }
    }

    #[test]
    fn limits_hold_for_a_document_as_a_whole() {
        let many = (0..=DOCUMENT_FILES_MAX).map(|n| (format!("{n}.toml"), String::new()));
        assert_eq!(DocumentFiles::new(many), Err(DocumentError::Files));
        let large = (0..5).map(|n| (format!("{n}.toml"), "#".repeat(FILE_BYTES_MAX)));
        assert_eq!(DocumentFiles::new(large), Err(DocumentError::Bytes));
        assert_eq!(
            document(&[("a.toml", ""), ("a.toml", "")]),
            Err(DocumentError::Twice("a.toml".into()))
        );
    }

    #[test]
    fn a_manifest_of_other_files_fits_none() {
        let files = document(&[("a.toml", WEB), ("b.toml", "")]).unwrap();
        let manifest = files.manifest();
        for other in [
            document(&[("a.toml", WEB)]).unwrap(),
            document(&[("a.toml", ""), ("b.toml", "")]).unwrap(),
            document(&[("a.toml", WEB), ("b.toml", ""), ("c.toml", "")]).unwrap(),
            document(&[("a.toml", WEB), ("c.toml", "")]).unwrap(),
        ] {
            assert!(other.fit(&manifest).is_err());
        }
        let text = String::from_utf8(manifest.as_bytes().to_vec()).unwrap();
        let twisted = [
            text.replace("\"bytes\":0", "\"bytes\":1"),
            text.replace("v1", "v2"),
            text.replace("]}", "],\"more\":1}"),
            format!("{text} "),
            text.replace("b.toml", "0.toml"),
        ];
        for bytes in twisted {
            assert!(files.fit(&Manifest::from_bytes(bytes.into_bytes())).is_err());
        }
    }

    #[test]
    fn a_document_is_read_like_the_files_of_a_directory() {
        let loaded = document(&[("web.toml", WEB)]).unwrap().load(DeclaredBy::Hub).unwrap();
        assert_eq!(loaded.desired.guests.len(), 1);
        assert!(loaded.desired.guests.values().all(|guest| guest.by == DeclaredBy::Hub));
        let mistakes =
            document(&[("web.toml", WEB), ("b.toml", "[guest.102]\nkind = \"lxc\"\ncoers = 1\n")]);
        let mistakes = mistakes.unwrap().load(DeclaredBy::Hub).unwrap_err();
        assert!(mistakes[0].message.contains("coers"), "{mistakes:?}");
    }

    proptest! {
        /// Whatever one byte of a text or one name becomes, the manifest no longer fits.
        #[test]
        fn no_change_of_a_file_keeps_its_manifest(text in "[a-z\n]{1,40}", at in 0_usize..40, letter in "[A-Z]") {
            let files = document(&[("a.toml", &text)]).unwrap();
            let at = at % text.len();
            let mut changed = text.clone();
            changed.replace_range(at..=at, &letter);
            let other = document(&[("a.toml", &changed)]).unwrap();
            prop_assert!(files.fit(&files.manifest()).is_ok());
            prop_assert!(other.fit(&files.manifest()).is_err());
            prop_assert_ne!(other.manifest().hash(), files.manifest().hash());
        }

        #[test]
        fn no_bytes_make_the_reader_of_manifests_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = document(&[]).unwrap().fit(&Manifest::from_bytes(bytes));
        }
    }
}
