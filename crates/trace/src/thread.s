# What the hooks of this file of the program keep of a thread: the address of its lines. A new thread has those of
# nobody, in which nothing is ever found, so that no hook has to ask whether the thread is known. One that is switched off
# has the same 64 bytes further on (OFF in block.rs), which bit 6 of the address tells. Each object file that needs it has
# it; the linker keeps one.
	.pushsection .tdata.numamma_trace_thread, "awTG", @progbits, numamma_trace_thread, comdat
	.balign 16
	.globl numamma_trace_thread
	.hidden numamma_trace_thread
	.type numamma_trace_thread, @object
	.size numamma_trace_thread, 16
numamma_trace_thread:
	.quad numamma_trace_nobody
	.quad numamma_trace_nobody
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
