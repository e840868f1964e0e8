//! A document between files, the hub and a signature: read from a directory or an answer, compared, signed, handed in.

use camino::Utf8Path;
use evenkeel_agent::source::dir;
use evenkeel_core::desired::{DeclaredBy, DeclaredSet, difference};
use evenkeel_core::fleet::{
    DesiredStatement, DocumentFiles, Generation, LoadedDocument, SealedText,
};
use evenkeel_core::id::HostId;
use evenkeel_core::sign::{Envelope, HostBinding, Namespace, Window, time};
use evenkeel_hub::people::wire::{
    DifferenceBody, DocumentBody, FileBody, HostDetailBody, PushAnswer, PushRequest, SealedBody,
};

use super::hub_client::{HubClient, encoded};
use super::known_hubs::KnownHubs;
use crate::cli::AuthorArgs;
use crate::command::validate::tell_errors;
use crate::error::{Exit, Failure};
use crate::render;
use crate::signing::known_hosts::KnownHosts;
use crate::signing::{keygen, now};
use crate::terminal;

/// How far a host's clock may be behind without refusing a fresh signature.
const CLOCK_SKEW_S: u64 = 5 * 60;

/// A document without mistakes.
pub(crate) struct ReadDocument {
    pub(crate) files: DocumentFiles,
    pub(crate) loaded: LoadedDocument,
}

impl ReadDocument {
    /// Reads a directory or a file as the host would read it; mistakes are told.
    pub(crate) fn from_path(path: &Utf8Path) -> Result<Self, Failure> {
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
    pub(crate) fn from_bodies(files: Vec<FileBody>) -> Result<Self, Failure> {
        Self::read(files.into_iter().map(|file| (file.name, file.text)).collect())
    }

    fn read(files: Vec<(String, String)>) -> Result<Self, Failure> {
        let files = DocumentFiles::new(files).map_err(|error| {
            Failure::new(Exit::Invalid, error.to_string())
                .hint("rename or split the files; a hub takes no other")
        })?;
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

fn invalid() -> Failure {
    Failure::new(Exit::Invalid, "the document has mistakes; nothing was handed in")
        .hint("`evenkeel validate DIR` tells them too")
}

/// One host at the hub.
pub(crate) struct HostAtHub<'c> {
    pub(crate) client: &'c HubClient,
    pub(crate) detail: HostDetailBody,
    path: String,
}

/// A document on its way to the hub.
pub(crate) struct PushOrder<'a> {
    pub(crate) document: &'a ReadDocument,
    pub(crate) message: String,
    pub(crate) draft: Option<String>,
    pub(crate) author: &'a AuthorArgs,
}

/// What came of a push.
pub(crate) enum PushOutcome {
    /// It is the next generation.
    Pushed(PushAnswer),
    /// The newest generation says exactly this already.
    Same(u64),
}

impl<'c> HostAtHub<'c> {
    /// Asks the hub about a host.
    pub(crate) async fn find(client: &'c HubClient, host: &HostId) -> Result<Self, Failure> {
        let path = format!("/v1/hosts/{}", encoded(host.as_str()));
        let detail: HostDetailBody = client.get(&path).await?;
        Ok(Self { client, detail, path })
    }

    /// A generation, whole; none for 0.
    pub(crate) async fn document(
        &self,
        generation: u64,
    ) -> Result<Option<(DocumentBody, ReadDocument)>, Failure> {
        if generation == 0 {
            return Ok(None);
        }
        let path = format!("{}/documents/{generation}", self.path);
        let body: DocumentBody = self.client.get(&path).await?;
        let read = ReadDocument::from_bodies(body.files.clone())?;
        Ok(Some((body, read)))
    }

    /// A path below the host's.
    pub(crate) fn below(&self, rest: &str) -> String {
        format!("{}/{rest}", self.path)
    }

    /// Shows what differs, has it signed, and hands it in.
    pub(crate) async fn push(&self, order: PushOrder<'_>) -> Result<PushOutcome, Failure> {
        let PushOrder { document, message, draft, author } = order;
        let newest = self.document(self.detail.host.wanted).await?;
        let is_same = newest.as_ref().is_some_and(|(body, read)| {
            read.files == document.files
                && (!body.generation.author.is_empty() || author.key.is_none())
        });
        if is_same {
            return Ok(PushOutcome::Same(self.detail.host.wanted));
        }
        let shown = document.difference_from(newest.as_ref().map(|(_, read)| read));
        terminal::tell(&render::difference::render(&shown))?;
        let statement = if let Some(key) = &author.key {
            Some(self.sign(document, key, author)?)
        } else {
            terminal::tell(
                "note: nobody signs this; the host takes it only if its root wrote `desired_signed = false`\n",
            )?;
            terminal::agreed(author.yes, "Hand it in unsigned?", "handed in")?;
            None
        };
        let request = PushRequest { files: document.bodies(), message, author: statement, draft };
        let tag = format!("\"{}\"", self.detail.host.wanted);
        let path = self.below("documents");
        let answer: PushAnswer = self.client.post(&path, &request, Some(&tag)).await?;
        Ok(PushOutcome::Pushed(answer))
    }

    /// The author's statement, made from this machine's own pins. The hub says only which number is next.
    fn sign(
        &self,
        document: &ReadDocument,
        key: &Utf8Path,
        author: &AuthorArgs,
    ) -> Result<SealedBody, Failure> {
        let host: HostId = self.detail.host.host.parse().map_err(|error| {
            Failure::new(Exit::Failed, format!("the hub names no host: {error}"))
        })?;
        let known = KnownHosts::read(&author.hosts)?;
        let fingerprint = known.key_of(&host)?.fingerprint();
        if fingerprint.to_string() != self.detail.host.key {
            let message = format!("the hub says that {host} has another key than the pinned one");
            return Err(Failure::new(Exit::Denied, message)
                .hint("do not sign; compare with `ssh-keygen -l -f host_key.pub` on the host"));
        }
        let hubs = KnownHubs::read()?;
        let hub = hubs.get(self.client.origin()).ok_or_else(|| {
            Failure::new(Exit::Denied, "the hub is not known here").hint("log in again")
        })?;
        let now = now();
        let statement = DesiredStatement {
            hub_id: hub.hub_id.clone(),
            host: HostBinding { id: host, key: fingerprint },
            generation: Generation(self.detail.next_generation),
            manifest: document.files.manifest().hash(),
            window: Window::new(now.minus(CLOCK_SKEW_S), now.plus(author.life_s))?,
        };
        terminal::tell(&words(&statement, document))?;
        terminal::agreed(author.yes, &format!("Sign this with {key}?"), "handed in")?;
        let bytes = statement.to_bytes()?;
        let made = keygen::sign(key, Namespace::Desired, &bytes)?;
        let sealed = SealedText::of(&Envelope::seal(&bytes, &[&made.armour])?)?;
        Ok(sealed.into())
    }
}

/// What a person reads before signing.
fn words(statement: &DesiredStatement, document: &ReadDocument) -> String {
    let DesiredStatement { hub_id, host, generation, manifest, window } = statement;
    let (files, guests) = (document.files.iter().len(), document.loaded.desired.guests.len());
    format!(
        "You sign:\n\n  document    {} in {}\n  manifest    {manifest}\n  host        {} ({})\n  \
         generation  {generation}\n  hub         {hub_id}\n  until       {}\n\n",
        render::counted(guests, "guest"),
        render::counted(files, "file"),
        host.id,
        host.key,
        time::print(window.expires_at()),
    )
}
