//! What this person's machine remembers of a host's documents: the last one that was verified or handed in here, the
//! highest number that was signed, and the keys that signed.
//!
//! One file a hub and host, beside the logins, for its owner alone, written whole or not at all. It spares a person to
//! read a whole document again, and it tells when a hub asks for a number twice. Nothing in it is from a hub unverified.

use camino::Utf8PathBuf;
use evenkeel_core::fleet::{DocumentBase, DocumentFiles, Generation, HubId};
use evenkeel_core::model::id::HostId;
use evenkeel_core::sign::{ManifestHash, PublicKey};
use evenkeel_hub::people::wire::FileBody;
use serde::{Deserialize, Serialize};

use super::place::state_dir;
use crate::error::{CommandFailure, Exit};
use crate::signing::file;

/// The largest file that is read: a document of four megabytes, every byte of which is an escape of six.
const MEMORY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The shape of the file.
const FORMAT_VERSION: u32 = 1;

/// How many keys are remembered: more than a person signs with.
const KEYS_MAX: usize = 16;

/// What is remembered of one host.
#[derive(Debug)]
pub(crate) struct DocumentMemory {
    path: Utf8PathBuf,
    kept: WrittenMemory,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMemory {
    format_version: u32,
    /// The highest generation that was signed here; 0 for none.
    signed: u64,
    /// The keys that signed here, as a `.pub` file has them.
    keys: Vec<String>,
    document: Option<RememberedDocument>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberedDocument {
    generation: u64,
    manifest: ManifestHash,
    files: Vec<FileBody>,
}

impl DocumentMemory {
    /// What is remembered of a host at a hub, which may be nothing.
    pub(crate) fn read(hub_id: &HubId, host: &HostId) -> Result<Self, CommandFailure> {
        let directory = state_dir()?.join("hub_documents").join(hub_id.as_str());
        Self::read_from(directory.join(format!("{host}.json")))
    }

    fn read_from(path: Utf8PathBuf) -> Result<Self, CommandFailure> {
        let Some(is_private) = file::is_private(&path) else {
            let kept = WrittenMemory { format_version: FORMAT_VERSION, ..WrittenMemory::default() };
            return Ok(Self { path, kept });
        };
        if !is_private {
            let message = format!("others can change {path}, which says what you verified");
            let hint = format!("rm {path}; the next document is then shown whole");
            return Err(CommandFailure::new(Exit::Denied, message).hint(hint));
        }
        let bytes = file::read(&path, MEMORY_BYTES_MAX)?;
        let kept = serde_json::from_slice::<WrittenMemory>(&bytes).ok();
        let kept = kept.filter(|kept| kept.format_version == FORMAT_VERSION).ok_or_else(|| {
            CommandFailure::new(
                Exit::Invalid,
                format!("{path} is not a record of verified documents"),
            )
            .hint("remove it; the next document is then shown whole")
        })?;
        Ok(Self { path, kept })
    }

    /// The remembered document, if it is exactly this one.
    pub(crate) fn files_of(&self, base: DocumentBase) -> Option<DocumentFiles> {
        let RememberedDocument { generation, manifest, files } = self.kept.document.as_ref()?;
        let is_it = Generation(*generation) == base.generation && *manifest == base.manifest;
        let pairs = files.iter().map(|file| (file.name.clone(), file.text.clone()));
        let files = DocumentFiles::new(pairs).ok().filter(|_| is_it)?;
        (files.manifest().hash() == base.manifest).then_some(files)
    }

    /// The keys that signed here for this host.
    pub(crate) fn keys(&self) -> impl Iterator<Item = PublicKey> + '_ {
        self.kept.keys.iter().filter_map(|line| PublicKey::from_line(line).ok())
    }

    /// The highest generation that was signed here; 0 for none.
    pub(crate) fn signed(&self) -> u64 {
        self.kept.signed
    }

    /// A statement was signed: remembered before anybody gets it, because a hub may keep what it says it refused.
    pub(crate) fn keep_signed(
        &mut self,
        generation: Generation,
        key: &PublicKey,
        files: &DocumentFiles,
    ) -> Result<(), CommandFailure> {
        self.kept.signed = self.kept.signed.max(generation.0);
        let line = key.to_string();
        self.kept.keys.retain(|known| *known != line);
        self.kept.keys.insert(0, line);
        self.kept.keys.truncate(KEYS_MAX);
        self.keep(generation, files)
    }

    /// A document was verified, or handed in from files of this machine.
    pub(crate) fn keep(
        &mut self,
        generation: Generation,
        files: &DocumentFiles,
    ) -> Result<(), CommandFailure> {
        let body = |(name, text): (&str, &str)| FileBody { name: name.into(), text: text.into() };
        self.kept.document = Some(RememberedDocument {
            generation: generation.0,
            manifest: files.manifest().hash(),
            files: files.iter().map(body).collect(),
        });
        let bytes = serde_json::to_vec(&self.kept).expect("texts and numbers are JSON");
        file::write_private(&self.path, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn files(text: &str) -> DocumentFiles {
        DocumentFiles::new([("web.toml".to_owned(), text.to_owned())]).unwrap()
    }

    fn base(generation: u64, text: &str) -> DocumentBase {
        DocumentBase { generation: Generation(generation), manifest: files(text).manifest().hash() }
    }

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICfa12uZnFamG2KgW91fUm7tqKfgBIfx+yup6p2YN5lS";

    #[test]
    fn a_document_is_remembered_by_its_number_and_content_and_numbers_never_go_down() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(directory.path().join("hub/pve1.json")).unwrap();
        let read = || DocumentMemory::read_from(path.clone()).unwrap();
        assert_eq!((read().signed(), read().files_of(base(7, "# one\n"))), (0, None));
        let key = PublicKey::from_line(KEY).unwrap();
        read().keep_signed(Generation(7), &key, &files("# one\n")).unwrap();
        assert_eq!(read().files_of(base(7, "# one\n")), Some(files("# one\n")));
        assert_eq!(read().files_of(base(8, "# one\n")), None);
        assert_eq!(read().files_of(base(7, "# two\n")), None);
        read().keep_signed(Generation(6), &key, &files("# two\n")).unwrap();
        assert_eq!((read().signed(), read().keys().count()), (7, 1), "7 was signed all the same");
        read().keep(Generation(9), &files("# three\n")).unwrap();
        assert_eq!((read().signed(), read().files_of(base(6, "# two\n"))), (7, None));
        assert_eq!(path.as_std_path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_others_could_have_written_or_what_does_not_fit_itself_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(directory.path().join("pve1.json")).unwrap();
        let read = || DocumentMemory::read_from(path.clone());
        read().unwrap().keep(Generation(7), &files("# one\n")).unwrap();
        let text = fs_err::read_to_string(&path).unwrap();
        file::write_private(&path, text.replace("# one", "# two").as_bytes()).unwrap();
        assert_eq!(read().unwrap().files_of(base(7, "# one\n")), None, "another text");
        file::write_private(&path, b"{}").unwrap();
        assert_eq!(read().unwrap_err().exit, Exit::Invalid);
        file::write_private(&path, text.as_bytes()).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(read().unwrap_err().exit, Exit::Denied);
    }
}
