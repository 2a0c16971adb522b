# What the hooks of this file of the program keep of a thread: the address of its lines. A new thread has those of
# nobody, in which nothing is ever found, so that no hook has to ask whether the thread is known. One that is switched
# off has the same 64 bytes further on (OFF in block.rs), which bit 6 of the address tells. Each object file that needs
# it has it; the linker keeps one. The last word is for inline.s: how far behind the lines of this file those of the
# thread are; 0 where it has none.
	.pushsection .tdata.numamma_trace_file, "awTG", @progbits, numamma_trace_file, comdat
	.balign 8
	.globl numamma_trace_file
	.hidden numamma_trace_file
	.type numamma_trace_file, @object
	.size numamma_trace_file, 24
numamma_trace_file:
	.quad numamma_trace_nobody
	.quad numamma_trace_nobody
	.quad 0
	.popsection
	.pushsection .bss.numamma_trace_nobody, "awG", @nobits, numamma_trace_nobody, comdat
	.balign 128
	.globl numamma_trace_nobody
	.hidden numamma_trace_nobody
	.type numamma_trace_nobody, @object
	.size numamma_trace_nobody, 32832
numamma_trace_nobody:
	.zero 32832
	.popsection
