//! Challenges that need no memory: a nonce that only this hub can have made, for this account, at this moment.
//!
//! ```text
//!  seconds (4 bytes) · random (4 bytes) · the first 8 bytes of a sum over both, the account and the hub's own key
//! ```
//!
//! Whoever asks for ten thousand of them has cost the hub ten thousand sums and no row. That one is answered once is written down
//! with the token it becomes: only a good signature gets there.

use evenkeel_core::sign::Nonce;

use crate::secret_text::{SecretHash, hex, random_bytes, sha256_bytes};
use crate::store::{AnsweredChallenge, HubTime};

/// How long a challenge may be answered, by the hub's clock.
pub(super) const CHALLENGE_LIFE_S: i64 = 60;
/// How far the clocks of replicas may be apart.
const CLOCKS_APART_S: i64 = 5;
/// Bytes of the moment, of randomness and of the sum.
const PART_BYTES: [usize; 3] = [4, 4, 8];

/// A new challenge for an account, which need not exist.
pub(super) fn draw(key: &str, account: &str, now: HubTime) -> String {
    let mut nonce = low_seconds(now).to_be_bytes().to_vec();
    nonce.extend_from_slice(&random_bytes(PART_BYTES[1]));
    let sum = sum(key, account, &nonce);
    nonce.extend_from_slice(&sum);
    hex(&nonce)
}

/// A challenge that somebody answered: none if this hub made none such for the account, or its time is over.
pub(super) fn answered(
    key: &str,
    account: &str,
    nonce: &Nonce,
    now: HubTime,
) -> Option<AnsweredChallenge> {
    let text = nonce.to_string();
    let bytes: Option<Vec<u8>> = (0..text.len() / 2)
        .map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok())
        .collect();
    let bytes = bytes.filter(|bytes| bytes.len() == PART_BYTES.iter().sum::<usize>())?;
    let (made, shown) = bytes.split_at(PART_BYTES[0] + PART_BYTES[1]);
    // Compared as hashes, so that the time it takes tells nothing of the sum.
    if sha256_bytes(&sum(key, account, made)) != sha256_bytes(shown) {
        return None;
    }
    let seconds = u32::from_be_bytes(made[..PART_BYTES[0]].try_into().ok()?);
    // How long ago, whatever stands above these four bytes.
    let age_s = i64::from(low_seconds(now).wrapping_sub(seconds).cast_signed());
    let is_good = (-CLOCKS_APART_S..CHALLENGE_LIFE_S).contains(&age_s);
    let expires_at = now.plus_s(CHALLENGE_LIFE_S + CLOCKS_APART_S);
    is_good.then(|| AnsweredChallenge { hash: SecretHash::of(&text), expires_at })
}

fn sum(key: &str, account: &str, made: &[u8]) -> [u8; 8] {
    let inner =
        sha256_bytes(&[key.as_bytes(), b" evenkeel challenge ", made, account.as_bytes()].concat());
    let outer = sha256_bytes(&[key.as_bytes(), &inner].concat());
    outer[..PART_BYTES[2]].try_into().expect("a sum is longer")
}

/// The seconds of a moment as far as four bytes hold them.
fn low_seconds(at: HubTime) -> u32 {
    let [.., a, b, c, d] = (at.0 / 1000).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: HubTime = HubTime(1_790_000_000_000);

    #[test]
    fn z17_a_challenge_is_known_by_itself_for_its_account_and_its_minute_alone() {
        let nonce: Nonce = draw("key", "alice", NOW).parse().unwrap();
        let known = |key, account, at_s| answered(key, account, &nonce, NOW.plus_s(at_s)).is_some();
        assert!(known("key", "alice", 0) && known("key", "alice", 59));
        assert!(!known("key", "alice", 60), "its minute is over");
        assert!(known("key", "alice", -5) && !known("key", "alice", -6), "clocks of replicas");
        assert!(!known("key", "bob", 0) && !known("other", "alice", 0));
        assert_ne!(draw("key", "alice", NOW), draw("key", "alice", NOW), "each is another");
    }

    #[test]
    fn z17_no_bit_of_a_challenge_can_be_changed() {
        let good = draw("key", "alice", NOW);
        for at in 0..good.len() {
            let other = if &good[at..=at] == "0" { "1" } else { "0" };
            let bent = format!("{}{other}{}", &good[..at], &good[at + 1..]);
            let Ok(nonce) = bent.parse::<Nonce>() else { continue };
            assert!(answered("key", "alice", &nonce, NOW).is_none(), "{bent}");
        }
    }
}
