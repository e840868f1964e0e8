//! Worlds: desired files and a Proxmox VE that more or less agrees with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use evenkeel_core::actual::Power;
use evenkeel_core::desired::{self, Desired};
use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::release::Release;
use evenkeel_core::plan::{Plan, PlanContext, plan};
use evenkeel_core::registry::{self, Absent, Declarable, KeyRef};
use evenkeel_core::value::compare::{Cgroup, Conventions};
use evenkeel_core::value::read;
use evenkeel_core::words::diagnostic::Sources;

use crate::dice::Dice;
use crate::pve::{Guest, Pve, Stored, Waits, held};
use crate::{spelling, toml};

/// A desired and an actual state.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) files: Vec<DeclaredGuest>,
    pub(crate) pve: Pve,
}

/// One guest as it stands in a file, line by line.
#[derive(Debug, Clone)]
pub(crate) struct DeclaredGuest {
    pub(crate) id: GuestId,
    /// `key = value`.
    pub(crate) lines: Vec<String>,
    /// The keys that are set or unset.
    pub(crate) keys: BTreeSet<String>,
}

/// What a file says about one key.
enum Declaration {
    Line(String),
    Unset,
    Nothing,
}

impl World {
    /// Some world.
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let release =
            dice.pick(&[Release::V8_4, Release::V7_4, Release::V9_0, Release::V9_1, Release::V9_2]);
        let conventions = Conventions {
            tags_have_case: dice.chance(30),
            cgroup: dice.pick(&[Cgroup::V2, Cgroup::V2, Cgroup::V1]),
        };
        let mut world = Self { files: Vec::new(), pve: Pve::new(release, conventions) };
        for number in 0..=dice.roll(3) {
            let kind = dice.pick(&[GuestKind::Lxc, GuestKind::Qemu]);
            let vmid = VmId::try_from(u32::try_from(101 + number).unwrap()).unwrap();
            world.add_guest(GuestId { kind, vmid }, dice);
        }
        world
    }

    pub(crate) fn desired(&self) -> Desired {
        let text: String = self.files.iter().map(DeclaredGuest::toml).collect();
        load(&[text])
    }

    pub(crate) fn plan(&self) -> Plan {
        plan(&self.desired(), &self.pve.snapshot(), &PlanContext::default())
    }

    /// Plans, and does what may run.
    pub(crate) fn pass(&mut self, dice: &mut Dice) -> Plan {
        let plan = self.plan();
        for action in plan.runnable() {
            self.pve.apply(action, dice);
        }
        plan
    }

    /// The world as a person reads it, for the message of a failure.
    pub(crate) fn story(&self) -> String {
        let mut text = format!("{} {:?}\n", self.pve.release, self.pve.conventions);
        for file in &self.files {
            text.push_str(&file.toml());
        }
        for guest in self.pve.guests.values() {
            writeln!(text, "{} {} {:?}", guest.id, guest.power, guest.lock).unwrap();
            for (name, Stored { current, waiting }) in &guest.fields {
                writeln!(text, "  {name}: {current:?} waits {waiting:?}").unwrap();
            }
        }
        text
    }

    fn add_guest(&mut self, id: GuestId, dice: &mut Dice) {
        let mut guest = Guest {
            id,
            power: dice.pick(&[
                Power::Stopped,
                Power::Running,
                Power::Running,
                Power::Paused,
                Power::Unknown,
            ]),
            template: dice.chance(5),
            lock: dice.chance(8).then(|| "backup".to_owned()),
            readable: !dice.chance(8),
            has_digest: !dice.chance(4),
            fields: BTreeMap::new(),
            writes: 0,
        };
        let mut file = DeclaredGuest { id, lines: Vec::new(), keys: BTreeSet::new() };
        let mut unset = Vec::new();
        if id.kind == GuestKind::Lxc {
            guest.fields.insert("unprivileged".to_owned(), now(dice.pick(&["1", "0"])));
        }
        for name in some_keys(id.kind, dice) {
            let key = registry::find(id.kind, &name).unwrap();
            let declared = self.add_field(&mut guest, key, dice);
            match declared {
                Declaration::Line(line) => file.lines.push(line),
                Declaration::Unset => unset.push(toml::quoted(&name)),
                Declaration::Nothing => continue,
            }
            file.keys.insert(name);
        }
        if !unset.is_empty() {
            file.lines.push(format!("unset = [{}]", unset.join(", ")));
        }
        for (word, values) in [("run", ["running", "stopped"]), ("stop", ["force", "shutdown"])] {
            if dice.chance(40) {
                file.lines.push(format!("{word} = \"{}\"", dice.pick(&values)));
            }
        }
        if dice.chance(4) {
            (file.lines, file.keys) = (vec!["state = \"absent\"".to_owned()], BTreeSet::new());
        }
        file.lines.push(format!("kind = \"{}\"", id.kind));
        match dice.roll(20) {
            0 => self.files.push(file),
            1 => drop(self.pve.guests.insert(id.vmid, guest)),
            _ => {
                self.files.push(file);
                self.pve.guests.insert(id.vmid, guest);
            }
        }
    }

    /// One key of a guest: stored like this or that, and declared with a line, unset, or not at all.
    fn add_field(&mut self, guest: &mut Guest, key: KeyRef, dice: &mut Dice) -> Declaration {
        let row = key.key();
        let name = key.to_string();
        let id = guest.id;
        let owner = format!("vm-{}-{name}", id.vmid);
        let kept = matches!(row.declared, Declarable::No(_));
        let want = spelling::value(dice, &row.format, &owner);
        let other = spelling::value(dice, &row.format, &owner).text(&row.format);
        let wanted = want.text(&row.format);
        let texts = [wanted.as_str(), wanted.as_str(), other.as_str()];
        let mut field = Stored::default();
        if !dice.chance(25) || name == "rootfs" {
            let text = dice.pick(&texts);
            field.current = Some(self.pve.accept(id, &name, text, dice));
        }
        if dice.chance(4) && name != "rootfs" && !kept {
            field.current = Some("what=is this?".to_owned());
        }
        let sized = !matches!(row.name, "efidisk0" | "tpmstate0" | "unused");
        if let Some(text) = field.current.clone().filter(|text| sized && held(text).is_some())
            && dice.chance(25)
        {
            let size = dice.pick(&[2 << 30, 64 << 30, (8 << 30) + (2 << 20)]);
            field.current = Some(self.pve.sized(&text, size));
        }
        // Only a guest that runs, or ran, has changes that wait; a root volume never has one.
        field.waiting = match dice.roll(12) {
            9 if name != "rootfs" => {
                Some(Waits::Set(self.pve.accept(id, &name, dice.pick(&texts), dice)))
            }
            10 if field.current.is_some() && name != "rootfs" => Some(Waits::Delete),
            11 if field.current.is_some() && name.starts_with("scsi") => Some(Waits::Destroy),
            _ => None,
        };
        if field != Stored::default() {
            guest.fields.insert(name.clone(), field);
        }
        let cannot_unset = row.required
            || row.absent == Absent::ServerFilled
            || matches!(row.declared, Declarable::AtCreation | Declarable::No(_));
        match dice.roll(10) {
            0..=6 if !kept && read::declared(&row.format, &wanted).is_ok() => {
                Declaration::Line(format!("{name} = {}", toml::value(dice, &row.format, &want)))
            }
            7 if !cannot_unset => Declaration::Unset,
            _ => Declaration::Nothing,
        }
    }
}

