//! A small design of kernels with all its values.
//!
//! A fit of few rows makes four passes over them. Values of larger designs would have left the caches by the next pass, and are
//! evaluated again in about the time that it takes to read them.

use std::ops::Range;
use std::sync::Arc;

use super::blocks::{COLUMN_BLOCK, strip_into};
use super::design::{Block, Design, Family};
use crate::Result;
use crate::linalg::aligned::{Aligned, stride};
use crate::linalg::parallel::map_pieces;

/// Values that are worth keeping.
const MOST: usize = 3 << 19;

/// A design with its values.
pub(super) struct Kept<'a> {
    design: Arc<dyn Design + Send + 'a>,
    /// Those of so many columns each.
    strips: Vec<Aligned>,
    /// From one column to the next.
    stride: usize,
}

impl<'a> Kept<'a> {
    /// Of a design that evaluates what it is asked for, if it is small. (Stored ones have no families.) An error of `check`, asked
    /// now and then, ends it.
    pub(super) fn of(
        design: &Arc<dyn Design + Send + 'a>,
        check: impl Fn() -> Result<()> + Sync + Send,
    ) -> Result<Option<Self>> {
        let (n, k) = (design.n_rows(), design.n_basis());
        if design.families().is_empty() || n.saturating_mul(k) > MOST {
            return Ok(None);
        }
        let stride = stride(n);
        let strips = map_pieces(k, COLUMN_BLOCK, |columns| -> Result<Aligned> {
            let mut values = Aligned::zeros(columns.len() * stride);
            strip_into(&**design, columns, &check, &mut values, stride)?;
            Ok(values)
        });
        Ok(Some(Self {
            design: design.clone(),
            strips: strips.into_iter().collect::<Result<_>>()?,
            stride,
        }))
    }
}

impl Design for Kept<'_> {
    fn n_rows(&self) -> usize {
        self.design.n_rows()
    }

    fn n_basis(&self) -> usize {
        self.design.n_basis()
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s> {
        let (strip, first) = (columns.start / COLUMN_BLOCK, columns.start % COLUMN_BLOCK);
        if first + columns.len() > COLUMN_BLOCK {
            return self.design.block(rows, columns, buffer);
        }
        let stride = self.stride;
        Block {
            data: &self.strips[strip][first * stride + rows.start..],
            stride,
        }
    }

    fn families(&self) -> Vec<Family<'_>> {
        self.design.families()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Kernel, KernelDesign};

    fn kernels(n: u32) -> KernelDesign {
        let x: Vec<f64> = (0..n).map(|i| 0.1 * f64::from(i)).collect();
        let gaussian = Kernel::Gaussian {
            inverse_square_widths: vec![1.0],
        };
        KernelDesign::new(&x, &x, 1, vec![gaussian], true).unwrap()
    }

    #[test]
    fn every_block_is_that_of_the_design() {
        let design: Arc<dyn Design + Send> = Arc::new(kernels(150));
        let kept = Kept::of(&design, || Ok(())).unwrap().unwrap();
        assert_eq!((kept.n_rows(), kept.n_basis()), (150, 151));
        let strip = COLUMN_BLOCK;
        for columns in [
            0..1,
            3..9,
            0..strip,
            strip..2 * strip,
            128..151,
            60..70,
            0..151,
        ] {
            for rows in [0..150, 20..90, 149..150] {
                let (mut here, mut there) = (Vec::new(), Vec::new());
                let one = kept.block(rows.clone(), columns.clone(), &mut here);
                let other = design.block(rows.clone(), columns.clone(), &mut there);
                for c in 0..columns.len() {
                    assert_eq!(one.column(c, rows.len()), other.column(c, rows.len()));
                }
            }
        }
    }

    #[test]
    fn it_is_given_up_when_told_so() {
        let design: Arc<dyn Design + Send> = Arc::new(kernels(150));
        let told = Kept::of(&design, || Err(Error::Interrupted)).err();
        assert!(matches!(told, Some(Error::Interrupted)));
    }

    #[test]
    fn large_designs_are_not_kept() {
        let design: Arc<dyn Design + Send> = Arc::new(kernels(1300));
        assert!(Kept::of(&design, || Ok(())).unwrap().is_none());
    }
}
