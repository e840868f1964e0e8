//! What opens a guest: changes by which whoever makes them could get into it, or out of it.
//!
//! The planner asks here about what an unsigned document of a hub declares: such changes are held, `policy`, so that a
//! stolen hub changes sizes and names and lets nobody in. A key not listed here is not thereby harmless: classes and
//! root's own limits hold as ever.

use crate::compensation::RemovalGround;
use crate::desired::DeclaredBy;
use crate::plan::{Change, Step};
use crate::reason::{ReasonCode, Refusal};
use crate::value::{Property, Value};

/// Parts of a network card that say where it leads.
const CARD_PARTS: [&str; 4] = ["bridge", "firewall", "tag", "trunks"];

/// Why a change may not be made as somebody declared it; none if it may.
pub fn opened_by(by: DeclaredBy, change: &Change) -> Option<Refusal> {
    let opens = match by {
        DeclaredBy::LocalFiles | DeclaredBy::Hub => false,
        DeclaredBy::UnsignedHub => opens(change),
    };
    opens.then(|| refuse(&change.key.to_string()))
}

/// Why a step may not be taken as somebody declared it; none if it may. Configuration writes are asked about key by key.
pub fn opened_by_step(by: DeclaredBy, step: &Step) -> Option<Refusal> {
    match by {
        DeclaredBy::LocalFiles | DeclaredBy::Hub => return None,
        DeclaredBy::UnsignedHub => {}
    }
    match step {
        // What a guest is made from brings users and keys along.
        Step::Make(_) => Some(refuse("source")),
        Step::Stop => Some(refuse("stop")),
        // Nobody signs the removal of what we made, so somebody must have signed that it shall go.
        Step::Remove(removal) => Some(refuse(match removal.ground {
            RemovalGround::HalfMade => "source",
            RemovalGround::Scratch => "scratch",
        })),
        Step::Template => Some(refuse("template")),
        Step::SetConfig(_)
        | Step::Resize { .. }
        | Step::MoveVolume { .. }
        | Step::Start
        | Step::Shutdown { .. }
        | Step::Destroy(_) => None,
    }
}

fn opens(change: &Change) -> bool {
    let name = change.key.key().name;
    match name {
        "sshkeys" | "ipconfig" | "boot" | "bootdisk" | "bios" => true,
        // Every key of cloud-init's own: user, password, files, upgrades.
        _ if name.starts_with("ci") => true,
        "net" => card_leads_elsewhere(change.from.as_ref(), change.to.as_ref()),
        // A CD can be booted from, and cloud-init's drive is one.
        _ => [&change.from, &change.to].into_iter().flatten().any(is_cdrom),
    }
}

/// A card that comes or goes leads elsewhere too.
fn card_leads_elsewhere(from: Option<&Value>, to: Option<&Value>) -> bool {
    let (Some(from), Some(to)) =
        (from.and_then(Value::as_property), to.and_then(Value::as_property))
    else {
        return true;
    };
    CARD_PARTS.iter().any(|part| from.get(part) != to.get(part))
}

fn is_cdrom(value: &Value) -> bool {
    value.as_property().is_some_and(Property::is_cdrom)
}

fn refuse(what: &str) -> Refusal {
    let detail = format!(
        "`{what}` opens a guest, and nobody signed the hub's document: have an author sign it"
    );
    Refusal::new(ReasonCode::Policy, detail)
}
