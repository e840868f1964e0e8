//! V30: what we accept is a subset of what the installed `ssh-keygen -Y verify` accepts, over mutated
//! signatures; and each difference is a rule of our profile, listed here.
//!
//! A sample runs by default; `scripts/differential-sshsig` runs a hundred thousand and more.
#![expect(clippy::disallowed_methods, reason = "the number of cases comes from the script")]

use std::collections::BTreeMap;

use evenkeel_core::model::reason::{ReasonCode as R, Refusal};
use evenkeel_core::sign::{Namespace, PublicKey, SshSig, armour, verify};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::interop::{allow, ssh_keygen_accepts};
use evenkeel_testkit::signing_keys::{
    Forged, Key, TOUCHED, ecdsa, ed, number, one_of_each, string, to_sign,
};

const OP: &str = "evenkeel.op.v1";
const MESSAGE: &[u8] = b"{\"format\":\"evenkeel/statement/v1\"}";

/// Cases without the script: enough to see that the harness works, few enough for every run.
const SAMPLE: u64 = 150;

/// The rules by which we refuse what `ssh-keygen` accepts: the words of our refusal. Complete: a
/// difference that is not one of these fails the test.
const KNOWN_DIFFERENCES: [&str; 12] = [
    "its version is not 1",
    "its reserved field is not empty",
    "the signature's hash is not sha512",
    "nobody touched the security key",
    "a number is negative, padded or too large",
    "the armour does not end with its last line and a newline",
    "the armour has lines of different widths",
    "the armour has a line of more than 76 characters",
    "the armour does not hold canonical base64",
    // OpenSSH reads names as C strings: one NUL at the end passes.
    "the signature is for `evenkeel.op.v1\\0`, not for `evenkeel.op.v1`",
    "the signature is of another type than its key",
    "\\0` is not a key type evenkeel takes",
];

/// One more has no words of its own: an Ed25519 S that is not reduced.
fn has_unreduced_s(text: &str) -> bool {
    let Ok(blob) = armour::decode(text) else { return false };
    let is_ed25519 = SshSig::from_blob(&blob).is_ok_and(|sig| {
        PublicKey::from_blob(sig.key_blob())
            .is_ok_and(|key| key.key_type().as_str().contains("ed25519"))
    });
    // S is the last field of a plain signature; five bytes follow it in a security key's. The order of
    // the group is a little over 2^252.
    let tails = [blob.len(), blob.len() - 5];
    is_ed25519 && tails.iter().any(|end| blob[end - 1] >= 0x10)
}

/// Pseudo-random numbers from a seed: the same cases in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() % limit as u64).unwrap()
    }
}

/// One mutated signature.
fn mutant(dice: &mut Dice) -> String {
    let keys = one_of_each();
    let key = &keys[dice.below(4)];
    let mut forged = Forged::by(key, OP, MESSAGE);
    match dice.below(14) {
        0 => forged.version = [0, 2, 1, 0x0101][dice.below(4)],
        1 => forged.reserved = vec![0; dice.below(4)],
        2 => forged = Forged::with(key, OP, &vec![b'r'; dice.below(3)], MESSAGE, TOUCHED, 1),
        3 => forged = with_hash(key, [&b"sha256"[..], b"sha512", b"sha1"][dice.below(3)]),
        4 => {
            let flags = u8::try_from(dice.below(256)).unwrap();
            forged = Forged::with(key, OP, b"", MESSAGE, flags, u32::MAX);
        }
        5 => forged.signature = Forged::by(&keys[dice.below(4)], OP, MESSAGE).signature,
        6 => forged.key = keys[dice.below(4)].blob(),
        7 => forged.namespace = b"evenkeel.op.v1\0 x"[..dice.below(17)].to_vec(),
        8 => forged = unreduced(),
        9 => forged = padded(dice.below(3), dice.below(2)),
        10 => forged.hash = [&b"sha512\0"[..], b"SHA512", b"sha512 "][dice.below(3)].to_vec(),
        11 => {
            // The name of the type with a NUL at its end, in the signature or in the key.
            let named = [key.name().as_bytes(), b"\0"].concat();
            let length = string(key.name().as_bytes()).len();
            let field = if dice.below(2) == 0 { &mut forged.signature } else { &mut forged.key };
            *field = [&string(&named), &field[length..]].concat();
        }
        _ => {}
    }
    let mut blob = forged.blob();
    for _ in 0..dice.below(3) {
        bend_blob(&mut blob, dice);
    }
    bend_text(&armour::encode(&blob), dice)
}

