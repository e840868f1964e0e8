//! Which guest a person means, by what the node lists.
//!
//! Asked before something is requested of a guest. A list that leaves one out proves nothing: a number that is not listed
//! is asked for, and only a free one is not there.

use evenkeel_core::desired::selection::{GuestName, ON_NODE, SelectionError, find};
use evenkeel_core::model::id::{GuestId, NodeName, VmId};

use crate::engine::{Engine, Fatal};
use crate::observe::list_guests;
use crate::pve::Client;
use crate::pve::error::Error;

/// Why nobody knows which guest is meant.
#[derive(Debug, thiserror::Error)]
pub enum FindGuestError {
    /// It is not there, or two have the name.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// It is on another node.
    #[error("{guest} is on node {node}")]
    Elsewhere {
        /// Which.
        guest: GuestId,
        /// Where.
        node: NodeName,
    },
    /// The number is taken, and the token does not see by whom.
    #[error("a guest {0} exists, but the token cannot see it")]
    Hidden(VmId),
    /// The node does not answer.
    #[error(transparent)]
    Actual(Error),
    /// The engine must end.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}

impl FindGuestError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Selection(error) => error.hint(),
            Self::Elsewhere { .. } => "ask the agent of that node".to_owned(),
            Self::Hidden(_) => {
                "run `evenkeel doctor` to see which rights the token lacks".to_owned()
            }
            Self::Actual(error) => error.hint().to_owned(),
            Self::Fatal(_) => "mend the disk of the state directory, then start again".to_owned(),
        }
    }
}

/// The guest of this node that is meant.
pub async fn find_guest(client: &Client, name: &GuestName) -> Result<GuestId, FindGuestError> {
    let here = list_guests(client).await.map_err(FindGuestError::Actual)?;
    let missing = match find(name, &here, ON_NODE) {
        Ok(found) => return Ok(found.id),
        Err(missing) => missing,
    };
    let number = match name {
        GuestName::Number(vmid) => *vmid,
        GuestName::Id(id) => id.vmid,
        GuestName::Name(_) => return Err(missing.into()),
    };
    if here.iter().any(|guest| guest.id.vmid == number)
        || client.vmid_is_free(number).await.map_err(FindGuestError::Actual)?
    {
        return Err(missing.into());
    }
    let everywhere = client.cluster_guests().await.map_err(FindGuestError::Actual)?;
    let there = everywhere.rows.into_iter().find(|guest| guest.vmid == Some(number));
    let found = there.and_then(|guest| {
        let id = GuestId::new(guest.kind.parse().ok()?, number);
        Some((id, guest.node.filter(|node| node != client.node())?))
    });
    Err(match found {
        Some((guest, node)) => FindGuestError::Elsewhere { guest, node },
        None => FindGuestError::Hidden(number),
    })
}

impl Engine {
    /// The guest of this node that is meant. Lanes go on meanwhile.
    pub async fn find_guest(&mut self, name: &GuestName) -> Result<GuestId, FindGuestError> {
        let client = self.client().clone();
        self.drive_lanes_until(find_guest(&client, name)).await
    }
}
