//! Functions of the C library that copy, fill, compare and search memory.
//!
//! A file that is linked with hooks.s calls the functions of these names there, which go on here with the instruction
//! behind the call as one more argument. Other files (the C library itself, libraries that are compiled without the
//! flags) call the C library's, and are not counted: the linker decides by file, so that nothing is asked at run time.
//!
//! Each counts the bytes that the function has to look at or to change, as [`ranges`] does: a string up to its
//! terminator and with it, two blocks that are compared up to the first difference. The C library may read on to the
//! end of a vector, which counts for nothing.
//!
//! A function whose name ends in `chk` is what gcc calls with `_FORTIFY_SOURCE`; the C library ends the program when
//! the room is too small.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use crate::cancellation::with_deferred_cancellation;
use crate::{process, ranges};

/// The instruction behind the call.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Caller(u64);

impl Caller {
    fn reads<T>(self, at: *const T, bytes: usize) {
        ranges::count(at as u64, bytes as u64, false, ranges::call_before(self.0));
    }

    fn writes<T>(self, at: *mut T, bytes: usize) {
        ranges::count(at as u64, bytes as u64, true, ranges::call_before(self.0));
    }

    fn copies<T>(self, to: *mut T, from: *const T, bytes: usize) {
        let (is_read, is_written) = ranges::counted_before(from as u64, to as u64, bytes as u64);
        if !is_read {
            self.reads(from, bytes);
        }
        if !is_written {
            self.writes(to, bytes);
        }
    }

    fn fills<T>(self, to: *mut T, bytes: usize) {
        if !ranges::counted_before(0, to as u64, bytes as u64).1 {
            self.writes(to, bytes);
        }
    }

    /// What was compared up to a difference among `most` bytes, which both have.
    fn compares(self, a: *const u8, b: *const u8, most: usize, differ: bool) {
        if process::OFF.load(Ordering::Relaxed) != 0 {
            return;
        }
        // SAFETY: up to the difference both may be read, as the caller did.
        let same = || (0..most).take_while(|&i| unsafe { *a.add(i) == *b.add(i) }).count();
        let bytes = if differ { (same() + 1).min(most) } else { most };
        self.reads(a, bytes);
        self.reads(b, bytes);
    }
}

unsafe extern "C" {
    fn __memcpy_chk(to: *mut c_void, from: *const c_void, bytes: usize, room: usize) -> *mut c_void;
    fn __memmove_chk(to: *mut c_void, from: *const c_void, bytes: usize, room: usize) -> *mut c_void;
    fn __mempcpy_chk(to: *mut c_void, from: *const c_void, bytes: usize, room: usize) -> *mut c_void;
    fn __memset_chk(to: *mut c_void, byte: c_int, bytes: usize, room: usize) -> *mut c_void;
    fn __strcpy_chk(to: *mut c_char, from: *const c_char, room: usize) -> *mut c_char;
    fn __stpcpy_chk(to: *mut c_char, from: *const c_char, room: usize) -> *mut c_char;
    fn __strncpy_chk(to: *mut c_char, from: *const c_char, most: usize, room: usize) -> *mut c_char;
    fn __strcat_chk(to: *mut c_char, from: *const c_char, room: usize) -> *mut c_char;
    fn __strncat_chk(to: *mut c_char, from: *const c_char, most: usize, room: usize) -> *mut c_char;
    fn mempcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn stpcpy(to: *mut c_char, from: *const c_char) -> *mut c_char;
    fn stpncpy(to: *mut c_char, from: *const c_char, most: usize) -> *mut c_char;
    fn strchrnul(text: *const c_char, byte: c_int) -> *mut c_char;
}

/// Bytes of a string with its terminator.
///
/// # Safety
/// It is a string.
unsafe fn size(text: *const c_char) -> usize {
    // SAFETY: as the caller says.
    unsafe { libc::strlen(text) + 1 }
}

/// Bytes of a string with its terminator, if that is among the first `most` bytes.
///
/// # Safety
/// It is a string, or `most` bytes may be read.
unsafe fn size_within(text: *const c_char, most: usize) -> usize {
    // SAFETY: as the caller says.
    unsafe { (libc::strnlen(text, most) + 1).min(most) }
}

/// Bytes from the beginning of `text` to the one at `end`, with that.
fn through<T>(text: *const T, end: *const T) -> usize {
    end as usize - text as usize + 1
}

