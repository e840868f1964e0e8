//! The guests of the node, and which of their files somebody may have written since the cluster file system looked.
//!
//! Everybody who changes a guest goes through here, so that no write is missed: [`crate::cluster_fs`] compares what was
//! touched and nothing else. Reading is the map's own.

use std::collections::BTreeSet;
use std::collections::btree_map::{self, BTreeMap};
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::world::SimGuest;

/// Guests by number; both kinds share one number space.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GuestFiles {
    guests: BTreeMap<u32, SimGuest>,
    #[serde(skip)]
    touched: BTreeSet<u32>,
}

impl GuestFiles {
    /// A guest, to change it.
    pub fn get_mut(&mut self, vmid: &u32) -> Option<&mut SimGuest> {
        let found = self.guests.get_mut(vmid)?;
        self.touched.insert(*vmid);
        Some(found)
    }

    /// Every guest, to change it.
    pub fn values_mut(&mut self) -> btree_map::ValuesMut<'_, u32, SimGuest> {
        self.touched.extend(self.guests.keys());
        self.guests.values_mut()
    }

    /// Puts a guest there; the one that had its number is given back.
    pub fn insert(&mut self, vmid: u32, guest: SimGuest) -> Option<SimGuest> {
        self.touched.insert(vmid);
        self.guests.insert(vmid, guest)
    }

    /// Takes a guest away.
    pub fn remove(&mut self, vmid: &u32) -> Option<SimGuest> {
        self.touched.insert(*vmid);
        self.guests.remove(vmid)
    }

    /// The numbers whose files may have been written, taken.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.touched)
    }
}

impl Deref for GuestFiles {
    type Target = BTreeMap<u32, SimGuest>;

    fn deref(&self) -> &Self::Target {
        &self.guests
    }
}

impl<'a> IntoIterator for &'a GuestFiles {
    type Item = (&'a u32, &'a SimGuest);
    type IntoIter = btree_map::Iter<'a, u32, SimGuest>;

    fn into_iter(self) -> Self::IntoIter {
        self.guests.iter()
    }
}
