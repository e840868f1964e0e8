//! A disk in memory that loses what was not synced, for tests and for deterministic simulation.
//!
//! It is pessimistic where real file systems may be: of the unsynced 512-byte sectors any subset
//! survives a crash, a lost one reads as what was there before or as zeros, the length of a file may
//! be any in between, and any subset of unsynced name changes survives. After a failed sync the
//! bytes can still be read but no later sync makes them durable, as on Linux. The one thing it does
//! not do is damage what was synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, Files};

/// The unit that is written whole or not at all.
const SECTOR_BYTES: usize = 512;

/// What goes wrong at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// `EIO`; of a write the first half is done.
    Io,
    /// `ENOSPC`; of a write the first half is done.
    NoSpace,
    /// The machine stops: this call and all later ones do nothing.
    PowerLoss,
}

/// A disk; clones are the same disk, as seen by the next process.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<DiskContents>>);

#[derive(Debug, Clone, Default)]
struct DiskContents {
    files: BTreeMap<u64, File>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    name_changes: Vec<NameChange>,
    calls: u64,
    bytes_read: usize,
    faults: BTreeMap<u64, DiskFault>,
    dead: bool,
    capacity: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct File {
    /// What a read sees.
    cached: Vec<u8>,
    /// What is there after a crash that loses everything it can.
    durable: Vec<u8>,
    /// Sectors the next sync will write.
    dirty: BTreeSet<usize>,
    /// Space taken up beyond the contents.
    allocated: u64,
}

#[derive(Debug, Clone)]
enum NameChange {
    Created(String, u64),
    Renamed { from: String, to: String, file: u64 },
    Removed(String),
}

impl SimulatedDisk {
    /// Makes the call with this number (from 0, over all calls that change something) go wrong.
    pub fn fail_at(&self, call: u64, fault: DiskFault) {
        self.contents().faults.insert(call, fault);
    }

    /// Nothing that was to go wrong will.
    pub fn forget_faults(&self) {
        self.contents().faults.clear();
    }

    /// How many calls that change something were made.
    pub fn calls(&self) -> u64 {
        self.contents().calls
    }

    /// How many bytes were read.
    pub fn bytes_read(&self) -> usize {
        self.contents().bytes_read
    }

    /// Limits the space to what is used now and `free` bytes more; none takes the limit away.
    pub fn limit_space(&self, free: Option<u64>) {
        let mut contents = self.contents();
        contents.capacity = free.map(|free| contents.used() + free);
    }

    /// Overwrites a file behind everybody's back, durably: damage.
    pub fn damage(&self, name: &str, bytes: Vec<u8>) {
        let mut contents = self.contents();
        let new = contents.files.len() as u64 + 1_000_000;
        let file = *contents.names.entry(name.to_owned()).or_insert(new);
        contents.durable_names.insert(name.to_owned(), file);
        let found = File { cached: bytes.clone(), durable: bytes, ..File::default() };
        contents.files.insert(file, found);
    }

    /// Deletes a file behind everybody's back, durably.
    pub fn lose(&self, name: &str) {
        let mut contents = self.contents();
        contents.names.remove(name);
        contents.durable_names.remove(name);
    }

    /// How many independent things a crash now may keep or lose: of each file its dirty sectors and
    /// its new length, then name changes.
    pub fn uncertain(&self) -> u32 {
        let contents = self.contents();
        let things = |file: &File| file.dirty.len() + usize::from(file.is_uncertain());
        let dirty: usize = contents.files.values().map(things).sum();
        u32::try_from(dirty + contents.name_changes.len()).expect("a test writes little")
    }

