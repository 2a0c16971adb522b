# Behind what keep.awk has written: an error when that did not come to its end.
	.ifndef numamma_end
	.error "numamma: awk ended early"
	.endif
