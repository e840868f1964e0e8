//! Mistakes while they are found: the first hundred are kept, the others are only counted.
//!
//! Readers and checkers of files put every mistake in here, so that a wrong file of a million mistakes costs what reading it
//! costs. Whoever would have to think about a mistake (which key was meant?) asks [`MistakeList::is_full`] first.

use super::{Code, Diagnostic, sort};

/// How many mistakes of one set of files are told. Nobody reads more, and a wrong file could have a million.
pub const MISTAKES_TOLD_MAX: usize = 100;

/// The mistakes of a set of files.
#[derive(Debug, Default)]
pub struct MistakeList {
    told: Vec<Diagnostic>,
    untold: usize,
}

impl MistakeList {
    /// Notes a mistake.
    pub fn push(&mut self, mistake: Diagnostic) {
        if self.is_full() || mistake.untold > 0 {
            self.untold += mistake.stands_for();
        } else {
            self.told.push(mistake);
        }
    }

    /// Notes several.
    pub fn extend(&mut self, mistakes: impl IntoIterator<Item = Diagnostic>) {
        mistakes.into_iter().for_each(|mistake| self.push(mistake));
    }

    /// Notes so many without a word about them.
    pub fn count_untold(&mut self, mistakes: usize) {
        self.untold += mistakes;
    }

    /// Whether one more would only be counted.
    pub fn is_full(&self) -> bool {
        self.told.len() >= MISTAKES_TOLD_MAX
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.told.len() + self.untold
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that are told, in the order of the text; a last one says how many there are beside.
    pub fn finish(mut self) -> Vec<Diagnostic> {
        if self.untold > 0 {
            let noun = if self.untold == 1 { "mistake is" } else { "mistakes are" };
            let message = format!("{} more {noun} not told", self.untold);
            let rest = Diagnostic::new(Code::Limit, message).hint("mend the first ones");
            self.told.push(Diagnostic { untold: self.untold, ..rest });
        }
        sort(&mut self.told);
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Diagnostic {
        Diagnostic::new(Code::Syntax, "x")
    }

    #[test]
    fn the_first_hundred_are_told_and_the_others_counted() {
        let mut list = MistakeList::default();
        list.extend(std::iter::repeat_with(one).take(MISTAKES_TOLD_MAX));
        assert!(list.is_full());
        list.push(one());
        list.count_untold(2);
        assert_eq!(list.len(), MISTAKES_TOLD_MAX + 3);
        let told = list.finish();
        assert_eq!(told.len(), MISTAKES_TOLD_MAX + 1);
        assert_eq!(told.last().unwrap().message, "3 more mistakes are not told");
        // Those of one file go into those of a set, and none is lost.
        let mut set = MistakeList::default();
        set.push(one());
        set.extend(told);
        assert_eq!(set.len(), MISTAKES_TOLD_MAX + 4);
        let told = set.finish();
        assert_eq!(told.len(), MISTAKES_TOLD_MAX + 1);
        assert_eq!(told.iter().map(Diagnostic::stands_for).sum::<usize>(), MISTAKES_TOLD_MAX + 4);
    }

    #[test]
    fn one_more_is_told_as_one_and_none_as_none() {
        let mut list = MistakeList::default();
        list.extend(std::iter::repeat_with(one).take(MISTAKES_TOLD_MAX + 1));
        assert_eq!(list.finish().last().unwrap().message, "1 more mistake is not told");
        assert_eq!(MistakeList::default().finish(), []);
    }
}
