//! hwloc's XML files, as `lstopo m.xml` writes and reads them (hwloc 2.x; `hwloc2.dtd`).
//!
//! ```text
//! <topology version="2.0">
//!   <object type="Machine" cpuset="0xff" nodeset="0x3" gp_index="1">    objects nest; names and values of <info>
//!     <object type="NUMANode" os_index="0" cpuset="0x0f" local_memory="8589934592" gp_index="5"/>
//!     <object type="Core" ...> <object type="PU" os_index="0" .../> </object>
//!   </object>
//!   <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">   ACPI SLIT
//!     <indexes length="4">0 1 </indexes> <u64values length="12">10 20 20 10 </u64values>
//!   </distances2>
//!   <memattr name="Latency" flags="6">                                  nanoseconds; "Bandwidth" in MiB/s
//!     <memattr_value target_obj_gp_index="5" target_obj_type="NUMANode" value="90" initiator_cpuset="0x0f"/>
//!   </memattr>
//! </topology>
//! ```
//! These modules need no C library. Bindings to libhwloc would need this library at build time and at run time.

mod bitmap;
mod read;
mod write;

pub use read::parse;
pub use write::write;

#[cfg(test)]
mod tests;
