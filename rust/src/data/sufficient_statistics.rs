//! Sufficient statistics of a Gaussian regression, as sums over rows that can be extended and merged.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use crate::data::check_flag;
use crate::data::design::Design;
use crate::data::row_blocks::BLOCK_BUFFER;
use crate::data::targets::check_values;
use crate::linalg::double_double::DoubleDouble;
use crate::linalg::extended_gram::{Gram, STRIP, Strip};
use crate::parallel::pieces;
use crate::{Error, Result};

/// The squares of larger values could have a sum that overflows.
const MAX_VALUE: f64 = 1e145;

/// Sums over rows: Phi^T W Phi, Phi^T W t, t^T W t, the products of both with a constant function, and the number of rows.
///
/// The sums of all rows are the sums of chunks of rows, added in any order ([`SufficientStatistics::update`],
/// [`SufficientStatistics::merge`]). All chunks must have the same basis functions. Nothing is scaled or centred, because scales are known
/// only at the end; instead sums are kept to about 75 bits. [`SumStatistics`](crate::data::SumStatistics) makes data of a fit of them.
///
/// Invariant: the columns of `gram` are the constant function, the K basis functions, and the targets; each row counts
/// with its sample weight.
#[derive(Debug, Clone)]
pub struct SufficientStatistics {
    n_rows: usize,
    pub(crate) gram: Gram,
    pub(crate) targets: Targets,
}

/// Sums for the unit of the targets, to about 106 bits because a variance is a difference.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Targets {
    /// Sum of the weights.
    pub(crate) weight: DoubleDouble,
    pub(crate) sum: DoubleDouble,
    pub(crate) square: DoubleDouble,
    /// The largest absolute value in rows of positive weight.
    pub(crate) size: f64,
}

impl Targets {
    fn add(&mut self, target: f64, weight: f64) {
        if weight > 0.0 {
            let weighted = DoubleDouble::product(weight, target);
            self.weight = self.weight.plus(weight.into());
            self.sum = self.sum.plus(weighted);
            self.square = self.square.plus(weighted.times(target.into()));
            self.size = self.size.max(target.abs());
        }
    }

    fn merge(&mut self, other: &Self) {
        self.weight = self.weight.plus(other.weight);
        self.sum = self.sum.plus(other.sum);
        self.square = self.square.plus(other.square);
        self.size = self.size.max(other.size);
    }
}

/// Rows with checked targets and weights.
#[derive(Clone, Copy)]
struct WeightedRows<'a> {
    design: &'a dyn Design,
    target: &'a [f64],
    weights: Option<&'a [f64]>,
}

impl<'a> WeightedRows<'a> {
    fn new(design: &'a dyn Design, target: &'a [f64], weights: Option<&'a [f64]>) -> Result<Self> {
        check_values(design.n_rows(), target, weights, true)?;
        Ok(Self {
            design,
            target,
            weights,
        })
    }

    fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |w| w[row])
    }
}

impl SufficientStatistics {
    /// Length of [`SufficientStatistics::parts`] before the Gram matrix.
    const N_SCALARS: usize = 7;

    /// The statistics of no rows.
    ///
    /// # Errors
    /// [`Error::Memory`] where memory is too small: it takes 16 bytes for each pair of functions.
    pub fn new(n_basis: usize) -> Result<Self> {
        let gram = n_basis.checked_add(2).and_then(Gram::zeros);
        Ok(Self {
            n_rows: 0,
            gram: gram.ok_or_else(|| too_many(n_basis))?,
            targets: Targets::default(),
        })
    }

    /// The statistics of some rows. Weights may be zero, and there may be no rows.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NonFinite`] or [`Error::Invalid`] for bad input; [`Error::Interrupted`] once `cancel` is raised.
    pub fn of(
        design: &dyn Design,
        target: &[f64],
        weights: Option<&[f64]>,
        cancel: Option<&AtomicBool>,
    ) -> Result<Self> {
        let rows = WeightedRows::new(design, target, weights)?;
        let mut this = Self::new(design.n_basis())?;
        let mut strip = Strip::new(this.gram.size(), target.len());
        for range in pieces(target.len(), STRIP) {
            this.add_rows(&mut strip, rows, range, cancel)?;
        }
        Ok(this)
    }

    /// Adds rows: weights may be zero, and there may be no rows. After an error nothing was added.
    ///
    /// # Errors
    /// As [`SufficientStatistics::of`]; [`Error::Shape`] for another number of basis functions.
    pub fn update(
        &mut self,
        design: &dyn Design,
        target: &[f64],
        weights: Option<&[f64]>,
    ) -> Result<()> {
        Error::check_len("n_basis", self.n_basis(), design.n_basis())?;
        if target.len() > STRIP {
            return self.merge(&Self::of(design, target, weights, None)?);
        }
        // Loading the rows is the last step that can fail, so they are added in place.
        let rows = WeightedRows::new(design, target, weights)?;
        let mut strip = Strip::new(self.gram.size(), target.len());
        self.add_rows(&mut strip, rows, 0..target.len(), None)
    }

