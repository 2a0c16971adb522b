//! Threads and nodes: binding threads to nodes, and the nodes that threads are found on.

pub mod binding;
pub mod children;
pub mod number;
pub mod teams;
pub mod thread_nodes;
