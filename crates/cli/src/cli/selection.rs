//! How every verb is told which guests are meant.

use clap::Args;
use evenkeel_core::desired::selection::{GuestName, NamePattern, Selection};
use evenkeel_core::model::id::GuestKind;

/// Guests by name and by condition.
#[derive(Debug, Args)]
pub(crate) struct SelectArgs {
    /// Only these guests: 101, lxc/101, or the name of one guest [default: all guests]
    #[arg(value_name = "GUEST")]
    pub(crate) guests: Vec<GuestName>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Guests by condition. A guest must meet all conditions; if one is repeated, either value matches.
#[derive(Debug, Args)]
#[command(next_help_heading = "Guests")]
pub(crate) struct FilterArgs {
    /// Only guests with this tag; may be given several times
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,
    /// Only guests of this kind: lxc or qemu
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<GuestKind>,
    /// Only guests whose name matches, such as 'web-*'; may be given several times
    #[arg(long, value_name = "GLOB")]
    pub(crate) name: Vec<NamePattern>,
}

impl SelectArgs {
    /// What is meant.
    pub(crate) fn selection(&self) -> Selection {
        self.filter.among(self.guests.clone())
    }
}

impl FilterArgs {
    /// What is meant together with guests that were named.
    pub(crate) fn among(&self, guests: Vec<GuestName>) -> Selection {
        let Self { tag, kind, name } = self;
        Selection { guests, tags: tag.clone(), kind: *kind, names: name.clone() }
    }
}