impl DeclaredGuest {
    pub(crate) fn toml(&self) -> String {
        format!("[guest.{}]\n{}\n", self.id.vmid, self.lines.join("\n"))
    }
}

/// Reads desired files that must be right.
pub(crate) fn load(files: &[String]) -> Desired {
    let mut sources = Sources::default();
    for (number, text) in files.iter().enumerate() {
        sources.add(format!("{number}.toml"), text.as_str());
    }
    desired::load(&sources).unwrap_or_else(|errors| panic!("{errors:#?}\n{}", files.join("\n")))
}

/// A stored value with nothing waiting.
fn now(text: &str) -> Stored {
    Stored { current: Some(text.to_owned()), waiting: None }
}

/// Names of keys, the common ones more often.
fn some_keys(kind: GuestKind, dice: &mut Dice) -> BTreeSet<String> {
    let common: &[&str] = match kind {
        GuestKind::Lxc => {
            &["cores", "memory", "net0", "mp0", "rootfs", "tags", "description", "features", "swap"]
        }
        GuestKind::Qemu => {
            &["cores", "memory", "net0", "scsi0", "ide2", "tags", "agent", "description", "name"]
        }
    };
    let rows = registry::table(kind);
    let mut names = BTreeSet::new();
    for _ in 0..dice.roll(10) {
        let name = if dice.chance(50) {
            let row = &rows[dice.roll(rows.len())];
            match row.slots {
                Some(slots) => format!("{}{}", row.name, dice.roll(usize::from(slots))),
                None => row.name.to_owned(),
            }
        } else {
            dice.pick(common).to_owned()
        };
        // `cdrom` is another name of ide2, and a lock is a guest's own field here.
        if !matches!(name.as_str(), "lock" | "cdrom" | "unprivileged" | "template") {
            names.insert(name);
        }
    }
    names
}
