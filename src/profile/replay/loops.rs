//! The loops of a function, read off its backward branches.
//!
//! A compiler lays the body of a loop out between the target of its backward branch and the branch itself; blocks that
//! it moved out of line (cold ones) are not found. Functions above the replay's limit and code that does not decode
//! have no loops.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::cfg::MAX_FUNCTION_BYTES;

/// The loops of one function.
#[derive(Debug, Default)]
pub struct Loops {
    /// (first instruction, backward branch) of every loop, as addresses; those that begin first, and of these the
    /// longest, come first.
    spans: Vec<(u64, u64)>,
    /// Addresses of calls and system calls, ascending.
    calls: Vec<u64>,
}

impl Loops {
    /// The loops of the code at `start`.
    pub fn of(start: u64, code: &[u8]) -> Loops {
        let mut loops = Loops::default();
        if code.len() > MAX_FUNCTION_BYTES {
            return loops;
        }
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut i = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut i);
            match i.flow_control() {
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    let target = i.near_branch_target();
                    if (start..=i.ip()).contains(&target) {
                        loops.spans.push((target, i.ip()));
                    }
                }
                FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt => loops.calls.push(i.ip()),
                _ => {}
            }
        }
        loops.spans.sort_unstable_by_key(|s| (s.0, std::cmp::Reverse(s.1)));
        loops
    }

    /// First address of the loop nest that holds an instruction: the outermost loop around it that calls nothing, else
    /// the innermost loop. A loop over time steps contains barriers, which are calls, so the loops inside of it are
    /// nests of their own.
    pub fn nest(&self, at: u64) -> Option<u64> {
        let around = self.spans.iter().filter(|s| s.0 <= at && at <= s.1);
        let calls =
            |s: &&(u64, u64)| self.calls.partition_point(|c| *c < s.0) < self.calls.partition_point(|c| *c <= s.1);
        let by_length = |s: &&(u64, u64)| s.1 - s.0;
        let outermost = around.clone().filter(|s| !calls(s)).max_by_key(by_length);
        outermost.or_else(|| around.min_by_key(by_length)).map(|s| s.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `time: call; rows: body; jnz rows; columns: { inner: body; jnz inner; jnz columns }; jnz time; ret`.
    #[test]
    fn a_nest_is_the_outermost_loop_without_a_call() {
        let code = [
            0xe8, 0, 0, 0, 0, // 0x1000: call
            0x48, 0xff, 0xc8, // 0x1005: dec rax
            0x75, 0xfb, // 0x1008: jnz 0x1005
            0x48, 0xff, 0xc9, // 0x100a: dec rcx
            0x48, 0xff, 0xca, // 0x100d: dec rdx
            0x75, 0xfb, // 0x1010: jnz 0x100d
            0x48, 0x85, 0xc9, // 0x1012: test rcx, rcx
            0x75, 0xf3, // 0x1015: jnz 0x100a
            0x75, 0xe7, // 0x1017: jnz 0x1000
            0xc3, // 0x1019: ret
        ];
        let loops = Loops::of(0x1000, &code);
        assert_eq!(loops.nest(0x1005), Some(0x1005));
        assert_eq!(loops.nest(0x100d), Some(0x100a), "the inner loop belongs to its nest");
        assert_eq!(loops.nest(0x1012), Some(0x100a));
        assert_eq!(loops.nest(0x1000), Some(0x1000), "only the loop with the call is around it");
        assert_eq!(loops.nest(0x1019), None);
        assert!(Loops::of(0, &[]).spans.is_empty());
    }
}
