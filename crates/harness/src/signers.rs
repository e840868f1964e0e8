//! The signers of a run: who holds which key, and every statement that was ever signed.
//!
//! What is signed here is real: the oracle is told of each statement before anybody can hand it in. A paper that is
//! [`SignedPaper::hopeless`] must be refused whenever and however often it comes.

use std::collections::BTreeSet;
use std::sync::Arc;

use evenkeel_core::fleet::{AcknowledgeStatement, JournalHead};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{
    self, ClockChange, Envelope, Expected, HostBinding, Namespace, Nonce, PendingItem,
    RECOVERY_AHEAD_MAX, Role, Rotation, Signer, Statement, TrustVersion, TrustedSigners, Window,
};

use crate::model_hub::hub_id;
use crate::operator::Operator;
use crate::oracle::{NewSigners, Oracle, SignedClaim};
use evenkeel_testkit::dice::Dice;

/// Everybody who is or may become an operator. A key that was retired is never enrolled again, so there are many.
const NAMES: [&str; 20] = [
    "anna", "bob", "carl", "dora", "emil", "frida", "gustav", "hanna", "ivan", "jana", "karl",
    "lena", "max", "nora", "otto", "paula", "quirin", "rosa", "stefan", "tina",
];

/// So many operators are in root's trust file.
const FOUNDERS: usize = 2;

/// Something that can be handed in.
#[derive(Debug, Clone)]
pub(crate) struct SignedPaper {
    pub(crate) bytes: Arc<str>,
    /// Whatever happens, it must be refused.
    pub(crate) hopeless: bool,
    /// The statement in it.
    pub(crate) payload: Vec<u8>,
}

/// Who holds which key.
#[derive(Debug)]
pub(crate) struct SignerGroup {
    operational: Vec<Operator>,
    recovery: Vec<Operator>,
    stranger: Operator,
    /// Who signs documents of a hub.
    authors: Vec<Signer>,
    host: HostBinding,
    /// The longest life this host's policy gives a statement.
    life_max_s: u64,
    /// How many must sign an act or a planned rotation on this host.
    quorum: usize,
    /// What is signed from now on has every signature it takes.
    pub(crate) all_sign: bool,
    /// Everything that was ever made, in order.
    pub(crate) papers: Vec<SignedPaper>,
    nonces: Vec<u128>,
    /// The fingerprints of operational keys that were on any list.
    ever_enrolled: BTreeSet<String>,
}

/// What is wrong about a statement that a real operator signs: a mistake, or a hub that misled them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SigningMistake {
    Nothing,
    OtherHost,
    OtherHostKey,
    Expired,
    NotYet,
    TooLong,
    OtherParam,
    MoreParams,
    OtherGuest,
    OtherDigest,
    OldTrust,
    NextTrust,
    NonceAgain,
}

impl SigningMistake {
    pub(crate) const ALL: [Self; 12] = [
        Self::OtherHost,
        Self::OtherHostKey,
        Self::Expired,
        Self::NotYet,
        Self::TooLong,
        Self::OtherParam,
        Self::MoreParams,
        Self::OtherGuest,
        Self::OtherDigest,
        Self::OldTrust,
        Self::NextTrust,
        Self::NonceAgain,
    ];

    /// Whether nothing that may happen later makes it good.
    fn is_hopeless(self) -> bool {
        match self {
            Self::OtherHost | Self::OtherHostKey | Self::TooLong => true,
            // A clock that is set back a little makes it good again: the oracle asks when it began.
            Self::Nothing
            | Self::Expired
            | Self::NotYet
            | Self::OtherParam
            | Self::MoreParams
            | Self::OtherGuest
            | Self::OtherDigest
            | Self::OldTrust
            | Self::NextTrust
            | Self::NonceAgain => false,
        }
    }
}

impl SignerGroup {
    /// Whether as many operators are enrolled as an act takes. A recovery may leave fewer; their signatures are kept and wait.
    pub(crate) fn can_sign_whole(&self, trust: Option<&TrustedSigners>) -> bool {
        !self.takes_several()
            || trust.is_some_and(|trust| self.enrolled(trust).len() >= self.quorum)
    }

    /// Whether one key is not enough on this host.
    pub(crate) fn takes_several(&self) -> bool {
        self.quorum > 1
    }

