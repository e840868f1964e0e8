//! V: the signature's form. Each forgery was accepted by a tool in use, or could be.

use evenkeel_core::model::reason::ReasonCode as R;
use evenkeel_core::sign::{Envelope, Namespace, SshSig, armour, verify};
use sha2::{Digest, Sha256, Sha512};

use evenkeel_testkit::signing_keys::{
    Forged, Key, TOUCHED, act, alice, approved, concat, ecdsa, ed, number, numbers, one_of_each,
    reason, sk_ed, statement, string, to_sign,
};

const MESSAGE: &[u8] = b"exactly these bytes";
const OP: &str = "evenkeel.op.v1";

fn refusal(armour: &str) -> R {
    verify(armour, Namespace::Op, MESSAGE).unwrap_err().reason
}

fn forged(key: &Key) -> Forged {
    Forged::by(key, OP, MESSAGE)
}

#[test]
fn a_signature_of_every_allowed_type_names_its_key() {
    for key in one_of_each() {
        let verified = verify(&forged(&key).armour(), Namespace::Op, MESSAGE).unwrap();
        assert_eq!(verified.key.blob(), key.blob());
    }
}

#[test]
fn v01_version_zero_is_refused() {
    assert_eq!(refusal(&Forged { version: 0, ..forged(&ed(1)) }.armour()), R::SigFormat);
}

#[test]
fn v02_every_other_version_is_refused() {
    for version in [2, 0x0100_0000, u32::MAX] {
        assert_eq!(refusal(&Forged { version, ..forged(&ed(1)) }.armour()), R::SigFormat);
    }
}

#[test]
fn v03_reserved_filled_after_signing_is_refused() {
    let bent = Forged { reserved: b"x".to_vec(), ..forged(&ed(1)) };
    assert_eq!(refusal(&bent.armour()), R::SigFormat);
}

#[test]
fn v04_reserved_filled_and_signed_over_is_refused() {
    let bent = Forged::with(&ed(1), OP, b"x", MESSAGE, TOUCHED, 1);
    assert_eq!(refusal(&bent.armour()), R::SigFormat);
}

#[test]
fn v11_flags_changed_after_signing_are_refused() {
    let mut bent = Forged::with(&sk_ed(1), OP, b"", MESSAGE, 0, 1);
    let flags = bent.signature.len() - 5;
    assert_eq!(refusal(&bent.armour()), R::SkPresence);
    bent.signature[flags] = TOUCHED;
    assert_eq!(refusal(&bent.armour()), R::SigInvalid);
}

#[test]
fn v14_text_before_the_armour_is_refused() {
    let good = forged(&ed(1)).armour();
    for before in ["see below\n", "\n", " ", "\u{feff}"] {
        assert_eq!(refusal(&format!("{before}{good}")), R::SigFormat, "{before:?}");
    }
}

#[test]
fn v15_text_or_a_second_signature_after_the_armour_is_refused() {
    let good = forged(&ed(1)).armour();
    let second = forged(&ed(2)).armour();
    for after in ["thanks\n", "\n", " ", second.as_str(), good.as_str()] {
        assert_eq!(refusal(&format!("{good}{after}")), R::SigFormat, "{after:?}");
    }
}

#[test]
fn v16_only_the_documented_armour_is_read() {
    let good = forged(&ed(1)).armour();
    assert!(verify(&good, Namespace::Op, MESSAGE).is_ok());
    let lines: Vec<&str> = good.lines().collect();
    let body = lines[1..lines.len() - 1].concat();
    let inner = lines[1..lines.len() - 1].join("\n");
    let wrap = |body: &str| {
        format!("-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----\n")
    };
    assert_eq!(wrap(&inner), good);
    let bent = [
        good.replace('\n', "\r\n"),
        good.replacen('\n', " \n", 2),
        good.replacen('\n', "\n\t", 1),
        good.trim_end().to_owned(),
        good.to_lowercase(),
        good.replace("SSH SIGNATURE", "PGP SIGNATURE"),
        good.replacen("-----BEGIN", "----BEGIN", 1),
        good.replacen('\n', "\n\n", 1),
        good.replacen('\n', "\n\n", 2),
        wrap(&inner.replacen("U1NI", "====", 1)),
        wrap(&inner.replacen('U', "-", 1)),
        wrap(&inner.replacen('U', "_", 1)),
        wrap(&inner.replacen('U', "é", 1)),
        // One line narrower than the others in the middle, one wider, one empty.
        wrap(&[&body[..70], &body[70..139], &body[139..209], &body[209..]].join("\n")),
        wrap(&[&body[..69], &body[69..139], &body[139..]].join("\n")),
        wrap(&[&body[..70], "", &body[70..140], &body[140..]].join("\n")),
        wrap(""),
        wrap("\n"),
        String::new(),
        "-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----\n".to_owned(),
        "-----BEGIN SSH SIGNATURE-----\n".to_owned(),
    ];
    for text in bent {
        assert_eq!(refusal(&text), R::SigFormat, "{text}");
    }
}

