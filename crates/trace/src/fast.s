# A hook: the address in rdi; the instruction behind the call is named by its address, in rdx from then on. Goes on with
# again.s behind it, or at its label 3, when its line does not tell the counter. The numbers are those of block.rs:
# PAGE_SHIFT, LINE_MASK, OFF, the offsets in Line and Block; and of numamma_channel::trace: SITE_BITS, OFFSET_BITS,
# GOLDEN.
	mov rax, qword ptr [rip + numamma_trace_file@GOTTPOFF]
	mov rdx, qword ptr [rsp]
	mov rcx, rdi
	mov rax, qword ptr fs:[rax]
	mov esi, edx
	or rcx, 0xfff
	and esi, 0xffc
	lea rsi, [rax + 8*rsi]
	cmp qword ptr [rsi], rdx
	jne 3f
	cmp qword ptr [rsi + 8], rcx
	jne 2f
	mov rax, qword ptr [rsi + 16]
	inc qword ptr [rax]
	ret
2:
