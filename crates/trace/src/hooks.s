# The hooks of loads and stores as an object file that is linked into the program: called directly, they take half of
# the time of a call into a shared library, and they shadow those of libtsan.so.2. Weak: a build may name the file
# twice.
	.intel_syntax noprefix
	.include "thread.s"

	.macro hook name, write
	.section .text.numamma_trace, "ax", @progbits
	.p2align 5
	.weak \name
	.hidden \name
	.type \name, @function
\name:
	.cfi_startproc
	.include "fast.s"
	.include "again.s"
	mov rcx, qword ptr [rip + numamma_trace_file@GOTTPOFF]
	mov esi, \write
	add rcx, qword ptr fs:[0]
	jmp qword ptr [rip + numamma_trace_slow_2@GOTPCREL]
	.cfi_endproc
	.size \name, . - \name
	.endm

	.irp size, 1, 2, 4, 8, 16
	hook __tsan_read\size, 0
	hook __tsan_write\size, 1
	hook __tsan_unaligned_read\size, 0
	hook __tsan_unaligned_write\size, 1
	hook __tsan_read_write\size, 1
	hook __tsan_unaligned_read_write\size, 1
	.endr
	hook __tsan_vptr_read, 0
	hook __tsan_vptr_update, 1

	.macro nothing name
	.weak \name
	.hidden \name
	.type \name, @function
\name:
	ret
	.size \name, . - \name
	.endm
	nothing __tsan_func_entry
	nothing __tsan_func_exit

# The C library's functions for memory and strings, as this file of the program calls them. They go on in strings.rs,
# with the instruction behind the call in the register of one more argument. A program that has its own is left with
# that.
	.macro function name, caller
	.p2align 4
	.weak \name
	.hidden \name
	.type \name, @function
\name:
	.cfi_startproc
	mov \caller, qword ptr [rsp]
	jmp qword ptr [rip + numamma_trace_\name@GOTPCREL]
	.cfi_endproc
	.size \name, . - \name
	.endm

	function strlen, rsi
	.irp name, strnlen, strcpy, stpcpy, strcat, strcmp, strchr, strchrnul, strrchr, strstr, strspn, strcspn, strpbrk
	function \name, rdx
	.endr
	.irp name, memcpy, memmove, mempcpy, memset, memcmp, bcmp, memchr, memrchr, strncpy, stpncpy, strncat, strncmp
	function \name, rcx
	.endr
	.irp name, __strcpy_chk, __stpcpy_chk, __strcat_chk
	function \name, rcx
	.endr
	.irp name, __memcpy_chk, __memmove_chk, __mempcpy_chk, __memset_chk, __strncpy_chk, __strncat_chk
	function \name, r8
	.endr

	.section .note.GNU-stack, "", @progbits
