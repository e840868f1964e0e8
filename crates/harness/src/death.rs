//! How a life of the agent ends, and what its death leaves of the disk, which is checked before the next life begins on it.

use std::time::Duration;

use evenkeel_agent::engine::Fatal;
use evenkeel_agent::journal::{DiskFault, JournalError};

use crate::run::{LifeEnd, SeedRun};
use crate::situations::{LifeDeath, count_death};

impl SeedRun {
    fn has_struck(&self) -> bool {
        self.armed.is_some_and(|(call, _)| self.rig.disk.calls() > call)
    }

    /// Whether the agent had a reason to end.
    pub(crate) fn judge_end(&mut self, end: &LifeEnd) {
        self.note(|| format!("the agent ends: {end:?}"));
        match end {
            Ok(Ok(())) => {}
            Ok(Err(Fatal::Journal(_))) | Err(JournalError::Disk(_))
                if self.has_struck() || self.is_full =>
            {
                // A disk that stays full would end every later life too.
                self.make_room();
            }
            Ok(Err(fatal)) => {
                let why = std::error::Error::source(fatal).map(ToString::to_string);
                self.oracle.broke(format!("the agent ended without need: {fatal}: {why:?}"));
            }
            Err(error) => self.oracle.broke(format!("(6) the journal does not open: {error}")),
        }
    }

    /// What the crash leaves of the disk, checked before the next life begins on it.
    pub(crate) fn after_death(&mut self) {
        self.tell_progress();
        self.hear_answers();
        self.note(|| "the agent is dead".to_owned());
        self.oracle.remember_synced();
        let power_is_lost = self.dice.percent(60)
            || self.armed.is_some_and(|(_, fault)| fault == DiskFault::PowerLoss);
        let disk = if power_is_lost {
            let cut = usize::try_from(self.dice.below(1_200)).unwrap_or(0);
            self.armed = None;
            self.rig.disk.after_crash(self.dice.any() & self.dice.any(), cut)
        } else {
            self.rig.disk.copy()
        };
        let mut death =
            if power_is_lost { LifeDeath::PowerLost } else { LifeDeath::KilledOrStopped };
        if self.has_struck() {
            self.armed = None;
            death = LifeDeath::DiskFailed;
        }
        self.oracle.armed(self.armed);
        self.rig.disk = disk;
        self.check_reopening(death);
        // Before another disk takes its place: whether it is enrolled is read from this one.
        self.enrol_again();
        self.put_disk_back();
        let pause = *self.dice.pick(&[0, 0, 0, 5, 70]);
        if pause > 0 {
            self.driver.sleep_first(Duration::from_secs(pause));
        }
    }

    /// On a copy: opening works, loses nothing, and opening twice equals opening once.
    fn check_reopening(&mut self, death: LifeDeath) {
        if self.armed.is_some() {
            return;
        }
        let copy = self.rig.disk.copy();
        copy.limit_space(None);
        let mut states = Vec::new();
        for _ in 0..2 {
            match self.rig.open_journal(copy.clone()) {
                Ok(journal) => states.push(journal.state().clone()),
                Err(error) => {
                    return self.oracle.broke(format!("(6) the journal does not open: {error}"));
                }
            }
        }
        for operation in states[0].ledger().in_flight() {
            count_death(death, operation);
        }
        if states[0] != states[1] {
            self.oracle.broke("(6) replaying twice is not replaying once".to_owned());
        }
        self.oracle.check_nothing_lost(&copy);
    }
}