/// The functions: name in hooks.s, arguments and caller, and what they do, which is what the C library does and
/// [`Caller`] is told.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*; $by:ident) $(-> $result:ty)? $body:block)*) => {
        $(
            #[allow(non_snake_case)] // the C library's name
            mod $name {
                use super::*;

                pub unsafe extern "C" fn counted($($argument: $type,)* $by: Caller) $(-> $result)? {
                    // SAFETY: by the contract of the C library's function, which the program called with these
                    // arguments.
                    unsafe { $body }
                }
            }

            with_deferred_cancellation! {
                /// Called by hooks.s in place of the C library's function.
                #[unsafe(no_mangle)]
                $name => $name::counted
            }
        )*
    };
}

functions! {
    numamma_trace_memcpy(to: *mut c_void, from: *const c_void, bytes: usize; by) -> *mut c_void {
        by.copies(to, from, bytes);
        libc::memcpy(to, from, bytes)
    }

    numamma_trace_memmove(to: *mut c_void, from: *const c_void, bytes: usize; by) -> *mut c_void {
        by.copies(to, from, bytes);
        libc::memmove(to, from, bytes)
    }

    numamma_trace_mempcpy(to: *mut c_void, from: *const c_void, bytes: usize; by) -> *mut c_void {
        by.copies(to, from, bytes);
        mempcpy(to, from, bytes)
    }

    numamma_trace_memset(to: *mut c_void, byte: c_int, bytes: usize; by) -> *mut c_void {
        by.fills(to, bytes);
        libc::memset(to, byte, bytes)
    }

    numamma_trace___memcpy_chk(to: *mut c_void, from: *const c_void, bytes: usize, room: usize; by) -> *mut c_void {
        by.copies(to, from, bytes.min(room));
        __memcpy_chk(to, from, bytes, room)
    }

    numamma_trace___memmove_chk(to: *mut c_void, from: *const c_void, bytes: usize, room: usize; by) -> *mut c_void {
        by.copies(to, from, bytes.min(room));
        __memmove_chk(to, from, bytes, room)
    }

    numamma_trace___mempcpy_chk(to: *mut c_void, from: *const c_void, bytes: usize, room: usize; by) -> *mut c_void {
        by.copies(to, from, bytes.min(room));
        __mempcpy_chk(to, from, bytes, room)
    }

    numamma_trace___memset_chk(to: *mut c_void, byte: c_int, bytes: usize, room: usize; by) -> *mut c_void {
        by.writes(to, bytes.min(room));
        __memset_chk(to, byte, bytes, room)
    }
}

// Comparisons and searches of blocks.
functions! {
    numamma_trace_memcmp(a: *const u8, b: *const u8, bytes: usize; by) -> c_int {
        let order = libc::memcmp(a.cast(), b.cast(), bytes);
        by.compares(a, b, bytes, order != 0);
        order
    }

    numamma_trace_bcmp(a: *const u8, b: *const u8, bytes: usize; by) -> c_int {
        numamma_trace_memcmp::counted(a, b, bytes, by)
    }

    numamma_trace_memchr(at: *const c_void, byte: c_int, bytes: usize; by) -> *mut c_void {
        let found = libc::memchr(at, byte, bytes);
        by.reads(at, if found.is_null() { bytes } else { through(at, found) });
        found
    }

    numamma_trace_memrchr(at: *const c_void, byte: c_int, bytes: usize; by) -> *mut c_void {
        let found = libc::memrchr(at, byte, bytes);
        let first = if found.is_null() { at } else { found };
        by.reads(first, at as usize + bytes - first as usize);
        found
    }
}

