//! Columns aligned to cache lines.
//!
//! Loading a 64-byte vector that crosses a cache line takes two reads.

use std::ops::{Deref, DerefMut};

/// Numbers per cache line.
const LINE: usize = 8;

/// Distance between the starts of columns of `n` numbers: a whole number of cache lines, and no large power of two, for
/// which all columns would compete for the same cache sets.
pub(crate) fn stride(n: usize) -> usize {
    const SHARED: usize = 512;
    let lines = n.next_multiple_of(LINE);
    if n > 0 && lines.is_multiple_of(SHARED) {
        lines + LINE
    } else {
        lines
    }
}

/// Index of the first element that begins a cache line.
fn first_line(memory: &[f64]) -> usize {
    memory.as_ptr().align_offset(LINE * size_of::<f64>()) % LINE
}

/// `len` numbers of a buffer from its first cache line on. Their values are unspecified.
pub(crate) fn room(buffer: &mut Vec<f64>, len: usize) -> &mut [f64] {
    // Old values are not cleared, because the caller overwrites them.
    buffer.resize(len + LINE - 1, 0.0);
    let start = first_line(buffer);
    &mut buffer[start..start + len]
}

/// A vector of numbers whose first element begins a cache line.
///
/// Invariant: the cache line begins at `start` of `values`, which never grow beyond their capacity.
#[derive(Debug, Default)]
pub(crate) struct AlignedColumns {
    values: Vec<f64>,
    start: usize,
}

impl AlignedColumns {
    /// An empty vector with this capacity.
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

    /// Truncates, or appends zeros.
    pub(crate) fn resize(&mut self, len: usize) {
        self.reserve(len);
        self.values.resize(self.start + len, 0.0);
    }

    /// Appends `n` zeros and returns them.
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
    fn growing_and_cloning_keep_the_alignment() {
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
    fn buffers_are_aligned() {
        let mut buffer = Vec::new();
        for len in [0, 1, 63, 64, 5, 10_000] {
            let room = room(&mut buffer, len);
            assert!(len == 0 || begins_a_line(room));
            assert_eq!(room.len(), len);
        }
    }

    #[test]
    fn strides_are_whole_lines_and_no_power_of_two() {
        for n in 0..2100 {
            let apart = stride(n);
            assert!(apart >= n && apart < n + 2 * LINE && apart.is_multiple_of(LINE));
            assert!(n == 0 || !apart.is_multiple_of(512));
        }
    }
}
