//! Choices made by proptest: a list of rolls that every generator draws from.
//!
//! Each generator's first choice is its plainest one, and a list that ran out rolls zeros, so that
//! shrinking the list makes the world plainer. Generators stay plain functions over the registry.

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any};

/// A source of choices.
#[derive(Debug, Clone)]
pub(crate) struct Dice {
    rolls: Vec<u32>,
    at: usize,
}

/// Dice for a property. The longest list is enough for three guests of a dozen fields.
pub(crate) fn dice() -> impl Strategy<Value = Dice> {
    vec(any::<u32>(), 40..900).prop_map(|rolls| Dice { rolls, at: 0 })
}

/// The quick number of cases, unless `PROPTEST_CASES` asks for another.
pub(crate) fn cases(quick: u32) -> ProptestConfig {
    let standard = ProptestConfig::default();
    let cases = if standard.cases == 256 { quick } else { standard.cases };
    ProptestConfig { cases, max_shrink_iters: 4_000, ..standard }
}

impl Dice {
    /// Dice that choose the plainest of everything.
    pub(crate) fn plain() -> Self {
        Self { rolls: Vec::new(), at: 0 }
    }

    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        let roll = self.rolls.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::try_from(roll).unwrap() % sides
    }

    /// Whether something with this chance happens.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.roll(100) >= 100 - percent
    }

    /// One of a list.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }

    /// Puts a list into some order.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.roll(last + 1);
            list.swap(last - other, last);
        }
    }
}
