//! One host at the hub: its documents, fetched and verified, and a new one, shown, signed and handed in.
//!
//! The host is the one that was asked for, never the one of an answer. The base of what is signed is what the hub says is in
//! effect; that cannot mislead, because the content is verified here and the host refuses another base.

use std::time::{Duration, Instant};

use camino::Utf8Path;
use evenkeel_core::fleet::{
    DesiredStatement, DocumentBase, Generation, RefusedGeneration, SealedText, SignedBase,
};
use evenkeel_core::model::id::HostId;
use evenkeel_core::sign::{Envelope, HostBinding, Namespace, PublicKey, Window, time};
use evenkeel_hub::people::wire::{
    DocumentBody, HostDetailBody, PushAnswer, PushRequest, SealedBody,
};

use super::document::ReadDocument;
use super::document_memory::DocumentMemory;
use super::document_proof::{DocumentProof, DocumentVerifier, FetchedDocument};
use super::hub_client::{HubClient, encoded};
use super::known_authors;
use super::known_hubs::KnownHubs;
use crate::cli::{AuthorArgs, KnownHostsArgs};
use crate::error::{CommandFailure, Exit};
use crate::render;
use crate::signing::known_hosts::KnownHosts;
use crate::signing::{file, keygen, now};
use crate::terminal;

/// How far a host's clock may be behind without refusing a fresh signature.
const CLOCK_SKEW_S: u64 = 5 * 60;

/// How often the hub is asked for the host's verdict.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The largest `.pub` file.
const PUBLIC_KEY_BYTES_MAX: usize = 16 * 1024;

/// One host at the hub.
pub(crate) struct HostAtHub<'c> {
    pub(crate) client: &'c HubClient,
    pub(crate) detail: HostDetailBody,
    host: HostId,
    path: String,
    verifier: DocumentVerifier,
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
    /// The document in effect says exactly this already.
    Same(u64),
}

/// What a host made of a document, as the hub tells it.
#[derive(Debug)]
pub(crate) enum PushVerdict {
    /// It is in effect, or a later one is.
    InEffect,
    /// It was refused.
    Refused(Box<RefusedGeneration>),
    /// Nothing was said in time.
    Silent,
}

/// What a new document is compared with.
struct ComparedBase {
    /// The document in effect, by number and hash; none if none is.
    base: Option<DocumentBase>,
    /// The same whole, if it is verified.
    document: Option<ReadDocument>,
    is_signed: bool,
    /// Why it is not verified.
    trouble: Option<String>,
}

impl<'c> HostAtHub<'c> {
    /// Asks the hub about a host.
    pub(crate) async fn find(
        client: &'c HubClient,
        host: &HostId,
        pins: &KnownHostsArgs,
        key: Option<&Utf8Path>,
    ) -> Result<Self, CommandFailure> {
        let path = format!("/v1/hosts/{}", encoded(host.as_str()));
        let detail: HostDetailBody = client.get(&path).await?;
        if detail.host.host != host.as_str() {
            let message =
                format!("asked about the host {host}, the hub answered about another one");
            return Err(CommandFailure::new(Exit::Denied, message)
                .hint("nothing was shown or signed; look at the hub before you go on"));
        }
        let hubs = KnownHubs::read()?;
        let hub = hubs.get(client.origin()).ok_or_else(|| {
            CommandFailure::new(Exit::Denied, "the hub is not known here").hint("log in again")
        })?;
        if detail.hub_id != hub.hub_id.as_str() {
            let message = "the hub has another id than at your first login";
            return Err(
                CommandFailure::new(Exit::Denied, message).hint(hubs.forget(client.origin()))
            );
        }
        let memory = DocumentMemory::read(&hub.hub_id, host)?;
        let mut authors = known_authors::of(host)?;
        authors.extend(memory.keys());
        authors.extend(key.and_then(public_part));
        let verifier = DocumentVerifier {
            host: host.clone(),
            hub_id: hub.hub_id.clone(),
            host_key: KnownHosts::read(pins)?.key_of(host).ok().map(PublicKey::fingerprint),
            authors,
            memory,
        };
        Ok(Self { client, detail, host: host.clone(), path, verifier })
    }

    /// The host that was asked for.
    pub(crate) fn host(&self) -> &HostId {
        &self.host
    }

    /// A generation, whole and verified as far as can be; none for 0.
    pub(crate) async fn document(
        &self,
        generation: u64,
    ) -> Result<Option<FetchedDocument>, CommandFailure> {
        if generation == 0 {
            return Ok(None);
        }
        let path = format!("{}/documents/{generation}", self.path);
        let body: DocumentBody = self.client.get(&path).await?;
        self.verifier.verify(body, generation).map(Some)
    }

    /// A path below the host's.
    pub(crate) fn below(&self, rest: &str) -> String {
        format!("{}/{rest}", self.path)
    }

