# gcc's calls of the hooks of loads and stores as code in their place: a call takes longer than what the hook does. This
# is assembled before what gcc has written, and makes `call` a macro. What is called that is none of these hooks is
# called as it is written. The names are hidden, so that each file of a program has its own.
	.ifndef numamma_trace_inline # a build may name it twice
	.equ numamma_trace_inline, 1
	.include "thread.s"

# Each access has a line of its own here, always empty, and each thread has lines for all of them so far behind these as
# numamma_trace_file says: of no bytes where the thread is not known, so that it finds the empty one.
	.pushsection numamma_trace_lines, "aw", @nobits
	.balign 32
	.popsection
	.hidden __start_numamma_trace_lines
	.hidden __stop_numamma_trace_lines
	.pushsection .data.rel.ro.numamma_trace_ends, "awG", @progbits, numamma_trace_ends, comdat
	.balign 8
	.globl numamma_trace_ends
	.hidden numamma_trace_ends
	.type numamma_trace_ends, @object
	.size numamma_trace_ends, 16
numamma_trace_ends:
	.quad __start_numamma_trace_lines
	.quad __stop_numamma_trace_lines
	.popsection

# A hook on behalf of the code below, with what that has found out: the address in rdi, the last byte of its page in
# rcx, the line of the thread in rsi, the instruction in rdx.
	.intel_syntax noprefix
	.weak numamma_trace_slow_line
	.macro numamma_line name, hook, write
	.pushsection .text.\name, "axG", @progbits, \name, comdat
	.p2align 5
	.globl \name
	.hidden \name
	.type \name, @function
\name:
	.cfi_startproc
	mov rax, qword ptr [rip + numamma_trace_file@GOTTPOFF]
	mov rax, qword ptr fs:[rax]
	test al, 64
	jnz 1f
	cmp qword ptr [rsi], rdx
	jne 3f
	.include "again.s"
	mov rcx, qword ptr [rip + numamma_trace_file@GOTTPOFF]
	mov r8, rsi
	mov rax, qword ptr [rip + numamma_trace_slow_line@GOTPCREL]
	lea r9, [rip + numamma_trace_ends]
	mov esi, \write
	add rcx, qword ptr fs:[0]
	test rax, rax # linked to ThreadSanitizer's own library alone
	cmovz rax, qword ptr [rip + \hook@GOTPCREL]
	jmp rax
	.cfi_endproc
	.size \name, . - \name
	.popsection
	.endm
	numamma_line numamma_trace_read, __tsan_read8, 0
	numamma_line numamma_trace_write, __tsan_write8, 1
	.att_syntax prefix

# As fast.s, with the line of the access. Behind it is the instruction, as it was behind the call.
	.macro numamma_access again
	.pushsection numamma_trace_lines, "aw", @nobits
.Lnumamma_line\@:
	.zero 32
	.popsection
	movq numamma_trace_file@GOTTPOFF(%rip), %rax
	leaq .Lnumamma_line\@(%rip), %rsi
	addq %fs:16(%rax), %rsi
	movq %rdi, %rcx
	orq $0xfff, %rcx
	cmpq %rcx, 8(%rsi)
	jne .Lnumamma_again\@
	movq 16(%rsi), %rax
	incq (%rax)
.Lnumamma_access\@:
	.subsection 1
.Lnumamma_again\@:
	leaq .Lnumamma_access\@(%rip), %rdx
	callq \again
	jmp .Lnumamma_access\@
	.subsection 0
	.endm

	.macro numamma_call target:vararg
	numamma_found = 0
	.irp hook, __tsan_read, __tsan_unaligned_read
	.irp size, 1, 2, 4, 8, 16
	.ifc \target, *\hook\size@GOTPCREL(%rip)
	numamma_found = 1
	.endif
	.endr
	.endr
	.irp hook, __tsan_write, __tsan_unaligned_write
	.irp size, 1, 2, 4, 8, 16
	.ifc \target, *\hook\size@GOTPCREL(%rip)
	numamma_found = 2
	.endif
	.endr
	.endr
	.if numamma_found == 1
	numamma_access numamma_trace_read
	.elseif numamma_found == 2
	numamma_access numamma_trace_write
	.else
	.purgem call
	call \target
	numamma_take_calls
	.endif
	.endm

	.macro numamma_take_calls
	.macro call target:vararg
	numamma_call \target
	.endm
	.endm
	numamma_take_calls
	.endif