#[test]
fn v16_base64_has_one_spelling() {
    let good = forged(&ed(1));
    // A blob whose length leaves four unused bits in base64: find one by the namespace's length.
    let padded = [&b"n"[..], b"nn", b"nnn"].into_iter().map(|namespace| {
        armour::encode(&Forged { namespace: namespace.to_vec(), ..good.clone() }.blob())
    });
    let padded: Vec<String> = padded.filter(|text| text.contains("==\n")).collect();
    let text = padded.first().expect("one of three lengths leaves two signs of padding");
    assert!(SshSig::from_armour(text).is_ok());
    let last = text.find("==\n").unwrap();
    assert!("AQgw".contains(&text[last - 1..last]), "two bits are used");
    let unused = text.replacen(&text[last - 1..last + 3], "R==\n", 1);
    assert_eq!(SshSig::from_armour(&unused).unwrap_err().reason, R::SigFormat);
    let bare = text.replace("==\n", "\n");
    assert_eq!(SshSig::from_armour(&bare).unwrap_err().reason, R::SigFormat);
    let over = text.replace("==\n", "===\n");
    assert_eq!(SshSig::from_armour(&over).unwrap_err().reason, R::SigFormat);
}

#[test]
fn v17_any_width_up_to_76_is_read_and_none_above() {
    let good = forged(&ed(1)).armour();
    let lines: Vec<&str> = good.lines().collect();
    let body = lines[1..lines.len() - 1].concat();
    for width in 1..=body.len() + 1 {
        let wrapped: String = body
            .as_bytes()
            .chunks(width)
            .flat_map(|line| [std::str::from_utf8(line).unwrap(), "\n"])
            .collect();
        let text = format!("-----BEGIN SSH SIGNATURE-----\n{wrapped}-----END SSH SIGNATURE-----\n");
        assert_eq!(SshSig::from_armour(&text).is_ok(), width <= 76, "{width}");
    }
}

#[test]
fn v18_bytes_left_over_anywhere_are_refused() {
    for key in one_of_each() {
        let good = forged(&key);
        let blob = armour::encode(&concat(&[&good.blob(), b"x"]));
        assert_eq!(refusal(&blob), R::SigFormat, "after the blob");
        let signature = concat(&[&good.signature, b"x"]);
        let bent = Forged { signature, ..good.clone() };
        assert_eq!(refusal(&bent.armour()), R::SigFormat, "after the signature");
        let bent = Forged { key: concat(&[&good.key, b"x"]), ..good.clone() };
        assert_eq!(refusal(&bent.armour()), R::SigFormat, "after the key");
    }
    // Inside the inner signature string.
    for (key, inner) in [(ed(1), vec![0; 65]), (ecdsa(3), ecdsa_inner_with_tail())] {
        let signature = concat(&[&string(key.name().as_bytes()), &string(&inner)]);
        let bent = Forged { signature, ..forged(&key) };
        assert_eq!(refusal(&bent.armour()), R::SigFormat);
    }
}

fn ecdsa_inner_with_tail() -> Vec<u8> {
    concat(&[&number(&[1]), &number(&[1]), b"x"])
}

#[test]
fn v18_a_number_padded_with_zeros_is_refused() {
    let Key::P256(key) = ecdsa(3) else { unreachable!() };
    let bytes = to_sign(OP.as_bytes(), b"", b"sha512", &Sha512::digest(MESSAGE));
    let made: p256::ecdsa::Signature = p256::ecdsa::signature::Signer::sign(&key, &bytes);
    let (r, s) = made.split_bytes();
    let good = concat(&[&number(&r), &number(&s)]);
    assert_eq!(good, numbers(&made));
    let padded = concat(&[&string(&concat(&[&[0, 0], &r[..]])), &number(&s)]);
    for (inner, outcome) in [(good, None), (padded, Some(R::SigFormat))] {
        let signature = concat(&[&string(b"ecdsa-sha2-nistp256"), &string(&inner)]);
        let text = Forged { signature, ..forged(&ecdsa(3)) }.armour();
        let answer = verify(&text, Namespace::Op, MESSAGE).err().map(|refusal| refusal.reason);
        assert_eq!(answer, outcome);
    }
}

#[test]
fn v19_lengths_that_lie_are_refused_without_work() {
    let blob = forged(&ed(1)).blob();
    for place in 0..blob.len() - 4 {
        for length in [u32::MAX, 0x7fff_ffff, 0x8000_0000, 0x0001_0000] {
            let mut bent = blob.clone();
            bent[place..place + 4].copy_from_slice(&length.to_be_bytes());
            let answer = verify(&armour::encode(&bent), Namespace::Op, MESSAGE);
            assert!(answer.is_err() || bent == blob, "{length:x} at {place}");
        }
    }
    for cut in 0..blob.len() {
        assert_eq!(refusal(&armour::encode(&blob[..cut])), R::SigFormat, "cut at {cut}");
    }
    let large = "A".repeat(64 * 1024 * 1024);
    assert_eq!(refusal(&large), R::SigFormat, "a large text is refused by its length");
}

