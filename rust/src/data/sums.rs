//! What a fit may ask, answered from sums over rows that are gone.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use std::ops::Range;

use crate::data::column_cache::lengths;
use crate::data::sufficient_statistics::{SufficientStatistics, Targets};
use crate::data::{Statistics, Sweep, check_flag};
use crate::linalg::double_double::DoubleDouble;
use crate::parallel::map_pieces;
use crate::{Error, Result};

/// [`Statistics`] of the rows that a [`SufficientStatistics`] has taken in, with a Gaussian likelihood.
///
/// Where rows would be asked for a residual, it is a difference of sums here, in twofold arithmetic: what the sums keep
/// beyond 53 bits is there for this. So are products of centred columns, `phi_i^T W phi_j - s_i s_j / S` with s_i the sum of
/// column i and S that of the weights: an offset of 10^6 standard deviations takes 12 digits of the 22 there are.
pub struct SumStatistics<'a> {
    sums: &'a SufficientStatistics,
    /// Where the functions begin: at the constant one, or after it.
    first: usize,
    /// Columns of the sums that are centred.
    centred: Range<usize>,
    /// Sum of the weights.
    weight: DoubleDouble,
    norms: Vec<f64>,
    target_scale: f64,
    /// The mu last asked about, as weights of the columns and targets given.
    asked: Vec<(usize, DoubleDouble)>,
    cancel: Option<Arc<AtomicBool>>,
}

impl<'a> SumStatistics<'a> {
    /// `bias`: with a constant function before the others, and the last `n_centred` of the others centred by their
    /// weighted mean.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a row that counts, or for targets too small to square.
    pub fn new(sums: &'a SufficientStatistics, bias: bool, n_centred: usize) -> Result<Self> {
        let (first, end) = (usize::from(!bias), sums.n_basis() + 1);
        let n_centred = if bias {
            n_centred.min(sums.n_basis())
        } else {
            0
        };
        let mut this = Self {
            sums,
            first,
            centred: end - n_centred..end,
            weight: sums.gram.at(0, 0),
            norms: Vec::new(),
            target_scale: spread(&sums.targets)?,
            asked: Vec::new(),
            cancel: None,
        };
        let squares: Vec<f64> = (0..end - first).map(|i| this.square(i)).collect();
        this.norms = lengths(&squares)?;
        Ok(this)
    }

    /// The squared length of column `i`; 0 where it is rounding that centring left of a constant column.
    fn square(&self, i: usize) -> f64 {
        /// Rounding of the sums, relative to the uncentred squared length.
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
        let of = self.centred.clone();
        of.map(|i| self.sums.gram.at(0, i).over(self.weight).value())
            .collect()
    }

    /// Ends every later question with [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    fn ask(&mut self, active: &[usize], mu: &[f64]) -> Result<()> {
        check_flag(self.cancel.as_deref())?;
        let weight = |(&j, &mu): (&usize, &f64)| {
            let weight = DoubleDouble::product(mu, self.target_scale).over(self.norms[j].into());
            (j, weight)
        };
        self.asked = active.iter().zip(mu).map(weight).collect();
        Ok(())
    }

    fn gram(&self, i: usize, j: usize) -> DoubleDouble {
        self.product(self.first + i, self.first + j)
    }

    /// phi_i^T W t, in the units given.
    fn projection(&self, i: usize) -> DoubleDouble {
        self.product(self.first + i, self.sums.gram.size() - 1)
    }

    /// The product of two columns of the sums, less that of their means if either is centred.
    fn product(&self, i: usize, j: usize) -> DoubleDouble {
        let (gram, product) = (&self.sums.gram, self.sums.gram.at(i, j));
        if self.centred.contains(&i) || self.centred.contains(&j) {
            product.minus(gram.at(0, i).over(self.weight).times(gram.at(0, j)))
        } else {
            product
        }
    }

    /// phi_i^T W (t - Phi w) at the weights asked about, in the units given.
    fn residual(&self, i: usize) -> DoubleDouble {
        let terms = self.asked.iter();
        terms.fold(self.projection(i), |sum, &(j, w)| {
            sum.minus(self.gram(i, j).times(w))
        })
    }

    /// The same for a unit-norm column and scaled targets.
    fn unit_residual(&self, i: usize) -> f64 {
        if self.norms[i] > 0.0 {
            self.residual(i).value() / self.norms[i] / self.target_scale
        } else {
            0.0
        }
    }

    /// phi_i^T W phi_j of unit-norm columns.
    fn unit_gram(&self, i: usize, j: usize) -> f64 {
        let norms = self.norms[i] * self.norms[j];
        if norms > 0.0 {
            self.gram(i, j).value() / norms
        } else {
            0.0
        }
    }

    /// ||t - Phi w||^2 = t^T t - w^T (b + r), r being what is left of b = Phi^T t.
    fn deviance_asked(&self) -> f64 {
        let targets = self.sums.gram.size() - 1;
        let square = self.sums.gram.at(targets, targets);
        let terms = self.asked.iter();
        let left = terms.fold(square, |sum, &(j, w)| {
            sum.minus(w.times(self.projection(j).plus(self.residual(j))))
        });
        // Rounding can leave a tiny negative where nothing is left.
        (left.value() / self.target_scale / self.target_scale).max(0.0)
    }
}