// Strings that are measured, copied and joined.
functions! {
    numamma_trace_strlen(text: *const c_char; by) -> usize {
        let length = libc::strlen(text);
        by.reads(text, length + 1);
        length
    }

    numamma_trace_strnlen(text: *const c_char, most: usize; by) -> usize {
        let length = libc::strnlen(text, most);
        by.reads(text, (length + 1).min(most));
        length
    }

    numamma_trace_strcpy(to: *mut c_char, from: *const c_char; by) -> *mut c_char {
        by.copies(to, from, size(from));
        libc::strcpy(to, from)
    }

    numamma_trace_stpcpy(to: *mut c_char, from: *const c_char; by) -> *mut c_char {
        by.copies(to, from, size(from));
        stpcpy(to, from)
    }

    numamma_trace_strncpy(to: *mut c_char, from: *const c_char, most: usize; by) -> *mut c_char {
        by.reads(from, size_within(from, most));
        by.writes(to, most);
        libc::strncpy(to, from, most)
    }

    numamma_trace_stpncpy(to: *mut c_char, from: *const c_char, most: usize; by) -> *mut c_char {
        by.reads(from, size_within(from, most));
        by.writes(to, most);
        stpncpy(to, from, most)
    }

    numamma_trace_strcat(to: *mut c_char, from: *const c_char; by) -> *mut c_char {
        let before = size(to);
        by.reads(to, before);
        by.copies(to.add(before - 1), from, size(from));
        libc::strcat(to, from)
    }

    numamma_trace_strncat(to: *mut c_char, from: *const c_char, most: usize; by) -> *mut c_char {
        let before = size(to);
        by.reads(to, before);
        by.reads(from, size_within(from, most));
        by.writes(to.add(before - 1), libc::strnlen(from, most) + 1);
        libc::strncat(to, from, most)
    }

    numamma_trace___strcpy_chk(to: *mut c_char, from: *const c_char, room: usize; by) -> *mut c_char {
        by.copies(to, from, size(from).min(room));
        __strcpy_chk(to, from, room)
    }

    numamma_trace___stpcpy_chk(to: *mut c_char, from: *const c_char, room: usize; by) -> *mut c_char {
        by.copies(to, from, size(from).min(room));
        __stpcpy_chk(to, from, room)
    }

    numamma_trace___strncpy_chk(to: *mut c_char, from: *const c_char, most: usize, room: usize; by) -> *mut c_char {
        by.reads(from, size_within(from, most.min(room)));
        by.writes(to, most.min(room));
        __strncpy_chk(to, from, most, room)
    }

    numamma_trace___strcat_chk(to: *mut c_char, from: *const c_char, room: usize; by) -> *mut c_char {
        let before = size(to);
        by.reads(to, before);
        by.copies(to.add(before - 1), from, size(from).min(room));
        __strcat_chk(to, from, room)
    }

    numamma_trace___strncat_chk(to: *mut c_char, from: *const c_char, most: usize, room: usize; by) -> *mut c_char {
        let before = size(to);
        by.reads(to, before);
        by.reads(from, size_within(from, most.min(room)));
        by.writes(to.add(before - 1), libc::strnlen(from, most.min(room)) + 1);
        __strncat_chk(to, from, most, room)
    }
}

// Strings that are compared and searched.
functions! {
    numamma_trace_strcmp(a: *const c_char, b: *const c_char; by) -> c_int {
        let order = libc::strcmp(a, b);
        let most = if order == 0 { size(a) } else { usize::MAX };
        by.compares(a.cast(), b.cast(), most, order != 0);
        order
    }

    numamma_trace_strncmp(a: *const c_char, b: *const c_char, most: usize; by) -> c_int {
        let order = libc::strncmp(a, b, most);
        let most = if order == 0 { size_within(a, most) } else { most };
        by.compares(a.cast(), b.cast(), most, order != 0);
        order
    }

    numamma_trace_strchr(text: *const c_char, byte: c_int; by) -> *mut c_char {
        let end = strchrnul(text, byte);
        by.reads(text, through(text, end));
        // The terminator is found only where it was looked for.
        if *end == byte as c_char { end } else { core::ptr::null_mut() }
    }

    numamma_trace_strchrnul(text: *const c_char, byte: c_int; by) -> *mut c_char {
        let end = strchrnul(text, byte);
        by.reads(text, through(text, end));
        end
    }

    numamma_trace_strrchr(text: *const c_char, byte: c_int; by) -> *mut c_char {
        by.reads(text, size(text));
        libc::strrchr(text, byte)
    }

    numamma_trace_strstr(text: *const c_char, part: *const c_char; by) -> *mut c_char {
        let found = libc::strstr(text, part);
        let of_part = size(part);
        by.reads(part, of_part);
        by.reads(text, if found.is_null() { size(text) } else { found as usize - text as usize + of_part - 1 });
        found
    }

    numamma_trace_strspn(text: *const c_char, set: *const c_char; by) -> usize {
        let length = libc::strspn(text, set);
        by.reads(set, size(set));
        by.reads(text, length + 1);
        length
    }

    numamma_trace_strcspn(text: *const c_char, set: *const c_char; by) -> usize {
        let length = libc::strcspn(text, set);
        by.reads(set, size(set));
        by.reads(text, length + 1);
        length
    }

    numamma_trace_strpbrk(text: *const c_char, set: *const c_char; by) -> *mut c_char {
        let length = libc::strcspn(text, set);
        by.reads(set, size(set));
        by.reads(text, length + 1);
        let end = text.add(length).cast_mut();
        if *end == 0 { core::ptr::null_mut() } else { end }
    }
}