    /// Shows what differs from what is in effect, has it signed, and hands it in.
    pub(crate) async fn push(
        &mut self,
        order: PushOrder<'_>,
    ) -> Result<PushOutcome, CommandFailure> {
        let PushOrder { document, message, draft, author } = order;
        let compared = self.compared_base().await?;
        let manifest = document.files.manifest().hash();
        let wanted = self.detail.host.wanted;
        if self.is_said_already(document, &compared, author.key.is_some()).await? {
            return Ok(PushOutcome::Same(wanted));
        }
        self.show(document, &compared)?;
        let (generation, statement) = if let Some(key) = &author.key {
            let (generation, sealed) = self.sign(document, &compared, key, author)?;
            (Some(generation), Some(sealed))
        } else {
            terminal::tell(self.unsigned_note())?;
            terminal::agreed(author.yes, "Hand it in unsigned?", "handed in")?;
            (None, None)
        };
        let request = PushRequest { files: document.bodies(), message, author: statement, draft };
        let tag = format!("\"{wanted}\"");
        let path = self.below("documents");
        let answer: PushAnswer = self.client.post(&path, &request, Some(&tag)).await?;
        let is_kept = answer.manifest == manifest.to_string()
            && generation.is_none_or(|signed| signed.0 == answer.generation);
        if !is_kept {
            let message = "the hub says that it kept another document or number than was handed in";
            return Err(CommandFailure::new(Exit::Failed, message)
                .hint("`evenkeel fleet history HOST` shows what it has"));
        }
        if generation.is_none() {
            self.verifier.memory.keep(Generation(answer.generation), &document.files)?;
        }
        Ok(PushOutcome::Pushed(answer))
    }

    /// Whether the newest generation says exactly this. A signature is for a generation: what waits for its host, or was
    /// refused by it, is signed again as a new one.
    async fn is_said_already(
        &self,
        document: &ReadDocument,
        compared: &ComparedBase,
        is_signing: bool,
    ) -> Result<bool, CommandFailure> {
        let wanted = self.detail.host.wanted;
        if is_signing {
            let manifest = document.files.manifest().hash();
            let is_in_effect = compared
                .base
                .is_some_and(|base| base.manifest == manifest && base.generation.0 == wanted);
            return Ok(is_in_effect && compared.is_signed && compared.trouble.is_none());
        }
        let newest = self.document(wanted).await?;
        Ok(newest.is_some_and(|newest| newest.read.files == document.files))
    }

