//! Functions of ThreadSanitizer's interface that say nothing about memory accesses: they are there, and do nothing.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

macro_rules! nothing {
    ($($name:ident)*) => {
        $(
            /// Does nothing.
            #[unsafe(no_mangle)]
            extern "C" fn $name() {}
        )*
    };
}

// Every program: gcc calls __tsan_init in a constructor of each object file.
nothing!(__tsan_init __tsan_func_entry __tsan_func_exit __tsan_flush_memory);
// sanitizer/tsan_interface.h
nothing!(__tsan_acquire __tsan_release __tsan_mutex_create __tsan_mutex_destroy __tsan_mutex_pre_lock
    __tsan_mutex_post_lock __tsan_mutex_pre_signal __tsan_mutex_post_signal __tsan_mutex_pre_divert
    __tsan_mutex_post_divert __tsan_ignore_thread_begin __tsan_ignore_thread_end __tsan_on_thread_idle
    __tsan_destroy_fiber __tsan_switch_to_fiber __tsan_set_fiber_name __tsan_external_assign_tag
    __tsan_external_register_header __tsan_java_init __tsan_java_alloc __tsan_java_free __tsan_java_move);
// Of Valgrind's annotations, those that ThreadSanitizer's library defines (tsan_interface_ann.cpp).
nothing!(AnnotateHappensBefore AnnotateHappensAfter AnnotateCondVarSignal AnnotateCondVarSignalAll
    AnnotateMutexIsNotPHB AnnotateCondVarWait AnnotateRWLockCreate AnnotateRWLockCreateStatic AnnotateRWLockDestroy
    AnnotateRWLockAcquired AnnotateRWLockReleased AnnotateTraceMemory AnnotateFlushState AnnotateNewMemory
    AnnotateNoOp AnnotateFlushExpectedRaces AnnotateEnableRaceDetection AnnotateMutexIsUsedAsCondVar
    AnnotatePCQGet AnnotatePCQPut AnnotatePCQDestroy AnnotatePCQCreate AnnotateExpectRace
    AnnotateBenignRaceSized AnnotateBenignRace AnnotateIgnoreReadsBegin AnnotateIgnoreReadsEnd
    AnnotateIgnoreWritesBegin AnnotateIgnoreWritesEnd AnnotateIgnoreSyncBegin AnnotateIgnoreSyncEnd
    AnnotatePublishMemoryRange AnnotateUnpublishMemoryRange AnnotateThreadName WTFAnnotateHappensBefore
    WTFAnnotateHappensAfter WTFAnnotateBenignRaceSized);

/// Mutexes that were to be unlocked: as many as said.
#[unsafe(no_mangle)]
extern "C" fn __tsan_mutex_pre_unlock(_mutex: *mut c_void, _flags: u32) -> c_int {
    1
}

/// As [`__tsan_mutex_pre_unlock`].
#[unsafe(no_mangle)]
extern "C" fn __tsan_mutex_post_unlock(_mutex: *mut c_void, _flags: u32) {}

macro_rules! null {
    ($($name:ident)*) => {
        $(
            /// There is no such object.
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> *mut c_void {
                null_mut()
            }
        )*
    };
}

null!(__tsan_get_current_fiber __tsan_create_fiber __tsan_external_register_tag);

/// Whether the program runs under Valgrind: no.
#[unsafe(no_mangle)]
extern "C" fn RunningOnValgrind() -> c_int {
    0
}

/// How much slower Valgrind makes it.
#[unsafe(no_mangle)]
extern "C" fn ValgrindSlowdown() -> f64 {
    10.0
}

/// As in ThreadSanitizer's library, which has it in place of an annotation.
#[unsafe(no_mangle)]
extern "C" fn AnnotateMemoryIsInitialized() {}
