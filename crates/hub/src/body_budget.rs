//! How many bytes of bodies the hub holds at a time, whoever sends them.
//!
//! Room is taken before a body is read, as much as its sender announced (or as the row takes at most), and given back when the
//! answer is there. Hosts, people and strangers have room of their own, so that none can take it from the others. Whoever finds
//! none waits as long as a body may take to arrive.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::Caller;

/// What is counted by.
const UNIT_BYTES: usize = 1024;
/// Bodies of hosts: thirty of the largest reports at a time. What is made of one takes several times its length.
const HOSTS_BYTES: usize = 16 * 1024 * 1024;
/// Bodies of people: three of the largest documents at a time.
const PEOPLE_BYTES: usize = 16 * 1024 * 1024;
/// Bodies of whoever has shown nothing yet: some five hundred of the largest at a time.
const STRANGERS_BYTES: usize = 8 * 1024 * 1024;

/// The room for bodies.
pub(crate) struct BodyBudget {
    hosts: Arc<Semaphore>,
    people: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Default for BodyBudget {
    fn default() -> Self {
        let room = |bytes: usize| Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        Self {
            hosts: room(HOSTS_BYTES),
            people: room(PEOPLE_BYTES),
            strangers: room(STRANGERS_BYTES),
        }
    }
}

/// Room that is taken until this is dropped.
pub(crate) struct BodyRoom {
    _taken: OwnedSemaphorePermit,
}

impl BodyBudget {
    /// Takes room for a body, when there is some.
    pub(crate) async fn take(&self, caller: &Caller, bytes: usize) -> BodyRoom {
        let room = match caller {
            Caller::Host(_) => &self.hosts,
            Caller::Person(_) => &self.people,
            Caller::Anyone => &self.strangers,
        };
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).expect("no row takes so much");
        let taken = room.clone().acquire_many_owned(units).await;
        BodyRoom { _taken: taken.expect("the room is never closed") }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn z15_a_body_waits_until_there_is_room_and_others_have_their_own() {
        let budget = BodyBudget::default();
        let most = crate::routes::table().into_iter().map(|row| row.body_max).max().unwrap();
        assert!(most <= PEOPLE_BYTES && STRANGERS_BYTES > 0, "every body fits");
        let first = budget.take(&Caller::Anyone, STRANGERS_BYTES - UNIT_BYTES).await;
        let _last = budget.take(&Caller::Anyone, 1).await;
        let wait = Duration::from_mins(1);
        let none = tokio::time::timeout(wait, budget.take(&Caller::Anyone, 1)).await;
        assert!(none.is_err(), "it is full");
        drop(first);
        assert!(tokio::time::timeout(wait, budget.take(&Caller::Anyone, 1)).await.is_ok());
    }
}
