//! The lanes of gathers.

use super::*;

#[test]
fn gathers_name_the_object_only() {
    let (outcome, out) = run("vgatherdpd ymm0, [rbx+xmm1*8], ymm2; ip: nop", &[(RBX, 0x9000)], 0);
    assert_eq!(outcome, Outcome::Vsib);
    assert_eq!((carrier(&out).addr, carrier(&out).certainty), (0x9000, Certainty::ObjectOnly));
    let (outcome, out) = run("vgatherqpd ymm0, [ymm1*1], ymm2; ip: nop", &[], 0);
    assert_eq!((outcome, out.len()), (Outcome::Vsib, 0));
}

/// Index vectors and an object of 64 KiB for the lanes; see [`Snippet`].
const INDICES: u64 = 0x9000;
const TABLE: u64 = 0x2_0000;

/// Replays a sample with `memory` at [`INDICES`], where rsi leads; rbx leads to [`TABLE`], and rdi 64 bytes beyond.
fn gather(text: &str, memory: &[u64]) -> (Outcome, Vec<ReplayAccess>) {
    let mut snippet = assemble(text);
    snippet.memory = memory.iter().enumerate().map(|(i, &m)| (INDICES + 8 * i as u64, m)).collect();
    let mut regs = Regs { ip: snippet.ip, flags: 0x202, ..Regs::default() };
    for (r, v) in [(RSI, INDICES), (RBX, TABLE), (RDI, TABLE + 64)] {
        regs.gpr[r] = v;
    }
    let mut out = vec![];
    let outcome = Replayer::new().replay(&regs, &[], &mut snippet, &mut out);
    assert_eq!(out.iter().filter(|a| a.carries_cost).count(), usize::from(!out.is_empty()), "{out:x?}");
    (outcome, out.into_iter().filter(|a| a.certainty != Certainty::Exact).collect())
}

/// The lanes must be elements of `size` bytes at these distances from [`TABLE`].
fn lanes(text: &str, memory: &[u64], size: u8, distances: &[u64]) {
    let (outcome, out) = gather(text, memory);
    assert_eq!(outcome, Outcome::Resolved, "{text}: {out:x?}");
    let found: Vec<u64> = out.iter().map(|a| a.addr - TABLE).collect();
    assert_eq!(found, distances, "{text}");
    assert!(out.iter().all(|a| (a.size, a.certainty, a.ahead) == (size, Certainty::Page, false)), "{text}: {out:x?}");
    assert!(out[0].carries_cost, "{text}");
}

/// Eight indices of 4 bytes: 1 to 8.
const EIGHT: [u64; 4] = [0x2_0000_0001, 0x4_0000_0003, 0x6_0000_0005, 0x8_0000_0007];

#[test]
fn lanes_follow_from_the_indices_in_memory() {
    let load = "vmovdqu ymm1, [rsi]; shl ebp, cl";
    lanes(&format!("{load}; vgatherdps ymm0, [rbx+ymm1*4], ymm2; ip: nop"), &EIGHT, 4, &[4, 8, 12, 16, 20, 24, 28, 32]);
    lanes(&format!("{load}; vgatherdpd ymm0, [rbx+xmm1*8+16], ymm2; ip: nop"), &EIGHT, 8, &[24, 32, 40, 48]);
    let upper = format!("{load}; vextracti128 xmm3, ymm1, 1; vgatherdpd ymm0, [rbx+xmm3*8], ymm2; ip: nop");
    lanes(&upper, &EIGHT, 8, &[40, 48, 56, 64]);
    let permuted = format!("{load}; vperm2i128 ymm1, ymm1, ymm1, 0x11; vgatherdpd ymm0, [rbx+xmm1*8], ymm2; ip: nop");
    lanes(&permuted, &EIGHT, 8, &[40, 48, 56, 64]);
    lanes(&format!("{load}; vmovdqa xmm4, xmm1; vpgatherdd xmm0, [rbx+xmm4], xmm2; ip: nop"), &EIGHT, 4, &[1, 2, 3, 4]);
    lanes(
        "vpmovsxdq ymm1, [rsi]; vgatherqpd ymm0, [rdi+ymm1*8], ymm2; ip: nop",
        &[0xffff_ffff, 3 << 32 | 2],
        8,
        &[56, 64, 80, 88],
    );
    lanes(
        "vmovdqu64 zmm1, [rsi]; vgatherdps zmm0{k1}, [rbx+zmm1*4]; ip: nop",
        &[EIGHT, EIGHT].concat(),
        4,
        &[4, 8, 12, 16, 20, 24, 28, 32, 4, 8, 12, 16, 20, 24, 28, 32],
    );
    // Two gathers by one vector: the nearer one waited.
    let two = format!("{load}; vgatherdpd ymm0, [rdi+xmm1*8], ymm2; vgatherdpd ymm5, [rbx+xmm1*8], ymm3; ip: nop");
    let (_, out) = gather(&two, &EIGHT);
    let waited: Vec<u64> = out.iter().filter(|a| a.certainty == Certainty::Page).map(|a| a.addr - TABLE).collect();
    assert_eq!(waited, [8, 16, 24, 32], "{out:x?}");
}

#[test]
fn a_vector_of_pointers_needs_no_base() {
    let pointers = [TABLE + 8, TABLE + 4096, TABLE, TABLE + 16];
    lanes("vmovdqu ymm1, [rsi]; vgatherqpd ymm0, [ymm1*1], ymm2; ip: nop", &pointers, 8, &[8, 4096, 0, 16]);
}

#[test]
fn scatters_write_their_lanes() {
    let (outcome, out) =
        gather("vmovdqu32 zmm1, [rsi]; vscatterdps [rbx+zmm1*4]{k1}, zmm0; ip: nop", &[EIGHT; 2].concat());
    assert_eq!((outcome, out.len()), (Outcome::Resolved, 16));
    assert!(out.iter().all(|a| a.write));
}

#[test]
fn lost_indices_leave_the_object() {
    let object = |text: &str, memory: &[u64]| {
        let (outcome, out) = gather(text, memory);
        assert_eq!(
            (outcome, carrier(&out).addr, carrier(&out).certainty),
            (Outcome::Vsib, TABLE, Certainty::ObjectOnly),
            "{text}"
        );
    };
    let gathered = "vgatherdpd ymm0, [rbx+xmm1*8], ymm2; ip: nop";
    // Not readable any more; changed in between; of a masked load; zeroed above; lanes in two objects.
    object(&format!("vmovdqu ymm1, [rsi]; {gathered}"), &[]);
    object(&format!("vmovdqu ymm1, [rsi]; vpaddd ymm1, ymm1, ymm3; {gathered}"), &EIGHT);
    object(&format!("vmovdqu ymm1, [rsi]; vperm2i128 ymm1, ymm1, ymm3, 0x11; {gathered}"), &EIGHT);
    object(&format!("vmovdqu32 ymm1{{k1}}, [rsi]; {gathered}"), &EIGHT);
    object(&format!("vmovdqu ymm1, [rsi]; vzeroupper; {gathered}"), &EIGHT);
    object(&format!("vmovdqu ymm1, [rsi]; {gathered}"), &[1, 0x1_0000 << 32]);
}
