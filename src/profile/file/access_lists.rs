//! Decodes lists of accesses, which are nearly all of a large profile, in a third of the time that a decoder takes that
//! is made for any type: numbers of up to eight bytes at once.
//!
//! What this decoder does not expect it leaves to the general one, which also says what is wrong.

use crate::profile::records::{Access, Certainty, Folded, Frame, Record};

/// The numbers of the variants of [`Record`].
const ACCESSES: u64 = 6;
const FOLDED: u64 = 20;
/// The fewest bytes of an item: one for each field.
const LEAST_ACCESS: usize = 12;
const LEAST_FOLDED: usize = 12;

/// The record, if it is a list of accesses that is whole and nothing else.
pub(super) fn decode(plain: &[u8]) -> Option<Record> {
    let mut rest = Bytes(plain);
    match rest.number()? {
        ACCESSES => list(rest, LEAST_ACCESS, access).map(Record::Accesses),
        FOLDED => list(rest, LEAST_FOLDED, folded).map(Record::Folded),
        _ => None,
    }
}

fn list<'a, T>(mut rest: Bytes<'a>, least: usize, item: impl Fn(&mut Bytes<'a>) -> Option<T>) -> Option<Vec<T>> {
    let count = usize::try_from(rest.number()?).ok()?;
    if count > rest.0.len() / least {
        return None;
    }
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push(item(&mut rest)?);
    }
    Some(out)
}

#[inline(always)]
fn access(from: &mut Bytes<'_>) -> Option<Access> {
    Some(Access {
        time_ns: from.number()?,
        thread: from.small32()?,
        cpu: u16::try_from(from.small()?).ok()?,
        object: from.small32()?,
        addr: from.number()?,
        size: from.byte()?,
        write: from.flag()?,
        certainty: match from.byte()? {
            0 => Certainty::Exact,
            1 => Certainty::Loop,
            2 => Certainty::ObjectOnly,
            3 => Certainty::Page,
            _ => return None,
        },
        cost_ns: from.number32()?,
        node: from.byte()?,
        ip: from.frame()?,
    })
}

#[inline(always)]
fn folded(from: &mut Bytes<'_>) -> Option<Folded> {
    Some(Folded {
        time_ns: from.number()?,
        thread: from.small32()?,
        object: from.small32()?,
        addr: from.number()?,
        object_only: from.flag()?,
        ip: from.frame()?,
        reads: from.small()?,
        writes: from.small()?,
        remote: from.small()?,
        placed: from.small()?,
        cost_ns: from.number()?,
    })
}

/// What is not decoded yet.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    #[inline(always)]
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    #[inline(always)]
    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    #[inline(always)]
    fn frame(&mut self) -> Option<Frame> {
        Some(Frame { module: self.small32()?, offset: self.number()? })
    }

    #[inline(always)]
    fn number32(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    #[inline(always)]
    fn small32(&mut self) -> Option<u32> {
        u32::try_from(self.small()?).ok()
    }

    /// A number that mostly has one byte. Where it has, the next one is decoded before this one's length is known.
    #[inline(always)]
    fn small(&mut self) -> Option<u64> {
        match self.0.split_first() {
            Some((&first, rest)) if first < 0x80 => {
                self.0 = rest;
                Some(first.into())
            }
            _ => self.number(),
        }
    }

    /// A number of seven bits a byte, the lowest first; the highest bit of a byte says that another one follows.
    #[inline(always)]
    fn number(&mut self) -> Option<u64> {
        const FOLLOWED: u64 = 0x8080_8080_8080_8080;
        let Some(&eight) = self.0.first_chunk::<8>() else { return self.number_bytewise() };
        let eight = u64::from_le_bytes(eight);
        let ends = !eight & FOLLOWED;
        if ends == 0 {
            return self.number_bytewise();
        }
        let length = ends.trailing_zeros() / u8::BITS + 1;
        self.0 = &self.0[length as usize..];
        let own = eight & (u64::MAX >> (u64::BITS - u8::BITS * length));
        // Two groups of seven bits become one of 14, two of these one of 28, and two of these the number.
        let pairs = (own & 0x007f_007f_007f_007f) | ((own & 0x7f00_7f00_7f00_7f00) >> 1);
        let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
        Some((fours & 0x0fff_ffff) | ((fours & 0x0fff_ffff_0000_0000) >> 4))
    }

    #[cold]
    fn number_bytewise(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers with every number of bytes, in every field.
    fn records() -> Vec<Record> {
        let numbers: Vec<u64> = (0..u64::BITS).flat_map(|bit| [(1 << bit) - 1, 1 << bit, u64::MAX >> bit]).collect();
        let frame = |n: u64| Frame { module: n as u32, offset: n };
        let certainties = [Certainty::Exact, Certainty::Loop, Certainty::ObjectOnly, Certainty::Page];
        let access = |n: u64, certainty| Access {
            time_ns: n,
            thread: n as u32,
            cpu: n as u16,
            object: n as u32,
            addr: n,
            size: n as u8,
            write: n % 2 == 1,
            certainty,
            cost_ns: n as u32,
            node: n as u8,
            ip: frame(n),
        };
        let folded = |n: u64| Folded {
            time_ns: n,
            thread: n as u32,
            object: n as u32,
            addr: n,
            object_only: n % 2 == 1,
            ip: frame(n),
            reads: n,
            writes: n,
            remote: n,
            placed: n,
            cost_ns: n,
        };
        let accesses = numbers.iter().zip(certainties.iter().cycle()).map(|(n, certainty)| access(*n, *certainty));
        vec![Record::Accesses(accesses.collect()), Record::Folded(numbers.into_iter().map(folded).collect())]
    }

    #[test]
    fn what_is_decoded_is_what_the_general_decoder_says() {
        for record in records() {
            let plain = postcard::to_stdvec(&record).unwrap();
            assert_eq!(decode(&plain).as_ref(), Some(&record));
            for length in 0..plain.len() {
                assert_eq!(decode(&plain[..length]), None);
            }
            // A byte that is changed: the same record, or none and the general decoder says why.
            for at in (1..plain.len()).step_by(5) {
                for changed in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut forged = plain.clone();
                    forged[at] = changed;
                    if let Some(read) = decode(&forged) {
                        assert_eq!(postcard::from_bytes::<Record>(&forged).as_ref(), Ok(&read), "{changed} at {at}");
                    }
                }
            }
        }
        let other = postcard::to_stdvec(&Record::Rank(3)).unwrap();
        assert_eq!(decode(&other), None);
    }
}
