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
.Lnumamma_first:
	.popsection
	.pushsection .data.rel.ro.local.numamma_trace_first, "aw", @progbits
	.balign 8
.Lnumamma_base:
	.quad .Lnumamma_first
	.popsection
	numamma_lines = 0 # bytes of the lines before the next access
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

# Looks for the counter of an access on another page than its last one, on behalf of the code below: the address in
# rdi, the last byte of its page in rcx, the line of the thread in rsi. Returns with the zero flag if it has not
# counted, and keeps rdi, rsi and r11.
	.intel_syntax noprefix
	.pushsection .text.numamma_trace_again, "axG", @progbits, numamma_trace_again, comdat
	.p2align 5
	.globl numamma_trace_again
	.hidden numamma_trace_again
	.type numamma_trace_again, @function
numamma_trace_again:
	.cfi_startproc
	prefetcht0 byte ptr [rdi] # the program waits for it next
	mov rax, qword ptr [rip + numamma_trace_file@GOTTPOFF]
	mov rax, qword ptr fs:[rax]
	test al, 64
	jnz 1f
	.include "again.s"
	xor eax, eax
	ret
	.cfi_endproc
	.size numamma_trace_again, . - numamma_trace_again
	.popsection

# A hook on behalf of the code below: the address in rdi, the line of the thread in rsi, the instruction in rdx.
	.weak numamma_trace_slow_line_2
	.macro numamma_line name, hook, write
	.pushsection .text.\name, "axG", @progbits, \name, comdat
	.p2align 5
	.globl \name
	.hidden \name
	.type \name, @function
\name:
	.cfi_startproc
	mov rcx, qword ptr [rip + numamma_trace_file@GOTTPOFF]
	mov r8, rsi
	mov rax, qword ptr [rip + numamma_trace_slow_line_2@GOTPCREL]
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
	.macro numamma_access slow
	.pushsection numamma_trace_lines, "aw", @nobits
.Lnumamma_line\@:
	.zero 32
	.popsection
	numamma_lines = numamma_lines + 32
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
	callq numamma_trace_again
	jnz .Lnumamma_access\@
	leaq .Lnumamma_access\@(%rip), %rdx
	callq \slow
	jmp .Lnumamma_access\@
	.subsection 0
	.endm

# The same in a function that has the address of the thread's first line in r11 (keep.awk), from numamma_keep on until
# the next call. That changes the flags and no other register.
	.macro numamma_keep
	movq numamma_trace_file@GOTTPOFF(%rip), %r11
	movq %fs:16(%r11), %r11
	addq .Lnumamma_base(%rip), %r11
	.endm

	.macro numamma_kept slow
	.pushsection numamma_trace_lines, "aw", @nobits
	.zero 32
	.popsection
	movq %rdi, %rcx
	orq $0xfff, %rcx
	cmpq %rcx, numamma_lines+8(%r11)
	jne .Lnumamma_again\@
	movq numamma_lines+16(%r11), %rax
	incq (%rax)
.Lnumamma_access\@:
	.subsection 1
.Lnumamma_again\@:
	leaq numamma_lines(%r11), %rsi
	callq numamma_trace_again
	jnz .Lnumamma_access\@
	leaq .Lnumamma_access\@(%rip), %rdx
	callq \slow
	numamma_keep
	jmp .Lnumamma_access\@
	.subsection 0
	numamma_lines = numamma_lines + 32
	.endm
	.macro numamma_kept_read
	numamma_kept numamma_trace_read
	.endm
	.macro numamma_kept_write
	numamma_kept numamma_trace_write
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
