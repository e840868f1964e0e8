//! The parameters of a signed op: which must be spelled out, and what each may look like.
//!
//! A parameter left out would take PVE's default, which may differ from release to release, so the ops
//! that destroy name every one, and the preparatory steps `stop` and `unprotect` beside them. The registry of
//! actions lists them. Called when a statement is read and when one is made; it compares nothing with the world.

use std::collections::BTreeMap;

use super::json::Malformed;
use crate::action_registry::ActionKind;
use crate::action_registry::is_word;
use crate::model::id::GuestKind;

/// How many parameters an op may have: a guest has at most about a hundred and fifty keys.
const PARAMS_MAX: usize = 256;

/// The longest parameter name read; PVE's longest is 26.
const NAME_BYTES_MAX: usize = 64;

/// Checks all parameters of an op.
pub(crate) fn check(
    op: ActionKind,
    kind: GuestKind,
    params: &BTreeMap<String, String>,
) -> Result<(), Malformed> {
    if params.len() > PARAMS_MAX {
        return Err(Malformed::new(format!("more than {PARAMS_MAX} parameters")));
    }
    let row = op.row();
    let listed = |name: &str| op.param(kind, name);
    let mut spelled_out = row.params.iter().filter(|param| param.spelled_out && param.is_of(kind));
    if let Some(missing) = spelled_out.find(|param| !params.contains_key(param.name)) {
        return Err(Malformed::new(format!(
            "`params` has no `{}`: a {op} names every parameter, defaults too",
            missing.name
        )));
    }
    for (name, value) in params {
        if !is_name(name) {
            let name = name.escape_debug();
            return Err(Malformed::new(format!("`{name}` is not the name of a parameter")));
        }
        let fits = match listed(name) {
            Some(param) => param.form.fits(value),
            None if row.only_listed => {
                return Err(Malformed::new(format!("a {op} has no parameter `{name}`")));
            }
            None => true,
        };
        if !fits {
            return Err(Malformed::new(format!("`{}` is no {name}", value.escape_debug())));
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && is_word(name, "_.-")
}
