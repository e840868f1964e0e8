//! The space reserve: a file that is given back when the disk is full.
//!
//! While the disk is nearly full the journal begins nothing new; the reserve lets it close what is
//! in flight, and take what stops somebody: a recovery of the signers, a freeze. It must never be given
//! back for a record that begins something.

use std::io;

use super::disk::Disk;

/// The name of the reserve.
pub(super) const RESERVE: &str = "reserve";

/// What is known about the space left.
#[derive(Debug)]
pub(super) struct DiskSpace {
    reserve_bytes: u64,
    held: bool,
    /// The process before left a reserve, whose length nobody has looked at.
    found: bool,
    low: bool,
    /// What was free at the last look.
    free_bytes: u64,
}

/// Room for the blocks around a line, where it is not taken out of the reserve.
const MARGIN_BYTES: u64 = 64 << 10;

impl DiskSpace {
    /// Knows nothing until it has looked.
    pub(super) fn unknown(reserve_bytes: u64, found: bool) -> Self {
        Self { reserve_bytes, held: false, found, low: true, free_bytes: 0 }
    }

    /// Whether nothing new may be begun.
    pub(super) fn is_low(&self) -> bool {
        self.low
    }

    /// Whether a line that must be written on a nearly full disk too finds room for certain. Without that it is
    /// better refused: a write that fails ends the process.
    pub(super) fn has_room_for(&self, line_bytes: usize) -> bool {
        let needed = MARGIN_BYTES.saturating_add(line_bytes as u64);
        self.held || self.found || self.free_bytes >= needed
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
        self.free_bytes = free;
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
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