fn with_hash(key: &Key, hash: &[u8]) -> Forged {
    let honest = Forged::by(key, OP, MESSAGE);
    if hash != b"sha256" {
        return Forged { hash: hash.to_vec(), ..honest };
    }
    let bytes = to_sign(OP.as_bytes(), b"", hash, &Sha256::digest(MESSAGE));
    Forged { hash: hash.to_vec(), signature: key.sign_bytes(&bytes, TOUCHED, 1), ..honest }
}

/// S + L instead of S.
fn unreduced() -> Forged {
    let mut forged = Forged::by(&ed(1), OP, MESSAGE);
    let mut order = (-curve25519_dalek::scalar::Scalar::ONE).to_bytes();
    order[0] += 1;
    let start = forged.signature.len() - 32;
    let mut carry = 0;
    for (byte, add) in forged.signature[start..].iter_mut().zip(order) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = u8::try_from(sum & 0xff).unwrap();
        carry = sum >> 8;
    }
    forged
}

/// An ECDSA signature with zeros in front of a number, or with the other S.
fn padded(zeros: usize, which: usize) -> Forged {
    let Key::P256(key) = ecdsa(3) else { unreachable!() };
    let bytes = to_sign(OP.as_bytes(), b"", b"sha512", &sha2::Sha512::digest(MESSAGE));
    let made: p256::ecdsa::Signature = p256::ecdsa::signature::Signer::sign(&key, &bytes);
    let (r, s) = made.split_scalars();
    let made = if which == 0 { made } else { p256::ecdsa::Signature::from_scalars(r, -s).unwrap() };
    let (r, s) = made.split_bytes();
    let r = if zeros == 0 { number(&r) } else { string(&[&vec![0; zeros + 1], &r[..]].concat()) };
    let inner = [r, number(&s)].concat();
    let signature = [string(b"ecdsa-sha2-nistp256"), string(&inner)].concat();
    Forged { signature, ..Forged::by(&ecdsa(3), OP, MESSAGE) }
}

fn bend_blob(blob: &mut Vec<u8>, dice: &mut Dice) {
    let place = dice.below(blob.len());
    match dice.below(7) {
        0 => blob[place] ^= 1 << dice.below(8),
        1 => blob[place] = [0, 1, 0x7f, 0x80, 0xff][dice.below(5)],
        2 => blob.truncate(blob.len() - dice.below(8).min(blob.len() - 1)),
        3 => blob.extend(vec![0; dice.below(5)]),
        4 => blob.insert(place, 0),
        5 => {
            blob.remove(place);
        }
        _ => {
            let other = dice.below(blob.len());
            blob.swap(place, other);
        }
    }
}

fn bend_text(text: &str, dice: &mut Dice) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let body = lines[1..lines.len() - 1].concat();
    let wrapped = |width: usize| {
        let lines = body.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap());
        let body: Vec<&str> = lines.collect();
        let body = body.join("\n");
        format!("-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----\n")
    };
    let place = dice.below(text.len());
    match dice.below(24) {
        0 => wrapped(1 + dice.below(76)),
        1 => wrapped(77 + dice.below(400)),
        2 => text.trim_end().to_owned(),
        3 => format!("{text}{}", ["\n", "x", " ", text][dice.below(4)]),
        4 => format!("{}{text}", ["\n", "x", " ", text][dice.below(4)]),
        5 => text.replace('\n', "\r\n"),
        6 => {
            let insert = ["\n", " ", "\t", "=", "A", "-", "_", "\r", "\0"][dice.below(9)];
            format!("{}{insert}{}", &text[..place], &text[place..])
        }
        7 => format!("{}{}", &text[..place], &text[place + 1..]),
        8 => text.to_lowercase(),
        9 => text.replace('=', ""),
        10 => {
            // Another last letter: unused bits, if there are any.
            let letter = body.trim_end_matches('=').len() - 1;
            let mut bent = body.clone();
            bent.replace_range(letter..=letter, ["A", "B", "g", "w", "/"][dice.below(5)]);
            wrapped(70).replace(&body[body.len() - 4..], &bent[bent.len() - 4..])
        }
        _ => text.to_owned(),
    }
}

