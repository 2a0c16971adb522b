# An instruction is on another page than before: looks in the table, as Table::counter does. The address in rdi, its
# page's last byte in rcx, the line in rsi, the block in rax; rdi, rsi, rdx and r11 are kept. A page that may be a
# watched one is left to Block::count_alone. What is found is kept as that does it, if the instruction was on this page
# the last time, too: one that is on another page each time would keep it for nothing. Returns without the zero flag;
# goes on behind label 3 when the first places in the table do not tell the counter. The processor has room for few such
# accesses at once, so each register that is written here delays the loads behind.
	mov r10d, dword ptr [rsi + 24]
	test r10d, r10d
	jz 3f
	cmp byte ptr [rax + 32784], 0
	jne 3f
	mov r9, qword ptr [rax + 32792]
	shr rcx, 12
	mov r8d, ecx
	and r8d, 0x3fff
	cmp byte ptr [r9 + r8], 0
	jne 3f
	mov r9, rcx
	shl r9, 29
	or r9, r10
	movabs r10, 0x9e3779b97f4a7c15
	mov r8, r9
	and r8, 0xffffffff9ffff000
	imul r8, r10
	mov r10d, edi
	shr r10d, 8
	and r10d, 0x30
	shr r8, 38
	and r8d, dword ptr [rax + 32776]
	xor r8d, r10d
	add r8, qword ptr [rax + 32768]
	mov r10, qword ptr [r8]
	xor r10, r9
	cmp r10, 0xfff
	ja 5f
6:
	cmp word ptr [rsi + 30], cx
	mov word ptr [rsi + 30], cx
	jne 4f
	mov r10, qword ptr [rsi]
	mov r9, rdi
	mov byte ptr [rax + 32784], 1
	mov dword ptr [rax + 32800], 0 # what found it busy before is no sign of longjmp
	mov qword ptr [rsi], 0
	mov qword ptr [rsi + 8], -1
	or r9, 0xfff
	lea rcx, [r8 + 8]
	mov qword ptr [rsi + 16], rcx
	mov qword ptr [rsi + 8], r9
	mov qword ptr [rsi], r10
	mov byte ptr [rax + 32784], 0
4:
	inc qword ptr [r8 + 8]
1:
	ret
5: # the same place in the next lines of this page of memory, as in places of writer.rs
	mov eax, 16
7:
	xor r10, r9 # what is in the slot
	jz 8f
	dec eax
	jz 8f
	lea r10, [r8 + 64]
	and r8, -4096
	and r10d, 4095
	or r8, r10
	mov r10, qword ptr [r8]
	xor r10, r9
	cmp r10, 0xfff
	ja 7b
	mov rax, qword ptr [rip + numamma_trace_file@GOTTPOFF]
	mov rax, qword ptr fs:[rax]
	jmp 6b
8:
	mov rax, qword ptr [rip + numamma_trace_file@GOTTPOFF]
	mov rax, qword ptr fs:[rax]
3:
	test al, 64 # the thread is switched off
	jnz 1b
