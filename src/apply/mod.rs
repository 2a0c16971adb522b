//! What a placed run did: its pages checked against the plan, and its time compared with that of other policies.

pub mod compare;
pub mod given;
pub mod rank_reports;
pub mod verify;
