//! What a placed run did: its pages checked against the plan, its time compared with that of other policies, and the
//! fastest policy found.

pub mod compare;
pub mod given;
pub mod rank_reports;
pub mod tune;
pub mod verify;