    /// The signers of a host that begins with two operators and one recovery key.
    pub(crate) fn new(
        host: HostBinding,
        (life_max_s, quorum): (u64, usize),
        authors: Vec<Signer>,
    ) -> Self {
        let operational = NAMES.into_iter().zip(10..).map(|(name, seed)| Operator::new(name, seed));
        let operational: Vec<Operator> = operational.collect();
        let founders = operational.iter().take(FOUNDERS);
        let ever_enrolled = founders.map(|by| by.key.fingerprint().to_string()).collect();
        let recovery = [("vault", 2), ("safe", 6)].map(|(name, seed)| Operator::new(name, seed));
        Self {
            operational,
            recovery: recovery.into(),
            stranger: Operator::new("mallory", 66),
            authors,
            host,
            life_max_s,
            quorum,
            all_sign: false,
            papers: Vec::new(),
            nonces: Vec::new(),
            ever_enrolled,
        }
    }

    /// The operators that these signers name.
    fn enrolled(&self, trust: &TrustedSigners) -> Vec<&Operator> {
        let is_enrolled = |by: &&Operator| {
            let is_it = |signer: &Signer| signer.key == by.key && signer.role == Role::Operational;
            trust.signers().any(is_it)
        };
        self.operational.iter().filter(is_enrolled).collect()
    }

    /// The signers in root's trust file.
    pub(crate) fn founders(&self) -> Vec<Signer> {
        let mut signers: Vec<Signer> =
            self.operational[..FOUNDERS].iter().map(|by| by.signer(Role::Operational)).collect();
        signers.push(self.recovery[0].signer(Role::Recovery));
        signers.extend(self.authors.iter().cloned());
        signers
    }

    /// Approves an item, rightly or with a twist; mostly by somebody who is enrolled. The answer is the paper's number.
    pub(crate) fn approve(
        &mut self,
        dice: &mut Dice,
        oracle: &Oracle,
        (id, item): (&str, &PendingItem),
        (now_s, trust): (u64, Option<&TrustedSigners>),
        twist: SigningMistake,
    ) -> usize {
        let plain = self.statement(dice, item, now_s, twist);
        let (statement, payload) = self.twisted(dice, plain, twist);
        let enrolled = trust.map(|trust| self.enrolled(trust)).unwrap_or_default();
        let knows = !enrolled.is_empty() && dice.percent(85);
        let by = if knows { *dice.pick(&enrolled) } else { dice.pick(&self.operational) };
        oracle.signed(&payload, self.claim(&statement, by, id));
        let others: Vec<&Operator> =
            enrolled.iter().copied().filter(|other| other.key != by.key).collect();
        let first = by.armour(Namespace::Op, &payload);
        // Chance decides only where a host takes two, so that the seeds of all others tell what they told.
        let is_signed_again = self.quorum > 1 && !others.is_empty();
        if !is_signed_again || !self.all_sign && dice.percent(30) {
            return self.keep(sealed(&payload, &[&first]), twist.is_hopeless(), payload);
        }
        let other = *dice.pick(&others);
        oracle.signed(&payload, self.claim(&statement, other, id));
        let second = other.armour(Namespace::Op, &payload);
        if self.all_sign || dice.percent(40) {
            let both = sealed(&payload, &[&first, &second]);
            return self.keep(both, twist.is_hopeless(), payload);
        }
        // They come one after the other, in either order, and the first of them more than once.
        let alone = sealed(&payload, &[&first]);
        self.keep(alone, twist.is_hopeless(), payload.clone());
        self.keep(sealed(&payload, &[&second]), twist.is_hopeless(), payload)
    }

    fn statement(
        &mut self,
        dice: &mut Dice,
        item: &PendingItem,
        now_s: u64,
        twist: SigningMistake,
    ) -> Statement {
        let again = self.nonces.last().copied().filter(|_| twist == SigningMistake::NonceAgain);
        let nonce = again.unwrap_or_else(|| u128::from(dice.any()) << 64 | u128::from(dice.any()));
        self.nonces.push(nonce);
        let nonce = Nonce::from_random(nonce.to_be_bytes()).expect("chance is not all zero");
        let life_s = (*dice.pick(&[120, 600, 3_600, self.life_max_s])).min(self.life_max_s);
        let (from_s, life_s) = match twist {
            SigningMistake::Expired => (now_s.saturating_sub(life_s + 1), life_s),
            SigningMistake::NotYet => (now_s + dice.between(60, 7_200), life_s),
            SigningMistake::TooLong => (now_s, self.life_max_s + 1),
            SigningMistake::Nothing
            | SigningMistake::OtherHost
            | SigningMistake::OtherHostKey
            | SigningMistake::OtherParam
            | SigningMistake::MoreParams
            | SigningMistake::OtherGuest
            | SigningMistake::OtherDigest
            | SigningMistake::OldTrust
            | SigningMistake::NextTrust
            | SigningMistake::NonceAgain => {
                let ago_s = if dice.percent(50) { 0 } else { dice.below(60) };
                (now_s.saturating_sub(ago_s), life_s)
            }
        };
        let bytes = item.to_bytes().expect("an item that was raised reads back");
        item.statement(PendingItem::id(&bytes), nonce, window(from_s, life_s), "no longer needed")
    }