impl Statistics for SumStatistics<'_> {
    fn n_obs(&self) -> f64 {
        self.sums.weight()
    }

    fn n_basis(&self) -> usize {
        self.norms.len()
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        self.target_scale
    }

    fn cancel_flag(&self) -> Option<Arc<AtomicBool>> {
        self.cancel.clone()
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.ask(active, mu)?;
        Ok(self.deviance_asked())
    }

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        for (a, &i) in active.iter().enumerate() {
            for (b, &j) in active.iter().enumerate() {
                gram[(a, b)] = self.unit_gram(i, j);
            }
        }
        self.gradient(active, mu, gradient)
    }

    fn bound(&mut self, _active: &[usize], _mu: &[f64], _sigma: &DMatrix<f64>) -> Result<()> {
        // A Gaussian is its own bound.
        check_flag(self.cancel.as_deref())
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64> {
        self.ask(active, mu)?;
        for (g, &i) in gradient.iter_mut().zip(active) {
            *g = self.unit_residual(i);
        }
        Ok(self.deviance_asked())
    }

    fn variance_drift(&mut self, active: &[usize], _sigma: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        // Gaussian weights do not move.
        Ok(DMatrix::zeros(active.len(), active.len()))
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        /// Functions that one thread handles at a time.
        const PIECE: usize = 32;
        self.ask(active, mu)?;
        let k = self.n_basis();
        let pieces = map_pieces(k, PIECE, |piece| -> Result<Vec<f64>> {
            check_flag(self.cancel.as_deref())?;
            Ok(piece.map(|i| self.unit_residual(i)).collect())
        });
        let gradient: Vec<Vec<f64>> = pieces.into_iter().collect::<Result<_>>()?;
        let present = |&norm: &f64| if norm > 0.0 { 1.0 } else { 0.0 };
        Ok(Sweep {
            diag: self.norms.iter().map(present).collect(),
            gradient: gradient.concat(),
            gram: wanted
                .iter()
                .map(|&j| (0..k).map(|i| self.unit_gram(i, j)).collect())
                .collect(),
            deviance: self.deviance_asked(),
        })
    }

    fn among(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)> {
        check_flag(self.cancel.as_deref())?;
        let gram = DMatrix::from_fn(js.len(), js.len(), |a, b| self.unit_gram(js[a], js[b]));
        Ok((gram, js.iter().map(|&j| self.unit_residual(j)).collect()))
    }
}

/// The unit of the targets, as `rows::spread` finds it in rows: their standard deviation; for constant targets their size;
/// for zeros 1.
fn spread(targets: &Targets) -> Result<f64> {
    /// Spreads below this fraction of the size are rounding errors of a constant.
    const CONSTANT: f64 = 1e-13;
    /// The square of anything smaller is not all there.
    const SMALLEST: f64 = 1e-140;
    let weight = targets.weight.value();
    if weight <= 0.0 {
        let what = "the statistics hold no row of positive weight; update them first";
        return Err(Error::Invalid { what: what.into() });
    }
    if targets.size == 0.0 {
        return Ok(1.0);
    }
    if targets.size < SMALLEST {
        let what = format!("y holds nothing beyond {SMALLEST:e}, too small to square; rescale y");
        return Err(Error::Invalid { what });
    }
    let mean = targets.sum.over(targets.weight);
    let variance = targets.square.minus(mean.times(targets.sum)).value() / weight;
    let deviation = variance.max(0.0).sqrt();
    Ok(if deviation > CONSTANT * targets.size {
        deviation
    } else {
        targets.size
    })
}
