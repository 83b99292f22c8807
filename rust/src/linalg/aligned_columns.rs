//! Columns that begin where lines of the cache do.
//!
//! A vector of 64 bytes that lies over the border of two lines takes two reads. Where every column of a product begins within a
//! line, that makes it 1.8 times as slow: products of a few columns in registers read little else than such vectors.

use std::ops::{Deref, DerefMut};

/// Numbers in a line.
const LINE: usize = 8;

/// How far apart columns of `n` numbers should begin: at a line, and not at a distance of a power of two, at which all would share
/// their places in the cache.
pub(crate) fn stride(n: usize) -> usize {
    const SHARED: usize = 512;
    let lines = n.next_multiple_of(LINE);
    if n > 0 && lines.is_multiple_of(SHARED) {
        lines + LINE
    } else {
        lines
    }
}

/// Where in this memory the first line begins.
fn first_line(memory: &[f64]) -> usize {
    memory.as_ptr().align_offset(LINE * size_of::<f64>()) % LINE
}

/// The first line in a buffer and what follows, `len` numbers, of which those that were there before are of no meaning.
pub(crate) fn room(buffer: &mut Vec<f64>, len: usize) -> &mut [f64] {
    // Not cleared first: old values need not be zeroed to be overwritten.
    buffer.resize(len + LINE - 1, 0.0);
    let start = first_line(buffer);
    &mut buffer[start..start + len]
}

/// Numbers that begin with a line.
///
/// Between calls the line begins at `start` of `values`, which never outgrow the memory that they have.
#[derive(Debug, Default)]
pub(crate) struct AlignedColumns {
    values: Vec<f64>,
    start: usize,
}

impl AlignedColumns {
    /// None as yet, with room for so many.
    pub(crate) fn with_room(len: usize) -> Self {
        let mut values = Vec::with_capacity(len + LINE - 1);
        values.resize(LINE - 1, 0.0);
        let start = first_line(&values);
        values.truncate(start);
        Self { values, start }
    }

    pub(crate) fn zeros(len: usize) -> Self {
        let mut this = Self::with_room(len);
        this.resize(len);
        this
    }

    /// Drops the last ones or appends zeros.
    pub(crate) fn resize(&mut self, len: usize) {
        self.reserve(len);
        self.values.resize(self.start + len, 0.0);
    }

    /// Appends zeros, and gives them to be written over.
    pub(crate) fn grow(&mut self, more: usize) -> &mut [f64] {
        let len = self.len();
        self.resize(len + more);
        &mut self[len..]
    }

    pub(crate) fn append(&mut self, more: &[f64]) {
        self.reserve(self.len() + more.len());
        self.values.extend_from_slice(more);
    }

    fn reserve(&mut self, len: usize) {
        if self.start + len > self.values.capacity() {
            let mut moved = Self::with_room(len.max(2 * self.len()));
            moved.values.extend_from_slice(self);
            *self = moved;
        }
    }
}

impl Deref for AlignedColumns {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values[self.start..]
    }
}

impl DerefMut for AlignedColumns {
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.values[self.start..]
    }
}

impl Clone for AlignedColumns {
    fn clone(&self) -> Self {
        let mut copy = Self::with_room(self.len());
        copy.append(self);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins_a_line(values: &[f64]) -> bool {
        (values.as_ptr() as usize).is_multiple_of(64)
    }

    #[test]
    fn numbers_begin_with_a_line_wherever_they_move() {
        let mut values = AlignedColumns::default();
        for n in 0..300 {
            values.append(&[f64::from(n); 3]);
            assert!(begins_a_line(&values) && begins_a_line(&values.clone()));
        }
        let expected: Vec<f64> = (0..300).flat_map(|n| [f64::from(n); 3]).collect();
        assert_eq!(values[..], expected);
        assert_eq!(values.clone()[..], expected);
        values.resize(2);
        values.resize(5000);
        assert!(begins_a_line(&values));
        assert_eq!(values[..3], [0.0, 0.0, 0.0]);
        assert_eq!(AlignedColumns::zeros(7)[..], [0.0; 7]);
    }

    #[test]
    fn room_in_a_buffer_begins_with_a_line() {
        let mut buffer = Vec::new();
        for len in [0, 1, 63, 64, 5, 10_000] {
            let room = room(&mut buffer, len);
            assert!(len == 0 || begins_a_line(room));
            assert_eq!(room.len(), len);
        }
    }

    #[test]
    fn columns_are_whole_lines_apart_and_no_power_of_two() {
        for n in 0..2100 {
            let apart = stride(n);
            assert!(apart >= n && apart < n + 2 * LINE && apart.is_multiple_of(LINE));
            assert!(n == 0 || !apart.is_multiple_of(512));
        }
    }
}
