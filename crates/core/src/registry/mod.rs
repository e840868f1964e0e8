//! The key registry: everything evenkeel knows of a configuration key, stated once.
//!
//! The desired files, the JSON Schema, the comparison of desired with actual, the classifier, the
//! planner, `doctor` and the reference page are all derived from this one table. A key that is not in
//! it is refused in desired files, ignored when read, and destructive to the classifier.
//!
//! ```text
//!   lxc.rs, qemu.rs   the rows
//!   both.rs           the rows that are the same in both
//!   parts.rs          the property strings the rows refer to
//!   format.rs         the words the rows are written in
//!   explain.rs        what is known of one key, in words
//!   alias.rs          what people call these keys elsewhere
//! ```

pub(crate) mod alias;
mod both;
mod drive;
pub mod effect;
mod explain;
pub mod format;
mod lxc;
mod parts;
mod qemu;
mod reference;

use std::fmt;

pub(crate) use format::ListItem;
pub use format::{Absent, Compared, FormatPart, Rule, Shape, Trailing, UNBOUNDED, ValueFormat};

pub(crate) use explain::example;
pub use explain::{Explanation, UnknownKey, every_key, explain};
pub use reference::reference;

use crate::model::id::GuestKind;
use crate::model::release::Release;

/// One configuration key, or a family of numbered ones.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The name; for a family without its number.
    pub name: &'static str,
    /// How many numbered slots the family has; none for a single key.
    pub slots: Option<u16>,
    /// How its value is spelled.
    pub format: ValueFormat,
    /// What its absence means.
    pub absent: Absent,
    /// When a change reaches a running guest.
    pub applies: Applies,
    /// What a change can cost.
    pub hazard: Hazard,
    /// The privilege PVE asks for.
    pub privilege: Privilege,
    /// Who may declare it.
    pub declared: Declarable,
    /// Whether PVE refuses to delete it, or breaks the guest when it does.
    pub required: bool,
    /// Whether its value must be shown and stored nowhere: `secret.rs` asks.
    pub secret: bool,
    /// Whether a document of a hub that nobody signed may change it: `fleet::opened_by` asks. Only what can neither let
    /// anyone into a guest nor send its traffic elsewhere, changes nothing that runs in it, and misleads nobody who signs.
    pub hub_may: bool,
    /// Where it exists.
    pub releases: Releases,
    /// One line for the reference and for editors.
    pub doc: &'static str,
}

/// When a change reaches a running guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// At once.
    Live,
    /// Stored at once; the guest sees it when it next starts.
    AtNextStart,
    /// PVE keeps it waiting until the guest restarts.
    AfterRestart,
    /// LXC `netN`: live, but `mtu` and `trunks` reach the interface at the next start, and slots from
    /// 10 on are unplugged only by a restart.
    LxcNetwork,
    /// LXC `mpN`: a new one is mounted live, everything else waits.
    LxcMount,
    /// LXC `devN`: a new one is live from 9.0 on, everything else waits.
    LxcDevice,
    /// QEMU: live if the guest's hot-plug set has this feature.
    Hotplug(HotplugFeature),
    /// QEMU `balloon`: live between values, waiting to and from 0.
    Balloon,
    /// QEMU drives: the medium of a CD-ROM and throttling are live on every bus; `scsiN` and `virtioN` are
    /// plugged and unplugged by hot-plug; everything else waits.
    HotplugDrive,
    /// QEMU `hotplug`: live unless cpu or memory is involved.
    HotplugSet,
    /// QEMU from 8.0 on live, waiting before.
    LiveSince8,
}

/// A feature of QEMU's `hotplug` set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HotplugFeature {
    /// Network cards.
    Network,
    /// USB devices.
    Usb,
    /// Virtual CPUs.
    Cpu,
    /// Memory.
    Memory,
    /// The cloud-init drive is made anew at once.
    CloudInit,
}

impl HotplugFeature {
    /// The word in the set.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Usb => "usb",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::CloudInit => "cloudinit",
        }
    }
}

