//! What a desired file says of the end of a guest: the bin, and the backup before it goes.

use super::DesiredChecker;
use crate::desired::field;
use crate::desired::tree::{Node, Tree, TreeEntry};
use crate::model::id::IdError;
use crate::operate::operation::StorageName;
use crate::words::diagnostic::{Code, Diagnostic};

impl DesiredChecker<'_> {
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
