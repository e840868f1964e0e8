//! What a desired file says of the end of a guest: that it shall be absent, the bin, and the backup before it goes.

use super::DesiredChecker;
use crate::desired::layers::{GuestOrigins, Layer, LayerName, Origin};
use crate::desired::tree::{Node, Tree, TreeEntry};
use crate::desired::{ReconcileMode, WantedState, field};
use crate::model::id::{GuestId, IdError};
use crate::operate::operation::StorageName;
use crate::words::diagnostic::{Code, Diagnostic};

impl DesiredChecker<'_> {
    /// An absent guest has a kind, a state, perhaps a mode and where it is saved first, and nothing else. Of the defaults of its kind only the
    /// mode is for it: who observes all guests observes this one too.
    pub(super) fn absent(
        &mut self,
        id: GuestId,
        entries: &[TreeEntry],
    ) -> (WantedState, ReconcileMode, GuestOrigins) {
        let mut own = Layer::default();
        let mut origins = GuestOrigins::default();
        let mut final_backup = None;
        for entry in entries {
            match entry.key.as_str() {
                "kind" => {}
                "final_backup" => {
                    final_backup = self.final_backup(entry);
                    let origin = Origin { layer: LayerName::Guest, span: entry.key_span };
                    origins.words.insert("final_backup", origin);
                }
                "state" => {
                    let origin = Origin { layer: LayerName::Guest, span: entry.key_span };
                    origins.words.insert("state", origin);
                }
                "mode" => own.mode = self.mode(&LayerName::Guest, entry),
                _ => {
                    let message =
                        format!("`{}` is declared for a guest that shall be absent", entry.key);
                    let diagnostic = Diagnostic::new(Code::Contradiction, message)
                        .at(entry.key_span, "of no use here");
                    let hint = match entry.key.as_str() {
                        // The journal knows what the guest was made as.
                        "scratch" => {
                            "leave it out: it counts when a guest is made, and is remembered"
                                .to_owned()
                        }
                        _ => {
                            format!("keep only `kind`, `state`, `mode` and `final_backup` for {id}")
                        }
                    };
                    self.errors.push(diagnostic.hint(hint));
                }
            }
        }
        let mode = own.mode.or_else(|| self.shared.defaults(id.kind)?.mode.clone());
        if let Some(mode) = &mode {
            origins.words.insert("mode", mode.origin.clone());
        }
        let mode = mode.map(|mode| mode.value).unwrap_or_default();
        (WantedState::Absent { final_backup }, mode, origins)
    }

    /// The storage a guest is saved to before it goes.
    pub(super) fn final_backup(&mut self, entry: &TreeEntry) -> Option<StorageName> {
        let hint =
            "write the name of a storage that holds backups, such as final_backup = \"local\"";
        let Tree::Text(name) = &entry.value.value else {
            let error =
                field::wrong_type(&entry.value, "`final_backup` must be the name of a storage");
            self.errors.push(error.hint(hint));
            return None;
        };
        match name.parse() {
            Ok(storage) => Some(storage),
            Err(error) => {
                let diagnostic = Diagnostic::new(Code::BadValue, IdError::to_string(&error));
                self.errors.push(diagnostic.at(entry.value.span, "this name").hint(hint));
                None
            }
        }
    }

    /// A backup before the end, of a guest that shall not end.
    pub(super) fn no_end(&mut self, entry: &TreeEntry) {
        let message = "`final_backup` is declared for a guest that shall stay";
        let diagnostic =
            Diagnostic::new(Code::Contradiction, message).at(entry.key_span, "of no use here");
        let hint = "write it beside state = \"absent\", or leave it out";
        self.errors.push(diagnostic.hint(hint));
    }
}

/// Whether a guest shall be put aside.
pub(super) fn is_in_bin(guest: &Node) -> bool {
    guest.entry("state").is_some_and(|entry| entry.value.value == Tree::Text("bin".to_owned()))
}

pub(super) fn is_absent(guest: &Node) -> bool {
    guest.entry("state").is_some_and(|entry| entry.value.value == Tree::Text("absent".to_owned()))
}