    /// The disk after a crash now. Bit `i` of `kept` says whether the `i`-th uncertain thing
    /// survives; `cut` bytes are missing at the end of each file that was growing.
    #[must_use]
    pub fn after_crash(&self, kept: u64, cut: usize) -> Self {
        let contents = self.contents();
        let mut survives = (0..).map(|bit: u32| kept.checked_shr(bit).unwrap_or(0) & 1 == 1);
        let mut survives = || survives.next().unwrap_or(false);
        let mut after = DiskContents { capacity: contents.capacity, ..DiskContents::default() };
        for (id, file) in &contents.files {
            let bytes = file.after_crash(&mut survives, cut);
            let found = File { cached: bytes.clone(), durable: bytes, ..file.clone() };
            after.files.insert(*id, File { dirty: BTreeSet::new(), ..found });
        }
        after.durable_names = contents.durable_names.clone();
        for change in &contents.name_changes {
            if survives() {
                change.apply(&mut after.durable_names);
            }
        }
        after.names = after.durable_names.clone();
        Self(Arc::new(Mutex::new(after)))
    }

    /// The names that survive every crash: those of `after_crash(0, usize::MAX)`, without copying the disk.
    pub fn durable_names(&self) -> Vec<String> {
        self.contents().durable_names.keys().cloned().collect()
    }

    /// The bytes of a file that survive every crash, from an offset on; none if there is no such file.
    pub fn read_durable(&self, name: &str, offset: usize) -> Vec<u8> {
        let contents = self.contents();
        let file = contents.durable_names.get(name).and_then(|id| contents.files.get(id));
        let bytes = file.map(|file| &file.durable[..file.durable.len().min(file.cached.len())]);
        bytes.and_then(|bytes| bytes.get(offset..)).unwrap_or_default().to_vec()
    }

    /// How many bytes files have grown since they were last synced, at most.
    pub fn growing(&self) -> usize {
        let grown = |file: &File| file.cached.len().saturating_sub(file.durable.len());
        self.contents().files.values().map(grown).max().unwrap_or(0)
    }

    /// The same disk in another place, so that two futures can be tried.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.contents().clone())))
    }

    fn contents(&self) -> MutexGuard<'_, DiskContents> {
        // A test that failed elsewhere must not hide its reason behind this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and says whether it goes wrong.
    fn call(&self) -> (MutexGuard<'_, DiskContents>, Option<DiskFault>) {
        let mut contents = self.contents();
        let fault = contents.faults.get(&contents.calls).copied();
        contents.calls += 1;
        contents.dead |= fault == Some(DiskFault::PowerLoss);
        let fault = if contents.dead { Some(DiskFault::PowerLoss) } else { fault };
        (contents, fault)
    }
}

impl DiskContents {
    fn used(&self) -> u64 {
        let named = self.names.values().filter_map(|id| self.files.get(id));
        named.map(|file| file.allocated.max(file.cached.len() as u64)).sum()
    }

    fn free(&self) -> u64 {
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()))
    }

    /// The file of that name, made if there is none.
    fn file(&mut self, name: &str) -> &mut File {
        let next = self.files.keys().last().map_or(0, |id| id + 1);
        let id = *self.names.entry(name.to_owned()).or_insert_with(|| {
            self.name_changes.push(NameChange::Created(name.to_owned(), next));
            next
        });
        self.files.entry(id).or_default()
    }

    fn existing(&mut self, name: &str) -> io::Result<&mut File> {
        let id = self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.files.entry(*id).or_default())
    }
}

impl File {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.cached.len() < end {
            self.cached.resize(end, 0);
        }
        self.cached[offset..end].copy_from_slice(bytes);
        if !bytes.is_empty() {
            self.dirty.extend(offset / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES);
        }
    }

    fn truncate(&mut self, length: usize) {
        self.cached.resize(length, 0);
        self.dirty.retain(|sector| sector * SECTOR_BYTES < length);
    }

    fn sync(&mut self) {
        self.durable.resize(self.cached.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            let range = sector_of(sector, self.cached.len());
            self.durable[range.clone()].copy_from_slice(&self.cached[range]);
        }
    }

    fn is_uncertain(&self) -> bool {
        !self.dirty.is_empty() || self.cached.len() != self.durable.len()
    }

    fn after_crash(&self, survives: &mut impl FnMut() -> bool, cut: usize) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for sector in &self.dirty {
            let range = sector_of(*sector, self.cached.len());
            if survives() && !range.is_empty() {
                bytes.resize(bytes.len().max(range.end), 0);
                bytes[range.clone()].copy_from_slice(&self.cached[range]);
            }
        }
        if self.is_uncertain() && survives() {
            bytes.resize(self.cached.len(), 0);
        }
        let shortest = self.durable.len().min(self.cached.len());
        bytes.truncate(bytes.len().saturating_sub(cut).max(shortest));
        bytes
    }
}

