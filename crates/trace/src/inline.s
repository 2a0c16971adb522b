# gcc's calls of the hooks of loads and stores as code in their place: a call takes longer than what the hook does. This is
# assembled before what gcc has written, and makes `call` a macro. What is called that is none of these hooks is called as
# it is written. The names are hidden, so that each file of a program has its own.
	.ifndef numamma_trace_inline # a build may name it twice
	.equ numamma_trace_inline, 1
	.include "thread.s"

# A hook on behalf of the code below, with what that has found out: the lines of the thread in rax, eight times the number
# of its line in that table in rsi, the page in rcx, the instruction in rdx, the address in rdi.
	.intel_syntax noprefix
	.weak numamma_trace_slow
	.macro numamma_line name, hook, write
	.pushsection .text.\name, "axG", @progbits, \name, comdat
	.p2align 5
	.globl \name
	.hidden \name
	.type \name, @function
\name:
	.cfi_startproc
	cmp qword ptr [rax + 8*rsi], rdx
	jne 3f
	.include "again.s"
	mov r8, qword ptr [rip + numamma_trace_slow@GOTPCREL]
	mov rcx, qword ptr [rip + numamma_trace_thread@GOTTPOFF]
	mov esi, \write
	add rcx, qword ptr fs:[0]
	test r8, r8 # linked to ThreadSanitizer's own library alone
	cmovz r8, qword ptr [rip + \hook@GOTPCREL]
	jmp r8
	.cfi_endproc
	.size \name, . - \name
	.popsection
	.endm
	numamma_line numamma_trace_line_read, __tsan_read8, 0
	numamma_line numamma_trace_line_write, __tsan_write8, 1
	.att_syntax prefix

# As fast.s. Behind it is the instruction, as it was behind the call.
	.macro numamma_access line
	movq numamma_trace_thread@GOTTPOFF(%rip), %rax
	leaq .Lnumamma_access\@(%rip), %rdx
	movq %rdi, %rcx
	movq %fs:(%rax), %rax
	movl %edx, %esi
	shrq $12, %rcx
	andl $0xffc, %esi
	cmpq %rdx, (%rax,%rsi,8)
	jne .Lnumamma_again\@
	cmpq %rcx, 8(%rax,%rsi,8)
	jne .Lnumamma_again\@
	movq 16(%rax,%rsi,8), %rax
	incq (%rax)
.Lnumamma_access\@:
	.subsection 1
.Lnumamma_again\@:
	callq \line
	jmp .Lnumamma_access\@
	.subsection 0
	.endm

	.macro numamma_call target:vararg
	numamma_found = 0
	.irp hook, __tsan_read, __tsan_unaligned_read
	.irp size, 1, 2, 4, 8, 16
	.ifeqs "\target", "*\hook\size@GOTPCREL(%rip)"
	numamma_found = 1
	.endif
	.endr
	.endr
	.irp hook, __tsan_write, __tsan_unaligned_write
	.irp size, 1, 2, 4, 8, 16
	.ifeqs "\target", "*\hook\size@GOTPCREL(%rip)"
	numamma_found = 2
	.endif
	.endr
	.endr
	.if numamma_found == 1
	numamma_access numamma_trace_line_read
	.elseif numamma_found == 2
	numamma_access numamma_trace_line_write
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