/// What both sides said of one case.
enum Answer {
    Same,
    WeAreStricter(Refusal),
    WeAreLaxer,
}

fn compare(dir: &TempDir, trusted: &[PublicKey], text: &str) -> (bool, Answer) {
    let ours = verify(text, Namespace::Op, MESSAGE);
    let theirs = ssh_keygen_accepts(dir.path(), text, MESSAGE);
    match ours {
        Ok(verified) if trusted.contains(&verified.key) && theirs => (true, Answer::Same),
        Ok(verified) if trusted.contains(&verified.key) => (true, Answer::WeAreLaxer),
        // A valid signature by a stranger: both refuse it, we by the trust store.
        Ok(_) if theirs => (true, Answer::WeAreLaxer),
        Ok(_) => (false, Answer::Same),
        Err(refusal) if theirs => (false, Answer::WeAreStricter(refusal)),
        Err(_) => (false, Answer::Same),
    }
}

#[test]
fn v30_what_we_accept_ssh_keygen_accepts_and_every_difference_is_known() {
    let cases = std::env::var("EVENKEEL_DIFFERENTIAL_CASES");
    let cases: u64 = cases.map_or(SAMPLE, |text| text.parse().unwrap());
    let trusted: Vec<PublicKey> = one_of_each().iter().map(Key::public).collect();
    let workers = 2;
    let counts: Vec<BTreeMap<String, u64>> = std::thread::scope(|scope| {
        let run = |worker: u64| {
            let trusted = &trusted;
            scope.spawn(move || run_cases(worker, cases / workers, trusted))
        };
        let running: Vec<_> = (0..workers).map(run).collect();
        running.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for (what, count) in counts.into_iter().flatten() {
        *all.entry(what).or_default() += count;
    }
    for (what, count) in &all {
        println!("{count:>8}  {what}");
    }
    let failures: Vec<&String> = all.keys().filter(|what| what.starts_with("FAILURE")).collect();
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(all.get("both accept").is_some_and(|count| *count > 0), "{all:?}");
    assert!(all.get("both refuse").is_some_and(|count| *count > 0), "{all:?}");
}

fn run_cases(worker: u64, cases: u64, trusted: &[PublicKey]) -> BTreeMap<String, u64> {
    let dir = TempDir::new().unwrap();
    allow(dir.path(), trusted.iter().cloned());
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (worker + 1));
    let mut counts = BTreeMap::new();
    for case in 0..cases {
        let text = mutant(&mut dice);
        let what = match compare(&dir, trusted, &text) {
            (true, Answer::Same) => "both accept".to_owned(),
            (false, Answer::Same) => "both refuse".to_owned(),
            (_, Answer::WeAreLaxer) => {
                format!("FAILURE in case {case}: we accept what ssh-keygen refuses\n{text}")
            }
            (_, Answer::WeAreStricter(refusal)) => {
                let known = KNOWN_DIFFERENCES.iter().find(|known| refusal.detail.ends_with(*known));
                let unreduced = refusal.reason == R::SigInvalid && has_unreduced_s(&text);
                match known {
                    Some(known) => format!("only ssh-keygen accepts: {known}"),
                    None if unreduced => "only ssh-keygen accepts: S is not reduced".to_owned(),
                    None => format!("FAILURE: an unknown difference, {refusal}"),
                }
            }
        };
        *counts.entry(what).or_default() += 1;
    }
    counts
}
