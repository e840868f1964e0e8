//! What a document of a hub that nobody signed may change: keys that the registry marks `hub_may`, and nothing else.
//!
//! The planner asks here; everything else that such a document declares is held, `policy`, so that a stolen hub changes
//! sizes and notes, lets nobody into a guest and sends no traffic elsewhere. The list is of what is allowed: a key that is
//! new, or that nobody thought of, is held. Classes and root's own limits hold as ever.

use crate::desired::DeclaredBy;
use crate::gate::compensation::RemovalGround;
use crate::model::reason::{ReasonCode, Refusal};
use crate::plan::{Change, Step};

/// Why a change may not be made as somebody declared it; none if it may.
pub fn opened_by(by: DeclaredBy, change: &Change) -> Option<Refusal> {
    let is_held = match by {
        DeclaredBy::LocalFiles | DeclaredBy::Hub => false,
        DeclaredBy::UnsignedHub => !change.key.key().hub_may,
    };
    is_held.then(|| refuse(&change.key.to_string()))
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

fn refuse(what: &str) -> Refusal {
    let detail = format!(
        "nobody signed the hub's document, and unsigned it may not change `{what}`: have an author sign it"
    );
    Refusal::new(ReasonCode::Policy, detail)
}
