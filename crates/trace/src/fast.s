# A hook: the address in rdi; the instruction behind the call is named by its address. Goes on behind label 3, with that in
# rdx, when neither its line nor the first place in the table tells the counter. The numbers are those of block.rs:
# PAGE_SHIFT, LINE_MASK, OFF, the offsets in Line and Block; and of numamma_channel::trace: SITE_BITS, OFFSET_BITS, GOLDEN.
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
1:
	ret
# The instruction is on another page than before: looks in the table, as Table::counter does, and keeps what it finds,
# as Block::count_alone does. A page that may be a watched one is left to that.
2:
	cmp byte ptr [rax + 32784], 0
	jne 3f
	mov r11, qword ptr [rax + 32792]
	mov r8d, ecx
	and r8d, 0x3fff
	cmp byte ptr [r11 + r8], 0
	jne 3f
	mov r9, rcx
	mov r10, rcx
	mov r8d, dword ptr [rax + 8*rsi + 24]
	shl r9, 17
	mov ecx, dword ptr [rax + 32776]
	or r9, r8
	movabs r8, 0x9e3779b97f4a7c15
	imul r8, r9
	shr r8, cl
	shl r8, 4
	add r8, qword ptr [rax + 32768]
	mov r11, qword ptr [r8]
	shr r11, 12
	cmp r11, r9
	jne 3f
	add r8, 8
	mov byte ptr [rax + 32784], 1
	mov qword ptr [rax + 8*rsi], 0
	mov qword ptr [rax + 8*rsi + 8], r10
	mov qword ptr [rax + 8*rsi + 16], r8
	mov qword ptr [rax + 8*rsi], rdx
	mov byte ptr [rax + 32784], 0
	inc qword ptr [r8]
	ret
3:
	test al, 64 # the thread is switched off
	jnz 1b
