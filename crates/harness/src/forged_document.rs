//! The documents of a run: what an author signs for the host, and what a hostile hub makes of it.
//!
//! Every text that anybody really declared is known here, so that what the host takes can be held against it. What is forged
//! is made of those texts: a host that takes more than it may is found out by the oracle, not by what is in a file.

use std::collections::BTreeMap;

use evenkeel_core::fleet::{
    DesiredStatement, DocumentBase, DocumentFiles, Generation, ManifestHash, SealedText,
    SignedBase, WireDocument,
};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{HostBinding, Role, Signer, Window};

use crate::model_hub::hub_id;
use crate::operator::Operator;
use crate::oracle::Oracle;
use crate::rig::{Rig, SeededAmbient};
use crate::scene::GuestModes;
use evenkeel_testkit::dice::Dice;

/// How long an author's signature is good for; of what is really pushed it is one of three.
const AUTHOR_LIFE_S: u64 = 86_400;
const PUSHED_LIVES_S: [u64; 3] = [900, 7_200, AUTHOR_LIFE_S];

/// What lets somebody into a guest, or out of it, as a hub would add it.
const OPENING: &str = "ciuser = \"root\"\nboot = \"order=net0\"\nserial0 = \"socket\"\nsearchdomain = [\"evil.example\"]\n";

/// One text that somebody declared, and what must be left alone by it.
#[derive(Debug, Clone)]
pub(crate) struct KnownDocument {
    pub(crate) files: DocumentFiles,
    pub(crate) modes: GuestModes,
}

/// What an author says of a document besides what it is: over which one, and from when for how long, in seconds.
#[derive(Debug, Clone, Copy)]
struct Said {
    base: SignedBase,
    window: (u64, u64),
}

/// Makes documents, good and bad.
#[derive(Debug)]
pub(crate) struct DocumentForger {
    author: Operator,
    operator: Operator,
    stranger: Operator,
    /// All that anybody declared, in order.
    declared: Vec<KnownDocument>,
    known: BTreeMap<ManifestHash, KnownDocument>,
    /// Every document that was ever pushed, as a base to sign over.
    bases: Vec<DocumentBase>,
    /// Whether the author signs whatever number the hub asks for.
    is_author_misled: bool,
    clock: std::sync::Arc<SeededAmbient>,
    oracle: Oracle,
}

impl DocumentForger {
    pub(crate) fn new(clock: std::sync::Arc<SeededAmbient>, oracle: Oracle) -> Self {
        Self {
            author: Operator::new("ada", 40),
            operator: Operator::new("anna", 10),
            stranger: Operator::new("mallory", 66),
            declared: Vec::new(),
            known: BTreeMap::new(),
            bases: Vec::new(),
            is_author_misled: true,
            clock,
            oracle,
        }
    }

    /// Who signs documents of this host.
    pub(crate) fn author() -> Signer {
        Operator::new("ada", 40).signer(Role::Author)
    }

    /// From now on the author signs nothing but what is declared.
    pub(crate) fn author_is_wary(&mut self) {
        self.is_author_misled = false;
    }

    /// What is known of a document.
    pub(crate) fn known(&self, manifest: ManifestHash) -> Option<KnownDocument> {
        self.known.get(&manifest).cloned()
    }

    /// An author declares something: the document, ready to be pushed.
    pub(crate) fn declare(
        &mut self,
        generation: u64,
        text: &str,
        modes: GuestModes,
    ) -> (ManifestHash, Vec<u8>) {
        let files = files(text);
        let manifest = files.manifest().hash();
        let known = KnownDocument { files: files.clone(), modes };
        self.declared.push(known.clone());
        self.known.insert(manifest, known);
        let now_s = self.now_s();
        let life_s = PUSHED_LIVES_S[self.declared.len() % PUSHED_LIVES_S.len()];
        let said = Said { base: self.in_effect(), window: (now_s, life_s) };
        let author = self.signed(generation, manifest, said, true);
        self.bases.push(DocumentBase { generation: Generation(generation), manifest });
        (manifest, bytes(&document(generation, &files, author)))
    }

