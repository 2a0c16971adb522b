//! What a thread of std::thread is to run.
//!
//! All threads of libstdc++ start in one routine of the library. Its argument is an object that the library made of the
//! function and its arguments: first the pointer to the virtual table of its class, of which there is one for each type
//! of function, and then a tuple: the last argument first, and the function at the end. The recorder takes from it
//! which threads run the same.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering};

use numamma_hook::thread_start::Started;
use numamma_hook::{modules, sys};

/// Start of the file name of GNU's library of C++.
const LIBRARY: &[u8] = b"libstdc++.so";
/// Words that are given to the recorder: the virtual table, six arguments and the function.
const WORDS: usize = 8;
/// In the mangled name of the object's class, what the type of the function follows.
const BEFORE_FUNCTION: &[u8] = b"tupleIJ";
/// Starts of mangled pointers to functions (the second one's throw nothing) and to members.
const POINTERS: [&[u8]; 3] = [b"PF", b"PDoF", b"M"];
/// Starts of mangled types of the library, such as std::function and what std::async runs: they run any function.
const OF_LIBRARY: [&[u8]; 4] = [b"St", b"NSt", b"MSt", b"MNSt"];

/// How the object gives its function.
#[derive(Debug, PartialEq, Eq)]
enum Function {
    /// By a pointer in the object.
    Pointer,
    /// By its type: a lambda, or a class with an operator ().
    Type,
}

/// Calls `tell` with pairs of words of the object that a new thread of libstdc++ gets, and the index of their first
/// one. Other threads are left alone.
pub fn words(started: &Started, tell: impl Fn(usize, [u64; 2])) {
    let at = started.argument;
    if at == 0 || !at.is_multiple_of(align_of::<AtomicU64>()) || !starts_in_library(started.start_routine) {
        return;
    }
    // SAFETY: the argument of the library's routine is an object of a class with virtual functions.
    match unsafe { name_of_class(at as *const *const Class) }.and_then(|name| function(name.to_bytes())) {
        Some(Function::Pointer) => (0..WORDS).step_by(2).for_each(|i| tell(i, [word(at, i), word(at, i + 1)])),
        Some(Function::Type) => tell(0, [word(at, 0), 0]),
        None => {}
    }
}

/// A word of the object at `at`, 0 behind the page it begins in. With a pointer to a function the object is as long as
/// its arguments, so it ends with that pointer or behind [`WORDS`].
fn word(at: usize, index: usize) -> u64 {
    if index >= (sys::PAGE - at % sys::PAGE) / size_of::<u64>() {
        return 0;
    }
    // SAFETY: aligned, and in a page of which the object, which this thread owns until its start routine has run, is a
    // part. Bytes behind the object may be another's: they are loaded as an atomic.
    unsafe { AtomicU64::from_ptr((at as *mut u64).wrapping_add(index)) }.load(Ordering::Relaxed)
}

/// What a virtual table of the C++ ABI for Itanium (2.5.2, 2.9.4) begins with, before the address that objects have.
#[repr(C)]
struct Class {
    /// std::type_info; null in programs without run-time type information.
    type_info: *const TypeInfo,
}

#[repr(C)]
struct TypeInfo {
    _table: usize,
    name: *const c_char,
}

/// The mangled name of an object's class; `None` without run-time type information.
///
/// # Safety
/// The object is of a class with virtual functions.
unsafe fn name_of_class(object: *const *const Class) -> Option<&'static CStr> {
    // SAFETY: the object begins with the address of its virtual table, before which the ABI has the type.
    let class = unsafe { object.read().wrapping_sub(1).as_ref() }?;
    // SAFETY: null or a type_info, which lives as long as the code that the thread runs.
    let name = unsafe { class.type_info.as_ref() }?.name;
    // SAFETY: null or the name, a C string.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

/// How an object of the class with this mangled name gives its function; `None` where neither its type nor its contents
/// do.
fn function(class: &[u8]) -> Option<Function> {
    let at = class.windows(BEFORE_FUNCTION.len()).position(|part| part == BEFORE_FUNCTION)?;
    let kind = class.get(at + BEFORE_FUNCTION.len()..)?;
    let starts = |list: &[&[u8]]| list.iter().any(|start| kind.starts_with(start));
    match (starts(&OF_LIBRARY), starts(&POINTERS)) {
        (true, _) => None,
        (_, true) => Some(Function::Pointer),
        _ => Some(Function::Type),
    }
}

/// Whether a routine, which is about to be called, is one of [`LIBRARY`].
fn starts_in_library(routine: usize) -> bool {
    modules::asks_loader() && modules::find(routine).is_some_and(|module| module.file_name().starts_with(LIBRARY))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that GCC gives to the classes of std::thread.
    #[test]
    fn the_class_says_how_the_function_is_given() {
        let of = |tuple: &str| function(format!("NSt6thread11_State_implINS_8_InvokerISt5{tuple}EEEEE").as_bytes());
        assert_eq!(of("tupleIJPFviiEiiE"), Some(Function::Pointer));
        assert_eq!(of("tupleIJPDoFviEiE"), Some(Function::Pointer));
        assert_eq!(of("tupleIJM4PoolFviEPS3_iE"), Some(Function::Pointer));
        assert_eq!(of("tupleIJZ4mainEUlvE_E"), Some(Function::Type));
        assert_eq!(of("tupleIJ6WorkeriE"), Some(Function::Type));
        assert_eq!(of("tupleIJSt8functionIFvvEEE"), None);
        assert_eq!(of("tupleIJMNSt13__future_base17_Async_state_implINS1_IS2_IJPFviEiEEEvEEFvvEPS9_E"), None);
        assert_eq!(function(b"St12_Bind_simpleIFPFvvEvEE"), None);
    }
}
