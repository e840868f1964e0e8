//! What can be wished for on the node: one entry each. A new act is a new line in [`all`], and where it needs a judge of
//! its own, a new form of [`Wish`].

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::{self, DeclaredGuest};
use evenkeel_core::model::id::GuestKind;
use evenkeel_core::words::diagnostic::Sources;

use crate::pve::Request;
use crate::scene::{
    FREE, HAUNTED, HAUNTED_ASIDE, IMAGE, LEFT_ASIDE, MANAGED, Names, TEMPLATE, THEIR_IMAGE,
    UNLISTED, names,
};
use crate::sight::Eyes;

/// One entry.
pub(crate) struct Act {
    /// What it is, for people.
    pub(crate) name: String,
    /// It must run in some state: a search in which nothing happens finds nothing.
    pub(crate) runs: bool,
    pub(crate) wish: Wish,
}

/// How something is wished for, and by that who judges it.
pub(crate) enum Wish {
    /// A guest is declared so, and a pass does the first thing that may run.
    Declare(Box<DeclaredGuest>),
    /// A snapshot or a backup is asked for.
    Ask { op: ActionKind, guest: u32, params: BTreeMap<String, String> },
    /// A request that no plan makes: the classifier alone stands before it.
    Send(Request),
    /// Somebody else does something, on the node itself.
    Somebody(Deed, u32),
}

/// What people do beside us.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deed {
    Unlocks,
    Starts,
    /// Starts it, writes into it, and stops it again.
    Uses,
}

/// A block of a desired file.
struct Block {
    guest: u32,
    lines: String,
    runs: bool,
}

impl Block {
    fn runs(guest: u32, lines: impl Into<String>) -> Self {
        Self { guest, lines: lines.into(), runs: true }
    }

    /// What is declared needs a signature, or cannot be; for other reasons something may be done under it all the same.
    fn held(guest: u32, lines: impl Into<String>) -> Self {
        Self { runs: false, ..Self::runs(guest, lines) }
    }

    fn act(self, kind: GuestKind, eyes: Eyes) -> Act {
        let Self { guest, lines, runs } = self;
        let name = format!("declare {guest}: {}", lines.trim().replace('\n', "; "));
        let block = eyes.shown(&format!("[guest.{guest}]\nkind = \"{kind}\"\n{lines}\n"));
        let mut sources = Sources::default();
        sources.add("desired.toml", &block);
        let desired =
            desired::load(&sources).unwrap_or_else(|errors| panic!("{block}: {errors:#?}"));
        let declared = desired.guests.into_values().next().expect("one guest is declared");
        Act { name, runs, wish: Wish::Declare(Box::new(declared)) }
    }
}

/// Everything that is tried in every state.
pub(crate) fn all(kind: GuestKind, eyes: Eyes) -> Vec<Act> {
    let blocks = of_the_managed(kind).into_iter().chain(makings(kind));
    let mut acts: Vec<Act> = blocks.map(|block| block.act(kind, eyes)).collect();
    for guest in [MANAGED, FREE] {
        for (runs, op, params) in [
            (true, ActionKind::Snapshot, map(&[("snapname", "before")])),
            (true, ActionKind::Backup, map(&[("storage", "store")])),
            (false, ActionKind::Backup, map(&[("storage", "store"), ("remove", "1")])),
        ] {
            let name = format!("ask {op} {guest} {params:?}");
            acts.push(Act { name, runs, wish: Wish::Ask { op, guest, params } });
        }
    }
    for request in sent(kind) {
        let Request { op, guest, params, .. } = &request;
        let name = format!("send {op} {guest} {params:?}");
        acts.push(Act { name, runs: false, wish: Wish::Send(request) });
    }
    for deed in [Deed::Unlocks, Deed::Starts, Deed::Uses] {
        let name = format!("somebody {deed:?} {FREE}");
        acts.push(Act { name, runs: true, wish: Wish::Somebody(deed, FREE) });
    }
    acts
}

