//! Cargo names the library `libnumamma_preload_profile.so`; installed it is `libnumamma-profile.so`, and so is its
//! SONAME.

fn main() {
    println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libnumamma-profile.so");
    // Other threads may be inside hooks during a dlclose of the library, so it is never unloaded.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
    // See forced_unwind.rs of the hook crate.
    println!("cargo:rustc-link-arg-cdylib=-Wl,--wrap=rust_eh_personality");
    println!("cargo:rerun-if-changed=build.rs");
}
