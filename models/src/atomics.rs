//! loom's atomics in place of `atomics.rs` of the crates.
//!
//! loom takes a sequentially consistent access for one with Acquire and Release, and knows only fences that are
//! sequentially consistent. A compiler for a processor with fences alone has two ways to make such an access: a fence
//! before each of them, or one behind each of these stores. What is right must be so in both ways, and each finds errors
//! that the other one hides; so such code is run with both, see [`Fences`].

use std::sync::atomic::AtomicBool as StdBool;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{self as loom_atomic};
pub use loom::sync::atomic::{AtomicU32, Ordering, fence};

/// Where the fences of sequentially consistent accesses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fences {
    BeforeAccesses,
    BehindStores,
}

static BEHIND: StdBool = StdBool::new(false);

impl Fences {
    /// Of all accesses from now on.
    pub fn set(self) {
        BEHIND.store(self == Fences::BehindStores, Ordering::Relaxed);
    }
}

fn before(order: Ordering) {
    if order == Ordering::SeqCst && !BEHIND.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    }
}

fn behind_store(order: Ordering) {
    if order == Ordering::SeqCst && BEHIND.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    }
}

macro_rules! atomic {
    ($name:ident $(<$t:ident>)?, $value:ty) => {
        pub struct $name $(<$t>)? (loom_atomic::$name $(<$t>)?);

        impl $(<$t>)? $name $(<$t>)? {
            pub fn new(value: $value) -> Self {
                Self(loom_atomic::$name::new(value))
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                before(order);
                self.0.load(if order == Ordering::SeqCst { Ordering::Acquire } else { order })
            }

            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                before(order);
                self.0.store(value, if order == Ordering::SeqCst { Ordering::Release } else { order });
                behind_store(order);
            }

            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                before(order);
                let old = self.0.swap(value, order);
                behind_store(order);
                old
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                before(success);
                let result = self.0.compare_exchange(old, new, success, failure);
                behind_store(success);
                result
            }

            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(old, new, success, failure)
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty, $($operation:ident)*) => {
        impl $name {
            $(
                #[track_caller]
                pub fn $operation(&self, value: $value, order: Ordering) -> $value {
                    before(order);
                    let old = self.0.$operation(value, order);
                    behind_store(order);
                    old
                }
            )*
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);
atomic!(AtomicU64, u64);
atomic!(AtomicUsize, usize);
number!(AtomicU64, u64, fetch_add fetch_or);
number!(AtomicUsize, usize, fetch_add fetch_max);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}

/// Memory that no two threads access at once; loom reports where they do.
pub struct Unshared<T>(UnsafeCell<T>);

impl<T: Copy> Unshared<T> {
    pub fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// # Safety
    /// `this` lives.
    #[track_caller]
    pub unsafe fn write(this: *const Self, value: T) {
        // SAFETY: the caller's promise; loom lets no other thread access the value meanwhile.
        unsafe { (*this).0.with_mut(|place| *place = value) }
    }

    /// # Safety
    /// `this` lives.
    #[track_caller]
    pub unsafe fn read(this: *const Self) -> T {
        // SAFETY: as above.
        unsafe { (*this).0.with(|place| *place) }
    }
}
