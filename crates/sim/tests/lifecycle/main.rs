//! Guests are made, copied, saved, brought back, moved and ended as real servers do it, on both releases: what is seen
//! while a task works, what is refused where, and what is left when a task does not come to its end.

mod aftermath;
mod copying;
mod declaring;
mod making;
mod node;
mod saving;
