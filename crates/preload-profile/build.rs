//! Cargo names the library `libnumamma_preload_profile.so`; installed it is `libnumamma-profile.so`, and so is its
//! SONAME.

fn main() {
    println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libnumamma-profile.so");
    // Other threads may be inside hooks during a dlclose of the library, so it is never unloaded.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
