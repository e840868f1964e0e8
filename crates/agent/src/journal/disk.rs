//! The seam below the journal: one flat directory of files and nothing more.
//!
//! The journal calls it; [`RealDisk`](super::RealDisk) and
//! [`SimulatedDisk`](super::SimulatedDisk) implement it. Names have no slashes. An implementation
//! must never retry a sync and never report one that did not happen.

use std::io;

/// What a reader needs; it takes no lock.
pub trait Files {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// The whole of a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
}

/// What the one writer needs. Whoever holds such a value holds the lock on the directory.
pub trait Disk: Files {
    /// Which directory it is, for a person.
    fn place(&self) -> String;

    /// Writes all of `bytes` at `offset`, creating the file if there is none. After an error any
    /// part may have been written.
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts a file to `length` bytes.
    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()>;

    /// Makes what was written to a file survive a crash. After an error what was written since the
    /// last success may be lost although it can still be read, and a second sync proves nothing.
    fn sync(&mut self, name: &str) -> io::Result<()>;

    /// Gives a file another name, replacing what had it.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Makes created, renamed and removed names survive a crash.
    fn sync_directory(&mut self) -> io::Result<()>;

    /// How many bytes can still be written.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Makes a file that takes up `bytes` of space, so that removing it gives them back.
    fn allocate(&mut self, name: &str, bytes: u64) -> io::Result<()>;
}