    /// Adds the rows of `other`.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of basis functions.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        Error::check_len("n_basis", self.n_basis(), other.n_basis())?;
        self.gram.add(&other.gram);
        self.targets.merge(&other.targets);
        self.n_rows += other.n_rows;
        Ok(())
    }

    /// Adds at most a strip of rows: all of them, or none unless `cancel` is raised during the call.
    fn add_rows(
        &mut self,
        strip: &mut Strip,
        rows: WeightedRows<'_>,
        range: Range<usize>,
        cancel: Option<&AtomicBool>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        self.load(strip, rows, &range)?;
        self.gram.add_strip(strip, || check_flag(cancel).is_ok());
        check_flag(cancel)?;
        self.n_rows += range.len();
        for row in range {
            self.targets.add(rows.target[row], rows.weight(row));
        }
        Ok(())
    }

    /// Writes some rows to `strip`, each times the root of its weight: 1, the functions, the target.
    fn load(&self, strip: &mut Strip, rows: WeightedRows<'_>, range: &Range<usize>) -> Result<()> {
        let roots: Vec<f64> = range.clone().map(|row| rows.weight(row).sqrt()).collect();
        let (last, ones) = (self.gram.size() - 1, [1.0; STRIP]);
        strip.fill(range.len(), |first, columns| {
            let functions = first.max(1)..(first + columns.len()).min(last);
            BLOCK_BUFFER.with_borrow_mut(|buffer| {
                let wanted = functions.start - 1..functions.end - 1;
                let block = rows.design.block(range.clone(), wanted, buffer);
                for (j, column) in (first..).zip(columns) {
                    let values = match j {
                        0 => &ones[..range.len()],
                        j if j == last => &rows.target[range.clone()],
                        j => block.column(j - functions.start, range.len()),
                    };
                    let weighted = values.iter().zip(&roots).map(|(v, root)| v * root);
                    column.iter_mut().zip(weighted).for_each(|(c, v)| *c = v);
                }
            });
        });
        for j in 0..=last {
            let name = match j {
                0 => "sample_weight",
                j if j == last => "y (t)",
                _ => "X (Phi)",
            };
            check_size(name, strip.column(j))?;
        }
        Ok(())
    }

    /// Number of rows, including those of zero weight.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// K.
    #[must_use]
    pub fn n_basis(&self) -> usize {
        self.gram.size() - 2
    }

    /// Sum of the sample weights.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.targets.weight.value()
    }

    /// phi_i^T W phi_j.
    #[must_use]
    pub fn gram(&self, i: usize, j: usize) -> f64 {
        self.gram.at(i + 1, j + 1).value()
    }

    /// phi_i^T W t.
    #[must_use]
    pub fn projection(&self, i: usize) -> f64 {
        self.gram.at(i + 1, self.gram.size() - 1).value()
    }

    /// t^T W t.
    #[must_use]
    pub fn target_square(&self) -> f64 {
        let last = self.gram.size() - 1;
        self.gram.at(last, last).value()
    }

    /// All sums as numbers, from which [`SufficientStatistics::from_parts`] restores the statistics to the bit.
    #[must_use]
    pub fn parts(&self) -> Vec<f64> {
        let targets = &self.targets;
        // Reserved exactly, because memory may not hold more.
        let length = self.gram.size() * (self.gram.size() + 1);
        let mut parts = Vec::with_capacity(Self::N_SCALARS + length);
        for sum in [targets.weight, targets.sum, targets.square] {
            parts.extend([sum.high, sum.low]);
        }
        parts.push(targets.size);
        self.gram.pack(&mut parts);
        parts
    }

    /// Restores statistics from their [`SufficientStatistics::parts`].
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NonFinite`] or [`Error::Invalid`] for numbers that are not the parts of any statistics.
    pub fn from_parts(n_basis: usize, n_rows: usize, parts: &[f64]) -> Result<Self> {
        let size = n_basis.saturating_add(2);
        let length = Self::N_SCALARS.saturating_add(size.saturating_mul(size.saturating_add(1)));
        Error::check_len("parts", length, parts.len())?;
        Error::check_finite("parts", parts)?;
        let (scalars, packed) = parts.split_at(Self::N_SCALARS);
        let double_double = |k: usize| DoubleDouble {
            high: scalars[k],
            low: scalars[k + 1],
        };
        let this = Self {
            n_rows,
            gram: Gram::unpacked(size, packed).ok_or_else(|| too_many(n_basis))?,
            targets: Targets {
                weight: double_double(0),
                sum: double_double(2),
                square: double_double(4),
                size: scalars[6],
            },
        };
        let diagonal = (0..size).map(|i| this.gram.at(i, i).high);
        if scalars[0] < 0.0 || scalars[6] < 0.0 || diagonal.into_iter().any(|d| d < 0.0) {
            let what = "parts of SufficientStatistics hold a sum of squares that is negative";
            return Err(Error::Invalid { what: what.into() });
        }
        Ok(this)
    }
}

fn too_many(n_basis: usize) -> Error {
    let what = format!(
        "n_basis={n_basis}: there is no memory for that many functions squared; choose fewer"
    );
    Error::Memory { what }
}

fn check_size(name: &'static str, column: &[f64]) -> Result<()> {
    if column.iter().all(|v| v.abs() <= MAX_VALUE) {
        return Ok(());
    }
    Error::check_finite(name, column)?;
    let what = format!("{name} holds values beyond {MAX_VALUE:e}, too large to square; rescale it");
    Err(Error::Invalid { what })
}
