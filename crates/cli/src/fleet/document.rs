//! A document on this machine: read from a directory or an answer as its host would read it, and compared.

use camino::Utf8Path;
use evenkeel_agent::source::dir;
use evenkeel_core::desired::{DeclaredBy, DeclaredSet, difference};
use evenkeel_core::fleet::{DocumentFiles, LoadedDocument};
use evenkeel_hub::people::wire::{DifferenceBody, FileBody};

use crate::command::validate::tell_errors;
use crate::error::{CommandFailure, Exit};

/// A document without mistakes.
pub(crate) struct ReadDocument {
    pub(crate) files: DocumentFiles,
    pub(crate) loaded: LoadedDocument,
}

impl ReadDocument {
    /// Reads a directory or a file as the host would read it; mistakes are told.
    pub(crate) fn from_path(path: &Utf8Path) -> Result<Self, CommandFailure> {
        let found = dir::load(path.as_std_path())?;
        let is_directory = path.as_std_path().is_dir();
        let mut files = Vec::new();
        for file in &found.sources {
            let whole = Utf8Path::new(&file.path);
            let name = match whole.strip_prefix(path) {
                Ok(below) if is_directory => below.as_str(),
                Ok(_) | Err(_) => whole.file_name().unwrap_or(whole.as_str()),
            };
            files.push((name.to_owned(), file.text.clone()));
        }
        if let Err(errors) = &found.desired {
            tell_errors(errors, &found.sources)?;
            return Err(invalid());
        }
        Self::read(files)
    }

    /// The document of an answer.
    pub(crate) fn from_bodies(files: Vec<FileBody>) -> Result<Self, CommandFailure> {
        Self::read(files.into_iter().map(|file| (file.name, file.text)).collect())
    }

    fn read(files: Vec<(String, String)>) -> Result<Self, CommandFailure> {
        let files = DocumentFiles::new(files).map_err(|error| {
            CommandFailure::new(Exit::Invalid, error.to_string())
                .hint("rename or split the files; a hub takes no other")
        })?;
        Self::from_files(files)
    }

    /// Files that are within the limits; mistakes are told.
    pub(crate) fn from_files(files: DocumentFiles) -> Result<Self, CommandFailure> {
        match files.load(DeclaredBy::Hub) {
            Ok(loaded) => Ok(Self { files, loaded }),
            Err(errors) => {
                tell_errors(&errors, &files.sources())?;
                Err(invalid())
            }
        }
    }

    /// The files as they are handed in.
    pub(crate) fn bodies(&self) -> Vec<FileBody> {
        let body = |(name, text): (&str, &str)| FileBody { name: name.into(), text: text.into() };
        self.files.iter().map(body).collect()
    }

    fn set(&self) -> DeclaredSet<'_> {
        let LoadedDocument { desired, origins, sources } = &self.loaded;
        DeclaredSet { desired, origins, sources }
    }

    /// Guest by guest, what differs from another document, or from none.
    pub(crate) fn difference_from(&self, before: Option<&Self>) -> Vec<DifferenceBody> {
        let (desired, origins, sources) = Default::default();
        let nothing = DeclaredSet { desired: &desired, origins: &origins, sources: &sources };
        let found = difference(before.map_or(nothing, Self::set), self.set());
        found.into_iter().map(DifferenceBody::from).collect()
    }
}

fn invalid() -> CommandFailure {
    CommandFailure::new(Exit::Invalid, "the document has mistakes; nothing was handed in")
        .hint("`evenkeel validate DIR` tells them too")
}
