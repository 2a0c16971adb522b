//! The exchange of stack pointers.

use super::Stack;

/// Words that [`switch`] pops from a stack: six registers and the return address.
const SAVED: usize = 7;

/// Saves the registers that a function must keep on the present stack and its stack pointer in `*save`, then continues
/// where the stack `to` was left. Returns when the present stack is continued.
///
/// # Safety
/// `to` was saved by this function, or comes from [`prepare`]; its stack is used by no other thread.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(save: *mut usize, to: usize) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        "push r14",
        ".cfi_adjust_cfa_offset 8",
        "push r15",
        ".cfi_adjust_cfa_offset 8",
        "mov qword ptr [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        ".cfi_adjust_cfa_offset -8",
        "pop r14",
        ".cfi_adjust_cfa_offset -8",
        "pop r13",
        ".cfi_adjust_cfa_offset -8",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    )
}

/// Prepares an unused stack that ends at `top`, a multiple of 16, so that [`switch`] to the result calls `begin` with
/// `stack`.
///
/// # Safety
/// The memory below `top` is a stack that no code uses.
pub unsafe fn prepare(top: usize, stack: *const Stack, begin: unsafe extern "C" fn(&'static Stack) -> !) -> usize {
    // In the order in which `switch` pops: r15, r14, r13, r12, rbx, rbp and the return address.
    let words: [usize; SAVED] = [0, 0, begin as *const () as usize, stack as usize, 0, 0, first as *const () as usize];
    let at = top - size_of_val(&words);
    // SAFETY: the caller's promise.
    unsafe { (at as *mut [usize; SAVED]).write(words) };
    at
}

/// First code on a prepared stack, where unwinders and debuggers stop.
#[unsafe(naked)]
unsafe extern "C" fn first() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rdi, r12",
        "call r13", // rsp is a multiple of 16 here, as the ABI wants it
        "ud2",
        ".cfi_endproc",
    )
}
