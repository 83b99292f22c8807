//! Sufficient statistics of a Gaussian regression, as sums over rows that can be extended and merged, and the data of a fit made of them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::data::column_cache::{lengths, over_norm, unit_square};
use crate::data::design::BLOCK_BUFFER;
use crate::data::design::Design;
use crate::data::targets::{check_values, deviation_or_size};
use crate::data::{Facts, GramAndGradient, Statistics, Sweep};
use crate::error::check_flag;
use crate::linalg::Matrix;
use crate::linalg::double_double::DoubleDouble;
use crate::linalg::double_double::{Gram, STRIP, Strip};
use crate::parallel::{map_pieces, pieces};
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

/// [`Statistics`] of the rows of a [`SufficientStatistics`], with a Gaussian likelihood.
///
/// Products with residuals are differences of sums, computed in double-double arithmetic: this is why the sums have more than 53 bits.
/// Products of centred columns are `phi_i^T W phi_j - s_i s_j / S`, with s_i the sum of column i and S the sum of the weights: an offset
/// of 10^6 standard deviations costs 12 of the 22 digits.
pub struct SumStatistics<'a> {
    sums: &'a SufficientStatistics,
    /// The column of the first function: 0 with a constant function, else 1.
    first: usize,
    /// Columns of the sums that are centred.
    centred: Range<usize>,
    /// Sum of the weights.
    weight: DoubleDouble,
    facts: Facts,
    /// The latest mu, as weights in the units of the columns and targets given.
    weights: Vec<(usize, DoubleDouble)>,
}

impl<'a> SumStatistics<'a> {
    /// With `bias`, a constant function precedes the others, and the last `n_centred` of these are centred by their weighted mean.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no row has positive weight, or for targets too small to square.
    pub fn new(sums: &'a SufficientStatistics, bias: bool, n_centred: usize) -> Result<Self> {
        let (first, end) = (usize::from(!bias), sums.n_basis() + 1);
        let n_centred = if bias { n_centred.min(end - 1) } else { 0 };
        let mut this = Self {
            sums,
            first,
            centred: end - n_centred..end,
            weight: sums.gram.at(0, 0),
            facts: Facts {
                n_obs: sums.weight(),
                n_predictors: 1,
                is_linear: true,
                norms: Vec::new(),
                target_scale: target_scale(&sums.targets)?,
                cancel: None,
            },
            weights: Vec::new(),
        };
        let squares: Vec<f64> = (0..end - first).map(|i| this.square(i)).collect();
        this.facts.norms = lengths(&squares)?;
        Ok(this)
    }

    /// The squared length of function `i`; 0 where only rounding is left of a constant column after centring.
    fn square(&self, i: usize) -> f64 {
        /// Rounding error of the sums, relative to the squared length before centring.
        const ROUNDING: f64 = 1e-20;
        let (at, square) = (self.first + i, self.gram(i, i).value());
        if self.centred.contains(&at) && square <= ROUNDING * self.sums.gram.at(at, at).value() {
            return 0.0;
        }
        square
    }

    /// The weighted mean of each centred column.
    #[must_use]
    pub fn means(&self) -> Vec<f64> {
        let mean = |i| self.sums.gram.at(0, i).over(self.weight).value();
        self.centred.clone().map(mean).collect()
    }