#[test]
fn v20_every_hash_but_sha512_is_refused() {
    let sha256 = to_sign(OP.as_bytes(), b"", b"sha256", &Sha256::digest(MESSAGE));
    let honest = Forged {
        hash: b"sha256".to_vec(),
        signature: ed(1).sign_bytes(&sha256, 0, 0),
        ..forged(&ed(1))
    };
    assert_eq!(refusal(&honest.armour()), R::SigHash);
    for hash in [&b"sha1"[..], b"SHA512", b"sha512\0", b"", b"sha512-256", b"sha51"] {
        let bent = Forged { hash: hash.to_vec(), ..forged(&ed(1)) };
        assert_eq!(refusal(&bent.armour()), R::SigHash, "{hash:?}");
    }
}

#[test]
fn v21_a_signature_for_one_purpose_is_none_for_another() {
    for made in Namespace::ALL {
        for asked in Namespace::ALL {
            let text = ed(1).sign(made, MESSAGE);
            let answer = verify(&text, asked, MESSAGE);
            if made == asked {
                assert!(answer.is_ok());
            } else {
                assert_eq!(answer.unwrap_err().reason, R::SigNamespace);
            }
        }
    }
}

#[test]
fn v22_a_namespace_that_only_resembles_ours_is_refused() {
    let near = [
        "evenkeel.op.v1\0",
        "evenkeel.op.v1 ",
        " evenkeel.op.v1",
        "Evenkeel.op.v1",
        "evenkeel.op",
        "evenkeel.op.v11",
        "evenkeel.ор.v1",
        "",
        "evenkeel.op.v1,evenkeel.op.v1",
    ];
    for namespace in near {
        assert_eq!(refusal(&Forged::by(&ed(1), namespace, MESSAGE).armour()), R::SigNamespace);
        // In the blob alone, over a signature for the right one.
        let bent = Forged { namespace: namespace.as_bytes().to_vec(), ..forged(&ed(1)) };
        assert_eq!(refusal(&bent.armour()), R::SigNamespace);
    }
    // And the right one in the blob over a signature for another.
    let bent = Forged { namespace: OP.as_bytes().to_vec(), ..Forged::by(&ed(1), "file", MESSAGE) };
    assert_eq!(refusal(&bent.armour()), R::SigInvalid);
}

#[test]
fn v23_a_signature_made_for_git_or_a_file_approves_nothing() {
    let payload = statement().to_bytes().unwrap();
    for namespace in ["git", "file"] {
        let text = Forged::by(&alice(), namespace, &payload).armour();
        let sealed = Envelope::seal(&payload, &[&text]).unwrap();
        let envelope = Envelope::parse(sealed.as_bytes()).unwrap();
        assert_eq!(reason(&envelope, &act()), R::SigNamespace);
    }
}

#[test]
fn v26_the_embedded_key_must_be_the_one_that_signed() {
    for (one, other) in [(ed(1), ed(2)), (ecdsa(3), ecdsa(4))] {
        let bent = Forged { key: one.blob(), ..forged(&other) };
        assert_eq!(refusal(&bent.armour()), R::SigInvalid);
    }
    // Of another type: a signature carries the name of its key's type.
    let bent = Forged { key: ed(1).blob(), ..forged(&ecdsa(3)) };
    assert_eq!(refusal(&bent.armour()), R::SigFormat);
}

#[test]
fn v26_a_raw_signature_without_the_wrapper_is_refused() {
    let signature = ed(1).sign_bytes(MESSAGE, 0, 0);
    assert_eq!(refusal(&Forged { signature, ..forged(&ed(1)) }.armour()), R::SigInvalid);
}

#[test]
fn v29_one_bit_flipped_anywhere_is_refused() {
    for key in one_of_each() {
        let blob = forged(&key).blob();
        for bit in 0..blob.len() * 8 {
            let mut bent = blob.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(verify(&armour::encode(&bent), Namespace::Op, MESSAGE).is_err(), "bit {bit}");
        }
        let text = forged(&key).armour();
        for bit in 0..MESSAGE.len() * 8 {
            let mut bent = MESSAGE.to_vec();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(verify(&text, Namespace::Op, &bent).is_err(), "bit {bit} of the message");
        }
    }
}

#[test]
fn v29_one_bit_flipped_in_an_approved_statement_is_refused() {
    let payload = statement().to_bytes().unwrap();
    let text = alice().sign(Namespace::Op, &payload);
    let signature = SshSig::from_armour(&text).unwrap();
    let key = alice().public();
    assert_eq!(reason(&approved(&statement()), &act()), R::AllowedSigned);
    for bit in 0..payload.len() * 8 {
        let mut bent = payload.clone();
        bent[bit / 8] ^= 1 << (bit % 8);
        let answer = signature.verify(&key, Namespace::Op, &bent).unwrap_err();
        assert_eq!(answer.reason, R::SigInvalid, "bit {bit}");
        // The whole way is longer; every eleventh bit reaches every place of a byte.
        if bit % 11 == 0 {
            let sealed = Envelope::seal(&bent, &[&text]).unwrap();
            let envelope = Envelope::parse(sealed.as_bytes()).unwrap();
            assert_eq!(reason(&envelope, &act()), R::SigInvalid, "bit {bit}");
        }
    }
}
