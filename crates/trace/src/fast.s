# A hook: the address in rdi; the instruction behind the call is named by its address, in rdx from then on. Goes on at the
# labels 2 and 3 of again.s when its line does not tell the counter. The numbers are those of block.rs: PAGE_SHIFT,
# LINE_MASK, OFF, the offsets in Line and Block; and of numamma_channel::trace: SITE_BITS, OFFSET_BITS, GOLDEN.
	mov rax, qword ptr [rip + numamma_trace_thread@GOTTPOFF]
	mov rdx, qword ptr [rsp]
	mov rcx, rdi
	mov rax, qword ptr fs:[rax]
	mov esi, edx
	shr rcx, 12
	and esi, 0xffc
	cmp qword ptr [rax + 8*rsi], rdx
	jne 3f
	cmp qword ptr [rax + 8*rsi + 8], rcx
	jne 2f
	mov rax, qword ptr [rax + 8*rsi + 16]
	inc qword ptr [rax]
	ret