    /// The statement with its twist, in bytes; without, if no tool would write it so.
    fn twisted(
        &self,
        dice: &mut Dice,
        plain: Statement,
        twist: SigningMistake,
    ) -> (Statement, Vec<u8>) {
        let mut statement = plain.clone();
        self.twist(dice, &mut statement, twist);
        if let Ok(bytes) = statement.to_bytes() {
            return (statement, bytes);
        }
        let bytes = plain.to_bytes().expect("an item's own statement reads back");
        (plain, bytes)
    }

    fn twist(&self, dice: &mut Dice, statement: &mut Statement, twist: SigningMistake) {
        match twist {
            SigningMistake::Nothing
            | SigningMistake::Expired
            | SigningMistake::NotYet
            | SigningMistake::TooLong => {}
            SigningMistake::NonceAgain => {}
            SigningMistake::OtherHost => statement.host.id = "other".parse().expect("a host id"),
            SigningMistake::OtherHostKey => statement.host.key = self.stranger.key.fingerprint(),
            SigningMistake::OtherParam => {
                if let Some(value) = statement.params.values_mut().next_back() {
                    let other = if value == "1" { "0" } else { "1" };
                    other.clone_into(value);
                }
            }
            SigningMistake::MoreParams => {
                let name = *dice.pick(&["purge", "destroy-unreferenced-disks", "delete", "start"]);
                statement.params.insert(name.to_owned(), "1".to_owned());
            }
            SigningMistake::OtherGuest => {
                let vmid = 100 + dice.below(6);
                let kind = statement.guest.kind;
                statement.guest = format!("{kind}/{vmid}").parse().expect("a guest");
            }
            SigningMistake::OtherDigest => {
                if let Expected::Guest { digest, .. } = &mut statement.expected {
                    let text: String = digest.to_string().chars().rev().collect();
                    *digest = text.parse().expect("a digest read backwards is one");
                }
            }
            SigningMistake::OldTrust => {
                statement.trust_version = TrustVersion(statement.trust_version.0.saturating_sub(1));
            }
            SigningMistake::NextTrust => {
                statement.trust_version = TrustVersion(statement.trust_version.0 + 1);
            }
        }
    }

    fn claim(&self, statement: &Statement, by: &Operator, item: &str) -> SignedClaim {
        let digest = match &statement.expected {
            Expected::Guest { digest, .. } => digest.to_string(),
            Expected::Free => String::new(),
        };
        SignedClaim {
            op: statement.op,
            guest: statement.guest,
            params: statement.params.clone(),
            digest,
            nonce: statement.nonce.to_string(),
            not_before_s: statement.window.not_before().0,
            expires_s: statement.window.expires_at().0,
            trust_version: statement.trust_version.0,
            is_for_this_host: statement.host == self.host,
            by: [by.key.fingerprint().to_string()].into(),
            item: item.to_owned(),
        }
    }

    /// What somebody without the right to sign makes of an item; the answer is the paper's number.
    pub(crate) fn forge(
        &mut self,
        dice: &mut Dice,
        (item, sealed): (&PendingItem, &[u8]),
        now_s: u64,
    ) -> usize {
        let statement = self.statement(dice, item, now_s, SigningMistake::Nothing);
        let payload = statement.to_bytes().expect("an item's own statement reads back");
        let operator = dice.pick(&self.operational);
        let bytes = match dice.below(11) {
            8 => operator.seal_bent(&payload, b"SSHSIG", b"SSHSIH"),
            9 => operator.seal_bent(&payload, b"sha512", b"sha256"),
            10 => operator.seal_bent(&payload, b"ssh-ed25519", b"ssh-ed25518"),
            0 => self.stranger.seal(Namespace::Op, &payload),
            1 => self.recovery[0].seal(Namespace::Op, &payload),
            2 => operator.seal(*dice.pick(&[Namespace::Pending, Namespace::Rotate]), &payload),
            // The host's own signature around its item.
            3 => String::from_utf8_lossy(sealed).into_owned(),
            4 => operator.seal(Namespace::Op, sealed),
            5 => self.tampered(dice, statement, operator),
            6 => {
                let armours =
                    [&self.stranger, operator].map(|by| by.armour(Namespace::Op, &payload));
                let armours: Vec<&str> = armours.iter().map(String::as_str).collect();
                Envelope::seal(&payload, &armours).expect("two signatures are not too many")
            }
            _ => (*dice.pick(&["", "{}", "[]", "{\"payload\":\"\",\"signatures\":[]}"])).to_owned(),
        };
        self.keep(bytes, true, payload)
    }

    /// Another statement under a signature that was made for this one.
    fn tampered(&self, dice: &mut Dice, mut statement: Statement, by: &Operator) -> String {
        let signed = statement.to_bytes().expect("an item's own statement reads back");
        let armour = by.armour(Namespace::Op, &signed);
        let twist = *dice.pick(&[
            SigningMistake::Nothing,
            SigningMistake::OtherParam,
            SigningMistake::OtherGuest,
        ]);
        "tampered with".clone_into(&mut statement.reason);
        let (_, payload) = self.twisted(dice, statement, twist);
        Envelope::seal(&payload, &[&armour]).expect("a statement is not too long")
    }

    /// A rotation that follows these signers, by whoever may make one.
    pub(crate) fn rotate(
        &mut self,
        dice: &mut Dice,
        oracle: &Oracle,
        trust: &TrustedSigners,
        now_s: u64,
    ) -> usize {
        let recovers = dice.percent(30);
        let authority = if recovers {
            sign::RotationAuthority::Recovery
        } else {
            sign::RotationAuthority::Planned
        };
        let mut operational = self.enrolled(trust);
        operational.retain(|_| dice.percent(70));
        // Somebody new, or once in a while whoever comes to mind.
        let is_new =
            |by: &&Operator| !self.ever_enrolled.contains(&by.key.fingerprint().to_string());
        let new = self.operational.iter().find(is_new).filter(|_| dice.percent(50));
        let any = dice.pick(&self.operational);
        operational.extend(new.or(Some(any).filter(|_| dice.percent(10))));
        for by in self.enrolled(trust) {
            if operational.len() < self.quorum
                && !operational.iter().any(|known| known.key == by.key)
            {
                operational.push(by);
            }
        }
        if operational.is_empty() {
            operational.extend(self.enrolled(trust).first().copied().or(Some(any)));
        }
        operational.dedup_by(|one, other| one.key == other.key);
        let mut signers: Vec<Signer> =
            operational.iter().map(|by| by.signer(Role::Operational)).collect();
        let keeps = |signer: &&Signer| signer.role != Role::Operational;
        signers.extend(trust.signers().filter(keeps).cloned());
        let mut rotation = self.rotation(trust, authority, signers, now_s);
        if recovers {
            // Handed in late, it still gets past a few planned rotations.
            rotation.version = TrustVersion(rotation.version.0 + dice.below(4));
        }
        let payload = rotation.to_bytes().expect("a rotation reads back");
        let role = authority.role();
        let may = |by: &&Operator| {
            trust.signers().any(|signer| signer.key == by.key && signer.role == role)
        };
        let few = self.quorum > 1 && dice.percent(20);
        let needed = if recovers || few { 1 } else { self.quorum };
        let by: Vec<&Operator> =
            self.operational.iter().chain(&self.recovery).filter(may).take(needed).collect();
        let authorised = by.len();
        let is_new = |by: &&Operator| !trust.signers().any(|signer| signer.key == by.key);
        let fresh = operational.iter().copied().filter(is_new);
        let armours =
            by.into_iter().chain(fresh).map(|by| by.armour(authority.namespace(), &payload));
        let armours: Vec<String> = armours.collect();
        let armours: Vec<&str> = armours.iter().map(String::as_str).collect();
        let bytes = Envelope::seal(&payload, &armours).expect("few signatures are not too many");
        let operational: BTreeSet<String> =
            operational.iter().map(|by| by.key.fingerprint().to_string()).collect();
        let not_before_s = rotation.window.not_before().0;
        let expires_s = rotation.window.expires_at().0;
        let version = rotation.version.0;
        self.ever_enrolled.extend(operational.iter().cloned());
        oracle.rotation_signed(
            &payload,
            &NewSigners { version, recovers, authorised, operational, not_before_s, expires_s },
        );
        self.keep(bytes, false, payload)
    }

