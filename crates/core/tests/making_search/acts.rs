//! What can be wished for on the node: one entry each. A new act is a new line in [`all`], and where it needs a judge of
//! its own, a new form of [`Wish`].

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::{self, DeclaredGuest};
use evenkeel_core::diagnostic::Sources;
use evenkeel_core::id::GuestKind;

use crate::pve::Request;
use crate::scene::{FREE, HAUNTED, IMAGE, MANAGED, Names, TEMPLATE, THEIR_IMAGE, UNLISTED, names};
use crate::sight::Eyes;

/// One entry.
pub(crate) struct Act {
    /// What it is, for people.
    pub(crate) name: String,
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
    /// A guest whose making was left half done is taken away again.
    Compensate(u32),
    /// Somebody else does something, on the node itself.
    Somebody(Deed, u32),
}

/// What people do beside us.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deed {
    Unlocks,
    Starts,
}

/// Everything that is tried in every state.
pub(crate) fn all(kind: GuestKind, eyes: Eyes) -> Vec<Act> {
    let mut acts = Vec::new();
    for (name, guest, lines) in declared(kind) {
        let block = eyes.shown(&format!("[guest.{guest}]\nkind = \"{kind}\"\n{lines}\n"));
        let mut sources = Sources::default();
        sources.add("desired.toml", &block);
        let desired = desired::load(&sources);
        let desired =
            desired.unwrap_or_else(|errors| panic!("{block} does not check: {errors:#?}"));
        let declared = desired.guests.into_values().next().expect("one guest is declared");
        acts.push(Act { name, wish: Wish::Declare(Box::new(declared)) });
    }
    for guest in [MANAGED, FREE] {
        let ask = |op: ActionKind, params: &[(&str, &str)]| {
            let name = format!("ask {op} {guest} {params:?}");
            Act { name, wish: Wish::Ask { op, guest, params: map(params) } }
        };
        acts.push(ask(ActionKind::Snapshot, &[("snapname", "before")]));
        acts.push(ask(ActionKind::Backup, &[("storage", "store")]));
        acts.push(ask(ActionKind::Backup, &[("storage", "store"), ("remove", "1")]));
    }
    for request in sent(kind) {
        let Request { op, guest, params, .. } = &request;
        acts.push(Act { name: format!("send {op} {guest} {params:?}"), wish: Wish::Send(request) });
    }
    for guest in [MANAGED, FREE, HAUNTED] {
        let name = format!("compensate {guest}");
        acts.push(Act { name, wish: Wish::Compensate(guest) });
    }
    for deed in [Deed::Unlocks, Deed::Starts] {
        let name = format!("somebody {deed:?} {FREE}");
        acts.push(Act { name, wish: Wish::Somebody(deed, FREE) });
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

/// Declarations: a name, the guest, and the lines of its block.
fn declared(kind: GuestKind) -> Vec<(String, u32, String)> {
    let mut all = of_the_managed(kind);
    all.extend(makings(kind));
    all.into_iter()
        .map(|(guest, lines)| {
            (format!("declare {guest}: {}", lines.trim().replace('\n', "; ")), guest, lines)
        })
        .collect()
}

fn of_the_managed(kind: GuestKind) -> Vec<(u32, String)> {
    let Names { root, second, third, own, others, .. } = names(kind);
    let of = |lines: String| (MANAGED, lines);
    vec![
        of("run = \"running\"\n".to_owned()),
        of("run = \"stopped\"\nstop = \"force\"\n".to_owned()),
        of("state = \"bin\"\n".to_owned()),
        of("state = \"present\"\n".to_owned()),
        of("state = \"absent\"\n".to_owned()),
        of("template = true\n".to_owned()),
        // Grow, move, move back.
        of(slot(root, &fresh("tank", 16), None)),
        of(slot(root, &fresh("store", 8), None)),
        of(slot(root, &fresh("tank", 8), None)),
        of(slot(second, &fresh("tank", 4), None)),
        of(slot(second, &fresh("store", 4), None)),
        // Detach, attach, a new one, and into another slot.
        of(format!("unset = [\"{second}\"]\n")),
        of(slot(third, &existing(own[2]), None)),
        of(slot(third, &existing(own[2]), Some(false))),
        of(slot(third, &existing(own[1]), None)),
        of(slot(third, &existing(own[1]), Some(false))),
        of(slot(third, &fresh("tank", 4), None)),
        of(slot(second, &existing(own[2]), None)),
        of(format!("{}unset = [\"{second}\"]\n", slot(third, &existing(own[1]), None))),
        // Another guest's.
        of(slot(third, &existing(others[0]), None)),
        of(slot(third, &existing(others[1]), None)),
    ]
}

fn makings(kind: GuestKind) -> Vec<(u32, String)> {
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
        (FREE, format!("{plain}{disk}")),
        (FREE, format!("{plain}{disk}{run}")),
        (FREE, clone("9000, full = false")),
        (FREE, format!("{}{run}", clone("9000, full = false"))),
        (FREE, clone("9000, full = true")),
        (FREE, clone("101, full = true, storage = \"store\"")),
        (FREE, format!("{}{disk}", restore(true))),
        (FREE, format!("{}{disk}{run}", restore(true))),
        (FREE, format!("{}{disk}", restore(false))),
        (FREE, slot(root, &fresh("store", 4), None)),
        (FREE, slot(third, &existing(own[0]), None)),
        (FREE, "state = \"bin\"\n".to_owned()),
        (FREE, "state = \"present\"\n".to_owned()),
        (HAUNTED, format!("{plain}{disk}")),
        (HAUNTED, clone("9000, full = false")),
        (HAUNTED, clone("9000, full = true")),
        (HAUNTED, format!("{}{disk}", restore(true))),
        (HAUNTED, slot(third, &existing(left), None)),
        (UNLISTED, format!("{plain}{disk}")),
        (UNLISTED, clone("9000, full = true")),
        (UNLISTED, format!("{}{disk}", restore(false))),
    ];
    if kind == GuestKind::Qemu {
        for image in [IMAGE, THEIR_IMAGE] {
            let source = format!("source = {{ image = \"{image}\", into = \"{root}\" }}\n");
            all.push((FREE, format!("{source}{disk}")));
        }
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