    /// Asks until the host has said what it made of a generation, or the time is over.
    pub(crate) async fn await_verdict(
        &mut self,
        generation: u64,
        wait_s: u64,
    ) -> Result<PushVerdict, CommandFailure> {
        let deadline = Instant::now() + Duration::from_secs(wait_s);
        loop {
            self.detail = self.client.get(&self.path).await?;
            let refused = &self.detail.refused;
            if self.detail.host.in_effect >= generation {
                return Ok(PushVerdict::InEffect);
            }
            if refused.generation.0 == generation {
                return Ok(PushVerdict::Refused(Box::new(refused.clone())));
            }
            if Instant::now() >= deadline {
                return Ok(PushVerdict::Silent);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// What is in effect on the host, as the hub says, with content that is verified here.
    async fn compared_base(&mut self) -> Result<ComparedBase, CommandFailure> {
        let generation = self.detail.host.in_effect;
        let nothing = ComparedBase { base: None, document: None, is_signed: false, trouble: None };
        if generation == 0 {
            return Ok(nothing);
        }
        match self.document(generation).await {
            Ok(None) => Ok(nothing),
            Ok(Some(FetchedDocument { read, base, is_signed, proof })) => match proof {
                DocumentProof::Verified => {
                    self.verifier.memory.keep(base.generation, &read.files)?;
                    let base = Some(base);
                    let document = Some(read);
                    Ok(ComparedBase { base, document, is_signed, trouble: None })
                }
                DocumentProof::Unverified(why) => {
                    let trouble = Some(why);
                    Ok(ComparedBase { base: Some(base), document: None, is_signed, trouble })
                }
            },
            Err(failure) if failure.exit == Exit::NotFound => self.base_of_another_hub(),
            Err(failure) => Err(failure),
        }
    }

    /// The host has a document in effect that this hub does not have: it was enrolled here with it.
    fn base_of_another_hub(&self) -> Result<ComparedBase, CommandFailure> {
        let generation = Generation(self.detail.host.in_effect);
        let manifest = self.detail.in_effect_manifest.parse().map_err(|_| {
            let message = format!(
                "generation {generation} is in effect on {}, and the hub says neither what it is nor its hash",
                self.host
            );
            CommandFailure::new(Exit::Failed, message).hint("upgrade the hub, then try again")
        })?;
        let base = DocumentBase { generation, manifest };
        if let Some(files) = self.verifier.memory.files_of(base) {
            let document = Some(ReadDocument::from_files(files)?);
            return Ok(ComparedBase {
                base: Some(base),
                document,
                is_signed: false,
                trouble: None,
            });
        }
        let trouble = Some(format!("the hub does not have generation {generation}"));
        Ok(ComparedBase { base: Some(base), document: None, is_signed: false, trouble })
    }

    /// Shows what differs; everything where nobody known vouches for what it would be compared with.
    fn show(&self, document: &ReadDocument, compared: &ComparedBase) -> Result<(), CommandFailure> {
        let shown = document.difference_from(compared.document.as_ref());
        if let Some(why) = &compared.trouble {
            terminal::tell(&whole_note(&self.host, why))?;
        }
        terminal::tell(&render::difference::render(&shown))?;
        let wanted = self.detail.host.wanted;
        let in_effect = self.detail.host.in_effect;
        if wanted > in_effect && self.detail.refused.generation.0 != wanted {
            terminal::tell(&format!(
                "note: generation {wanted} waits for {}; if the host takes it first, it refuses this one\n",
                self.host
            ))?;
        }
        Ok(())
    }

    fn unsigned_note(&self) -> &'static str {
        match self.detail.agent.policy.get("desired_signed").map(String::as_str) {
            Some("false") => {
                "note: nobody signs this; the host takes it and holds what opens a guest. Sign it with --key KEY\n"
            }
            Some(_) | None => {
                "note: nobody signs this, so the host refuses it. Sign it with --key KEY\n"
            }
        }
    }

    /// The author's statement, made from this machine's own pins for the host that was asked for.
    fn sign(
        &mut self,
        document: &ReadDocument,
        compared: &ComparedBase,
        key: &Utf8Path,
        author: &AuthorArgs,
    ) -> Result<(Generation, SealedBody), CommandFailure> {
        let host = self.host.clone();
        let known = KnownHosts::read(&author.hosts)?;
        let fingerprint = known.key_of(&host)?.fingerprint();
        if fingerprint.to_string() != self.detail.host.key {
            let message = format!("the hub says that {host} has another key than the pinned one");
            return Err(CommandFailure::new(Exit::Denied, message)
                .hint("do not sign; compare with `ssh-keygen -l -f host_key.pub` on the host"));
        }
        let now = now();
        let statement = DesiredStatement {
            hub_id: self.verifier.hub_id.clone(),
            host: HostBinding { id: host, key: fingerprint },
            generation: self.next_generation()?,
            manifest: document.files.manifest().hash(),
            base: SignedBase::after(compared.base),
            window: Window::new(now.minus(CLOCK_SKEW_S), now.plus(author.life_s))?,
        };
        terminal::tell(&words(&statement, document, compared))?;
        terminal::agreed(author.yes, &format!("Sign this with {key}?"), "handed in")?;
        let bytes = statement.to_bytes()?;
        let made = keygen::sign(key, Namespace::Desired, &bytes)?;
        let generation = statement.generation;
        self.verifier.memory.keep_signed(generation, &made.by.key, &document.files)?;
        let sealed = SealedText::of(&Envelope::seal(&bytes, &[&made.armour])?)?;
        Ok((generation, sealed.into()))
    }

    /// The number the hub asks for, or one above everything that was signed here: a hub that forgets a signed number could
    /// have the host take the other document of that number.
    fn next_generation(&self) -> Result<Generation, CommandFailure> {
        let next = self.detail.next_generation;
        let signed = self.verifier.memory.signed();
        if next > signed {
            return Ok(Generation(next));
        }
        let above = signed.saturating_add(1);
        terminal::tell(&format!(
            "note: you signed generation {signed} for {} before, and the hub asks for {next} now; this one is \
             generation {above}, so that the host takes at most one of them\n",
            self.host
        ))?;
        Ok(Generation(above))
    }
}

/// Why everything is shown and not a difference.
pub(crate) fn whole_note(host: &HostId, why: &str) -> String {
    format!(
        "note: what it would be compared with on {host} is not verified ({why}): the whole document is shown, not a \
         difference\n"
    )
}

/// The public part of a key to sign with, where a file tells it without asking for a passphrase.
fn public_part(key: &Utf8Path) -> Option<PublicKey> {
    let beside = Utf8Path::new(key.as_str().strip_suffix(".pub").unwrap_or(key.as_str()));
    let text =
        file::read_text(&camino::Utf8PathBuf::from(format!("{beside}.pub")), PUBLIC_KEY_BYTES_MAX)
            .ok()?;
    PublicKey::from_line(&text).ok()
}

/// What a person reads before signing.
fn words(statement: &DesiredStatement, document: &ReadDocument, compared: &ComparedBase) -> String {
    let DesiredStatement { hub_id, host, generation, manifest, base, window } = statement;
    let files = document.files.iter().len();
    let guests = document.loaded.desired.guests.len();
    let base = match (base, &compared.trouble) {
        (SignedBase::Over(base), None) => format!("{base}, verified"),
        (SignedBase::Over(base), Some(_)) => {
            format!("{base}, not verified: all of the document is new to you")
        }
        (SignedBase::First | SignedBase::Unsaid, _) => {
            "nothing: the host has no document".to_owned()
        }
    };
    format!(
        "You sign:\n\n  document    {} in {}\n  manifest    {manifest}\n  host        {} ({})\n  \
         generation  {generation}\n  in place of {base}\n  hub         {hub_id}\n  until       {}\n\n",
        render::counted(guests, "guest"),
        render::counted(files, "file"),
        host.id,
        host.key,
        time::print(window.expires_at()),
    )
}
