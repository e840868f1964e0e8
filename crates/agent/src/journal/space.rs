//! The space reserve: a file that is given back when the disk is full.
//!
//! While the disk is nearly full the journal begins nothing new; the reserve lets it close what is
//! in flight. It must never be given back for a record that begins something.

use std::io;

use super::disk::Disk;

/// The name of the reserve.
pub(super) const RESERVE: &str = "reserve";

/// What is known about the space left.
#[derive(Debug)]
pub(super) struct Space {
    reserve_bytes: u64,
    held: bool,
    /// The process before left a reserve, whose length nobody has looked at.
    found: bool,
    low: bool,
}

impl Space {
    /// Knows nothing until it has looked.
    pub(super) fn unknown(reserve_bytes: u64, found: bool) -> Self {
        Self { reserve_bytes, held: false, found, low: true }
    }

    /// Whether nothing new may be begun.
    pub(super) fn is_low(&self) -> bool {
        self.low
    }

    /// Measures the space, and takes the reserve (again) when there is plenty.
    pub(super) fn look(&mut self, disk: &mut impl Disk) -> io::Result<()> {
        let mut free = disk.free_bytes()?;
        // One that was left whole costs nothing to take, however full the disk is by now.
        if !self.held && (self.found || free >= 2 * self.reserve_bytes) {
            match disk.allocate(RESERVE, self.reserve_bytes) {
                Ok(()) => self.held = true,
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(error),
            }
            free = disk.free_bytes()?;
        }
        self.low = !self.held || free < self.reserve_bytes;
        Ok(())
    }

    /// Gives the reserve back if `error` says that the disk is full; any other error comes back.
    pub(super) fn release(&mut self, disk: &mut impl Disk, error: io::Error) -> io::Result<()> {
        if !is_full(&error) || !(self.held || self.found) {
            return Err(error);
        }
        (self.held, self.found, self.low) = (false, false, true);
        disk.remove(RESERVE)?;
        // File systems hand out freed space only once the removal itself is written.
        disk.sync_directory()
    }
}

/// Whether there is no space, by the disk's or by a quota's word.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
