//! The last good document on disk, so that a host starts and converges with no hub.
//!
//! Each document has a file of its own: written beside, synced, renamed, directory synced, and only then does its floor go
//! into the journal. The journal says which file counts, by its hash; a file that does not fit is not read, and older ones
//! go away afterwards. Nothing in it is a secret: a document holds none.

use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_core::fleet::{
    DocumentFloor, Generation, LoadedDocument, ManifestHash, OfferedDocument, WireDocument,
};
use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;

use crate::plain_file;

/// The largest file: a document whose every character needs six in JSON is refused earlier, by the bound of an answer.
const FILE_BYTES_MAX: usize = 16 << 20;

const PREFIX: &str = "document-";
const SUFFIX: &str = ".json";

/// Where the bytes are: a directory, or the memory of a simulated host.
pub trait DocumentDisk: fmt::Debug + Send + Sync {
    /// Puts a whole file there; once this returns, it survives a crash.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// The whole of a file, or why there is none.
    fn get(&self, name: &str) -> io::Result<Vec<u8>>;

    /// The names of all files.
    fn names(&self) -> Vec<String>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Whether a call may take long and is made beside the loop.
    fn takes_long(&self) -> bool;
}

/// Where documents are kept.
#[derive(Debug, Clone)]
pub struct DocumentStore {
    files: Arc<dyn DocumentDisk>,
}

/// Why the document that was taken cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoredDocumentError {
    /// No file, or one that cannot be read.
    #[error("the document that was taken cannot be read: {0}")]
    Unreadable(String),
    /// It is not the one that was taken.
    #[error("{0} is not the document that was taken: its hash is another")]
    Other(String),
    /// This version of evenkeel finds mistakes in it.
    #[error("the document that was taken has mistakes by now: {0}")]
    Mistakes(String),
}

impl DocumentStore {
    /// Documents under a state directory; nothing is touched yet.
    pub fn new(state: &Path) -> Self {
        Self::on(Arc::new(DocumentDirectory(state.join("hub"))))
    }

    /// Documents elsewhere.
    pub fn on(files: Arc<dyn DocumentDisk>) -> Self {
        Self { files }
    }

    /// Puts a document on disk. It counts once the journal says so.
    pub fn keep(&self, document: &OfferedDocument) -> io::Result<()> {
        let OfferedDocument { hub_id, host, generation, manifest, files, author: _ } = document;
        let wire = WireDocument::of(hub_id.clone(), host.clone(), *generation, files, None);
        let bytes = serde_json::to_vec(&wire).map_err(io::Error::other)?;
        self.files.put(&file_name(*generation, manifest.hash()), &bytes)
    }

    /// Forgets every document but one, as far as that can be done.
    pub fn forget_all_but(&self, generation: Generation, manifest: ManifestHash) {
        let stays = file_name(generation, manifest);
        for name in self.files.names().into_iter().filter(|name| *name != stays) {
            if name.starts_with(PREFIX)
                && let Err(error) = self.files.remove(&name)
            {
                tracing::warn!(%error, "an old document of the hub stays on disk");
            }
        }
    }

    /// The document of a floor; none if none was taken yet.
    pub fn load(
        &self,
        floor: &DocumentFloor,
    ) -> Result<Option<LoadedDocument>, StoredDocumentError> {
        let Some(document) = floor.in_effect() else { return Ok(None) };
        let name = file_name(document.generation, document.manifest);
        let unreadable = |why: String| StoredDocumentError::Unreadable(why);
        let bytes = self.files.get(&name).map_err(|error| unreadable(error.to_string()))?;
        let wire: WireDocument =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        let offered = wire.offered().map_err(|refusal| unreadable(refusal.to_string()))?;
        let is_it = floor.is_of(&offered.hub_id, offered.generation, offered.manifest.hash());
        if !is_it || offered.files.fit(&offered.manifest).is_err() {
            return Err(StoredDocumentError::Other(name));
        }
        offered.files.load(document.declared_by()).map(Some).map_err(|mistakes| {
            let first = mistakes.first().map(|mistake| mistake.message.clone());
            StoredDocumentError::Mistakes(first.unwrap_or_default())
        })
    }

    /// Does something with the store, beside the loop if that may take long; none if it did not end.
    pub(super) async fn off_the_loop<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        if !self.files.takes_long() {
            return Some(work(self));
        }
        let store = self.clone();
        tokio::task::spawn_blocking(move || work(&store)).await.ok()
    }
}

/// The number alone would not do: after a new enrolment it begins again.
fn file_name(generation: Generation, manifest: ManifestHash) -> String {
    let short: String = manifest.to_string().chars().take(16).collect();
    format!("{PREFIX}{generation}-{short}{SUFFIX}")
}

/// Files of a real host.
#[derive(Debug)]
struct DocumentDirectory(PathBuf);

impl DocumentDisk for DocumentDirectory {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        let path = self.0.join(name);
        let beside = path.with_extension("new");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        fs::File::open(&self.0)?.sync_all()
    }

    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = plain_file::read(&self.0.join(name), FILE_BYTES_MAX);
        file.map(|file| file.bytes).map_err(io::Error::other)
    }

    fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn takes_long(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_core::fleet::{DocumentFiles, EffectiveDocument, FloorState};

    use super::*;

    fn document(text: &str) -> OfferedDocument {
        let files = DocumentFiles::new([("web.toml".to_owned(), text.to_owned())]).unwrap();
        OfferedDocument {
            hub_id: "0123456789abcdef0123456789abcdef".parse().unwrap(),
            host: "pve1".parse().unwrap(),
            generation: Generation(7),
            manifest: files.manifest(),
            files,
            author: None,
        }
    }

    fn floor_of(document: &OfferedDocument) -> DocumentFloor {
        let manifest = document.manifest.hash();
        let taken = EffectiveDocument {
            generation: Generation(7),
            manifest,
            signer: None,
            signed_at: None,
        };
        DocumentFloor { hub_id: document.hub_id.clone(), state: FloorState::Taken(taken) }
    }

    #[test]
    fn a_document_is_read_back_only_as_it_was_taken() {
        let directory = tempfile::tempdir().unwrap();
        let store = DocumentStore::new(directory.path());
        let first = document("[guest.101]\nkind = \"lxc\"\n");
        let second = document("[guest.102]\nkind = \"lxc\"\n");
        store.keep(&first).unwrap();
        store.keep(&second).unwrap();
        let floor = floor_of(&first);
        assert_eq!(
            store.load(&floor).unwrap().unwrap().desired.guests.len(),
            1,
            "until the journal says so, the first holds"
        );
        let path_of = |document: &OfferedDocument| {
            let name = file_name(Generation(7), document.manifest.hash());
            directory.path().join("hub").join(name)
        };
        let path = path_of(&first);
        fs::copy(path_of(&second), &path).unwrap();
        assert!(matches!(store.load(&floor), Err(StoredDocumentError::Other(_))));
        fs::write(&path, "{}").unwrap();
        assert!(matches!(store.load(&floor), Err(StoredDocumentError::Unreadable(_))));
        store.forget_all_but(Generation(7), second.manifest.hash());
        assert!(!path.exists() && store.load(&floor_of(&second)).unwrap().is_some());
        let none = DocumentFloor::enrolled(first.hub_id);
        assert!(store.load(&none).unwrap().is_none(), "nothing was taken yet");
    }
}
