//! Desired state: what the operator declared, already checked.
//!
//! ```text
//!   files ──syntax──> tree with positions ──check──> layers ──merge──> Desired, or every error at once
//! ```
//!
//! Defaults and profiles are layers under a guest's own words; what comes out is each guest whole.
//! A value of these types holds nothing that could not be planned: an absent guest has no fields, a
//! field's value fits its key, the order of fields is the registry's.

pub mod bin;
mod check;
mod difference;
mod field;
mod hide;
mod ignore;
pub mod import;
mod layers;
mod schema;
pub mod selection;
mod show;
mod source;
pub mod syntax;
pub mod tree;

use std::collections::BTreeMap;

pub(crate) use check::cannot_unset;
pub use difference::{
    DeclarationChange, DeclarationDifference, DeclaredChange, DeclaredSet, difference,
};
pub use hide::without_secrets;
pub use ignore::{IgnoreList, IgnoredKey};
pub use layers::{GuestOrigins, LayerName, Origin, Origins, PROFILES_MAX, PROFILES_PER_GUEST_MAX};
pub use schema::schema;
pub use show::{BlockLine, GuestBlock, LineSubject};
pub use source::{
    CloneSource, FirstUse, GuestSource, SECRET_NAME_MAX, VolumeContent, is_stored_secret,
};

use serde::Deserialize;

use crate::model::id::{GuestId, VmId};
use crate::operate::operation::StorageName;
use crate::registry::KeyRef;
use crate::value::Value;
use crate::words::diagnostic::{Diagnostic, Sources};

/// How many guests may be declared: ten times the largest cluster PVE is known to run, and few enough
/// that a pass stays a matter of seconds.
pub const GUESTS_MAX: usize = 10_000;

/// Reads and checks desired files. Nothing is taken from a set that has an error, and all errors are told
/// at once: the first hundred, and how many more there are.
pub fn load(sources: &Sources) -> Result<Desired, Vec<Diagnostic>> {
    load_with_origins(sources).map(|(desired, _)| desired)
}

/// The same, with where each declared value comes from.
pub fn load_with_origins(sources: &Sources) -> Result<(Desired, Origins), Vec<Diagnostic>> {
    let mut checker = check::DesiredChecker::new(sources);
    let mut trees = Vec::new();
    for file in sources {
        match syntax::parse(file) {
            Ok(tree) => trees.push(tree),
            Err(errors) => checker.errors.extend(errors),
        }
    }
    checker.files(&trees);
    let (desired, origins, errors) = checker.finish();
    if errors.is_empty() {
        return Ok((desired, origins));
    }
    Err(errors.finish())
}

/// Everything declared for one node, or a fleet of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    /// The guests, by number.
    pub guests: BTreeMap<VmId, DeclaredGuest>,
}

/// One declared guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredGuest {
    /// Kind and number.
    pub id: GuestId,
    /// Who declared it, which decides how much they may have made.
    pub by: DeclaredBy,
    /// Whether what differs is changed, or only shown.
    pub mode: ReconcileMode,
    /// What shall be of it.
    pub state: WantedState,
}

/// Who declared a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeclaredBy {
    /// Files of this host, which root or the agent's user wrote: unlimited.
    #[default]
    LocalFiles,
    /// A hub, and an author signed it: bounded by the host's own policy.
    Hub,
    /// A hub, and nobody signed it: bounded more tightly, see `fleet::opened_by`.
    UnsignedHub,
}

impl DeclaredBy {
    /// Whether a hub did, signed or not.
    pub fn is_hub(self) -> bool {
        match self {
            Self::LocalFiles => false,
            Self::Hub | Self::UnsignedHub => true,
        }
    }
}

/// Whether what differs is changed, of one guest or of a whole host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReconcileMode {
    /// It is brought to what is declared.
    #[default]
    Enforce,
    /// It is planned and shown, and nothing is ever sent.
    Observe,
}

/// Whether a guest shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedState {
    /// It shall exist, like this.
    Present(Spec),
    /// It shall be put aside: down, not started with the node, and tagged. What else is declared waits.
    Bin(Spec),
    /// It shall not exist: an explicit request to destroy it, which needs a signature.
    Absent {
        /// Where it is saved first.
        final_backup: Option<StorageName>,
    },
}

/// How a guest shall be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spec {
    /// Running, stopped, or not managed.
    pub run: Option<Run>,
    /// How it is brought down.
    pub stop: StopMode,
    /// What it is made from, if it must be made.
    pub source: Option<GuestSource>,
    /// What it gets once, when it is made.
    pub first: FirstUse,
    /// It holds nothing anybody would miss: what we made, and nobody else touched since, we may destroy unsigned.
    pub scratch: bool,
    /// It shall be a template.
    pub template: bool,
    /// What is left to others.
    pub ignore: IgnoreList,
    /// The declared keys, sorted.
    pub fields: Vec<DeclaredField>,
}

/// A run state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// It shall run.
    Running,
    /// It shall not run.
    Stopped,
}

/// How a guest is brought down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StopMode {
    /// It is asked, and left running if it does not answer.
    #[default]
    Shutdown,
    /// Its power is cut.
    Force,
}

/// One declared key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredField {
    /// The key.
    pub key: KeyRef,
    /// Its value; none if it must be absent.
    pub want: Option<Value>,
}