/// What changing a key can cost, from which the classifier takes the class of each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hazard {
    /// Nothing that cannot be set back.
    Safe,
    /// An interruption, or a guest that may not start.
    Disrupts,
    /// A guard: raising it is safe, lifting it is destructive.
    Guard,
    /// The guest's name: with a cloud-init drive it re-runs first-boot logic.
    GuestName,
    /// The root volume: anything but what is there loses it.
    RootVolume,
    /// A volume slot: detaching keeps the data, weakening its safety does not.
    VolumeSlot,
    /// TPM state: replacing it loses keys.
    TpmState,
    /// `unusedN`: deleting it frees the volume.
    UnusedVolume,
    /// Code that runs on the host, or a value that must never change.
    Forbidden,
}

impl Hazard {
    /// Whether the key is a place for a volume in use.
    pub fn is_volume_slot(self) -> bool {
        match self {
            Self::RootVolume | Self::VolumeSlot | Self::TpmState => true,
            Self::Safe
            | Self::Disrupts
            | Self::Guard
            | Self::GuestName
            | Self::UnusedVolume
            | Self::Forbidden => false,
        }
    }
}

/// The privilege PVE asks for when a key is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Privilege {
    /// `VM.Config.CPU`
    Cpu,
    /// `VM.Config.Memory`
    Memory,
    /// `VM.Config.Network`
    Network,
    /// `VM.Config.Options`
    Options,
    /// `VM.Config.Disk`
    Disk,
    /// `VM.Config.HWType`
    Hardware,
    /// `VM.Config.Cloudinit`
    CloudInit,
    /// `VM.PowerMgmt`
    Power,
    /// `VM.Config.Options`, and `Sys.Modify` on `/`
    OptionsAndSysModify,
}

impl Privilege {
    /// The names PVE's roles use.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Cpu => &["VM.Config.CPU"],
            Self::Memory => &["VM.Config.Memory"],
            Self::Network => &["VM.Config.Network"],
            Self::Options => &["VM.Config.Options"],
            Self::Disk => &["VM.Config.Disk"],
            Self::Hardware => &["VM.Config.HWType"],
            Self::CloudInit => &["VM.Config.Cloudinit"],
            Self::Power => &["VM.PowerMgmt"],
            Self::OptionsAndSysModify => &["VM.Config.Options", "Sys.Modify"],
        }
    }
}

/// Who may declare a key in a desired file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declarable {
    /// Anybody.
    Yes,
    /// Parsed, but refused at plan time: only root@pam may set it, and a token never is.
    RootOnly,
    /// Only when the guest is created; afterwards it is compared and never written.
    AtCreation,
    /// Nobody: PVE keeps it. The text says why, or what to write instead.
    No(&'static str),
}

/// A range of releases, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Releases {
    /// The first that has it.
    pub from: Release,
    /// The last that has it, if it is gone.
    pub until: Option<Release>,
}

impl Releases {
    /// Everywhere we support.
    pub const ALL: Self = Self::from(Release::V7_4);

    /// From a release on.
    pub const fn from(release: Release) -> Self {
        Self { from: release, until: None }
    }

    /// Up to and including a release.
    pub const fn until(release: Release) -> Self {
        Self { from: Release::V7_4, until: Some(release) }
    }

    /// Whether a release has it. Releases older than the oldest we know count as the oldest.
    pub fn contains(self, release: Release) -> bool {
        release.max(Release::V7_4) >= self.from && self.until.is_none_or(|last| release <= last)
    }
}

/// A key of one guest kind with its slot number: what fields and changes are named by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRef {
    kind: GuestKind,
    row: u8,
    slot: u16,
}

impl KeyRef {
    /// The row of the registry.
    pub fn key(self) -> &'static Key {
        &table(self.kind)[usize::from(self.row)]
    }

    /// The guest kind whose table it is from.
    pub fn kind(self) -> GuestKind {
        self.kind
    }

    /// The number in `net3`; 0 for a single key.
    pub fn slot(self) -> u16 {
        self.slot
    }
}

impl fmt::Display for KeyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key();
        f.write_str(key.name)?;
        if key.slots.is_some() { self.slot.fmt(f) } else { Ok(()) }
    }
}

/// All rows of a guest kind, sorted by name.
pub fn table(kind: GuestKind) -> &'static [Key] {
    match kind {
        GuestKind::Lxc => lxc::KEYS,
        GuestKind::Qemu => qemu::KEYS,
    }
}

