//! What the integration tests share.

#![allow(dead_code)] // each test binary uses a part

pub mod lab;