    /// Makes every later call return [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.facts.cancel = Some(flag);
        self
    }

    fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<()> {
        self.facts.check_cancelled()?;
        let weight = |(&j, &mu): (&usize, &f64)| {
            let weight =
                DoubleDouble::product(mu, self.facts.target_scale).over(self.facts.norms[j].into());
            (j, weight)
        };
        self.weights = active.iter().zip(mu).map(weight).collect();
        Ok(())
    }

    fn gram(&self, i: usize, j: usize) -> DoubleDouble {
        self.product(self.first + i, self.first + j)
    }

    /// phi_i^T W t, in the units given.
    fn projection(&self, i: usize) -> DoubleDouble {
        self.product(self.first + i, self.sums.gram.size() - 1)
    }

    /// The product of two columns of the sums, minus the product of their means if either is centred.
    fn product(&self, i: usize, j: usize) -> DoubleDouble {
        let (gram, product) = (&self.sums.gram, self.sums.gram.at(i, j));
        if self.centred.contains(&i) || self.centred.contains(&j) {
            product.minus(gram.at(0, i).over(self.weight).times(gram.at(0, j)))
        } else {
            product
        }
    }

    /// phi_i^T W (t - Phi w) at the latest weights, in the units given.
    fn residual(&self, i: usize) -> DoubleDouble {
        let terms = self.weights.iter();
        terms.fold(self.projection(i), |sum, &(j, w)| {
            sum.minus(self.gram(i, j).times(w))
        })
    }

    /// [`SumStatistics::residual`] for a unit-norm column and scaled targets.
    fn unit_residual(&self, i: usize) -> f64 {
        over_norm(self.residual(i).value(), self.facts.norms[i]) / self.facts.target_scale
    }

    /// phi_i^T W phi_j of unit-norm columns.
    fn unit_gram(&self, i: usize, j: usize) -> f64 {
        over_norm(
            self.gram(i, j).value(),
            self.facts.norms[i] * self.facts.norms[j],
        )
    }

    /// ||t - Phi w||^2 = t^T t - w^T (b + r), with b = Phi^T t and r = Phi^T (t - Phi w).
    fn current_deviance(&self) -> f64 {
        let targets = self.sums.gram.size() - 1;
        let square = self.sums.gram.at(targets, targets);
        let terms = self.weights.iter();
        let left = terms.fold(square, |sum, &(j, w)| {
            sum.minus(w.times(self.projection(j).plus(self.residual(j))))
        });
        // Rounding can make a tiny sum of squares negative.
        (left.value() / self.facts.target_scale / self.facts.target_scale).max(0.0)
    }
}

impl Statistics for SumStatistics<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.move_to(active, mu)?;
        Ok(self.current_deviance())
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        self.move_to(active, mu)?;
        for (g, &i) in gradient.iter_mut().zip(active) {
            *g = self.unit_residual(i);
        }
        Ok(vec![self.current_deviance()])
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        /// Functions that one thread handles.
        const PIECE: usize = 32;
        self.move_to(active, mu)?;
        let k = self.facts.n_basis();
        let column = |&j: &usize| (0..k).map(|i| self.unit_gram(i, j)).collect();
        let pieces = map_pieces(k, PIECE, |piece| -> Result<Vec<f64>> {
            self.facts.check_cancelled()?;
            Ok(piece.map(|i| self.unit_residual(i)).collect())
        });
        let gradient: Vec<Vec<f64>> = pieces.into_iter().collect::<Result<_>>()?;
        Ok(Sweep {
            diag: self
                .facts
                .norms
                .iter()
                .map(|&norm| unit_square(norm))
                .collect(),
            gradient: gradient.concat(),
            gram: wanted.iter().map(column).collect(),
            deviances: vec![self.current_deviance()],
        })
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<GramAndGradient> {
        self.move_to(active, mu)?;
        let gram = Matrix::from_fn(js.len(), js.len(), |a, b| self.unit_gram(js[a], js[b]));
        Ok((gram, js.iter().map(|&j| self.unit_residual(j)).collect()))
    }
}

/// The unit of the targets: their standard deviation; for constant targets their size; for zeros 1.
fn target_scale(targets: &Targets) -> Result<f64> {
    /// The square of anything smaller underflows.
    const MIN_SIZE: f64 = 1e-140;
    let weight = targets.weight.value();
    if weight <= 0.0 {
        let what = "the statistics hold no row of positive weight; update them first";
        return Err(Error::Invalid { what: what.into() });
    }
    if targets.size == 0.0 {
        return Ok(1.0);
    }
    if targets.size < MIN_SIZE {
        let what = format!("y holds nothing beyond {MIN_SIZE:e}, too small to square; rescale y");
        return Err(Error::Invalid { what });
    }
    let mean = targets.sum.over(targets.weight);
    let variance = targets.square.minus(mean.times(targets.sum)).value() / weight;
    Ok(deviation_or_size(variance, targets.size))
}
