//! Changes of files that know nothing of what is in them.

use crate::random::Random;

/// Pieces of text that mean something in a model file, or might.
const TOKENS: [&str; 40] = [
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2",
    "1024",
    "1025",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e309",
    "-0.0",
    "5e-324",
    "1e-400",
    "NaN",
    "[]",
    "{}",
    "[[]]",
    "\"\"",
    "[0,0]",
    "\"identity\"",
    "\"log\"",
    "\"logistic\"",
    "\"softmax\"",
    "\"probit\"",
    "\"none\"",
    "\"shared\"",
    "\"each\"",
    "\"joint\"",
    "\"directions\"",
    "\"constant\"",
    "{\"columns\":[0]}",
    "{\"centres\":\"linear\"}",
    "\\u0000",
    "\\ud800",
];

/// Changes some bytes; the file may become longer or shorter.
pub(crate) fn change(bytes: &mut Vec<u8>, random: &mut Random, others: &[Vec<u8>]) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            bytes.push(random.byte());
        }
        // The header is where most of the meaning is.
        let reach = if random.one_in(3) {
            bytes.len()
        } else {
            bytes.len().min(1 + header(bytes))
        };
        let at = random.below(reach);
        match random.below(9) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.byte(),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.byte()),
            4 => {
                let end = (at + 1 + random.below(8)).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => repeat(bytes, at, random),
            6 => splice(bytes, at, &others[random.below(others.len())], random),
            7 => put_token(bytes, at, random),
            _ => put_length(bytes, random),
        }
    }
}

/// Bytes up to the end of the header, as far as they are there.
fn header(bytes: &[u8]) -> usize {
    let length = bytes
        .first_chunk::<8>()
        .map_or(0, |first| u64::from_le_bytes(*first));
    usize::try_from(length)
        .unwrap_or(usize::MAX)
        .saturating_add(8)
        .min(bytes.len())
}

/// A piece once more, up to a hundred times.
fn repeat(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let end = (at + 1 + random.below(16)).min(bytes.len());
    let times = if random.one_in(20) { 100 } else { 1 };
    let piece = bytes[at..end].repeat(times);
    bytes.splice(end..end, piece);
}

/// A piece of another file in the place of one of this.
fn splice(bytes: &mut Vec<u8>, at: usize, other: &[u8], random: &mut Random) {
    let from = random.below(other.len());
    let piece = &other[from..(from + 1 + random.below(64)).min(other.len())];
    let end = (at + random.below(64)).min(bytes.len());
    bytes.splice(at..end, piece.iter().copied());
}

/// A token in the place of the number, word or text at a place; blanks at the end of the header keep its length where they can.
fn put_token(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || b".-_\"".contains(b);
    let start = bytes[..at]
        .iter()
        .rposition(|b| !is_part(b))
        .map_or(0, |p| p + 1);
    let end = bytes[at..]
        .iter()
        .position(|b| !is_part(b))
        .map_or(bytes.len(), |p| at + p);
    if start < 8 || start >= end {
        return;
    }
    let length = header(bytes);
    let token = random.pick(&TOKENS).as_bytes();
    bytes.splice(start..end, token.iter().copied());
    if let (true, Some(first)) = (end <= length, bytes.first_chunk_mut::<8>()) {
        let length = (length + token.len()).wrapping_sub(8 + end - start);
        *first = (length as u64).to_le_bytes();
    }
}

/// Another length of the header.
fn put_length(bytes: &mut [u8], random: &mut Random) {
    let Some(first) = bytes.first_chunk_mut::<8>() else {
        return;
    };
    let length = u64::from_le_bytes(*first);
    let wild = [
        0,
        1,
        length - length.min(1),
        length.wrapping_add(1),
        u64::MAX,
        i64::MAX as u64,
        100_000_000,
        1 << 32,
    ];
    *first = if random.one_in(4) {
        random.next()
    } else {
        *random.pick(&wild)
    }
    .to_le_bytes();
}
