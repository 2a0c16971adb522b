# An instruction is on another page than before: looks in the table, as Table::counter does. The address in rdi, its
# page's last byte in rcx, the line in rsi, the instruction in rdx, the block in rax. A page that may be a watched one
# is left to Block::count_alone. What is found is kept as that does it, if the instruction was on this page the last
# time, too: one that is on another page each time would keep it for nothing. Goes on behind label 3 when the first
# place in the table does not tell the counter, either.
	cmp byte ptr [rax + 32784], 0
	jne 3f
	mov r11, qword ptr [rax + 32792]
	mov r10, rcx
	shr rcx, 12
	mov r8d, ecx
	and r8d, 0x3fff
	cmp byte ptr [r11 + r8], 0
	jne 3f
	mov r11d, dword ptr [rsi + 24]
	mov r9, rcx
	mov r8, rcx
	shr r8, 2
	shl r9, 17
	xor ecx, r8d
	shl r8, 17
	or r9, r11
	or r8, r11
	and ecx, 3
	movabs r11, 0x9e3779b97f4a7c15
	shl ecx, 4
	imul r8, r11
	mov r11d, ecx
	mov ecx, dword ptr [rax + 32776]
	shr r8, cl
	shl r8, 6
	add r8, r11
	add r8, qword ptr [rax + 32768]
	mov rcx, qword ptr [r8]
	shr rcx, 12
	cmp rcx, r9
	jne 3f
	add r8, 8
	mov r11, r10
	shr r11, 12
	cmp word ptr [rsi + 30], r11w
	mov word ptr [rsi + 30], r11w
	jne 4f
	mov byte ptr [rax + 32784], 1
	mov qword ptr [rsi], 0
	mov qword ptr [rsi + 8], -1
	mov qword ptr [rsi + 16], r8
	mov qword ptr [rsi + 8], r10
	mov qword ptr [rsi], rdx
	mov byte ptr [rax + 32784], 0
4:
	inc qword ptr [r8]
1:
	ret
3:
	test al, 64 # the thread is switched off
	jnz 1b