    /// What a person sees in effect on the host.
    fn in_effect(&self) -> SignedBase {
        let (generation, manifest) = self.oracle.floor();
        let base = manifest
            .parse()
            .ok()
            .map(|manifest| DocumentBase { generation: Generation(generation), manifest });
        SignedBase::after(base)
    }

    /// What a hub says is in effect, true or not; or the author has an old evenkeel, which does not say.
    fn told_base(&self, dice: &mut Dice) -> SignedBase {
        match dice.below(10) {
            0..=5 => self.in_effect(),
            6 => SignedBase::First,
            7 | 8 if !self.bases.is_empty() => SignedBase::Over(*dice.pick(&self.bases)),
            _ => SignedBase::Unsaid,
        }
    }

    fn now_s(&self) -> u64 {
        self.oracle.effective_s(&self.clock)
    }

    fn statement(generation: u64, manifest: ManifestHash, said: Said) -> DesiredStatement {
        let Said { base, window: (from_s, life_s) } = said;
        let window = Window::new(UnixSeconds(from_s), UnixSeconds(from_s + life_s));
        DesiredStatement {
            hub_id: hub_id(),
            host: Rig::host(),
            generation: Generation(generation),
            manifest,
            base,
            window: window.expect("a life is not empty"),
        }
    }

    /// The author's word; the oracle hears of it where the host may believe it.
    fn signed(
        &self,
        generation: u64,
        manifest: ManifestHash,
        said: Said,
        may_hold: bool,
    ) -> Option<SealedText> {
        let statement = Self::statement(generation, manifest, said);
        let is_newest =
            self.declared.last().is_some_and(|last| last.files.manifest().hash() == manifest);
        if may_hold && !self.is_author_misled && !is_newest {
            return sealed(&self.stranger, &statement);
        }
        if may_hold {
            let (from_s, life_s) = said.window;
            self.oracle.document_signed(generation, manifest, said.base, from_s..from_s + life_s);
        }
        sealed(&self.author, &statement)
    }

    /// What a hostile hub answers when it is asked for a number.
    pub(crate) fn forge(&mut self, dice: &mut Dice, asked: u64) -> Vec<u8> {
        if self.declared.is_empty() {
            return Vec::new();
        }
        let now_s = self.now_s();
        let plain = dice.pick(&self.declared).files.clone();
        let other = dice.pick(&self.declared).files.clone();
        let manifest = plain.manifest().hash();
        let said = Said { base: self.told_base(dice), window: (now_s, AUTHOR_LIFE_S) };
        let good = self.signed(asked, manifest, said, true);
        let forged = match dice.below(16) {
            0 => {
                // Another text under a manifest that somebody signed.
                let mut bent = document(asked, &plain, good);
                bent.files.iter_mut().for_each(|file| file.text.push_str("# bent\n"));
                bent
            }
            1 => {
                let bent = document(asked, &other, good);
                WireDocument { manifest: document(asked, &plain, None).manifest, ..bent }
            }
            // Signed, for a number that is another one.
            2 => {
                let author = self.signed(asked.saturating_add(1), manifest, said, true);
                document(asked, &plain, author)
            }
            3 => {
                let author = self.signed(asked.saturating_add(1), manifest, said, true);
                document(asked.saturating_add(1), &plain, author)
            }
            4 => document(asked, &plain, None),
            5 => {
                let by = if dice.percent(50) { &self.stranger } else { &self.operator };
                document(asked, &plain, sealed(by, &Self::statement(asked, manifest, said)))
            }
            6 | 7 => self.for_somebody_else(dice, asked, &plain),
            8 => self.out_of_time(dice, asked, &plain),
            // Signed by whoever may, and wrong in itself.
            9 => self.faulty(asked, now_s, "[guest.100]\nkind = \"lxc\"\ncoers = 3\n"),
            10 => {
                let secret = "[guest.101]\nkind = \"qemu\"\ncipassword = \"hunter2\"\n";
                self.faulty(asked, now_s, secret)
            }
            11 => return bytes(&document(asked, &plain, good)).split_off(40),
            12 => return dice.pick(&[&b"{}"[..], b"[]", b"null", b"\xff\xfe"]).to_vec(),
            13 | 14 => self.opening(dice, asked),
            // Two documents of an author for one number: whichever comes first holds, if it was signed over what does.
            _ => document(asked, &plain, good),
        };
        bytes(&forged)
    }

