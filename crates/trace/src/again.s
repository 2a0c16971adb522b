# An instruction is on another page than before, label 2: looks in the table, as Table::counter does. A page that may be a
# watched one is left to Block::count_alone. What is found is kept as that does it, if the instruction was on this page the
# last time, too: one that is on another page each time would keep it for nothing. Goes on behind label 3, with the address
# of the instruction in rdx, when the first place in the table does not tell the counter, either.
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
	cmp word ptr [rax + 8*rsi + 30], r10w
	mov word ptr [rax + 8*rsi + 30], r10w
	jne 4f
	mov byte ptr [rax + 32784], 1
	mov qword ptr [rax + 8*rsi], 0
	mov qword ptr [rax + 8*rsi + 8], r10
	mov qword ptr [rax + 8*rsi + 16], r8
	mov qword ptr [rax + 8*rsi], rdx
	mov byte ptr [rax + 32784], 0
4:
	inc qword ptr [r8]
1:
	ret
3:
	test al, 64 # the thread is switched off
	jnz 1b
