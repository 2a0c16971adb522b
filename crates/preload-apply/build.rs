//! Gives the library the name programs load it by: a cargo library name cannot hold a hyphen.

fn main() {
    println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libnumamma-apply.so");
    // See forced_unwind.rs of the hook crate.
    println!("cargo:rustc-link-arg-cdylib=-Wl,--wrap=rust_eh_personality");
    println!("cargo:rerun-if-changed=build.rs");
}