/// Finds a key by the name PVE uses: `cores`, `net0`.
pub fn find(kind: GuestKind, name: &str) -> Option<KeyRef> {
    let at = |base: &str, slot: Option<u16>| {
        let rows = table(kind);
        let row = rows
            .binary_search_by(|key| (key.name, key.slots.is_some()).cmp(&(base, slot.is_some())))
            .ok()?;
        let slot = slot.unwrap_or(0);
        let within = rows[row].slots.is_none_or(|count| slot < count);
        within.then(|| KeyRef {
            kind,
            row: u8::try_from(row).expect("a table has under 256 rows"),
            slot,
        })
    };
    at(name, None).or_else(|| {
        let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[base.len()..];
        if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
            return None;
        }
        at(base, Some(digits.parse().ok()?))
    })
}

/// A row with nothing special about it: declared by anybody, waits for a restart, safe, `Options`.
const fn key(name: &'static str, format: ValueFormat, doc: &'static str) -> Key {
    Key {
        name,
        slots: None,
        format,
        absent: Absent::Nothing,
        applies: Applies::AfterRestart,
        hazard: Hazard::Safe,
        privilege: Privilege::Options,
        declared: Declarable::Yes,
        required: false,
        secret: false,
        hub_may: false,
        releases: Releases::ALL,
        doc,
    }
}

/// A key PVE keeps for itself.
const fn kept(name: &'static str, format: ValueFormat, why: &'static str) -> Key {
    key(name, format, "Kept by Proxmox VE.").declared(Declarable::No(why)).hazard(Hazard::Forbidden)
}

impl Key {
    const fn slots(mut self, count: u16) -> Self {
        self.slots = Some(count);
        self
    }

    const fn absent(mut self, absent: Absent) -> Self {
        self.absent = absent;
        self
    }

    const fn applies(mut self, applies: Applies) -> Self {
        self.applies = applies;
        self
    }

    const fn live(self) -> Self {
        self.applies(Applies::Live)
    }

    const fn hazard(mut self, hazard: Hazard) -> Self {
        self.hazard = hazard;
        self
    }

    const fn disrupts(self) -> Self {
        self.hazard(Hazard::Disrupts)
    }

    const fn privilege(mut self, privilege: Privilege) -> Self {
        self.privilege = privilege;
        self
    }

    const fn declared(mut self, declared: Declarable) -> Self {
        self.declared = declared;
        self
    }

    const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    const fn hub_may(mut self) -> Self {
        self.hub_may = true;
        self
    }

    const fn root_only(self) -> Self {
        self.declared(Declarable::RootOnly)
    }

    const fn since(mut self, release: Release) -> Self {
        self.releases = Releases::from(release);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_so_that_every_row_can_be_found() {
        for kind in GuestKind::ALL {
            for key in table(kind) {
                let name = if key.slots.is_some() {
                    format!("{}0", key.name)
                } else {
                    key.name.to_owned()
                };
                let found = find(kind, &name).unwrap_or_else(|| panic!("{kind} {name}"));
                assert_eq!(found.to_string(), name);
            }
        }
    }

    #[test]
    fn slots_have_bounds_and_no_second_spelling() {
        for name in ["net31", "mp255", "unused255"] {
            assert!(find(GuestKind::Lxc, name).is_some(), "{name}");
        }
        for name in ["net32", "net", "net00", "net-1", "cores0", "mp256", "NET0", "net99999999"] {
            assert!(find(GuestKind::Lxc, name).is_none(), "{name}");
        }
        assert_eq!(find(GuestKind::Qemu, "numa").unwrap().key().slots, None);
        assert_eq!(find(GuestKind::Qemu, "numa1").unwrap().key().slots, Some(8));
    }

    #[test]
    fn parts_are_sorted_and_shapes_name_parts_they_have() {
        for key in GuestKind::ALL.into_iter().flat_map(table) {
            if let ValueFormat::Property(shape) = key.format {
                assert!(shape.parts.is_sorted_by_key(|part| part.name), "{}", key.name);
                for name in shape.bare.iter().chain(&shape.switch) {
                    assert!(shape.part(name).is_some(), "{} {name}", key.name);
                }
            }
        }
    }
}