    /// A document that an author signed for another host, key or hub, as it is or dressed up as ours.
    fn for_somebody_else(
        &self,
        dice: &mut Dice,
        asked: u64,
        files: &DocumentFiles,
    ) -> WireDocument {
        let manifest = files.manifest().hash();
        let said = Said { base: self.in_effect(), window: (self.now_s(), AUTHOR_LIFE_S) };
        let mut statement = Self::statement(asked, manifest, said);
        match dice.below(3) {
            0 => statement.host.id = "other".parse().expect("a host id"),
            1 => statement.host.key = self.stranger.key.fingerprint(),
            _ => statement.hub_id = "f".repeat(32).parse().expect("the name of a hub"),
        }
        let dressed = document(asked, files, sealed(&self.author, &statement));
        if dice.percent(50) {
            return dressed;
        }
        let DesiredStatement { hub_id, host: HostBinding { id, .. }, .. } = statement;
        WireDocument { hub_id, host: id, ..dressed }
    }

    /// Signed for a time that is over, not yet come, or longer than any signature lives.
    fn out_of_time(&self, dice: &mut Dice, asked: u64, files: &DocumentFiles) -> WireDocument {
        let now_s = self.now_s();
        let manifest = files.manifest().hash();
        let (window, may_hold) = match dice.below(3) {
            // A clock that is set back, or goes on, makes these good.
            0 => ((now_s.saturating_sub(3_601), 3_600), true),
            1 => ((now_s + 3_600, 3_600), true),
            _ => ((now_s, 8 * 86_400), false),
        };
        let said = Said { base: self.in_effect(), window };
        document(asked, files, self.signed(asked, manifest, said, may_hold))
    }

    fn faulty(&self, asked: u64, now_s: u64, text: &str) -> WireDocument {
        let files = files(text);
        let manifest = files.manifest().hash();
        let said = Said { base: self.in_effect(), window: (now_s, AUTHOR_LIFE_S) };
        document(asked, &files, self.signed(asked, manifest, said, false))
    }

    /// What people declared and, beside, what opens a machine; signed by nobody.
    fn opening(&mut self, dice: &mut Dice, asked: u64) -> WireDocument {
        let KnownDocument { files: plain, modes } = dice.pick(&self.declared).clone();
        let text: String = plain.iter().map(|(_, text)| text).collect();
        let opened = text.replace("kind = \"qemu\"\n", &format!("kind = \"qemu\"\n{OPENING}"));
        // What is absent, and what profiles are made of, takes no such words.
        let opened = files(&opened);
        let is_good = opened.load(evenkeel_core::desired::DeclaredBy::UnsignedHub).is_ok();
        let opened = if is_good { opened } else { plain };
        let known = KnownDocument { files: opened.clone(), modes };
        self.known.insert(opened.manifest().hash(), known);
        document(asked, &opened, None)
    }
}

fn files(text: &str) -> DocumentFiles {
    let file = ("wishes.toml".to_owned(), text.to_owned());
    DocumentFiles::new([file]).expect("a run's own document is small")
}

fn document(generation: u64, files: &DocumentFiles, author: Option<SealedText>) -> WireDocument {
    WireDocument::of(hub_id(), Rig::host().id, Generation(generation), files, author)
}

fn sealed(by: &Operator, statement: &DesiredStatement) -> Option<SealedText> {
    // A number that no statement can carry is offered without a word of anybody.
    let bytes = statement.to_bytes().ok()?;
    SealedText::of(&by.seal(statement.namespace(), &bytes)).ok()
}

fn bytes(document: &WireDocument) -> Vec<u8> {
    serde_json::to_vec(document).expect("texts and numbers can always be written as JSON")
}