    /// A rotation that may not be.
    pub(crate) fn usurp(&mut self, dice: &mut Dice, trust: &TrustedSigners, now_s: u64) -> usize {
        let mut signers = vec![self.stranger.signer(Role::Operational)];
        signers.extend(trust.signers().filter(|signer| signer.role != Role::Operational).cloned());
        let planned = sign::RotationAuthority::Planned;
        let recovery = sign::RotationAuthority::Recovery;
        let is_enrolled = |by: &&Operator| trust.signers().any(|signer| signer.key == by.key);
        let operator = self.operational.iter().find(is_enrolled).unwrap_or(&self.stranger);
        let vault = self.recovery.iter().find(is_enrolled).unwrap_or(&self.stranger);
        let (authority, by) = match dice.below(6) {
            0 => (planned, vec![&self.stranger]),
            1 => (planned, vec![vault, &self.stranger]),
            2 => (recovery, vec![operator, &self.stranger]),
            // The new key did not sign.
            3 => (planned, vec![operator]),
            // A planned rotation that takes the recovery key away.
            4 => {
                signers.retain(|signer| signer.role == Role::Operational);
                signers.push(self.recovery[1].signer(Role::Recovery));
                (planned, vec![operator, &self.stranger, &self.recovery[1]])
            }
            _ => (recovery, vec![vault, &self.stranger]),
        };
        let mut rotation = self.rotation(trust, authority, signers, now_s);
        if (authority, by.len()) == (recovery, 2) && by[0].key == vault.key {
            // Everybody signed who must, but it is for elsewhere, or out of order.
            match dice.below(3) {
                0 => rotation.host.id = "other".parse().expect("a host id"),
                1 => rotation.version = TrustVersion(rotation.version.0 + RECOVERY_AHEAD_MAX),
                _ => rotation.window = window(1_000, 3_600),
            }
        }
        let payload = rotation.to_bytes().expect("a rotation reads back");
        let armours: Vec<String> =
            by.iter().map(|by| by.armour(authority.namespace(), &payload)).collect();
        let armours: Vec<&str> = armours.iter().map(String::as_str).collect();
        let bytes = Envelope::seal(&payload, &armours).expect("few signatures are not too many");
        self.keep(bytes, true, payload)
    }

    fn rotation(
        &self,
        trust: &TrustedSigners,
        authority: sign::RotationAuthority,
        signers: Vec<Signer>,
        now_s: u64,
    ) -> Rotation {
        Rotation {
            authority,
            host: self.host.clone(),
            version: TrustVersion(trust.version().0 + 1),
            previous: trust.head(),
            signers,
            clock: ClockChange::Keep,
            approve: None,
            window: window(now_s, 3_600),
            reason: "other people now".to_owned(),
        }
    }

    /// Somebody enrolled says that a journal was put back; wrongly is by whoever has no right to: a stranger, a recovery
    /// key, the wrong purpose. The answer is the paper's number.
    pub(crate) fn acknowledge(
        &mut self,
        dice: &mut Dice,
        (anchored, found): (JournalHead, JournalHead),
        now_s: u64,
        trust: &TrustedSigners,
        wrongly: bool,
    ) -> Option<usize> {
        let nonce = u128::from(dice.any()) << 64 | u128::from(dice.any());
        let statement = AcknowledgeStatement {
            host: self.host.clone(),
            hub_id: hub_id(),
            anchored,
            found,
            nonce: Nonce::from_random(nonce.to_be_bytes()).expect("chance is not all zero"),
            window: window(now_s, 3_600),
            trust_version: trust.version(),
            reason: "an old disk".to_owned(),
        };
        let payload = statement.to_bytes().expect("an acknowledgement reads back");
        let enrolled = self.enrolled(trust).first().copied()?;
        let bytes = match wrongly.then(|| dice.below(3)) {
            None => enrolled.seal(Namespace::Acknowledge, &payload),
            Some(0) => self.stranger.seal(Namespace::Acknowledge, &payload),
            Some(1) => self.recovery[0].seal(Namespace::Acknowledge, &payload),
            Some(_) => enrolled.seal(Namespace::Op, &payload),
        };
        Some(self.keep(bytes, wrongly, payload))
    }

    fn keep(&mut self, bytes: String, hopeless: bool, payload: Vec<u8>) -> usize {
        self.papers.push(SignedPaper { bytes: bytes.into(), hopeless, payload });
        self.papers.len() - 1
    }
}

fn window(from_s: u64, life_s: u64) -> Window {
    Window::new(UnixSeconds(from_s), UnixSeconds(from_s + life_s)).expect("a life is not empty")
}

fn sealed(payload: &[u8], armours: &[&str]) -> String {
    Envelope::seal(payload, armours).expect("few signatures are not too many")
}
