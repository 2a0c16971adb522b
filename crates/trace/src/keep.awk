# Reads what gcc has written, and lets a function keep the address of the thread's first line in r11, where that takes
# fewer instructions than to look for it at each access. gcc takes any call for one that changes r11, and each hook is
# one to it, so that only the function's own code, which is read here as a whole, may use that register. The address is
# found at the beginning of the function, and again behind each call and where exceptions are caught. A function that
# is entered elsewhere, or has code that gcc does not know, is left as it is.

function is_instruction(line) { return line ~ /^\t[a-z]/ }

function is_hook(line) {
    return line ~ /^\tcall\t\*__tsan_(unaligned_)?(read|write)(1|2|4|8|16)@GOTPCREL\(%rip\)$/
}

# Also behind a label, as those of profilers are.
function is_call(line) { return line ~ /^([0-9]+:)?[\t ]*callq?[\t ]/ }

function label_in(line) {
    return match(line, /\.L[0-9]+/) ? substr(line, RSTART, RLENGTH) : ""
}

# How often code in so many loops runs, if each runs eight times.
function times(depth,    n) {
    n = 1
    while (depth-- > 0 && n < 250000) n *= 8
    return n
}

# Whether the function in `lines` keeps the address; the labels where exceptions arrive are in `pads` then.
function keeps(    i, line, label, hooks, has_table, needs_table, in_text, depth, calls) {
    split("", at); split("", pads); split("", deeper); split("", taken); split("", of_text)
    in_text = 1
    for (i = 1; i <= count; i++) {
        line = lines[i]
        if (is_hook(line)) hooks++
        else if (is_instruction(line)) {
            if (line ~ /r11/) return 0
            label = label_in(line)
            if (label == "") continue
            if (line !~ /^\tj/) taken[label]
            else if (label in at) { deeper[at[label]]++; deeper[i + 1]-- }
        } else if (line ~ /^\.L[0-9]+:/) {
            label = label_in(line)
            at[label] = i
            if (in_text) of_text[label]
        } else if (line ~ /^#APP/) return 0
        else if (line ~ /^\t\.uleb128 \.L[0-9]+-/) pads[label_in(line)]
        else if (line ~ /^\t\.cfi_lsda/) needs_table = 1
        else if (line ~ /^\t\.section\t\.gcc_except_table/) { has_table = 1; in_text = 0 }
        else if (line ~ /^\t\.(section|text|data|bss)/) in_text = line ~ /^\t\.(text|section\t\.text)/
    }
    if (hooks < 2 || needs_table && !has_table) return 0
    for (label in taken) if (label in of_text) return 0
    hooks = 0; calls = 1; depth = 0
    for (i = 1; i <= count; i++) {
        depth += deeper[i]
        if (is_hook(lines[i])) hooks += times(depth)
        else if (is_call(lines[i])) calls += times(depth)
    }
    return hooks > calls
}

# Where the address is wanted, no flags are in use.
function find() { if (wanted) print "\tnumamma_keep"; wanted = 0 }

function keep(    i, line, begins, behind) {
    wanted = behind = 0
    for (i = 1; i <= count; i++) {
        line = lines[i]
        if (is_call(line) && !is_hook(line)) {
            if (!begins) find()
            print line
            wanted = 1
        } else if (is_instruction(line)) {
            if (begins && line !~ /^\t(endbr64|nop)/) { begins = 0; wanted = 1 }
            if (line !~ /^\tendbr64/) find()
            if (is_hook(line)) print (line ~ /read/ ? "\tnumamma_kept_read" : "\tnumamma_kept_write")
            else print line
        } else if (line == name ":") {
            begins = 1
            print line
        } else if (line ~ /^\t\.(cfi_endproc|text|section\t\.text)/) {
            wanted = 0
            print line
        } else if (line ~ /^\t\.section/) { # of data, as those of profilers, behind which the code goes on
            behind = wanted
            wanted = 0
            print line
        } else if (line ~ /^\t\.previous/) {
            wanted = behind
            print line
        } else if (line ~ /^(\t\.(loc|cfi_)|\.L[A-Z])/) print line
        else {
            find()
            print line
            if (line ~ /^\.L[0-9]+:/ && label_in(line) in pads) wanted = 1
        }
    }
}

function pass() { for (i = 1; i <= count; i++) print lines[i] }

# The file's own macro takes the place of that of inline.s.
tolower($0) ~ /^[ \t]*\.macro[ \t]+call([ \t,]|$)/ {
    if (name == "") print "\t.purgem call"; else lines[++count] = "\t.purgem call"
}
name == "" {
    if ($0 !~ /^\t\.type\t.*, @function$/) { print; next }
    name = substr($0, 8, length($0) - 18)
    count = 0
}
{ lines[++count] = $0 }
$0 == "\t.size\t" name ", .-" name {
    if (keeps()) keep(); else pass()
    name = ""
}
END {
    if (name != "") pass()
    print "\tnumamma_end = 1"
}