fn map(params: &[(&str, &str)]) -> BTreeMap<String, String> {
    params.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// A slot's value in a file: a new volume, or one that exists.
fn slot(name: &str, value: &str, backup: Option<bool>) -> String {
    let mount = name.strip_prefix("mp").map(|number| format!(", mp = \"/m{number}\""));
    let is_mount = mount.is_some();
    let backup = backup.or(is_mount.then_some(true)).map(|on| format!(", backup = {on}"));
    format!("{name} = {{ {value}{}{} }}\n", mount.unwrap_or_default(), backup.unwrap_or_default())
}

fn fresh(storage: &str, gib: u8) -> String {
    format!("storage = \"{storage}\", size = \"{gib}GiB\"")
}

fn existing(volume: &str) -> String {
    format!("volume = \"{volume}\"")
}

fn of_the_managed(kind: GuestKind) -> Vec<Block> {
    let Names { root, second, third, own, others, .. } = names(kind);
    let of = |lines: String| Block::runs(MANAGED, lines);
    let held = |lines: String| Block::held(MANAGED, lines);
    vec![
        of("run = \"running\"\n".to_owned()),
        of("run = \"stopped\"\nstop = \"force\"\n".to_owned()),
        of("state = \"bin\"\n".to_owned()),
        of("state = \"present\"\n".to_owned()),
        held("state = \"absent\"\n".to_owned()),
        held("template = true\n".to_owned()),
        // Grow, move, move back.
        of(slot(root, &fresh("tank", 16), None)),
        of(slot(root, &fresh("store", 8), None)),
        held(slot(root, &fresh("tank", 8), None)),
        of(slot(second, &fresh("tank", 4), None)),
        of(slot(second, &fresh("store", 4), None)),
        // Detach, attach, a new one, and into another slot.
        of(format!("unset = [\"{second}\"]\n")),
        of(slot(third, &existing(own[2]), None)),
        held(slot(third, &existing(own[2]), Some(false))),
        of(slot(third, &existing(own[1]), None)),
        held(slot(third, &existing(own[1]), Some(false))),
        of(slot(third, &fresh("tank", 4), None)),
        of(slot(second, &existing(own[2]), None)),
        of(format!("{}unset = [\"{second}\"]\n", slot(third, &existing(own[1]), None))),
        // Another guest's.
        held(slot(third, &existing(others[0]), None)),
        held(slot(third, &existing(others[1]), None)),
    ]
}

fn makings(kind: GuestKind) -> Vec<Block> {
    let Names { root, third, own, left, .. } = names(kind);
    let disk = slot(root, &fresh("tank", 4), None);
    let run = "run = \"running\"\n";
    let (plain, archive) = match kind {
        GuestKind::Lxc => (
            "source = { template = \"local:vztmpl/debian-12.tar.zst\" }\n".to_owned(),
            "store:backup/vzdump-lxc-101-2026_11_01-02_00_00.tar.zst",
        ),
        GuestKind::Qemu => (
            "source = { empty = true }\n".to_owned(),
            "store:backup/vzdump-qemu-101-2026_11_01-02_00_00.vma.zst",
        ),
    };
    let restore = |unique| format!("source = {{ backup = \"{archive}\", unique = {unique} }}\n");
    let clone = |rest: &str| format!("source = {{ clone = {rest} }}\n");
    let mut all = vec![
        Block::runs(FREE, format!("{plain}{disk}")),
        Block::runs(FREE, format!("{plain}{disk}{run}")),
        Block::runs(FREE, clone("9000, full = false")),
        Block::runs(FREE, format!("{}{run}", clone("9000, full = false"))),
        Block::runs(FREE, clone("9000, full = true")),
        Block::runs(FREE, clone("101, full = true, storage = \"store\"")),
        Block::runs(FREE, format!("{}{disk}", restore(true))),
        Block::runs(FREE, format!("{}{disk}{run}", restore(true))),
        Block::runs(FREE, format!("{}{disk}", restore(false))),
        Block::runs(FREE, slot(root, &fresh("store", 4), None)),
        Block::held(FREE, slot(third, &existing(own[0]), None)),
        Block::runs(FREE, "state = \"bin\"\n"),
        Block::runs(FREE, "state = \"present\"\n"),
        Block::held(HAUNTED, format!("{plain}{disk}")),
        Block::held(HAUNTED, clone("9000, full = false")),
        Block::held(HAUNTED, clone("9000, full = true")),
        Block::held(HAUNTED, format!("{}{disk}", restore(true))),
        Block::held(HAUNTED, slot(third, &existing(left), None)),
        Block::runs(HAUNTED_ASIDE, format!("{plain}{disk}")),
        Block::held(HAUNTED_ASIDE, slot(third, &existing(LEFT_ASIDE), None)),
        Block::held(UNLISTED, format!("{plain}{disk}")),
        Block::held(UNLISTED, clone("9000, full = true")),
        Block::held(UNLISTED, format!("{}{disk}", restore(false))),
    ];
    if kind == GuestKind::Qemu {
        let from =
            |image: &str| format!("source = {{ image = \"{image}\", into = \"{root}\" }}\n{disk}");
        all.push(Block::runs(FREE, from(IMAGE)));
        all.push(Block::held(FREE, from(THEIR_IMAGE)));
    }
    all
}

/// Requests beside every plan.
fn sent(kind: GuestKind) -> Vec<Request> {
    let Names { root, second, third, own, others, .. } = names(kind);
    let send = |op, guest, params: &[(&str, &str)]| Request {
        op,
        guest,
        source: None,
        params: map(params),
    };
    let disk = match kind {
        GuestKind::Lxc => "volume",
        GuestKind::Qemu => "disk",
    };
    let mut requests = Vec::new();
    // One that keeps its source comes by a declaration.
    for (guest, slot) in [(MANAGED, root), (MANAGED, second), (FREE, root), (TEMPLATE, root)] {
        let params = [(disk, slot), ("storage", "store"), ("delete", "1")];
        requests.push(send("move_volume", guest, &params));
    }
    let give = [(disk, second), ("target-vmid", "103"), ("delete", "0")];
    requests.push(send("move_volume", MANAGED, &give));
    let unreferenced = [("destroy-unreferenced-disks", "1")];
    for guest in [MANAGED, FREE, HAUNTED, TEMPLATE] {
        requests.push(send("destroy", guest, &[]));
        requests.push(send("destroy", guest, &unreferenced));
    }
    requests.push(send("set_config", MANAGED, &[("delete", "unused0")]));
    let (archive, from) = match kind {
        GuestKind::Lxc => ("store:backup/vzdump-lxc-101-2026_11_01-02_00_00.tar.zst", "ostemplate"),
        GuestKind::Qemu => ("store:backup/vzdump-qemu-101-2026_11_01-02_00_00.vma.zst", "archive"),
    };
    for force in ["0", "1"] {
        for guest in [MANAGED, FREE] {
            let params = [(from, archive), ("storage", "tank"), ("unique", "1"), ("force", force)];
            let mut request = send("restore", guest, &params);
            if kind == GuestKind::Lxc {
                request.params.insert("restore".to_owned(), "1".to_owned());
            }
            requests.push(request);
        }
    }
    let template = ("ostemplate", "local:vztmpl/debian-12.tar.zst");
    for volume in [own[2], others[0]] {
        let mounted = format!("{volume},mp=/x");
        let params: Vec<(&str, &str)> = match kind {
            GuestKind::Lxc => vec![template, (root, "tank:4"), (third, &mounted)],
            GuestKind::Qemu => vec![(root, "tank:4"), (third, volume)],
        };
        requests.push(send("create", FREE, &params));
    }
    if kind == GuestKind::Qemu {
        let theirs = format!("tank:0,import-from={}", others[0]);
        requests.push(send("create", FREE, &[(root, &theirs)]));
    }
    requests
}