fn sector_of(sector: usize, length: usize) -> std::ops::Range<usize> {
    (sector * SECTOR_BYTES).min(length)..((sector + 1) * SECTOR_BYTES).min(length)
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Created(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Renamed { from, to, file } => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Self::Removed(name) => {
                names.remove(name);
            }
        }
    }
}

fn error_of(fault: DiskFault) -> io::Error {
    match fault {
        DiskFault::Io => io::Error::from_raw_os_error(5),
        DiskFault::NoSpace => io::ErrorKind::StorageFull.into(),
        DiskFault::PowerLoss => io::Error::other("the power is gone"),
    }
}

impl Files for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.contents().names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut contents = self.contents();
        let bytes = contents.existing(name)?.cached.clone();
        contents.bytes_read += bytes.len();
        Ok(bytes)
    }
}

impl Disk for SimulatedDisk {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut contents, fault) = self.call();
        let offset = usize::try_from(offset).expect("a test writes little");
        let room = usize::try_from(contents.free()).unwrap_or(usize::MAX);
        let file = contents.file(name);
        let growth = (offset + bytes.len()).saturating_sub(file.cached.len());
        let fault = fault.or((growth > room).then_some(DiskFault::NoSpace));
        match fault {
            None => file.write(offset, bytes),
            Some(DiskFault::PowerLoss) => {}
            Some(DiskFault::Io) => file.write(offset, &bytes[..bytes.len() / 2]),
            Some(DiskFault::NoSpace) => {
                let fits = (bytes.len() - growth + growth.min(room)).min(bytes.len() / 2);
                file.write(offset, &bytes[..fits]);
            }
        }
        fault.map_or(Ok(()), |fault| Err(error_of(fault)))
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        let (mut contents, fault) = self.call();
        if let Some(fault) = fault {
            return Err(error_of(fault));
        }
        let length = usize::try_from(length).expect("a test writes little");
        contents.existing(name)?.truncate(length);
        Ok(())
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let (mut contents, fault) = self.call();
        match fault {
            None => contents.existing(name)?.sync(),
            Some(DiskFault::PowerLoss) => {}
            // The kernel calls the pages clean although they were not written.
            Some(DiskFault::Io | DiskFault::NoSpace) => contents.existing(name)?.dirty.clear(),
        }
        fault.map_or(Ok(()), |fault| Err(error_of(fault)))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let (mut contents, fault) = self.call();
        if let Some(fault) = fault {
            return Err(error_of(fault));
        }
        let file = contents.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        contents.names.insert(to.to_owned(), file);
        let change = NameChange::Renamed { from: from.to_owned(), to: to.to_owned(), file };
        contents.name_changes.push(change);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let (mut contents, fault) = self.call();
        if let Some(fault) = fault {
            return Err(error_of(fault));
        }
        contents.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        contents.name_changes.push(NameChange::Removed(name.to_owned()));
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        let (mut contents, fault) = self.call();
        if let Some(fault) = fault {
            return Err(error_of(fault));
        }
        contents.durable_names = contents.names.clone();
        contents.name_changes.clear();
        let named: BTreeSet<u64> = contents.names.values().copied().collect();
        contents.files.retain(|id, _| named.contains(id));
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.contents().free())
    }

    fn allocate(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        let (mut contents, fault) = self.call();
        let room = contents.free();
        let file = contents.file(name);
        let growth = bytes.saturating_sub(file.allocated);
        if let Some(fault) = fault.or((growth > room).then_some(DiskFault::NoSpace)) {
            return Err(error_of(fault));
        }
        file.allocated = bytes;
        Ok(())
    }
}
