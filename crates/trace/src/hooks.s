# The hooks of loads and stores as an object file that is linked into the program: called directly, they take half of the
# time of a call into a shared library, and they shadow those of libtsan.so.2.
	.intel_syntax noprefix
	.include "thread.s"

	.macro hook name, write
	.section .text.numamma_trace, "ax", @progbits
	.p2align 5
	.globl \name
	.hidden \name
	.type \name, @function
\name:
	.cfi_startproc
	.include "fast.s"
	mov rcx, qword ptr [rip + numamma_trace_thread@GOTTPOFF]
	mov esi, \write
	add rcx, qword ptr fs:[0]
	jmp qword ptr [rip + numamma_trace_slow@GOTPCREL]
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
	.globl \name
	.hidden \name
	.type \name, @function
\name:
	ret
	.size \name, . - \name
	.endm
	nothing __tsan_func_entry
	nothing __tsan_func_exit

	.section .note.GNU-stack, "", @progbits
